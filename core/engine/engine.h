/* engine.h - a request in, a pointer out: plan, strategy, fallback, account. loam.c calls these
 * after it has checked arguments; they set the error words on failure. */
#ifndef LM_ENGINE_H
#define LM_ENGINE_H

#include "device/provider.h"
#include "engine/stats.h"
#include "plan/live.h"
#include "plan/site.h"

void *lm_engine_alloc(loam_site *site, size_t size, size_t align, bool zero);
/* Memory that a device can use, and what else a wish may say; align and zero are not looked at. */
void *lm_engine_make(loam_site *site, const lm_wish *wish);
/* What can be had at once, by the table of the site's plan; NULL: ask lm_engine_alloc. Small blocks
 * for `code`, unless 0, are remembered by it. */
void *lm_engine_decided(lm_thread *t, loam_site *site, size_t size, bool zero, uintptr_t code);
/* The same for small sizes at multiples of an alignment; NULL also: it cannot be had so. */
void *lm_engine_aligned(lm_thread *t, loam_site *site, size_t size, size_t align);
void *lm_engine_realloc(loam_site *site, void *ptr, size_t size);
/* Most of it: from a small block of a pool to at most LM_SMALL_MAX, or of a large one within its
 * last page, up to LM_LARGE_MAX. NULL: nothing was done, ask lm_engine_realloc. */
void *lm_engine_again(lm_thread *t, loam_site *site, void *ptr, size_t size);
/* `guess` is the size a sized free claims, SIZE_MAX for none. */
void lm_engine_free(void *ptr, size_t guess);
/* `on`: work on this stream may still use the memory; NULL: what was said when it was allocated. */
void lm_engine_free_on(void *ptr, size_t guess, const lm_stream *on);
bool lm_engine_owner(const void *ptr, loam_owner_info *out);
size_t lm_engine_usable(const void *ptr);

/* Site to use for a NULL one: scope, else default. */
loam_site *lm_engine_site(loam_site *site);

/* What is asked first when a pointer that is not loam's is freed; NULL: nobody. 1: it freed it. */
void lm_engine_set_foreign(int (*free_it)(void *ptr));
bool lm_engine_ask_foreign(void *ptr);

/* Registers with threads, once; before anything is allocated. */
void lm_engine_start(void);

/* The site of the thread's scope, else the default. */
LM_INLINE loam_site *lm_engine_scope(const lm_thread *t) {
  return t->site ? t->site : &lm_site_empty;
}

/* What the live generation decided for a site. While active. */
LM_INLINE lm_decision *lm_engine_decision(loam_site *site) {
  /* Acquire pairs with the swap: the decisions of this parity are seen. */
  return &site->now[atomic_load_explicit(&lm_site_generation, memory_order_acquire) & 1];
}

LM_INLINE const lm_plan *lm_engine_plan(loam_site *site) {
  return atomic_load_explicit(&lm_engine_decision(site)->plan, memory_order_acquire);
}

/* Keys of lanes. Below the epoch: of a site's lane, a bit and the index, class by class; of one of
 * code, the class in six bits and the address in 48; of one of the sizes of 16 bytes (sizes of a
 * class that a policy cuts have them), LM_LANE_UNITS and the size in those; of one size alone,
 * where the policy cuts those too, LM_LANE_BYTES and the size. The last two say nothing of the
 * site: that is in the lane.
 *
 * What is asked at a multiple of an alignment has a lane of the class of that multiple, and of the
 * size's own class, by which it is decided: LM_LANE_ALIGNED.
 *
 * Where gauges decide, such a lane has LM_LANE_ASKS as well, so that no request finds it at once,
 * and has a gate; the lanes that gates lead to are of the site, the class and the strategy. Lanes
 * whose token is counted have LM_LANE_COUNTED, or one of code LM_LANE_CODE_COUNTED, for the same
 * reason. */
