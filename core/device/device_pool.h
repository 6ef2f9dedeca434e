/* device_pool.h - loam's own pools of device memory, `pool = "cache"` and `pool = "chunks"`. A
 * device has one "cache", and one "chunks" for each of its contexts. All strategies share them: a
 * reload of the policy leaves no pool behind. There are also pools of pinned host memory: one for
 * each device, kind and placement.
 *
 * Contexts. An allocation of a driver belongs to the context that was current, and ends with it. So
 * each "chunks" has memory of one context only, and blocks of a context are in its own pool. Memory
 * that is mapped to reserved addresses belongs to no context, so all contexts share "cache". Where
 * the driver cannot map memory, requests for "cache" are served by "chunks".
 *
 * Memory comes from the driver in ranges of addresses (extent.h). Where the driver can map memory
 * to reserved addresses, "cache" has one range for each zone and maps memory to it piece by piece.
 * Each range of "chunks" is one allocation of the manager. The driver's handles can name such an
 * allocation for other processes, but free memory never joins across two of them. Requests up to
 * LM_DEVICE_POOL_SMALL have a zone of their own, so that small blocks do not stand between large
 * ones.
 *
 * Order of streams. Memory that is freed on a stream can be used again immediately on that stream:
 * new work runs after the work that used the memory. On another stream it can be used once the old
 * work is known to have ended. A queue is what a pool knows of one stream:
 *
 *   batch   the number of the frees that happen now. An event that is recorded on the stream ends
 *           the batch, and batch + 1 begins
 *   done    work that used memory of the batches up to this one has ended: an event said so, or
 *           loam has waited for the whole device
 *
 * Law: memory that is FREE or KEPT without a queue ("common") is in use by no work. Memory of queue
 * q and batch b is in use at most by work that was put on q's stream before the event that ends
 * batch b. So memory becomes common only when q.done >= b.
 *
 * A device may have several contexts. Each context has default streams of its own; an event can
 * only be recorded on streams of its own context; and to wait for the device is to wait for each
 * context in which a stream was named (gpu.h). So before a queue is used the first time, loam asks
 * the driver for the context of its stream. That is done without the pool's lock.
 *
 * Events are recorded only when another stream wants memory: most programs use one stream and never
 * pay for an event. The host may destroy a stream at any time, so an event is recorded only during
 * a call that names the stream; default streams always exist. Memory of a stream that is never
 * named again waits until loam synchronizes the whole device, which is the last resort.
 *
 * Locks. `slow` is held while the pool grows or shrinks, and around most calls of a driver. It is a
 * long lock (lm_lock_take_long): no fork waits for it. `lock` is taken after `slow`. It guards
 * everything else and is held for a few loads and stores. */
#ifndef LM_DEVICE_POOL_H
#define LM_DEVICE_POOL_H

#include <stdatomic.h>

#include "device/extent.h"
#include "device/request.h"
#include "gpu/gpu.h"
#include "os/numa.h"
#include "pages/provided.h"

#define LM_DEVICE_POOL_SMALL (256 * LM_KIB)
enum { LM_ZONE_SMALL, LM_ZONE_LARGE, LM_ZONES };
enum { LM_QUEUE_FRONT = 64, LM_QUEUE_EVENTS = 8 };

/* A stream that a caller names. Default streams of two contexts have one number, so the context is
 * a part of the name. */
typedef struct lm_stream_ref {
  lm_stream stream;
  void *context; /* of a default stream; NULL for other streams */
  bool is_none;  /* pinned memory that the host uses: no stream. Other fields are NULL */
} lm_stream_ref;

/* A queue: the state of one stream in a pool. The pool's lock guards it, except where a field says
 * otherwise.
 *
 * Law: done < batch and waited < batch; bytes = the sum of the sizes of all extents in `set` and
 * `front`; all extents in one front list have one size; events <= LM_QUEUE_EVENTS, and the batches
 * of `event` rise. A queue without blocks, memory, objects and events may end; both locks are held
 * then, so a thread that holds one of them may keep the queue's address. */
