/* gpu.h - the GPUs of this machine: one table of operations for each driver.
 *
 * Pools and managers of device memory call a driver through lm_gpu_ops alone. Each driver has one
 * implementation of the table (gpu_cuda.c for CUDA), which is found at run time. On a machine
 * without a driver there are no devices, and lm_gpu_why() says why. An address in device memory is
 * a plain number to loam: loam never reads or writes through it.
 *
 * Contexts. An operation that needs a context uses the current context of the calling thread if
 * that context belongs to the operation's device. Otherwise it uses the primary context of the
 * device, which loam retains once and never resets. The context that was current before the
 * operation is current again after it. Operations that free memory need no context.
 *
 * The files, each of which calls only those after it: gpu.c (the driver of this process),
 * gpu_cuda_find.c (finds CUDA), gpu_cuda.c (CUDA's operations), gpu_cuda_context.c (calls in a
 * context), gpu_check.c (checks that need no driver). */
#ifndef LM_GPU_H
#define LM_GPU_H

#include "loam.h"
#include "os/base.h"

enum { LM_DEVICES_MAX = 32 };

/* How an operation ended. An operation that failed has set the error words of the thread, except
 * where it says otherwise. */
typedef enum lm_gpu_result {
  LM_GPU_OK,
  LM_GPU_NO_MEMORY, /* the device, or the host, has no memory left */
  LM_GPU_BUSY,      /* a query found that work is still under way; sets no words */
  /* The context is destroyed or the driver is shutting down. Memory of that context is gone as
   * well, and need not be freed. */
  LM_GPU_GONE,
  LM_GPU_BROKEN,      /* a sticky error: every later call in this context fails */
  LM_GPU_UNSUPPORTED, /* this driver or this device does not have the operation */
  LM_GPU_FORKED,      /* a parent process started the driver, so this process must not call it */
  LM_GPU_FAILED       /* any other failure */
} lm_gpu_result;

typedef uint64_t lm_devptr; /* an address in device memory; 0: no address */
typedef void *lm_stream;    /* a CUstream; NULL is the default stream */
/* Stream numbers 0 to 2 are default streams: each context has its own streams of these numbers. */
enum { LM_STREAM_DEFAULT = 2 };
typedef void *lm_gpu_event; /* a CUevent, without timing */

typedef struct lm_gpu_info {
  char name[128];
  size_t total;           /* bytes of memory */
  int node;               /* NUMA node that the device is attached to; -1: not known */
  bool has_vmm;           /* virtual memory management: addresses are reserved first, and memory is
                         mapped to them piece by piece */
  bool has_pools;         /* stream-ordered allocation */
  bool has_managed;       /* managed memory */
  bool has_exports;       /* other processes can map memory that this process has mapped */
  unsigned char uuid[16]; /* tells the device from all others; zeros: the driver does not say */
  size_t granularity;     /* mapped addresses and sizes are multiples of this; 0 without has_vmm */
} lm_gpu_info;

/* Flags of pinned host memory. */
enum {
  LM_GPU_MAPPED = 1,
  LM_GPU_PORTABLE = 2,
  LM_GPU_WRITE_COMBINED = 4,
  LM_GPU_PINNED_FLAGS = LM_GPU_MAPPED | LM_GPU_PORTABLE | LM_GPU_WRITE_COMBINED
};

/* The memory that the driver's own pools of a device have. */
typedef struct lm_gpu_pool_figures {
  size_t reserved;  /* bytes of the device, in use or kept */
  size_t used;      /* bytes in use */
  size_t used_high; /* the most that was in use since the interval began; at least `used` */
} lm_gpu_pool_figures;

enum { LM_GPU_IPC_SIZE = 64 }; /* bytes of a handle that names memory to another process */

/* The operations of a driver. Any thread may call them. The calling thread holds no lock that
 * malloc needs and, except for `current`, is not in an active section, because a driver may
 * allocate and may wait. */