#define LM_LANE_UNITS (LM_LANE_OF_SITE + LM_LANE_OF_SITE / 4)
#define LM_LANE_BYTES (LM_LANE_UNITS + LM_LANE_OF_SITE / 512)
#define LM_LANE_ASKS (LM_LANE_OF_SITE / 2)
#define LM_LANE_COUNTED ((uint64_t)LM_GATE_COUNTED)
enum { LM_LANE_CODE_SHIFT = 48, LM_LANE_CODE_BITS = 47 };
#define LM_LANE_CODE_COUNTED ((uint64_t)1 << LM_LANE_CODE_BITS)
/* What is added to a site's key for what was asked to be pinned, and the flags of that. */
#define LM_LANE_PINNED (LM_LANE_OF_SITE / 32)
enum { LM_LANE_FLAGS_SHIFT = 48 };
/* What is added to that of the class of a multiple of an alignment, with the size's own class. */
#define LM_LANE_ALIGNED (LM_LANE_OF_SITE / 16)

_Static_assert(LM_CLASSES <= 1 << (54 - LM_LANE_CODE_SHIFT) && (uint64_t)1 << 54 == LM_LANE_ASKS &&
                   LM_LANE_COUNTED == LM_LANE_OF_SITE / 8 && LM_EPOCH_FIRST == LM_LANE_OF_SITE * 2,
               "an address, a class and what the key is of lie below the epoch");
_Static_assert(sizeof(lm_lane) == LM_LANE_STEP, "a key says where its lane is");
_Static_assert((1ull << LM_SITE_BITS) * LM_LANE_STRIDE < 1ull << LM_GATE_SHIFT &&
                   LM_STRATEGY_BITS + LM_GATE_SHIFT < LM_LANE_FLAGS_SHIFT,
               "a strategy lies above the sites");

/* `at`: a multiple of LM_LANE_STEP; it counts from the first lane, and goes round. */
LM_INLINE lm_lane *lm_engine_lane(lm_thread *t, uint64_t at) {
  lm_lane *lane = (lm_lane *)((char *)t->lane + at % sizeof t->lane);
  lm_settle(lane); /* else gcc finds it again for each field */
  return lane;
}
LM_INLINE lm_lane *lm_engine_code_lane(lm_thread *t, uintptr_t code, unsigned step) {
  return lm_engine_lane(t, (code + step) * LM_LANE_STEP);
}
LM_INLINE lm_lane *lm_engine_unit_lane(lm_thread *t, uint64_t of_site, size_t size) {
  return lm_engine_lane(t, of_site + (size + 15) / 16 * 37 * LM_LANE_STEP);
}
LM_INLINE lm_lane *lm_engine_byte_lane(lm_thread *t, uint64_t of_site, size_t size) {
  return lm_engine_lane(t, of_site + size * 41 * LM_LANE_STEP);
}
/* The key of the lane that gates lead to, by that of the site and class; it is also where it is. */
LM_INLINE uint64_t lm_engine_gated_key(uint64_t key, int64_t leads) {
  return key - (uint64_t)leads;
}

/* Most allocations, whole, without a call: of a size class whose lane says what the thread got at
 * this site before, from a bin that is not empty. NULL: ask lm_engine_alloc, which fills lanes.
 *
 * Law of a lane whose key is of the thread's epoch: every request of the key's site (or code) and
 * class with align <= 16 (that gates lead to the strategy, if the key has one) gets an object of
 * `bin`, with `token`, under the generation that was live when the thread last took LM_SLOW_STALE
 * back, which every later swap raises; or, with LM_LANE_ASKS, passes `gate` in that generation's
 * plan, which is there while the thread is active. With LM_LANE_COUNTED the token is counted, else
 * it is not. */
LM_INLINE void *lm_engine_take_at(lm_thread *t, lm_lane *lane) {
  lm_load_fence();
  void *p = lm_pool_take_ready(t, lane);
  if (lm_unlikely(!p)) return NULL;
  lm_add_relaxed(&lane->blocks, 1);
  lm_thread_leave(t);
  return p;
}

