/* map.h - the page map: it tells which object is at an address of the range.
 *
 * The range is the address space that all memory of pools lies in (range.h). It is cut into slots
 * of 64 KiB. A dense array that ends where the range begins has one entry (lm_span) for each slot,
 * in reverse order: the entry of slot 0 comes last. So the address where the range begins is enough
 * to find any entry. Whether an address is in the range takes one subtraction, its entry takes one
 * shift, and the index of the object takes one multiplication by the key of the entry:
 *
 *   offset * key = index : fraction     (128 bits: high half, low half)
 *
 * With a key of ceil(2^64 / size) the index is exact for every offset in a span, and the address is
 * an object's start if and only if fraction < key (Lemire, Kaser, Kurz, "Faster remainder by direct
 * computation", 2019). Both stay true if the key is greater by less than 2^26, since a span has
 * less than 2^21 bytes and an object less than 2^17. So the low 22 bits of the key hold another
 * number: the offset of the bin that caches the objects. An entry of zeros fails the test of the
 * fraction by itself, so the fast path of free has no test for an empty entry.
 *
 * Law of extents: below `top` the slots are cut into extents (spans, large blocks, runs of free
 * slots) without gap or overlap, and the entry of an extent's first slot has the extent's length.
 * To split an extent, the entry of its further part is written first. So a walk that follows
 * lengths without a lock never passes over an object that lives throughout the walk.
 *
 * A large block is not described at each of its slots, but at the first slot of each part of its
 * binary decomposition (at most 2 log2 n parts of n slots). For any slot of the block, clearing
 * some of the low bits of the slot's number gives the first slot of such a part. */
#ifndef LM_MAP_H
#define LM_MAP_H

#include <stdatomic.h>

#include "os/lock.h"
#include "pages/state.h"

enum { LM_SLOT_SHIFT = 16 };
#define LM_SLOT ((size_t)1 << LM_SLOT_SHIFT)

/* The range has 1 TiB at most. A thread sanitizer leaves less address space than that, and so does
 * valgrind (tests/bench/_lib.sh). */
#ifndef LM_RANGE_SHIFT
#ifdef __SANITIZE_THREAD__
#define LM_RANGE_SHIFT 38
#else
#define LM_RANGE_SHIFT 40
#endif
#endif
#define LM_RANGE ((size_t)1 << LM_RANGE_SHIFT)

/* What an extent is used for: `use` of the entry of its first slot. */
enum {
  LM_USE_NONE,     /* between two uses, or free and in no set of runs */
  LM_USE_SMALL,    /* a span of small objects */
  LM_USE_LARGE,    /* a live or cached large block */
  LM_USE_GUARDED,  /* a guarded block */
  LM_USE_METADATA, /* memory of loam's own structures */
  /* Large blocks whose memory is being moved, or was moved: heap/large.h. */
  LM_USE_MOVING,       /* live; its memory is being moved */
  LM_USE_MOVING_FREED, /* the host freed it during the move; the moving thread completes the free */
  LM_USE_UNPREPARED,   /* live; its memory is not prepared as its strategy asks any more, so when
                          it is freed its slots go back to the range */
  LM_USE_SEAL, /* the guard slot behind a region registered with a GPU driver: device/pinned.h */
  /* This value and all greater ones: a run of free slots. They also say of which set the run is,
   * and whether the slot is the run's first or last (run.h). */
  LM_USE_RUNS = 16
};

/* Returns whether a use belongs to a large block. A guarded block is not one here. */
LM_INLINE bool lm_map_use_is_large(uint32_t use) {
  return use == LM_USE_LARGE || (use >= LM_USE_MOVING && use <= LM_USE_UNPREPARED);
}

