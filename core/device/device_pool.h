/* device_pool.h - loam's own pools of a device's memory, `pool = "cache"` and "chunks": one of each
 * a device, for all strategies, so that a reload leaves nothing behind. And pools of pinned memory:
 * one for each device, kind and placement.
 *
 * Memory comes from the driver in ranges of addresses (extent.h): where the device maps memory to
 * addresses, a range a zone, which grows; else, and in chunks always, a range a piece that the
 * manager allocates. Such a piece the driver's handles can name, for other processes, but between
 * pieces there is waste. Sizes up
 * to LM_DEVICE_POOL_SMALL have a zone of their own, so that they do not lie between large ones.
 *
 * Order. What is freed on a stream can be had at once on that stream: work put there runs after
 * what used it. On others it can be had once it is known that this work has ended. A queue is what
 * a cache knows of a stream:
 *
 *   batch   of frees from now on; an event recorded on the stream ends it and begins the next
 *   done    batches up to this one have ended: an event says so, or the device was waited for
 *
 * Law: memory that is FREE or KEPT and of no queue (`common`) is in use by no work; of queue q and
 * batch b, at most by work put on q's stream before the event that ends b. So it becomes common
 * only when q.done >= b.
 *
 * A device may have several contexts. Each has default streams of its own, its events are recorded
 * on its streams alone, and to wait for the device is to wait for each context in which a stream
 * was named (gpu.h): so a stream is looked at, away from the locks, before its queue is used.
 *
 * Nothing is recorded while nobody else wants memory: most programs use one stream, and pay for no
 * event. A stream may be destroyed meanwhile, so an event is only recorded in a call on it (the
 * default streams are always there). What is never recorded waits for the device as a whole, which
 * is the last resort.
 *
 * Locks: `slow` is held by those who grow or shrink the cache, and around every call of a driver;
 * `lock`, below it, guards all else, for as long as a few loads and stores take. */
#ifndef LM_DEVICE_POOL_H
#define LM_DEVICE_POOL_H

#include "device/extent.h"
#include "gpu/gpu.h"
#include "os/numa.h"
#include "pages/provided.h"

#define LM_DEVICE_POOL_SMALL (256 * LM_KIB)
enum { LM_ZONE_SMALL, LM_ZONE_LARGE, LM_ZONES };
enum { LM_QUEUE_FRONT = 64, LM_QUEUE_EVENTS = 8 };

/* A stream as a caller means it. */
typedef struct lm_stream_ref {
  lm_stream stream;
  void *context; /* of a default stream; else NULL */
} lm_stream_ref;

typedef struct lm_stream_queue {
  lm_stream_ref ref;
  int thread;    /* whose default stream it is, where each thread has one; else 0 */
  void *context; /* of the stream, once it is known; NULL: the primary one */
  bool is_known; /* the context is; written under `slow` and the lock */
  struct lm_stream_queue *next;
  uint64_t batch, done;
  size_t bytes; /* FREE or KEPT, and of it */
  bool wanted;  /* somebody else wants memory: record an event in the next call on the stream */
  lm_extent *waiting; /* nodes of objects of host pools that wait for it, the latest batch first */
  lm_extents set[LM_ZONES];
  /* Lists of KEPT extents of one size each, by a hash of it: most are wanted again soon, as they
   * are. */
  lm_extent *front[LM_QUEUE_FRONT];
  unsigned events; /* these two under `slow`: not yet seen to have ended, oldest first */
  struct {
    lm_gpu_event event;
    uint64_t batch;
  } event[LM_QUEUE_EVENTS];
} lm_stream_queue;

/* A piece of memory that is mapped to a range, at its first granule of the device's. */
typedef struct lm_device_piece {
  uint64_t handle;
  size_t size; /* 0: none begins here */
} lm_device_piece;

/* Law: mapped = what is no hole = live + common + what queues have + what is BUSY. */
/* Of pinned memory: what is freed without a word of a stream can be had again at once, as of all
 * memory of the host. */
typedef struct lm_pinned_desc {
  bool is_pinned, write_combined;
  lm_placement placement; /* BIND_DEFAULT: the device's node */
} lm_pinned_desc;