typedef struct lm_stream_queue {
  lm_stream_ref ref;
  int thread;    /* number of the thread, for the default stream that each thread has of its own
                    (CU_STREAM_PER_THREAD); -1 for memory that no stream uses; else 0 */
  void *context; /* the stream's context once is_known; NULL: the primary context */
  bool is_known; /* `context` is known. Written with both locks held */
  struct lm_stream_queue *next;
  uint64_t batch, done; /* see the head of this file */
  size_t bytes;         /* of memory that is FREE or KEPT and belongs to this queue */
  size_t blocks;        /* LIVE and BUSY extents that were taken for this queue */
  uint64_t waited;      /* the batch that the last wait for the whole device ended; 0: none yet */
  uint64_t pass;        /* the last pass that looked at the queue (device_pool_events.c); guarded by
                           `slow` */
  bool wanted; /* another stream wants memory: the next call on this stream records an event */
  /* Objects of host pools (pinned.h) that wait for work on the stream, the latest batch first. The
   * nodes describe no extents: `at` is the object. */
  lm_extent *waiting;
  lm_extents set[LM_ZONES];
  /* The front: lists of KEPT extents. The list of a size is found by a hash of the size. Most freed
   * blocks are soon wanted again in their size, and then need neither joining nor cutting. */
  lm_extent *front[LM_QUEUE_FRONT];
  unsigned events; /* entries of `event`; both guarded by `slow` */
  struct {
    lm_gpu_event event;
    uint64_t batch;         /* the batch that this event ended */
  } event[LM_QUEUE_EVENTS]; /* recorded and not yet seen to have happened; oldest first */
} lm_stream_queue;

/* A piece of memory that is mapped to a range. Its entry belongs to the granule where it begins. */
typedef struct lm_device_piece {
  uint64_t handle; /* the driver's name for the memory */
  size_t size;     /* 0: no piece begins at this granule */
} lm_device_piece;

/* The kind of a pool of pinned memory. A block that was not requested as device memory has no
 * stream: if it is freed without one, it can be used again immediately, like all host memory. */
typedef struct lm_pinned_desc {
  bool is_pinned; /* false: a pool of device memory; the other fields are zero */
  bool write_combined;
  lm_placement placement; /* LM_BIND_DEFAULT: on the device's NUMA node */
} lm_pinned_desc;

/* A pool. It lives as long as the process. `lock` guards all fields below it, except where a field
 * says otherwise.
 *
 * Law: mapped = the bytes of all extents that are no holes = live + the bytes of common + the bytes
 * of all queues + the bytes of BUSY extents. live <= peak. */
typedef struct lm_device_pool {
  /* Constant: pinned, in_chunks, context, device, older, node, granularity and total. */
  lm_pinned_desc pinned;
  bool in_chunks; /* each range is an allocation of the manager: nothing is mapped */
  void *context;  /* the context that the memory belongs to. NULL: none, since the memory is mapped;
                     or, of pinned memory, the primary context */
  lm_lock slow;   /* long. A child uses nothing that it guards */
  struct {
    lm_gpu_event event;
    void *context;
  } idle_events[LM_QUEUE_EVENTS * 4]; /* events to use again; guarded by `slow` */
  unsigned idle_count;                /* entries of idle_events; guarded by `slow` */
  uint64_t passes;                    /* passes through all queues; guarded by `slow` */
  lm_lock lock;
  int device;
  struct lm_device_pool *older; /* the next in the list of all pools */
  int node;                     /* NUMA node of the device; -1: not known */
  /* The device's context is destroyed, and the pool's memory with it. Stored and loaded in the
   * total order of all atomics; it pairs with nothing, because it only becomes true. */
  _Atomic bool gone;
  _Atomic bool uses_vmm;   /* memory is mapped to ranges piece by piece; written with `slow` held.
                              Relaxed: it only becomes false, which any thread may see later */
  size_t granularity;      /* pieces and their addresses are multiples of this */
  size_t total;            /* bytes of memory that the device has */
  size_t live;             /* bytes of LIVE extents */
  size_t peak;             /* the most that `live` was since the last trim; decay lowers it */
  size_t mapped;           /* bytes that the pool has from the driver */
  size_t recent_peak;      /* the most that `live` was since the last tick of decay */
  size_t previous_peak;    /* the most that `live` was in the interval before that */
  size_t learned;          /* free bytes that a thread without a service does not give back */
  int64_t shed_ns;         /* when lm_device_pool_shed last gave memory back; 0: never */
  int64_t pause_ns;        /* until then, lm_device_pool_shed does nothing */
  size_t refused_free;     /* free bytes when it last could give nothing back; 0: it could */
  size_t front_misses;     /* requests that a front list could not serve */
  size_t pieces_remapped;  /* pieces unmapped so that memory could be mapped elsewhere */
  size_t pieces_unmapped;  /* all pieces ever unmapped; guarded by `slow` */
  size_t slack;            /* bytes that fragments may take beyond `peak`: device_pool_grow.c */
  lm_stream_queue *queues; /* the queue used last comes first */
  /* Shared by the streams for which there was no memory to make a queue: only a wait for the whole
   * device makes its memory common. */
  lm_stream_queue unknown;
  lm_extents common[LM_ZONES], holes[LM_ZONES];
  lm_extent_range *ranges, *spare_ranges;
  lm_extent *nodes;     /* spare structs for extents */
  unsigned spare_nodes; /* how many */
  lm_extent *ready;     /* objects of host pools that need not wait any more */
} lm_device_pool;

