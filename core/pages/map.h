/* map.h - the range that all pool memory is in, and what stands at each address of it.
 *
 * The range is cut into slots of 64 KiB; a dense array before it has one lm_span a slot, the first
 * slot's last, so that where the range begins is all one has to know. "Is it ours" is one
 * subtraction, "which span" one shift, "which object" one multiplication, by the entry's key:
 *
 *   offset * key = index : fraction     (128 bits: high half, low half)
 *
 * With a key of ceil(2^64 / size) the index is exact for every offset in a span, and the address is
 * an object's start if and only if fraction < key (Lemire, Kaser, Kurz, "Faster remainder by direct
 * computation", 2019). It still is if the key is greater by less than 2^28, since no span has more
 * than 2^20 bytes and no object more than 2^16: so its low bits say something else, where the bin
 * is. An entry of zeros fails that test by itself: the fast path has no test for emptiness.
 *
 * Law of extents: below `top` the slots are cut into extents (spans, large blocks, runs of free
 * slots) without gap or overlap, and the entry of an extent's first slot says its length. An extent
 * is split by writing the head of the further part first, so that a walk that follows lengths
 * without a lock never passes over an object that lives throughout the walk.
 *
 * A large block describes itself not at each of its slots but at the starts of its binary
 * decomposition (at most 2 log n of them): any of its slots, rounded down to some power of two,
 * gives one of these. */
#ifndef LM_MAP_H
#define LM_MAP_H

#include <stdatomic.h>

#include "os/lock.h"
#include "pages/state.h"

enum { LM_SLOT_SHIFT = 16 };
#define LM_SLOT ((size_t)1 << LM_SLOT_SHIFT)

/* Bytes of the range at most: 1 TiB. A thread sanitizer leaves less room than that, and so does
 * valgrind (tests/bench/_lib.sh). */
#ifndef LM_RANGE_SHIFT
#ifdef __SANITIZE_THREAD__
#define LM_RANGE_SHIFT 38
#else
#define LM_RANGE_SHIFT 40
#endif
#endif
#define LM_RANGE ((size_t)1 << LM_RANGE_SHIFT)

/* What an extent is, in its first slot's `use`. From LM_USE_RUNS on: a free run, and of which set
 * (run.h). */
enum {
  LM_USE_NONE,
  LM_USE_SMALL,
  LM_USE_LARGE,
  LM_USE_GUARDED,
  LM_USE_METADATA,
  /* Of large blocks whose memory is being brought elsewhere (large.h). */
  LM_USE_MOVING,       /* live */
  LM_USE_MOVING_FREED, /* freed meanwhile: who moves it ends it */
  LM_USE_UNPREPARED, /* live, its memory no more as its strategy asks: it goes back to the range */
  LM_USE_SEAL,       /* the slot behind a region that is registered with a driver: pinned.h */
  LM_USE_RUNS = 16
};

LM_INLINE bool lm_map_use_is_large(uint32_t use) {
  return use == LM_USE_LARGE || (use >= LM_USE_MOVING && use <= LM_USE_UNPREPARED);
}

/* One cache line. The first three are all that a free reads, and most allocations read none. Down
 * to `strategy`, and `size`, they stand in each slot of a span; they are written under the owner's
 * lock, `version` being odd meanwhile, and read by anyone (atomics only so that this is defined).
 *
 * Law of `token` in each slot of a span of small objects: LM_TOKEN_NONE, or the counted token of
 * its palette, which for as long as the span is one stays there; the latter in every slot where an
 * object begins whose mark is LM_STATE_COUNTED. */