typedef struct lm_device_pool {
  lm_pinned_desc pinned; /* these two are constant */
  bool in_chunks;        /* of device memory: it is never mapped */
  lm_lock slow;
  struct {
    lm_gpu_event event;
    void *context;
  } idle_events[LM_QUEUE_EVENTS * 4]; /* events to use again; under slow */
  unsigned idle_count;
  lm_lock lock;
  int device;
  struct lm_device_pool *older; /* of all there were */
  int node;                     /* NUMA node of the device; -1: not known */
  _Atomic bool gone;            /* the context went, and the memory with it */
  bool uses_vmm;                /* memory is mapped to ranges, */
  size_t granularity;           /* in multiples of this */
  size_t total;                 /* of the device */
  size_t live, peak, mapped;
  size_t recent_peak,
      previous_peak;       /* the most that was live since the last tick of decay, and before it */
  size_t front_misses;     /* requests that the front did not have */
  size_t pieces_remapped;  /* pieces given back so that it need not grow */
  size_t pieces_unmapped;  /* pieces given back; under slow */
  size_t slack;            /* bytes that fragments may take: device_pool_grow.c */
  lm_stream_queue *queues; /* the one used last first */
  lm_stream_queue
      unknown; /* of streams that there was no memory to know: done with the device only */
  lm_extents common[LM_ZONES], holes[LM_ZONES];
  lm_extent_range *ranges, *spare_ranges;
  lm_extent *nodes; /* to make extents of */
  lm_extent *ready; /* of objects that waited and need not any more */
  unsigned spare_nodes;
} lm_device_pool;

/* The cache of a device, made if need be; NULL, with words, without memory. */
lm_device_pool *lm_device_pool_of(int device, bool in_chunks);
lm_device_pool *lm_device_pool_of_pinned(int device, const lm_pinned_desc *pinned);
/* Bytes that a request takes, and those of one that has to be aligned: 512 bytes are what all are,
 * a page is the most. */
size_t lm_device_pool_round(size_t size);
size_t lm_device_pool_round_aligned(size_t size, size_t align);

/* From what the cache has, without a call of the driver. The block is live from then on, and *out
 * says what it is. The thread may be active. */
typedef struct lm_device_owner {
  uint32_t token, strategy;
  uint8_t want;
} lm_device_owner;
bool lm_device_pool_take(lm_device_pool *pool, size_t size, lm_stream_ref ref,
                         const lm_device_owner *owner, lm_provided *out);
/* By all that a driver can be asked for, in this order: events that have ended, more memory, events
 * that are waited for, other streams', what all pools of the device keep. The block is nobody's
 * until lm_device_pool_set_owner. NULL: the thread's words say why. The thread is not active. */
void *lm_device_pool_take_slow(lm_device_pool *pool, size_t size, lm_stream_ref ref);
void lm_device_pool_set_owner(lm_device_pool *pool, void *at, const lm_device_owner *owner,
                              lm_provided *out);
/* Frees the live block that begins at `p`; false if none does. `on`: on that stream; NULL: on the
 * one it was allocated for. *attend: call lm_device_pool_poll with it, or NULL. The thread may be
 * active. */
bool lm_device_pool_free(const void *p, const lm_stream_ref *on, lm_provided *out,
                         lm_device_pool **attend);
/* Looks at a stream, and records an event on it for whoever wants its memory. The thread is not
 * active. */
void lm_device_pool_poll(lm_device_pool *pool, lm_stream_ref ref);
/* The stream that a caller names: of a cache, or for what p is in. The thread is not active. */
lm_stream_ref lm_device_pool_stream(const lm_device_pool *pool, lm_stream stream);
lm_stream_ref lm_device_pool_stream_at(const void *p, lm_stream stream);
lm_stream_ref lm_device_pool_stream_on(const lm_device_pool *pool, lm_stream stream);
/* Objects of host pools (pinned.h) that work on a stream may still use: one that waits from now on,
 * by the stream's queue; false: no memory to note it by. *attend as above. One that need not wait
 * any more; NULL: there is none. */
