/* walk.c - visits the live objects while the program allocates and frees. */
#include "heap/walk.h"

#include "heap/central.h"
#include "heap/large.h"
#include "pages/state.h"

/* Reads the description of an extent. Another thread may be changing it; then it is read again, and
 * that does not take long. False: the entry is empty, or keeps changing. */
static bool read_stable(const lm_span *span, lm_span_info *view, uint32_t *version) {
  for (int tries = 0; tries < LM_MAP_RETRIES; tries++) {
    if (lm_map_read(span, view, version)) return true;
    if (!(*version & 1) && lm_map_is_unchanged(span, *version)) return false;
    lm_sys_wait_a_little(tries);
  }
  return false;
}

/* Tells whether two descriptions are of one extent. Its strategy may have changed in between. */
static bool is_same_extent(const lm_span_info *a, const lm_span_info *b) {
  return a->start == b->start && a->cells == b->cells &&
         lm_map_is_large(a->key) == lm_map_is_large(b->key);
}

/* Visits the live objects of the extent at `slot`. Ends early if it becomes another extent. */
static void visit_extent(uint32_t slot, lm_walk_visit *visit, void *ctx) {
  lm_assert(slot && visit);
  const lm_span *span = lm_map_span(slot);
  lm_span_info view, now;
  uint32_t version;
  if (!read_stable(span, &view, &version)) return;
  bool large = lm_map_is_large(view.key);
  uint32_t count = large ? 1 : lm_central_span_count(lm_class_of_usable(view.size));
  for (uint32_t i = 0; i < count;) {
    lm_token token = large ? atomic_load(&span->token) : LM_TOKEN_NONE;
    lm_state state = large ? lm_map_object_state(view.cells)
                           : lm_map_object_state_in(span, version, view.cells, i, &token);
    size_t size = large ? atomic_load(&span->size) : view.size;
    if (!lm_map_is_unchanged(span, version)) {
      if (!read_stable(span, &now, &version) || !is_same_extent(&view, &now)) return;
      view = now;
      continue;
    }
    void *base = (void *)(view.start + i * size);
    size = lm_large_usable(base, size);
    if (lm_state_is_live(state))
      visit(ctx, &(lm_object){ base, size, token, view.strategy, large, NULL });
    i++;
  }
}

void lm_walk_extent(uint32_t slot, lm_walk_visit *visit, void *ctx) {
  if (lm_map_has_objects(slot)) visit_extent(slot, visit, ctx);
}

/* Eight states in one word. The live ones are those with the bit of LIVE and without the bit of
 * CACHED, and also COUNTED ones, which has_counted finds. */
typedef uint64_t __attribute__((may_alias)) eight;
static const eight each = UINT64_MAX / UINT8_MAX;

static bool has_counted(eight m) { return m & m >> 1 & each * LM_STATE_LIVE; }
static uint32_t live_of(eight m) {
  return (uint32_t)__builtin_popcountll(m & ~(m >> 1) & each * LM_STATE_LIVE);
}

static uint32_t count_one_by_one(const lm_state_cell *states, uint32_t count) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++)
    n += lm_state_is_live(atomic_load_explicit(&states[i], memory_order_acquire));
  return n;
}

static uint32_t count_live(const lm_state_cell *states, uint32_t count) {
  uint32_t n = 0, i = 0;
  for (; i + sizeof(eight) <= count; i += (uint32_t)sizeof(eight)) {
    eight m = __atomic_load_n((const eight *)&states[i], __ATOMIC_ACQUIRE);
    n += lm_unlikely(has_counted(m)) ? count_one_by_one(&states[i], sizeof(eight)) : live_of(m);
  }
  return n + count_one_by_one(&states[i], count - i);
}

static void count_extent(uint32_t slot, lm_walk_count *visit, void *ctx) {
  const lm_span *span = lm_map_span(slot);
  lm_span_info view, now;
  uint32_t version, n;
  size_t size;
  if (!read_stable(span, &view, &version)) return;
  for (;; view = now) {
    bool large = lm_map_is_large(view.key);
    n = count_live(view.cells, large ? 1 : lm_central_span_count(lm_class_of_usable(view.size)));
    size = large ? atomic_load(&span->size) : view.size;
    if (lm_map_is_unchanged(span, version)) break;
    if (!read_stable(span, &now, &version) || !is_same_extent(&view, &now)) return;
  }
  if (n) visit(ctx, view.strategy, lm_large_usable((void *)view.start, size), n);
}

/* Goes over all extents, and calls `visit` or `count`; one of the two is NULL. */
static void go(lm_walk_visit *visit, lm_walk_count *count, void *ctx) {
  lm_assert(!visit != !count);
  for (uint32_t slot = LM_MAP_FIRST, end = lm_map_end(); slot < end;) {
    /* The length is read before the objects: it belongs to the extent that is seen here, or to an
     * older one. */
    uint32_t next = lm_map_next(slot);
    if (lm_map_has_objects(slot)) {
      if (visit) visit_extent(slot, visit, ctx);
      else count_extent(slot, count, ctx);
    }
    slot = next > slot ? next : slot + 1;
  }
}

void lm_walk_each(lm_walk_visit *visit, void *ctx) { go(visit, NULL, ctx); }
void lm_walk_counts(lm_walk_count *visit, void *ctx) { go(NULL, visit, ctx); }