typedef struct lm_span {
  _Atomic uint64_t key; /* lm_map_key; a large block's: its bin, where it may be cached; else 0 */
  _Atomic(lm_state_cell *) side; /* marks (state.h); of a large block, its own */
  _Atomic uintptr_t start;       /* of the first object; 0: no objects known here */
  _Atomic uint32_t bin;          /* offset of its bin in a thread; 0: it has none */
  _Atomic uint16_t strategy;     /* id */
  lm_state_cell mark;            /* a large block's; in its first slot only, as all from `use` on */
  _Atomic size_t size;           /* of an object: usable bytes */
  _Atomic uint32_t version;
  _Atomic uint32_t use;   /* LM_USE_* */
  _Atomic uint32_t slots; /* of the extent */
  /* Atomics because one who found a large block here may look at its token when it is gone. */
  union {
    _Atomic(lm_token) token; /* a large block's, or see above */
    _Atomic uint32_t length; /* of a run of free slots, in its last slot */
  };
  union {
    struct {
      uint32_t next, prev; /* in a list: slots, 0 for none; under the lock of the list */
    };
    _Atomic uint64_t lent; /* of a large block whose memory is a file's: large.h */
  };
} lm_span;

_Static_assert(sizeof(lm_span) == LM_CACHE_LINE, "one line to look at for a free");

/* All that the fast path reads beside the thread: one line, written a few times in a life. */
typedef struct lm_map_state {
  uintptr_t base;     /* set once, before top is first raised */
  _Atomic size_t top; /* bytes of the range with a described extent; only grows */
  /* span_of_0, where the range is whole: of LM_RANGE bytes, at a multiple of that, and each entry
   * that it can have may be read. Else 0. */
  _Atomic uintptr_t reach;
  uintptr_t span_of_0; /* where the entry of address 0 would be */
  /* When the large block that begins at a slot was made: age.h. Not in the span, since whoever
   * dates a block does not keep it from being freed. */
  _Atomic uint32_t *born;
  size_t size; /* bytes reserved */
} __attribute__((aligned(LM_CACHE_LINE))) lm_map_state;

extern lm_map_state lm_map __attribute__((visibility("hidden")));

/* The entry of a slot of the range that begins at `base`, and back. */
LM_INLINE lm_span *lm_map_span_before(uintptr_t base, size_t slot) {
  return (lm_span *)base - 1 - slot;
}
LM_INLINE lm_span *lm_map_span(size_t slot) { return lm_map_span_before(lm_map.base, slot); }
LM_INLINE uint32_t lm_map_slot_of(const lm_span *s) { return (uint32_t)(lm_map_span(0) - s); }
LM_INLINE void *lm_map_address(uint32_t slot) {
  return (void *)(lm_map.base + ((uintptr_t)slot << LM_SLOT_SHIFT));
}
/* Only of addresses in the range, these two. */
LM_INLINE lm_span *lm_map_span_of(const void *p) {
  return (lm_span *)(lm_map.span_of_0 - ((uintptr_t)p >> LM_SLOT_SHIFT) * sizeof(lm_span));
}
/* Of any address: whether it is in the whole range of which this is lm_map.reach; if so, its entry,
 * perhaps one of zeros that was never written. */
LM_INLINE bool lm_map_span_in(uintptr_t reach, const void *p, const lm_span **out) {
  if (lm_unlikely(((uintptr_t)p ^ reach) >> LM_RANGE_SHIFT)) return false;
  uintptr_t entry = reach - ((uintptr_t)p >> LM_SLOT_SHIFT) * sizeof(lm_span);
  lm_keep(entry);
  *out = (const lm_span *)entry;
  return true;
}
LM_INLINE uint32_t lm_map_slot(const void *p) {
  return (uint32_t)(((uintptr_t)p - lm_map.base) >> LM_SLOT_SHIFT);
}
LM_INLINE bool lm_map_owns(const void *p) {
  /* Acquire pairs with the raise in lm_map_take: base and span are seen with it. */
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire);
  return (uintptr_t)p - lm_map.base < top;
}
/* Whether p is in what was reserved: also where nothing was handed out yet, and in the arrays. */
bool lm_map_reserves(const void *p);
LM_INLINE uint32_t lm_map_slots(size_t size) {
  return (uint32_t)((size + LM_SLOT - 1) >> LM_SLOT_SHIFT);
}

