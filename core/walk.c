/* walk.c - goes over the live objects while the program allocates and frees. */
#include "walk.h"

#include "bin.h"
#include "mark.h"

/* A description that is not being changed at the moment; whoever changes one is done at once. */
static bool settled_view(const lm_span *span, lm_view *view, uint32_t *version) {
  for (int tries = 0; tries < LM_MAP_PATIENCE; tries++) {
    if (lm_map_view(span, view, version)) return true;
    if (!(*version & 1) && lm_map_is_same(span, *version)) return false;
    lm_sys_yield();
  }
  return false;
}

/* Whether two views are of one extent, which may be another strategy's since. */
static bool is_same_extent(const lm_view *a, const lm_view *b) {
  return a->start == b->start && a->side == b->side &&
         lm_map_is_large(a->reciprocal) == lm_map_is_large(b->reciprocal);
}

/* The live objects of the extent at `slot`; ends early if it becomes another extent meanwhile. */
static void visit_extent(uint32_t slot, lm_walk_visit *visit, void *ctx) {
  const lm_span *span = lm_map_span(slot);
  lm_view view, now;
  uint32_t version;
  if (!settled_view(span, &view, &version)) return;
  bool large = lm_map_is_large(view.reciprocal);
  uint32_t count = large ? 1 : lm_span_count(lm_class_with(view.size));
  for (uint32_t i = 0; i < count;) {
    lm_token token = large ? atomic_load(&span->token) : LM_NOBODY;
    lm_mark mark = large ? lm_map_mark(view.side)
                         : lm_map_mark_in(span, version, view.side, i, &token);
    size_t size = large ? atomic_load(&span->size) : view.size;
    if (!lm_map_is_same(span, version)) {
      if (!settled_view(span, &now, &version) || !is_same_extent(&view, &now)) return;
      view = now;
      continue;
    }
    if (lm_mark_is_live(mark))
      visit(ctx,
            &(lm_object){ (void *)(view.start + i * size), size, token, view.strategy, large });
    i++;
  }
}

static bool holds_objects(uint32_t slot) {
  uint32_t use = atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
  return use == LM_USE_SMALL || use == LM_USE_GUARDED || lm_use_is_large(use);
}

void lm_walk_extent(uint32_t slot, lm_walk_visit *visit, void *ctx) {
  if (holds_objects(slot)) visit_extent(slot, visit, ctx);
}

void lm_walk_each(lm_walk_visit *visit, void *ctx) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire);
  uint32_t end = (uint32_t)(top >> LM_SLOT_SHIFT);
  for (uint32_t slot = lm_map_first(); slot < end;) {
    /* The length is read before the objects: it is of the extent seen here or an older one. */
    uint32_t next = lm_map_next(slot);
    if (holds_objects(slot)) visit_extent(slot, visit, ctx);
    slot = next > slot ? next : slot + 1;
  }
}