typedef struct lm_gpu_ops {
  const char *name; /* "cuda" */

  /* Returns the device of the calling thread's current context; -1: no context is current. */
  int (*current)(void);
  /* Fills *out with the properties of a device. */
  lm_gpu_result (*info)(int device, lm_gpu_info *out);
  /* Fills in how many bytes of device memory are free, and how many there are. */
  lm_gpu_result (*memory)(int device, size_t *free, size_t *total);
  /* Waits for all work of a device: work in its primary context, in the current context, and in
   * each context that was given to `track_context`. It ends a capture of a stream of these contexts
   * for a graph. `wait` does not: it fails if one of their blocking streams is captured. Neither
   * knows whether a stream that was made with CU_STREAM_NON_BLOCKING is captured. */
  lm_gpu_result (*synchronize)(int device);
  lm_gpu_result (*wait)(int device);

  /* Returns the context that an operation on the device would use: the calling thread's current
   * context if it belongs to the device, else the primary context. NULL: loam has not retained the
   * primary context yet. */
  void *(*context)(int device);
  /* Returns the context that the host has made, if an operation on the device would use it now.
   * NULL: the operation would use the primary context. */
  void *(*host_context)(int device);
  /* Returns the context of a stream, which must exist and must not be a default stream. NULL: the
   * driver does not say. */
  void *(*stream_context)(lm_stream stream);
  /* Adds a context of the device to those that `synchronize` waits for. It stays there until
   * `untrack_contexts`, which removes all contexts of the device. */
  void (*track_context)(int device, void *context);
  void (*untrack_contexts)(int device);

  /* Makes a context of the device current in this thread until `pop`, for calls to the driver that
   * use the current context. *scope is for `pop`. push_context does so with the named context;
   * NULL: it acts like push. */
  lm_gpu_result (*push)(int device, void **scope);
  lm_gpu_result (*push_context)(int device, void *context, void **scope);
  void (*pop)(void *scope);

  /* Graph capture. No operation below becomes part of a CUDA graph that the host is capturing, and
   * none breaks such a capture. Exceptions are fill, copy, pool_alloc and pool_free on a stream
   * that is being captured: those do become part of the graph. */

  /* Device memory, aligned to at least 256 bytes. */
  lm_gpu_result (*alloc)(int device, size_t size, lm_devptr *out);
  lm_gpu_result (*release)(int device, lm_devptr at);
  /* Managed memory, which `release` frees. managed_prefer is a hint where the memory should stand;
   * device -1 is the host. */
  lm_gpu_result (*managed_alloc)(int device, size_t size, lm_devptr *out);
  lm_gpu_result (*managed_prefer)(lm_devptr at, size_t size, int device);
  /* Pinned host memory that the driver allocates. `flags`: LM_GPU_MAPPED and so on. */
  lm_gpu_result (*host_alloc)(int device, size_t size, unsigned flags, void **out);
  lm_gpu_result (*host_free)(void *at);
  /* Pins host memory that the caller allocated, and unpins it. */
  lm_gpu_result (*host_register)(int device, void *at, size_t size, unsigned flags);
  lm_gpu_result (*host_unregister)(void *at);
  /* Fills in the address by which a device reaches host memory that is pinned and mapped. */
  lm_gpu_result (*host_address)(int device, void *at, lm_devptr *out);
  /* Fills or copies memory in the order of a stream; returns before that is done. */
  lm_gpu_result (*fill)(int device, lm_devptr at, int byte, size_t size, lm_stream stream);
  lm_gpu_result (*copy)(int device, lm_devptr to, lm_devptr from, size_t size, lm_stream stream);

  /* Returns whether an event that is recorded on the stream now would happen. It would not while
   * the stream is captured for a graph, nor on a default stream that would wait for a captured
   * stream. The stream must exist. */
  bool (*may_record)(int device, lm_stream stream);
  /* Events. event_query and stream_query return LM_GPU_BUSY while work is under way. event_wait
   * makes the calling thread wait; stream_wait makes later work on the stream wait. */
  lm_gpu_result (*event_create)(int device, lm_gpu_event *out);
  lm_gpu_result (*event_record)(lm_gpu_event event, int device, lm_stream stream);
  lm_gpu_result (*event_query)(lm_gpu_event event);
  lm_gpu_result (*event_wait)(lm_gpu_event event);
  lm_gpu_result (*stream_wait)(int device, lm_stream stream, lm_gpu_event event);
  lm_gpu_result (*event_destroy)(lm_gpu_event event);
  lm_gpu_result (*stream_query)(int device, lm_stream stream);

  /* The driver's own stream-ordered pool. When a stream is synchronized, the pool keeps up to
   * `threshold` bytes of free memory. pool_trim leaves it `keep` bytes, and more where work may
   * still use them. pool_figures adds up the figures of all pools; `begins` begins an interval. */
  lm_gpu_result (*pool_alloc)(int device, size_t size, size_t threshold, lm_stream stream,
                              lm_devptr *out);
  lm_gpu_result (*pool_free)(int device, lm_devptr at, lm_stream stream);
  lm_gpu_result (*pool_trim)(int device, size_t keep);
  lm_gpu_result (*pool_figures)(int device, bool begins, lm_gpu_pool_figures *out);

  /* Address ranges (has_vmm). Sizes and addresses are multiples of the granularity. `map` makes new
   * memory and maps it to reserved addresses, where the device can read and write it; *handle names
   * the memory. LM_GPU_BROKEN with a *handle other than 0: the device cannot use the memory, and
   * the driver refused to unmap it. `unmap` removes the mapping and frees the memory. */
  lm_gpu_result (*reserve)(int device, size_t size, lm_devptr *out);
  lm_gpu_result (*unreserve)(lm_devptr at, size_t size);
  lm_gpu_result (*map)(int device, lm_devptr at, size_t size, uint64_t *handle);
  lm_gpu_result (*unmap)(lm_devptr at, size_t size, uint64_t handle);
  /* The two halves of `unmap`: unmap_only removes the mapping and keeps the memory; end_handle
   * frees memory that is mapped nowhere. map_again maps memory that unmap_only has kept to the
   * addresses where it was; if it fails, the memory is kept. LM_GPU_BROKEN: it may be mapped, and
   * the device cannot use it. */
  lm_gpu_result (*unmap_only)(lm_devptr at, size_t size);
  lm_gpu_result (*end_handle)(uint64_t handle);
  lm_gpu_result (*map_again)(int device, lm_devptr at, size_t size, uint64_t handle);

  /* Mapped memory in two processes (has_exports). map_export makes a file descriptor for mapped
   * memory, which the caller closes. map_import maps the memory of another process's descriptor, of
   * `size` bytes, to reserved addresses; `unmap` ends that mapping. */
  lm_gpu_result (*map_export)(uint64_t handle, int *fd);
  lm_gpu_result (*map_import)(int device, lm_devptr at, size_t size, int fd, uint64_t *handle);

  /* Other memory in two processes. `range` fills in start and size of the driver's allocation that
   * holds `at`. ipc_export makes a handle for an allocation that starts at `base`; ipc_open opens a
   * handle of another process, and ipc_close closes, in the current context, what ipc_open has
   * returned. */
  lm_gpu_result (*range)(lm_devptr at, lm_devptr *base, size_t *size);
  lm_gpu_result (*ipc_export)(lm_devptr base, unsigned char handle[LM_GPU_IPC_SIZE]);
  lm_gpu_result (*ipc_open)(int device, const unsigned char handle[LM_GPU_IPC_SIZE],
                            lm_devptr *out);
  lm_gpu_result (*ipc_close)(lm_devptr at);
} lm_gpu_ops;