/* The entry of a slot: one cache line. The fast path of free reads only the first three fields, and
 * most allocations read none.
 *
 * The fields from `key` to `strategy`, and `size`, are written in every slot of a span of small
 * objects, and in the first slot of each binary part of a large block. They are written under the
 * lock of the span's owner, and any thread may read them: `version` is odd while they change (see
 * lm_map_read). All other fields are used in the first slot of an extent only. There are three
 * exceptions: `token` of small objects; `use` and `length` in the last slot of a free run; and
 * `size` alone in the first slot of metadata, where it is the bytes of a piece.
 *
 * Law of `token` in each slot of a span of small objects: it is LM_TOKEN_NONE or the counted token
 * of the span's palette, and does not change again while the span exists. It is that token in every
 * slot where an object begins whose state is LM_STATE_COUNTED. */
typedef struct lm_span {
  /* Small objects: lm_map_key. First slot of a large block that threads may cache: the offset of
   * its bin. Else 0. */
  _Atomic uint64_t key;
  _Atomic(lm_state_cell *) cells; /* states of the objects; of a large block: its `cell` */
  _Atomic uintptr_t start;        /* address of the first object; 0: no object is described here */
  _Atomic uint32_t bin;           /* offset of its bin in a thread's area; 0: it has none */
  _Atomic uint16_t strategy;      /* id */
  /* State of the large block that begins here. In the first slot of a span of small objects: the
   * note of the span (heap/central_parts.h), under the lock of its central list. */
  lm_state_cell cell;
  _Atomic size_t size;      /* usable bytes of an object */
  _Atomic uint32_t version; /* odd while the fields above change */
  _Atomic uint32_t use;     /* LM_USE_*; relaxed */
  _Atomic uint32_t slots;   /* length of the extent; release and acquire: lm_map_extent */
  union {
    /* Of a large block, in its first slot: relaxed, since a thread that found the block may read it
     * after the block is gone. Of small objects, in every slot: see the law above. */
    _Atomic(lm_token) token;
    _Atomic uint32_t length; /* of a run of free slots, in its last slot (run.h) */
  };
  union {
    struct {
      uint32_t next, prev; /* slots of the neighbours in a list, 0: none; under the list's lock */
    };
    /* Of a large block in a file: the key by which other processes may map it (heap/large.h). */
    _Atomic uint64_t lent;
    /* Of a large block that is in no file: how often its pages were moved (heap/large.h). */
    _Atomic uint64_t moves;
  };
} lm_span;

_Static_assert(sizeof(lm_span) == LM_CACHE_LINE, "a free reads one cache line");

/* Where the range and its arrays are: all that the fast paths read besides the thread's area. One
 * cache line, written by range.c alone, a few times in a process.
 *
 * Law: base % LM_SLOT == 0; top <= size; reach is 0 or base. */
typedef struct lm_map_state {
  uintptr_t base; /* where the range begins; set once, before `top` is first raised; 0: not yet */
  /* Bytes of the range that are described as extents; only grows. The release that raises it
   * (range.c) pairs with the acquire of lm_map_owns. */
  _Atomic size_t top;
  /* `base` if the range is whole: it has LM_RANGE bytes, and every entry that it can have is
   * readable. Else 0. Set once, with release; it becomes 0 again when the range becomes sparse
   * (range.c). */
  _Atomic uintptr_t reach;
  /* By slot: when the large block that begins there was allocated (heap/age.h); relaxed. Not in
   * lm_span: the thread that writes a time does not keep the block from being freed, and must not
   * disturb the entry of a later extent. */
  _Atomic uint32_t *born;
  size_t size; /* bytes of the range */
} __attribute__((aligned(LM_CACHE_LINE))) lm_map_state;

extern lm_map_state lm_map __attribute__((visibility("hidden")));