/* The key by which a request finds its lane; enters. */
LM_INLINE uint64_t lm_engine_key(lm_thread *t, const loam_site *site, size_t size) {
  return lm_class_step(size) + lm_thread_try_enter(t) + site->lane;
}
/* The same by the code that asks, where no scope wins over it. */
LM_INLINE uint64_t lm_engine_code_part(unsigned step) {
  return (uint64_t)step * (((uint64_t)1 << LM_LANE_CODE_SHIFT) / LM_LANE_STEP);
}
LM_INLINE uint64_t lm_engine_code_key(lm_thread *t, uintptr_t code, unsigned step) {
  return lm_engine_code_part(step) + code + t->scoped + lm_thread_try_enter(t);
}

LM_INLINE void *lm_engine_take(lm_thread *t, const loam_site *site, size_t size) {
  uint64_t key = lm_engine_key(t, site, size);
  lm_lane *lane = lm_engine_lane(t, key);
  void *p = lm_likely(lane->key == key) ? lm_engine_take_at(t, lane) : NULL;
  if (lm_unlikely(!p)) lm_thread_leave(t);
  return p;
}

/* What may still be had at once where the lane at its place is not the request's: of sizes in 16
 * bytes, as gauges say, and what is counted; and where it is, but has nothing: from spans with a
 * table of tokens. While entered by the key; left then. Else what `slow` has. Out of line. */
typedef void *lm_engine_slow(loam_site *site, size_t size, uintptr_t code);
void *lm_engine_missed(loam_site *site, size_t size, lm_thread *t, lm_lane *lane, uint64_t key,
                       lm_engine_slow *slow);
void *lm_engine_emptied(loam_site *site, size_t size, lm_thread *t, lm_engine_slow *slow);
/* The first zeroed; what `slow` has is. */
void *lm_engine_missed_zeroed(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                              uint64_t key, lm_engine_slow *slow);
/* What lm_engine_take has, or that; NULL: nothing. */
void *lm_engine_other(lm_thread *t, lm_lane *lane, uint64_t key, loam_site *site, size_t size);
LM_INLINE void *lm_engine_take_or(lm_thread *t, loam_site *site, size_t size) {
  uint64_t key = lm_engine_key(t, site, size);
  lm_lane *lane = lm_engine_lane(t, key);
  void *p = lm_likely(lane->key == key) ? lm_engine_take_at(t, lane) : NULL;
  return lm_likely(p != NULL) ? p : lm_engine_other(t, lane, key, site, size);
}
/* The same where the code asks; else what `miss` has. The second takes what the lane has too. */
void *lm_engine_code_missed(const void *code, size_t size, lm_thread *t, lm_lane *lane,
                            uint64_t key, loam_code_fn miss);
void *lm_engine_code_emptied(size_t size, const void *code, loam_code_fn miss, lm_thread *t);

/* The same for what was asked to be pinned, with flags but for write_combined. */
LM_INLINE uint64_t lm_engine_pinned_key(uint64_t key, unsigned flags) {
  return key + LM_LANE_PINNED + ((uint64_t)flags << LM_LANE_FLAGS_SHIFT);
}
LM_INLINE void *lm_engine_take_pinned(lm_thread *t, const loam_site *site, size_t size,
                                      unsigned flags) {
  uint64_t key = lm_engine_pinned_key(lm_engine_key(t, site, size), flags);
  lm_lane *lane = lm_engine_lane(t, key);
  void *p = lm_likely(lane->key == key) ? lm_engine_take_at(t, lane) : NULL;
  if (lm_unlikely(!p)) lm_thread_leave(t);
  return p;
}

/* The same for a multiple of an alignment, by the lane of that and of the size itself, which is
 * what is asked about. */