/* A run of `slots` slots whose address is a multiple of `align`: reserved, without access, without
 * memory, described as an extent of no use. 0: none left. */
uint32_t lm_map_take(uint32_t slots, size_t align);
/* Gives a decommitted run back. */
void lm_map_put(uint32_t slot, uint32_t slots);

/* Says that [slot, slot + slots) is an extent. For a split, the further part first. */
LM_INLINE void lm_map_extent(uint32_t slot, uint32_t slots, uint32_t use) {
  lm_span *s = lm_map_span(slot);
  lm_assert(slots > 0);
  atomic_store_explicit(&s->use, use, memory_order_relaxed);
  /* Release pairs with the acquire of lm_map_next: the heads behind it are described. */
  atomic_store_explicit(&s->slots, slots, memory_order_release);
}
LM_INLINE uint32_t lm_map_next(uint32_t slot) {
  return slot + atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_acquire);
}
/* The first extent. */
uint32_t lm_map_first(void);

/* What a span says of its objects. */
typedef struct lm_span_info {
  uintptr_t start;
  uint64_t key; /* of a large block: in its first slot, else 0 */
  lm_state_cell *side;
  uint32_t bin, strategy;
  size_t size;
} lm_span_info;

/* Describes a span of small objects at each of its slots. Where its marks are as before, what is
 * said of its counted token stays. */
void lm_map_describe_small(uint32_t slot, uint32_t slots, const lm_span_info *view);
/* Describes a large block at its marks. */
void lm_map_describe_large(uint32_t slot, uint32_t slots, const lm_span_info *view);
/* Changes the size of a large block and the slots it has; its head can be read throughout. With
 * other slots it is of no class any more: no thread will cache it. */
void lm_map_resize_large(uint32_t slot, uint32_t slots, uint32_t new_slots, size_t size);
/* Undoes either. */
void lm_map_forget_small(uint32_t slot, uint32_t slots);
void lm_map_forget_large(uint32_t slot, uint32_t slots);

enum { LM_MAP_KEY_LOW = 1 << 22 }; /* a bin's offset is less */
/* Of objects of this size that have this bin. */
LM_INLINE uint64_t lm_map_key(size_t size, uint32_t bin) {
  return lm_align_up(UINT64_MAX / size + 1, LM_MAP_KEY_LOW) + bin;
}
LM_INLINE uint32_t lm_map_key_bin(uint64_t key) { return (uint32_t)key % LM_MAP_KEY_LOW; }
/* By its bin a large block's start, and nothing else of it, passes the test above. */
LM_INLINE bool lm_map_is_large(uint64_t key) { return key < LM_MAP_KEY_LOW; }

/* How often one who finds an entry being changed looks again. */
enum { LM_MAP_RETRIES = 10000 };
/* A consistent copy of an entry; false when it is empty or is being changed. */
bool lm_map_read(const lm_span *span, lm_span_info *out, uint32_t *version);
/* Whether the entry has not changed since: what was read by acquire before is of one moment. */
LM_INLINE bool lm_map_is_unchanged(const lm_span *span, uint32_t version) {
  return atomic_load_explicit(&span->version, memory_order_relaxed) == version;
}

/* The entry of the large block whose mark this is. */
LM_INLINE lm_span *lm_map_span_of_state(lm_state_cell *mark) {
  return (lm_span *)((char *)mark - offsetof(lm_span, mark));
}

/* The object, live or dead, that p points at or into, as it was at some moment. */
typedef struct lm_map_object {
  uintptr_t base;
  size_t size;
  lm_state_cell *side; /* its mark */
  lm_state mark;       /* what that was */
  lm_token token;      /* whose it is, or was; LM_TOKEN_NONE: nobody's so far */
  bool large;          /* it has slots of its own */
  uint32_t bin, strategy;
  const lm_span *span;
  uint32_t version;
} lm_map_object;