/* Returns the entry of a slot of a range that begins at `base`. */
LM_INLINE lm_span *lm_map_span_before(uintptr_t base, size_t slot) {
  return (lm_span *)base - 1 - slot;
}
/* Returns the entry of a slot. */
LM_INLINE lm_span *lm_map_span(size_t slot) { return lm_map_span_before(lm_map.base, slot); }
/* Returns the slot that an entry describes. */
LM_INLINE uint32_t lm_map_slot_of(const lm_span *s) { return (uint32_t)(lm_map_span(0) - s); }
/* Returns the address where a slot begins. */
LM_INLINE void *lm_map_address(uint32_t slot) {
  return (void *)(lm_map.base + ((uintptr_t)slot << LM_SLOT_SHIFT));
}
/* Returns the entry of the slot that p lies in. p is in the range. */
LM_INLINE lm_span *lm_map_span_of(const void *p) {
  return lm_map_span(((uintptr_t)p - lm_map.base) >> LM_SLOT_SHIFT);
}
/* For any address p: whether p is in the whole range that begins at `reach` (lm_map.reach, or a
 * thread's copy of it). If so, *out is the entry of p. It has only zeros where nothing was
 * described yet. */
LM_INLINE bool lm_map_span_in(uintptr_t reach, const void *p, const lm_span **out) {
  size_t slot = ((uintptr_t)p - reach) >> LM_SLOT_SHIFT;
  if (lm_unlikely(slot >= LM_RANGE >> LM_SLOT_SHIFT)) return false;
  *out = lm_map_span_before(reach, slot);
  return true;
}
/* Returns the slot that p lies in. p is in the range. */
LM_INLINE uint32_t lm_map_slot(const void *p) {
  return (uint32_t)(((uintptr_t)p - lm_map.base) >> LM_SLOT_SHIFT);
}
/* Returns whether any address p is in the part of the range that is described as extents. */
LM_INLINE bool lm_map_owns(const void *p) {
  /* Acquire pairs with the release that raises `top` in range.c: whoever sees the new top sees the
   * base and the entries below the top. */
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire);
  return (uintptr_t)p - lm_map.base < top;
}
/* Returns the number of slots that hold `size` bytes. */
LM_INLINE uint32_t lm_map_slots(size_t size) {
  return (uint32_t)((size + LM_SLOT - 1) >> LM_SLOT_SHIFT);
}

/* The first slot that is ever used, so 0 can mean "no slot". It begins where a huge page can begin,
 * and the entries of 64 slots fill a page: so the entries of the first regions, which have 64 slots
 * each, lie in one page each. */
enum { LM_MAP_FIRST = 64 };

/* Describes [slot, slot + slots) as an extent. Whoever took the slots may call it, without a lock.
 * When an extent is split, its further part is described first. */
LM_INLINE void lm_map_extent(uint32_t slot, uint32_t slots, uint32_t use) {
  lm_span *s = lm_map_span(slot);
  lm_assert(slot >= LM_MAP_FIRST && slots > 0);
  atomic_store_explicit(&s->use, use, memory_order_relaxed);
  /* Release pairs with the acquire of lm_map_next: the extents behind it are described. */
  atomic_store_explicit(&s->slots, slots, memory_order_release);
}
/* Returns the slot behind the extent that begins at `slot`. */
LM_INLINE uint32_t lm_map_next(uint32_t slot) {
  return slot + atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_acquire);
}
/* Returns the bytes of the extent that begins at `slot`. Relaxed: the extent is the caller's, or
 * the bytes are a figure. */
LM_INLINE size_t lm_map_extent_bytes(uint32_t slot) {
  return (size_t)atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed)
         << LM_SLOT_SHIFT;
}
/* Returns whether the extent that begins at `slot` holds objects, live or not. */
LM_INLINE bool lm_map_has_objects(uint32_t slot) {
  uint32_t use = atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
  return use == LM_USE_SMALL || use == LM_USE_GUARDED || lm_map_use_is_large(use);
}
/* Returns the slot behind the last extent. Acquire pairs with the release that raises `top`: the
 * extents below it are described. */