/* ---- The driver of this process: gpu.c. Any thread may call these. */

/* Returns the driver of this machine, and starts it on first use. NULL: the machine has no driver
 * or the driver has no device; or this process is a fork of the process that started the driver; or
 * the driver's own start has called this function. The caller is not in an active section. */
const lm_gpu_ops *lm_gpu(void);
/* Returns the driver if it was started, else NULL. Never starts it, so it may be called
 * anywhere. */
const lm_gpu_ops *lm_gpu_started(void);
/* Returns what `context` of the operations returns; NULL also if no driver has been started. */
LM_INLINE const void *lm_gpu_context(int device) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  return gpu ? gpu->context(device) : NULL;
}
/* Returns whether a driver was started, in this process or in a parent process. Starts nothing. */
bool lm_gpu_is_found(void);
/* Returns in words why lm_gpu() is NULL. The words live as long as the process. */
const char *lm_gpu_why(void);
/* Returns how many devices there are; 0 where lm_gpu() is NULL. */
int lm_gpu_count(void);
/* Returns whether a device with this number exists. If not, sets the error words of the thread. */
bool lm_gpu_has(int device);
/* Returns the NUMA node that a device, 0 to LM_DEVICES_MAX - 1, is attached to. -1: the node is not
 * known, or this process may not use its memory. The first call for a device calls the driver. */