bool lm_device_pool_await(lm_device_pool *pool, void *p, lm_stream_ref ref, bool *attend);
void *lm_device_pool_awaited(lm_device_pool *pool);
/* Looks, without a wait, whether work that they wait for has ended. The thread is not active. */
void lm_device_pool_poll_awaited(void);
/* The live block that holds p. */
bool lm_device_pool_find(const void *p, lm_provided *out);
/* Each live block, its cache locked: `visit` must not call into loam. May rewrite *token. */
void lm_device_pool_each(void (*visit)(void *ctx, lm_provided *block), void *ctx);

/* Gives what holds no live block back, after the work under way; -1: of all devices. The bytes. */
size_t lm_device_pool_trim(int device);
/* The same of pinned memory, of all devices. */
size_t lm_device_pool_trim_pinned(void);
/* loam_device_keep's bytes. */
size_t lm_device_pool_keep_bytes(void);
/* A tick of decay (decay.h): gives back what nobody has used for two, as far as the work that used
 * it is known to have ended; nothing is waited for but, where memory is not mapped, what the driver
 * itself waits for. By a thread of loam's own. Whether there is more to do. */
bool lm_device_pool_decay(void);
/* A context of a device is about to go, and nothing of the cache is in use: streams and events that
 * were in it are forgotten. */
void lm_device_pool_detach(int device);
/* The context of a device went: its memory is not touched again. */
void lm_device_pool_forget(int device);
/* Bytes that the cache of a device has from the driver, and those of live blocks. */
void lm_device_pool_figures(int device, size_t *mapped, size_t *live);
bool lm_device_pool_is_valid(void);

/* ---- Between device_pool.c, device_pool_grow.c and device_export.c; all but the first and the
 * last with the lock held */

/* The cache of an address, locked, and the range; NULL: nobody's. */
lm_device_pool *lm_device_pool_lock_of(uintptr_t at, lm_extent_range **out);

lm_extent *lm_device_pool_take_locked(lm_device_pool *pool, lm_stream_queue *q, size_t size);
/* Makes an extent that is in no set free: of its queue, joined with its neighbours. */
void lm_device_pool_release_locked(lm_device_pool *pool, lm_extent *e);
/* The same of addresses. */
void lm_device_pool_make_hole_locked(lm_device_pool *pool, lm_extent *e);
/* Whether it is free, and of the queue or common. */
bool lm_device_pool_can_join(const lm_stream_queue *q, const lm_extent *e);
/* Makes an extent that is in no set free and the queue's, and one with its mates on either side.
 * What was common others have to wait for, then. */
void lm_device_pool_adopt_locked(lm_device_pool *pool, lm_stream_queue *q, lm_extent *e);
/* Takes a part of a free extent or hole out; NULL if there is no node to cut it with. */
lm_extent *lm_device_pool_cut_locked(lm_device_pool *pool, lm_extent *e, uintptr_t at, size_t size);
void lm_device_pool_join_fronts_locked(lm_device_pool *pool, lm_stream_queue *q);
/* Whether anything is in the queue. */
LM_INLINE bool lm_device_pool_queue_has_locked(const lm_stream_queue *q) {
  return q->bytes > 0 || q->waiting;
}
/* What the queue is done with becomes common. */
void lm_device_pool_reclaim_locked(lm_device_pool *pool, lm_stream_queue *q);
bool lm_device_pool_is_host_queue(const lm_stream_queue *q); /* of no stream */
lm_stream_queue *lm_device_pool_queue_locked(lm_device_pool *pool, lm_stream_ref ref);
/* The one that blocks are allocated for. */
lm_stream_queue *lm_device_pool_queue_for_locked(lm_device_pool *pool, lm_stream_ref ref);
/* Sees to it that there are nodes for a few cuts: without the lock, and with it. */
bool lm_device_pool_add_nodes(lm_device_pool *pool);
bool lm_device_pool_add_nodes_locked(lm_device_pool *pool);
lm_extent *lm_device_pool_take_node_locked(lm_device_pool *pool);
void lm_device_pool_free_node_locked(lm_device_pool *pool, lm_extent *e);
/* The next of all pools that are of a device; -1: of any. NULL as `pool`: the first. */
lm_device_pool *lm_device_pool_next(const lm_device_pool *pool, int device);

LM_INLINE int lm_device_pool_zone(size_t size) {
  return size <= LM_DEVICE_POOL_SMALL ? LM_ZONE_SMALL : LM_ZONE_LARGE;
}

#endif