/* Return the pool of a device that exists, and make it if need be; with `in_chunks` the pool of the
 * context that a driver call on the device would use now. A driver unregisters pinned memory when
 * the context ends that registered it. So each context that the host has made has a pool of pinned
 * memory of its own; `context` is host_context of gpu.h, or NULL. They return NULL, with the
 * thread's error words set, if there is no memory for the pool. The thread is not in an active
 * section. */
lm_device_pool *lm_device_pool_of(int device, bool in_chunks);
lm_device_pool *lm_device_pool_of_pinned(int device, void *context, const lm_pinned_desc *pinned);
/* Return how many bytes a request takes: a multiple of 512 bytes, or of a page if it is larger than
 * LM_DEVICE_POOL_SMALL. A request that must be aligned to more than 512 bytes (a page at most) is
 * rounded up to a large one, because large blocks start at pages. */
size_t lm_device_pool_round(size_t size);
size_t lm_device_pool_round_aligned(size_t size, size_t align);

/* Who owns a block: what lm_extent keeps of the request. */
typedef struct lm_device_owner {
  uint32_t token, strategy;
  uint8_t want;  /* an lm_want */
  uint8_t flags; /* LM_GPU_* */
} lm_device_owner;

/* Allocates a block from the memory that the pool has, without a call of the driver. Returns false
 * if there is no such memory, or the stream's context is not known yet: then
 * lm_device_pool_take_slow. *out describes the block. The thread may be in an active section. */
bool lm_device_pool_take(lm_device_pool *pool, size_t size, lm_stream_ref ref,
                         const lm_device_owner *owner, lm_provided *out);
/* Allocates a block by all means that a driver has. In this order: looks for events that have
 * happened; takes more memory from the driver; waits for events; waits for the device; returns free
 * memory of all pools of the device to the driver. The block is BUSY until
 * lm_device_pool_set_owner. Returns NULL if all that failed: the thread's error words say why. The
 * thread is not in an active section. */
void *lm_device_pool_take_slow(lm_device_pool *pool, size_t size, lm_stream_ref ref);
/* Makes the BUSY block at `at` live. *out describes it. */
void lm_device_pool_set_owner(lm_device_pool *pool, void *at, const lm_device_owner *owner,
                              lm_provided *out);
/* Frees the live block that begins at `p`; returns false if none does. Work on stream `on` may
 * still use the block; NULL: work on the stream that it was allocated for. *out describes the freed
 * block. If *attend is not NULL, the caller has to call lm_device_pool_poll with that pool and the
 * stream. The thread may be in an active section. */
bool lm_device_pool_free(const void *p, const lm_stream_ref *on, lm_provided *out,
                         lm_device_pool **attend);
/* Asks the driver for the context of a stream if that is not known, and records an event on the
 * stream if another stream wants memory. The stream exists. The thread is not in an active
 * section. */
void lm_device_pool_poll(lm_device_pool *pool, lm_stream_ref ref);
/* Return the name of a stream that a caller gave: for requests of a kind in a pool; for the pool
 * that `p` is in; for frees in a pool. In a pool of pinned memory, only requests for device memory
 * have a stream, because other blocks are used by the host, immediately. They may call the driver;
 * the thread is not in an active section. */
lm_stream_ref lm_device_pool_stream(const lm_device_pool *pool, lm_want want, lm_stream stream);
lm_stream_ref lm_device_pool_stream_at(const void *p, lm_stream stream);
lm_stream_ref lm_device_pool_stream_on(const lm_device_pool *pool, lm_stream stream);

/* Objects of host pools (pinned.h) that work on a stream may still use. lm_device_pool_await adds
 * the object `p` to those that wait for the stream. It returns false if there is no memory to note
 * it. *attend: the caller has to call lm_device_pool_poll. */
bool lm_device_pool_await(lm_device_pool *pool, void *p, lm_stream_ref ref, bool *attend);
/* Takes out and returns an object that need not wait any more; NULL: there is none. */
void *lm_device_pool_awaited(lm_device_pool *pool);
/* Looks, without waiting, whether the work has ended that objects wait for. The thread is not in an
 * active section. */