LM_INLINE uint32_t lm_map_end(void) {
  return (uint32_t)(atomic_load_explicit(&lm_map.top, memory_order_acquire) >> LM_SLOT_SHIFT);
}
/* Returns the first slot of the extent that holds p, which is in the range (lm_map_owns). Walks the
 * extents before it, so it takes long. Takes no lock, so a signal handler may call it. */
uint32_t lm_map_extent_of(const void *p);

/* A copy of the fields of an entry that describe objects: see lm_span. */
typedef struct lm_span_info {
  uintptr_t start;
  uint64_t key; /* of a large block: as in its first slot */
  lm_state_cell *cells;
  uint32_t bin, strategy;
  size_t size;
} lm_span_info;

/* Writes `view` into the entry of each slot of a span of small objects. If the states are not those
 * that were described there before, the counted token of the slots becomes LM_TOKEN_NONE. This and
 * the next four functions: under the lock of the owner of the slots, or by the thread that has just
 * taken them. */
void lm_map_describe_small(uint32_t slot, uint32_t slots, const lm_span_info *view);
/* Writes `view` into the entry of the first slot of each binary part of a large block. */
void lm_map_describe_large(uint32_t slot, uint32_t slots, const lm_span_info *view);
/* Changes the size of a large block, and its slots from `slots` to `new_slots`. Other threads can
 * read the entry of its first slot all the time. A block whose slots change has no class any more:
 * no thread caches it. */
void lm_map_resize_large(uint32_t slot, uint32_t slots, uint32_t new_slots, size_t size);
/* Undoes lm_map_describe_small. */
void lm_map_forget_small(uint32_t slot, uint32_t slots);
/* Undoes lm_map_describe_large. */
void lm_map_forget_large(uint32_t slot, uint32_t slots);

enum { LM_MAP_KEY_LOW = 1 << 22 }; /* above the offset of any bin */
/* Returns the key of a span whose objects have `size` bytes and are cached in `bin`: the least
 * multiple of LM_MAP_KEY_LOW that is at least 2^64 / size, plus the offset of the bin. */
LM_INLINE uint64_t lm_map_key(size_t size, uint32_t bin) {
  lm_assert(size > 1 && bin < LM_MAP_KEY_LOW);
  return lm_align_up(UINT64_MAX / size + 1, LM_MAP_KEY_LOW) + bin;
}
/* Returns the offset of the bin that a key holds. */
LM_INLINE uint32_t lm_map_key_bin(uint64_t key) { return (uint32_t)key % LM_MAP_KEY_LOW; }
/* Returns whether a large block has this key. Since such a key is the bin's offset alone, only
 * offset 0, the start of the block, passes the test of the fraction (see the head of this file). */
LM_INLINE bool lm_map_is_large(uint64_t key) { return key < LM_MAP_KEY_LOW; }

/* How often a thread that finds an entry being changed reads it again before it gives up. */
enum { LM_MAP_RETRIES = 1000 };
/* Copies an entry to *out, and its version to *version. False when the entry describes nothing, or
 * another thread is changing it. Any thread, without a lock. */
bool lm_map_read(const lm_span *span, lm_span_info *out, uint32_t *version);
/* Returns whether an entry still has the version that was read before. Then all that was loaded
 * from it by acquire since belongs together. */
LM_INLINE bool lm_map_is_unchanged(const lm_span *span, uint32_t version) {
  return atomic_load_explicit(&span->version, memory_order_relaxed) == version;
}

/* Returns the entry whose `cell` this is: the entry of the first slot of a large block. */
LM_INLINE lm_span *lm_map_span_of_state(lm_state_cell *cell) {
  return (lm_span *)((char *)cell - offsetof(lm_span, cell));
}

/* An object as lm_map_find found it at one moment. */
typedef struct lm_map_object {
  uintptr_t base;      /* where the object begins */
  size_t size;         /* usable bytes */
  lm_state_cell *cell; /* the cell of its state */
  lm_state state;      /* the state that the cell had */
  lm_token token;      /* LM_TOKEN_NONE: it never had one */
  bool large;          /* it has slots of its own */
  uint32_t bin, strategy;
  const lm_span *span; /* the entry that describes the object, and its version then */
  uint32_t version;
} lm_map_object;

