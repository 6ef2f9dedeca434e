/* gpu.h - devices as a table of operations: what pools and managers ask of a GPU's driver.
 *
 * One implementation a driver (gpu_cuda.c), found at run time; a machine without one has no
 * devices, and lm_gpu_why() says why. Addresses of device memory are plain numbers to loam: nothing
 * here or above reads or writes through them.
 *
 * Contexts. An operation that needs one uses the context that is current in the calling thread if
 * it is of the device asked for, else the device's primary context, retained once and never reset;
 * what was current before is current again afterwards. Frees need none. */
#ifndef LM_GPU_H
#define LM_GPU_H

#include "loam.h"
#include "os/base.h"

enum { LM_DEVICES_MAX = 32 };

/* How an operation ended. What failed has set the thread's error words. */
typedef enum lm_gpu_result {
  LM_GPU_OK,
  LM_GPU_NO_MEMORY, /* the device, or the host, has no more */
  LM_GPU_BUSY,      /* of a query: work is still under way; no words */
  LM_GPU_GONE,      /* the context is destroyed, or the driver is shutting down: what was in it has
                         gone with it, and nothing of it need be freed */
  LM_GPU_BROKEN,    /* a sticky error: the context answers nothing any more */
  LM_GPU_UNSUPPORTED, /* this driver or device cannot */
  LM_GPU_FORKED,      /* the driver was started in a parent process: a child must not touch it */
  LM_GPU_FAILED       /* anything else */
} lm_gpu_result;

loam_status lm_gpu_status(lm_gpu_result result);

typedef uint64_t lm_devptr;     /* 0: none */
typedef void *lm_stream;        /* a CUstream; NULL is the default stream */
enum { LM_STREAM_DEFAULT = 2 }; /* numbers up to it are default streams, of each context its own */
typedef void *lm_gpu_event;     /* a CUevent, without timing */

typedef struct lm_gpu_info {
  char name[128];
  size_t total;       /* bytes */
  int node;           /* NUMA node that the device is on; -1: not known */
  bool has_vmm;       /* address ranges that memory is mapped to piece by piece */
  bool has_pools;     /* stream-ordered allocation */
  bool has_managed;   /* managed memory */
  bool has_exports;   /* what is mapped can be mapped by other processes as well */
  size_t granularity; /* of what is mapped; 0 without has_vmm */
} lm_gpu_info;

/* Flags of host memory. */
enum { LM_GPU_MAPPED = 1, LM_GPU_PORTABLE = 2, LM_GPU_WRITE_COMBINED = 4 };

enum { LM_GPU_IPC_SIZE = 64 };