void lm_device_pool_poll_awaited(void);

/* Fills in *out if `p` is in a live block of a pool; else returns false. */
bool lm_device_pool_find(const void *p, lm_provided *out);
/* The place of the pointer to the first pool, for a process that reads the list from outside
 * (engine/outside.h). */
extern const _Atomic(lm_device_pool *) *const lm_device_pool_outside
    __attribute__((visibility("hidden")));
/* Calls `visit` for each live block, with the lock of its pool held: `visit` must not call into
 * loam. It may write block->token. */
void lm_device_pool_each(void (*visit)(void *ctx, lm_provided *block), void *ctx);

/* Waits for the work of a device (-1: of all devices), and returns to the driver the memory of its
 * pools that holds no live block. Returns the bytes. The thread is not in an active section. */
size_t lm_device_pool_trim(int device);
/* Does that for the pools of pinned memory of all devices alone. */
size_t lm_device_pool_trim_pinned(void);
/* Returns to the driver the free memory of a device that loam has: memory of its pools, as
 * lm_device_pool_trim, frees that are deferred, and memory of the driver's own pools. Called when a
 * request to the driver found no memory. Returns the bytes. The thread is not in an active
 * section. */
size_t lm_device_pool_make_room(int device);
/* Returns the bytes that loam_device_keep has set. */
size_t lm_device_pool_keep_bytes(void);
/* A tick of decay (decay.h), by a thread of loam's own: returns to the driver the memory that was
 * free for two ticks, as far as the work that used it is known to have ended. Does not wait for
 * work, except that a driver itself may wait when memory that is not mapped is freed. Returns
 * whether there is more to do at a later tick. */
bool lm_device_pool_decay(void);
/* For a process without a service thread, after a free: returns free memory of all pools to the
 * driver beyond an eighth of the memory in use, or 4 MiB, as far as the work that used it is known
 * to have ended. What a pool needs again within a second is kept from then on, until a tick of
 * decay finds that it is idle. The thread is not in an active section. */
void lm_device_pool_shed(void);
/* lm_device_pool_mapped returns the bytes that the pool has from the driver. lm_device_pool_learn
 * notes that the pool took more since it had `before` bytes. Both take pool->lock for a moment. */
size_t lm_device_pool_mapped(lm_device_pool *pool);
void lm_device_pool_learn(lm_device_pool *pool, size_t before);
/* A context of the device is about to be destroyed, and no memory of it in the pools is in use:
 * forgets the streams and destroys the events of the context; NULL: of all contexts of the
 * device. */
void lm_device_pool_detach(int device, const void *context);
/* The context of a pool's memory was destroyed or is broken: the pool never touches its memory
 * again. Pools of other contexts go on. For "cache", the "chunks" of the context that a driver call
 * would use now is forgotten too. A pool of pinned memory itself goes on: only that "chunks" is
 * forgotten. */
void lm_device_pool_forget(lm_device_pool *pool);
/* Returns whether memory is mapped to the pool's ranges piece by piece. */
LM_INLINE bool lm_device_pool_maps(const lm_device_pool *pool) {
  return atomic_load_explicit(&pool->uses_vmm, memory_order_relaxed);
}
/* What loam's own pools of a device have: not the driver's pools, nor memory that can sleep. */
typedef struct lm_device_figures {
  size_t pools;
  size_t reserved, used;               /* bytes of the device, and those in live blocks */
  size_t pinned_reserved, pinned_used; /* bytes of the host, pinned for the device */
} lm_device_figures;
/* Adds the figures of a pool: the bytes that it has mapped, and its live bytes. */
LM_INLINE void lm_device_figures_add(lm_device_figures *to, bool is_pinned, size_t mapped,
                                     size_t live) {
  to->pools++;
  *(is_pinned ? &to->pinned_reserved : &to->reserved) += mapped;
  *(is_pinned ? &to->pinned_used : &to->used) += live;
}
/* Fills in what the pools of a device have. */
void lm_device_pool_figures(int device, lm_device_figures *out);
/* Returns whether the laws of all pools, queues and sets hold. */
bool lm_device_pool_is_valid(void);

/* Returns the pool after `pool` (NULL: the first) in the list of the pools of a device (-1: of all
 * devices) whose context exists. NULL: there are no more. */
lm_device_pool *lm_device_pool_next(const lm_device_pool *pool, int device);

#endif