/* Finds the object, live or not, that p points at or into. False: there is none in the range. An
 * entry that another thread changes is read up to LM_MAP_RETRIES times. Any thread may call it.
 * Outside an active section, only `base` and `size` of an object that the caller keeps live are
 * sure to stay true. */
bool lm_map_find(const void *p, lm_map_object *out);

/* Like lm_map_find, but finds live objects alone, and reads their entry once: false does not mean
 * that there is no object. Does not set `span`, `version` and `cell` of *out. */
LM_INLINE bool lm_map_find_fast(const void *p, lm_map_object *out) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire); /* as in lm_map_owns */
  uintptr_t place = (uintptr_t)p - lm_map.base;
  if (lm_unlikely(place >= top)) return false;
  const lm_span *s = lm_map_span(place >> LM_SLOT_SHIFT);
  uint32_t version = atomic_load_explicit(&s->version, memory_order_acquire);
  uint64_t key = atomic_load_explicit(&s->key, memory_order_acquire);
  lm_state_cell *cells = atomic_load_explicit(&s->cells, memory_order_acquire);
  out->base = atomic_load_explicit(&s->start, memory_order_acquire);
  out->size = atomic_load_explicit(&s->size, memory_order_acquire);
  out->strategy = atomic_load_explicit(&s->strategy, memory_order_acquire);
  size_t offset = (uintptr_t)p - out->base;
  /* In an entry that was changed during the loads, `cells` may be no pointer to follow. */
  if (lm_unlikely(version & 1 || !out->base || !lm_map_is_unchanged(s, version))) return false;
  out->large = lm_map_is_large(key);
  if (out->large) {
    const lm_span *head = lm_map_span_of_state(cells);
    out->size = atomic_load_explicit(&head->size, memory_order_acquire);
    out->state = atomic_load_explicit(cells, memory_order_acquire);
    out->token = atomic_load_explicit(&head->token, memory_order_relaxed);
    bool live = lm_state_is_plain(out->state) || out->state >= LM_STATE_COUNTED;
    if (offset >= out->size || !live) return false;
  } else {
    size_t index = (size_t)(((unsigned __int128)offset * key) >> 64);
    out->state = atomic_load_explicit(cells + index, memory_order_acquire);
    if (lm_likely(lm_state_is_plain(out->state) && out->state % LM_STATE_IDS != LM_ID_WIDE))
      out->token = atomic_load_explicit(lm_state_plain_token(cells, out->state),
                                        memory_order_relaxed);
    else if (lm_state_is_live(out->state) && out->state != LM_STATE_BUSY)
      out->token = lm_state_token(cells, index, out->state);
    else return false;
    out->base += index * out->size;
  }
  lm_load_fence(); /* the token was read before the version is read again */
  return lm_map_is_unchanged(s, version);
}
/* Writes the counted token of a span's palette into each slot of the span. `span` is one of its
 * entries. The caller holds an object of the span, so the span does not end during the call. */
void lm_map_note_counted(const lm_span *span, lm_token token);
/* Returns the state of a large block once no thread is replacing its token: never BUSY. */
lm_state lm_map_object_state(lm_state_cell *cell);
/* Like lm_map_object_state, for the object at `index` of a span of small objects, whose entry had
 * this version; *token becomes the object's token. If the version has changed by the end of the
 * call, both may belong to another span: the caller checks (lm_map_is_unchanged). */
lm_state lm_map_object_state_in(const lm_span *span, uint32_t version, lm_state_cell *cells,
                                size_t index, lm_token *token);

/* Returns whether the law of extents and the law of lm_map_state hold. No thread may take slots
 * from the range during the call (hold lm_range_lock). */
bool lm_map_is_valid(void);

#endif