typedef struct lm_gpu_ops {
  const char *name; /* "cuda" */

  /* The device of the context that is current in this thread; -1: none is. No driver call where
   * that can be known without. */
  int (*current)(void);
  lm_gpu_result (*info)(int device, lm_gpu_info *out);
  lm_gpu_result (*memory)(int device, size_t *free, size_t *total);
  /* Waits for all work of the device: of its primary context, of the one that is current, and of
   * those that `know` was told of. */
  lm_gpu_result (*synchronize)(int device);

  /* The context of the device that a call would use, if it is at hand: the calling thread's own,
   * else the primary one. NULL: that is not retained yet. */
  void *(*context)(int device);
  /* The context of a stream, not of a default one, that exists; NULL: not known. */
  void *(*context_of)(lm_stream stream);
  /* A context of the device may have work; until the device is forgotten. */
  void (*know)(int device, void *context);
  void (*forget)(int device);

  /* Has a context of the device current in this thread until `pop`, for calls that use the current
   * one. */
  lm_gpu_result (*push)(int device, void **scope);
  lm_gpu_result (*push_context)(int device, void *context, void **scope); /* NULL: as push */
  void (*pop)(void *scope);

  /* What follows, but `fill`, `copy` and the driver's pools on a captured stream, is no part of a
   * graph that anybody captures, and does it no harm. */

  /* Memory, aligned to 256 bytes at least. */
  lm_gpu_result (*alloc)(int device, size_t size, lm_devptr *out);
  lm_gpu_result (*release)(int device, lm_devptr at);
  lm_gpu_result (*managed_alloc)(int device, size_t size, lm_devptr *out);
  lm_gpu_result (*managed_prefer)(lm_devptr at, size_t size, int device); /* -1: the host */
  lm_gpu_result (*host_alloc)(int device, size_t size, unsigned flags, void **out);
  lm_gpu_result (*host_free)(void *at);
  lm_gpu_result (*host_register)(int device, void *at, size_t size, unsigned flags);
  lm_gpu_result (*host_unregister)(void *at);
  /* Where mapped or registered host memory is for a device. */
  lm_gpu_result (*host_address)(int device, void *at, lm_devptr *out);
  lm_gpu_result (*fill)(int device, lm_devptr at, int byte, size_t size, lm_stream stream);
  lm_gpu_result (*copy)(int device, lm_devptr to, lm_devptr from, size_t size, lm_stream stream);

  /* Order. `query` and `stream_query` are LM_GPU_BUSY while work is under way. */
  /* Whether an event on the stream, which exists, would come: not while what is put there is
   * captured for a graph, nor on a default one that would wait for such a stream. */
  bool (*may_record)(int device, lm_stream stream);
  lm_gpu_result (*event_create)(int device, lm_gpu_event *out);
  lm_gpu_result (*event_record)(lm_gpu_event event, int device, lm_stream stream);
  lm_gpu_result (*event_query)(lm_gpu_event event);
  lm_gpu_result (*event_wait)(lm_gpu_event event); /* the calling thread waits */
  lm_gpu_result (*stream_wait)(int device, lm_stream stream, lm_gpu_event event);
  lm_gpu_result (*event_destroy)(lm_gpu_event event);
  lm_gpu_result (*stream_query)(int device, lm_stream stream);

  /* The driver's own pool. `threshold`: bytes that it keeps when a stream is synchronized. */
  lm_gpu_result (*pool_alloc)(int device, size_t size, size_t threshold, lm_stream stream,
                              lm_devptr *out);
  lm_gpu_result (*pool_free)(int device, lm_devptr at, lm_stream stream);
  lm_gpu_result (*pool_trim)(int device, size_t keep);

  /* Address ranges (has_vmm): sizes and addresses are multiples of the granularity. What is mapped
   * is readable and writable by the device. */
  lm_gpu_result (*reserve)(int device, size_t size, lm_devptr *out);
  lm_gpu_result (*unreserve)(lm_devptr at, size_t size);
  lm_gpu_result (*map)(int device, lm_devptr at, size_t size, uint64_t *handle);
  lm_gpu_result (*unmap)(lm_devptr at, size_t size, uint64_t handle);

  /* A descriptor of what was mapped, for another process (has_exports); it is the caller's. And
   * that of another process, of `size` bytes, mapped and ended as by the above. */
  lm_gpu_result (*map_export)(uint64_t handle, int *fd);
  lm_gpu_result (*map_import)(int device, lm_devptr at, size_t size, int fd, uint64_t *handle);

  /* Other processes. `base`, `size`: of the driver's allocation that holds `at`. */
  lm_gpu_result (*range)(lm_devptr at, lm_devptr *base, size_t *size);
  lm_gpu_result (*ipc_export)(lm_devptr base, unsigned char handle[LM_GPU_IPC_SIZE]);
  lm_gpu_result (*ipc_open)(int device, const unsigned char handle[LM_GPU_IPC_SIZE],
                            lm_devptr *out);
  lm_gpu_result (*ipc_close)(lm_devptr at);
} lm_gpu_ops;

/* The driver of this machine, started on first use; NULL: there is none, or it has no device, or
 * this process is a fork of the one that started it, or this call comes out of that start. */
const lm_gpu_ops *lm_gpu(void);
/* The same, if it was started: for those who may not start it. */
const lm_gpu_ops *lm_gpu_started(void);
/* Whether one was started, here or by a parent process. */
bool lm_gpu_is_found(void);
/* Why lm_gpu() is NULL, in words; lives as long as the process. */
const char *lm_gpu_why(void);
int lm_gpu_count(void);
/* "device 0", "devices 0-1" */
const char *lm_gpu_text(char *buffer, size_t size);
/* NUMA node that a device is on; -1: not known, or its memory may not be used. Whether devices are
 * known to be on different ones: no call of the driver, for those who may not make one. */
int lm_gpu_node(int device);
bool lm_gpu_is_spread(void);
/* Sets the thread's words if there is no such device. */
bool lm_gpu_has(int device);

/* Gauges: neither starts a driver, and while one makes the calling thread allocate, neither calls
 * it. The device of the thread's current context; -1: none. */
int lm_gpu_current(void);
/* Bytes free on a device, at most 100 ms old; 0 where nobody asked for that by lm_gpu_watch: it
 * begins to read them in a thread of its own, as whoever allocates may be the driver itself. */
uint64_t lm_gpu_free(unsigned device);
void lm_gpu_watch(unsigned device);

/* What was found, or not, for people. Versions as CUDA has them, 12040 for 12.4; 0: not known. */
typedef struct lm_gpu_machine {
  const lm_gpu_ops *ops; /* NULL: none, `why` says why */
  int count;
  int driver, toolkit;
  char library[256], why[512];
} lm_gpu_machine;
const lm_gpu_machine *lm_gpu_found(void);

/* For loam's own threads: they may call the driver until lm_gpu_end, which must not be long. False
 * once the process ends, or if there is no driver. Not nested. */
bool lm_gpu_begin(void);
void lm_gpu_end(void);

/* ---- For gpu.c and the files of drivers */

/* Finds the driver and starts it. */
void lm_gpu_cuda_find(lm_gpu_machine *out);
/* This process is a fork of the one that started the driver: no call, and the words are set. */
bool lm_gpu_is_barred(void);

#endif