LM_INLINE bool lm_engine_can_align(size_t align, size_t whole) {
  return lm_is_pow2(align) && align <= LM_PAGE && whole - 1 < LM_SMALL_EVEN;
}
LM_INLINE uint64_t lm_engine_aligned_part(size_t size) {
  return LM_LANE_ALIGNED + lm_class_step(size) * (uint64_t)(LM_GATE_UNIT / LM_LANE_STEP);
}
/* What may be had where its lane has a gate, or is of what is counted, or has nothing. */
void *lm_engine_asked(loam_site *site, size_t size, lm_thread *t, lm_lane *asks, uint64_t key,
                      lm_engine_slow *slow);
void *lm_engine_opened(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                       lm_engine_slow *slow);

/* The same for sizes above LM_SMALL_MAX and at most LM_LARGE_MAX. lm_engine_noted is the long way
 * to note one, and leaves. */
void *lm_engine_noted(void *p, lm_thread *t, const lm_lane *lane, size_t bytes);
LM_INLINE void *lm_engine_note_large(void *p, lm_thread *t, const lm_lane *lane, size_t size) {
  uint32_t site = atomic_load_explicit(&lane->site, memory_order_relaxed);
  size_t bytes = lm_align_up(size, LM_PAGE);
  lm_tally *e = lm_stats_entry(t, site, lane->strategy);
  if (lm_unlikely(!lm_stats_is_of(e, site, lane->strategy)))
    return lm_engine_noted(p, t, lane, bytes);
  lm_stats_count(e, 1, bytes);
  lm_thread_leave(t);
  return p;
}
void *lm_engine_large_missed(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                             uint64_t key, lm_engine_slow *slow);
LM_INLINE void *lm_engine_take_large(loam_site *site, size_t size, lm_thread *t,
                                     lm_engine_slow *slow) {
  uint64_t key = lm_class_large(size) * LM_LANE_STEP + lm_thread_try_enter(t) + site->lane;
  lm_lane *lane = lm_engine_lane(t, key);
  if (lm_unlikely(lane->key != key)) return lm_engine_large_missed(site, size, t, lane, key, slow);
  lm_load_fence();
  void *p = lm_pool_take_large(t, lane, size);
  if (lm_likely(p != NULL)) return lm_engine_note_large(p, t, lane, size);
  lm_thread_leave(t);
  return slow(site, size, 0);
}

/* Most frees. False: ask lm_engine_free. */
LM_INLINE bool lm_engine_give(lm_thread *t, void *p) {
  lm_thread_begin(t);
  bool done = lm_pool_give(t, p);
  lm_thread_leave(t);
  return done;
}

/* Most of the rest. A block that is nested is counted too, but that is not all. While active. */
extern _Atomic uint64_t lm_engine_nested __attribute__((visibility("hidden")));

LM_INLINE bool lm_engine_count_near(lm_thread *t, lm_token token, const lm_span *span) {
  if (lm_unlikely(!lm_live_is_near(t, lm_site_token_index(token)))) return false;
  lm_live_add(t->near, -(int64_t)lm_load(size_t, &span->size));
  return true;
}

LM_INLINE bool lm_engine_count_far(lm_thread *t, lm_token token, const lm_span *span) {
  lm_live_count(t, lm_site_of(token), -(int64_t)lm_load(size_t, &span->size));
  return true;
}

/* The second is for all, the first for most. */
LM_INLINE bool lm_engine_give_near(lm_thread *t, void *p, lm_located refused) {
  bool is_nested = lm_load(uint64_t, &lm_engine_nested);
  return lm_likely(!is_nested) &&
         lm_pool_give_slow(t, p, refused, LM_STATE_COUNTED, lm_engine_count_near);
}
LM_INLINE bool lm_engine_give_far(lm_thread *t, void *p, lm_located refused) {
  if (lm_load(uint64_t, &lm_engine_nested)) return false;
  return lm_pool_give_slow(t, p, refused, LM_STATE_COUNTED, lm_engine_count_far) ||
         lm_pool_give_slow(t, p, refused, LM_STATE_COUNTED_WIDE, lm_engine_count_far);
}

#endif
