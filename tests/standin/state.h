/* state.h - the declarations that the files of the stand-in share: contexts, streams and blocks.
 * One lock guards them all.
 *
 * Clocks describe the order of work. Each stream has a slot, and its work has the numbers 1, 2, ...
 * The clock `done` holds, for each slot, the number of the last work that is done. Every clock
 * holds a number for each slot. The clock of a piece of work says which work must be done before it
 * may run. The clock of a stream, an event or the host says which work is known to come before. */
#ifndef STANDIN_STATE_H
#define STANDIN_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "names.h"
#include "standin.h"

#define API __attribute__((visibility("default"))) CUresult
#define CONTROL __attribute__((visibility("default")))

enum { DEVICES_MAX = 8, SLOTS = 192, STACK_MAX = 64, PAGE = 4096 };
#define GRANULARITY ((size_t)2 << 20)

typedef struct si_moment {
  uint32_t at[SLOTS];
} si_moment;

struct CUctx_st {
  bool live, primary;
  int device;
  unsigned flags;
  unsigned retained; /* of a primary context: its references */
  CUstream legacy;   /* its default stream */
};

typedef struct si_work {
  struct si_work *next;
  void (*run)(struct si_work *work);
  CUhostFn call; /* a host function in place of `run`, called with no lock held */
  CUstreamCallback callback;
  CUstream stream;
  void *data;
  uintptr_t to, from;
  size_t size;
  unsigned byte, width; /* of a fill: the value, and its size */
  char *staged;         /* a copy of the source, if only the host knows that memory; or NULL */
  char *into;           /* the target in place of `to`, if only the host knows it; or NULL */
  uint32_t number;
  uint64_t due; /* it may run once si.calls is this much */
  si_moment need;
} si_work;

struct CUstream_st {
  bool live;
  CUcontext context;
  unsigned flags;
  int slot;
  bool hidden;     /* a default stream */
  pthread_t owner; /* the thread of a per-thread default stream */
  int capture;     /* CUstreamCaptureStatus */
  CUstreamCaptureMode capture_mode;
  pthread_t capturer;
  si_moment known;
};

struct CUevent_st {
  bool live, recorded, captured;
  CUcontext context;
  unsigned flags;
  si_moment at;
  uint64_t nanoseconds;
};

struct CUmemPoolHandle_st {
  bool live, built_in;
  int device;
  struct si_block *cached;
  uint64_t threshold, reserved, reserved_high, used, used_high;
};

typedef enum si_kind { DEVICE, MANAGED, HOST, REGISTERED, MAPPED, POOLED, OPENED } si_kind;

typedef struct si_block {
  uintptr_t at;
  size_t size;
  si_kind kind;
  int device;
  CUcontext context; /* the block ends with this context; NULL: with none */
  unsigned flags;
  char *map; /* its mapping in the host's memory */
  size_t map_size;
  off_t offset;    /* in the device's file */
  unsigned opened; /* of another process's memory: how often it is open */
  CUmemoryPool pool;
  bool freed; /* of a pool: it is freed, and the pool keeps it */
  si_moment free_at;
  struct si_block *next;
  struct si_piece *piece;
  bool accessible;
  uint64_t serial;
} si_block;

typedef struct si_gpu {
  size_t total, used;
  int node;
  int number; /* its number in the machine, which the UUID contains */
  int fd;     /* the file with its memory */
  off_t end;
  struct CUctx_st *primary;
  struct CUmemPoolHandle_st *pool, *current_pool;
  CUresult broken;
} si_gpu;

typedef struct si_state {
  bool started, ended, forked;
  int version, count;
  bool lacks_vmm, lacks_pools, lacks_managed, lacks_exports, lacks_peers;
  si_gpu devices[DEVICES_MAX];
  unsigned delay, late_frees;
  bool held, strict;
  size_t lockable; /* bytes that may be registered; 0: no limit */
  uint64_t calls;
  si_moment done, host;
  unsigned handles;
} si_state;

extern si_state si;
extern pthread_mutex_t si_lock;

/* record.c */
CUresult si_enter(const char *function); /* takes the lock if it returns CUDA_SUCCESS */
CUresult si_leave(CUresult result);
void si_in_callback(bool in); /* while true, this thread may call nothing */
void si_violate(const char *format, ...) __attribute__((format(printf, 1, 2)));
void si_read_environment(void);
void si_record_reset(void);

/* capture.c: a call that spoils a capture is a violation */
CUresult si_capture_check(const char *name); /* whether this thread may call the function */
/* Checks that no stream of the context is captured, except `but`. If `but` is a default stream,
 * checks only the streams that it would wait for. */
CUresult si_capture_of(CUcontext context, CUstream but, const char *function);
void si_capture_reset(void);

/* context.c */
CUresult si_current(CUcontext *out); /* or INVALID_CONTEXT, CONTEXT_IS_DESTROYED, a sticky error */
CUcontext si_current_or_null(void);
CUresult si_of_device(int device); /* CUDA_SUCCESS if the device exists */
void si_context_reset(void);

/* stream.c */
CUresult si_stream_of(CUstream handle, CUstream *out);
CUresult si_put(CUstream stream,
                si_work *work); /* takes the work over; checks `to`, `from` and `size` */
si_work *si_work_new(void (*run)(si_work *));
void si_run(void); /* runs all work that may run */
bool si_is_done(const si_moment *moment);
void si_wait(const si_moment *moment);            /* then the host knows that it is done */
void si_note_host_knows(const si_moment *moment); /* notes that the host knows that it is done */
void si_drain(CUcontext context, int device); /* waits; NULL: for any context; -1: for any device */
bool si_has_pending(uintptr_t at, size_t size, bool forget);
void si_streams_end(CUcontext context);
void si_stream_reset(void);
CUstream si_stream_new(CUcontext context, unsigned flags);

/* memory.c */
si_block *si_find(uintptr_t at, size_t size);           /* returns a block that overlaps, or NULL */
bool si_is_covered(uintptr_t at, size_t size);          /* whether live blocks cover it */
CUresult si_block_new(si_block *block, si_block **out); /* enters a copy of the block */
void si_block_remove(si_block *block);
/* Gives the block mapped memory. */
CUresult si_map_memory(si_block *block, int device, size_t size);
void si_unmap_memory(si_block *block);
void si_blocks_end(CUcontext context);
void si_memory_reset(void);
void si_memory_end(void); /* checks the memory that is still registered */

/* vmm.c, pool.c, ipc.c */
bool si_is_unmapped(uintptr_t at, size_t size); /* reserved, and without mapped memory */
void si_vmm_reset(void);
void si_pool_reset(void);
void si_pool_free(si_block *block);
void si_pool_shrink(int device, bool all); /* trims caches to the threshold; all: to nothing */

#define ENTER()                                    \
  do {                                             \
    CUresult entered_ = si_enter(__func__);        \
    if (entered_ != CUDA_SUCCESS) return entered_; \
  } while (0)
#define LEAVE(result) return si_leave(result)

#endif