bool lm_map_find(const void *p, lm_map_object *out);

/* Most of what lm_map_find finds, at once: false also for what takes a second look. Only of live
 * objects, and all but `span`, `version` and `side`. */
LM_INLINE bool lm_map_find_fast(const void *p, lm_map_object *out) {
  uintptr_t place = (uintptr_t)p - lm_map.base;
  if (lm_unlikely(place >= atomic_load_explicit(&lm_map.top, memory_order_acquire))) return false;
  const lm_span *s = lm_map_span(place >> LM_SLOT_SHIFT);
  uint32_t version = atomic_load_explicit(&s->version, memory_order_acquire);
  uint64_t key = atomic_load_explicit(&s->key, memory_order_acquire);
  lm_state_cell *side = atomic_load_explicit(&s->side, memory_order_acquire);
  out->base = atomic_load_explicit(&s->start, memory_order_acquire);
  out->size = atomic_load_explicit(&s->size, memory_order_acquire);
  out->strategy = atomic_load_explicit(&s->strategy, memory_order_acquire);
  size_t offset = (uintptr_t)p - out->base;
  /* What stands in a span that changes meanwhile is no pointer to follow. */
  if (lm_unlikely(version & 1 || !out->base || !lm_map_is_unchanged(s, version))) return false;
  out->large = lm_map_is_large(key);
  if (out->large) {
    const lm_span *head = lm_map_span_of_state(side);
    out->size = atomic_load_explicit(&head->size, memory_order_acquire);
    out->mark = atomic_load_explicit(side, memory_order_acquire);
    out->token = atomic_load_explicit(&head->token, memory_order_relaxed);
    bool live = lm_state_is_plain(out->mark) || out->mark == LM_STATE_COUNTED;
    if (offset >= out->size || !live) return false;
  } else {
    size_t index = (size_t)(((unsigned __int128)offset * key) >> 64);
    out->mark = atomic_load_explicit(side + index, memory_order_acquire);
    if (lm_likely(lm_state_is_plain(out->mark) && out->mark % LM_STATE_IDS != LM_ID_WIDE))
      out->token = atomic_load_explicit(lm_state_plain_token(side, out->mark),
                                        memory_order_relaxed);
    else if (lm_state_is_live(out->mark) && out->mark != LM_STATE_BUSY)
      out->token = lm_state_token(side, index, out->mark);
    else return false;
    out->base += index * out->size;
  }
  return lm_map_is_unchanged(s, version);
}
/* lm_state_assign, of the object at p in a span of small ones, whose mark that is; if that is
 * COUNTED, the token is noted in the span's slots. */
void lm_map_note_counted(const lm_span *span, lm_token token);
LM_INLINE lm_state lm_map_assign(const void *p, lm_state_cell *at, lm_token token, uint8_t *hint) {
  const lm_span *span = lm_map_span_of(p);
  lm_state_cell *side = atomic_load_explicit(&span->side, memory_order_relaxed);
  lm_state mark = lm_state_assign(side, (size_t)(at - side), token, hint);
  if (mark == LM_STATE_COUNTED && atomic_load_explicit(&span->token, memory_order_relaxed) != token)
    lm_map_note_counted(span, token);
  return mark;
}
/* A mark that is not BUSY, of a large block. */
lm_state lm_map_object_state(lm_state_cell *side);
/* The same of a small object, and its token, where the entry said `version`. If it says another by
 * now they are not to be believed: the marks may be somebody else's, though they can be read. */
lm_state lm_map_object_state_in(const lm_span *span, uint32_t version, lm_state_cell *side,
                                size_t index, lm_token *token);

/* Bytes of the range in use by pools and by loam itself; bytes of the array in use. */
size_t lm_map_used(void);
size_t lm_map_overhead(void);

/* The range's lock, for fork: the last of all to be taken. */
lm_lock *lm_map_lock(void);
bool lm_map_is_valid(void);

#endif