int lm_gpu_node(int device);
/* Returns whether devices are known to be on different NUMA nodes. Never calls the driver. */
bool lm_gpu_is_spread(void);

/* Gauges. They never start a driver; while a driver call makes the calling thread allocate, they do
 * not call the driver either. */
/* Returns the device of the calling thread's current context; -1: no context is current. */
int lm_gpu_current(void);
/* Returns the bytes of memory free on a device, read about every 80 ms; 0 if lm_gpu_watch was not
 * called for the device. */
uint64_t lm_gpu_free(unsigned device);
/* Begins to read the free memory of a device regularly, in a thread of loam's own: the thread that
 * allocates may not call the driver, because it may itself be inside the driver. */
void lm_gpu_watch(unsigned device);
/* Lets `read` say how much memory of a device is free, in place of the driver: for the readings
 * that follow, of all devices. It returns a result as lm_gpu_ops.memory does. */
typedef lm_gpu_result lm_gpu_memory_fn(int device, size_t *free, size_t *total);
void lm_gpu_read_memory_by(lm_gpu_memory_fn *read);

/* The result of the search for a driver, for messages. Versions are as CUDA writes them, 12040 for
 * 12.4; 0: not known.
 *
 * Law: ops == NULL and count == 0, or ops != NULL and 1 <= count <= LM_DEVICES_MAX. */
typedef struct lm_gpu_machine {
  const lm_gpu_ops *ops; /* NULL: there is no driver, and `why` says why */
  int count;             /* devices */
  int driver, toolkit;   /* versions of the driver, and of the toolkit loam was built with */
  char library[256], why[512];
} lm_gpu_machine;
/* Returns what the search found; the first call searches. Nothing was found if the search is not
 * over: in a call of the driver's own start, and in a child that was forked during the search. */
const lm_gpu_machine *lm_gpu_found(void);
/* Returns whether the law holds. */
bool lm_gpu_machine_is_valid(const lm_gpu_machine *machine);

/* A thread of loam's own may call the driver only between lm_gpu_begin and lm_gpu_end, which must
 * not be long apart: the end of the process waits for lm_gpu_end. Returns false, and then
 * lm_gpu_end is not called, once the process ends or if there is no driver. Does not nest. */
bool lm_gpu_begin(void);
void lm_gpu_end(void);

/* ---- For gpu.c and drivers */

/* Finds CUDA's driver, starts it and fills *out, which is zeroed; where that fails, fills in
 * out->why and leaves out->ops NULL. Called once, by gpu.c. */
void lm_gpu_cuda_find(lm_gpu_machine *out);

/* ---- Checks that call no driver: gpu_check.c */

/* Returns the public status for a result. */
loam_status lm_gpu_status(lm_gpu_result result);
/* Returns whether this process is a fork of the process that started the driver, so that it must
 * not call the driver. If so, sets the error words of the thread. */
bool lm_gpu_is_barred(void);
/* Returns whether this process is such a fork, and sets no words. */
bool lm_gpu_is_forked(void);
/* Says from now on that the process is such a fork. Called in a child before it has a second
 * thread. */
void lm_gpu_set_forked(void);
/* Returns the words for such a fork. */
const char *lm_gpu_forked_text(void);
/* Writes "device 0" or "devices 0-1" for this many devices to `buffer`, and returns it. */
const char *lm_gpu_count_text(int count, char *buffer, size_t size);
/* Sets the error words for a device number that is not among the machine's `count` devices. */
void lm_gpu_refuse_device(int device, int count);

#endif
