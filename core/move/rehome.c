/* rehome.c - live memory that becomes another strategy's, at its address. */
#include "move/rehome.h"

#include <errno.h>

#include "heap/bin.h"
#include "heap/sweep.h"
#include "heap/walk.h"
#include "move/refit.h"

#define HUGE (2 * LM_MIB)
enum { RECALLS = 8, RECALL_NAP_NS = 20000 };

static lm_store *store_of(const lm_strategy *s, unsigned class_) {
  return &lm_pool_of(s)->store[class_];
}

static size_t range_of(const lm_home *h) { return (size_t)h->slots << LM_SLOT_SHIFT; }

/* ---- Claims */

static bool describe(uint32_t slot, lm_home *out) {
  lm_view view;
  uint32_t version;
  const lm_span *span = lm_map_span(slot);
  uint32_t use = atomic_load_explicit(&span->use, memory_order_relaxed);
  if ((use != LM_USE_SMALL && use != LM_USE_LARGE) || !lm_map_view(span, &view, &version))
    return false;
  *out = (lm_home){ .slot = slot, .small = use == LM_USE_SMALL };
  out->from = lm_strategy_at(view.strategy);
  if (out->small) out->class_ = lm_class_with(view.size);
  return out->from->desc.kind == LM_KIND_HOST && lm_pool_of(out->from);
}

bool lm_rehome_claim(uint32_t slot, lm_home *out) {
  if (!describe(slot, out)) return false;
  bool done = out->small ? lm_store_set_apart(store_of(out->from, out->class_), slot,
                                              lm_bin_offset(0, out->class_))
                         : lm_large_claim(&lm_pool_of(out->from)->large, slot);
  out->slots = atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed);
  return done;
}

static void count_live(void *ctx, const lm_object *object) {
  (void)object;
  ++*(uint32_t *)ctx;
}

/* No thread caches an object of the span, nor is about to bring one home. */
static bool is_quiet(const lm_home *h) {
  uint32_t live = 0;
  lm_walk_extent(h->slot, count_live, &live);
  return lm_store_held(store_of(h->from, h->class_), h->slot) == live;
}

static bool are_quiet(const lm_home *home, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (home[i].small && !is_quiet(&home[i])) return false;
  return true;
}

/* A thread that was asked gives up its bins a moment after it says so. */
bool lm_rehome_settle(const lm_home *home, uint32_t n) {
  if (!lm_thread_grace()) return false;
  for (int tries = 0; tries < RECALLS && !are_quiet(home, n); tries++) {
    if (tries) lm_sys_nap(RECALL_NAP_NS);
    lm_sweep_recall();
  }
  return true;
}

bool lm_rehome_confirm(lm_home *h) {
  size_t freed;
  if (h->small) {
    lm_store *store = store_of(h->from, h->class_);
    bool quiet = is_quiet(h);
    h->bytes = lm_store_held(store, h->slot) * lm_class_size(h->class_);
    if (!quiet) lm_store_rejoin(store, h->slot);
    return quiet;
  }
  bool live = lm_large_confirm(&lm_pool_of(h->from)->large, h->slot, &freed);
  h->bytes = atomic_load_explicit(&lm_map_span(h->slot)->size, memory_order_relaxed);
  if (freed) lm_limit_give(h->from, (int64_t)freed);
  return live;
}

/* ---- The new strategy */

static bool is_aligned(const lm_home *h, size_t align) {
  if (!align) return true;
  if (h->small && lm_class_size(h->class_) & (align - 1)) return false;
  return ((uintptr_t)lm_map_address(h->slot) & (align - 1)) == 0;
}

/* Of two limits; what stays in one account neither takes nor gives. */
static void pay(const lm_home *h, lm_strategy *s, size_t bytes) {
  if (!lm_limit_is_one(h->from, h->to)) lm_limit_give(s, (int64_t)bytes);
}

const char *lm_rehome_accept(lm_home *h, lm_strategy *to) {
  lm_prepare from = lm_pool_prepare(&h->from->desc), how = lm_pool_prepare(&to->desc);
  if (to->desc.kind != LM_KIND_HOST) return "what the plan says now is not host memory";
  if (to->desc.guard == 1) return "a live block cannot be given a guard page";
  if (!is_aligned(h, to->desc.align)) return "its address is less aligned than the strategy asks";
  const char *why = lm_refit_refusal(&from, &how, lm_map_address(h->slot), range_of(h));
  if (why) return why;
  if (!lm_limit_is_one(h->from, to) && !lm_limit_take(to, h->bytes))
    return "the strategy is at its limit";
  h->to = to;
  h->accepted = true;
  lm_pool_note_room(0, h->from->desc.align);
  return NULL;
}

/* A piece ends at a multiple of a huge page, where it can. */
static size_t piece_of(uintptr_t at, size_t left, size_t most) {
  if (left <= most) return left;
  uintptr_t end = lm_align_down(at + most, HUGE);
  return end > at ? end - at : most;
}

static lm_fitted fit_back(lm_home *h, size_t most) {
  lm_prepare from = lm_pool_prepare(&h->from->desc), to = lm_pool_prepare(&h->to->desc);
  size_t n = h->done < most ? h->done : most;
  char *at = (char *)lm_map_address(h->slot) + h->done - n;
  if (n && lm_refit(&to, &from, at, n)) h->stray = true;
  h->done -= n;
  return h->done ? LM_FIT_MORE : LM_FIT_UNDONE;
}

void lm_rehome_turn(lm_home *h, int error) {
  h->reverse = true;
  h->error = error;
}

/* Where the strategy demands its nodes, a page that stayed elsewhere is a failure; where it prefers
 * them, pages that others share are, since they can move when the others are gone. */
static int fit_piece(lm_home *h, char *at, size_t n) {
  lm_prepare from = lm_pool_prepare(&h->from->desc), to = lm_pool_prepare(&h->to->desc);
  int why, error = lm_refit(&from, &to, at, n);
  if (error) return error;
  size_t astray = lm_refit_astray(&from, &to, at, n, &why);
  if (astray && h->to->desc.placement.mode == LM_BIND_BIND) return why;
  if (astray > n / 16 && why == EACCES) return why;
  h->astray += astray;
  if (why) h->why = why;
  return 0;
}

lm_fitted lm_rehome_fit(lm_home *h, size_t most) {
  most = lm_align_up(most ? most : 1, LM_SLOT);
  if (h->reverse) return fit_back(h, most);
  char *at = (char *)lm_map_address(h->slot) + h->done;
  size_t n = piece_of((uintptr_t)at, range_of(h) - h->done, most);
  int error = fit_piece(h, at, n);
  if (!lm_refit_is_barred(error)) h->done += n;
  if (error) lm_rehome_turn(h, error);
  else if (h->done == range_of(h)) return LM_FIT_DONE;
  return LM_FIT_MORE;
}

/* ---- What spilled over */

static size_t bytes_at(uint32_t slot) {
  return (size_t)atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed)
         << LM_SLOT_SHIFT;
}

bool lm_rehome_has_spilled(uint32_t slot, const lm_strategy *s) {
  lm_prepare how = lm_pool_prepare(&s->desc);
  if (!how.placement || !how.placement->nodes || how.page || how.backing) return false;
  return lm_numa_spilled(lm_map_address(slot), bytes_at(slot), how.placement);
}

bool lm_rehome_fetch(lm_home *h, size_t most) {
  lm_prepare how = lm_pool_prepare(&h->from->desc);
  char *at = (char *)lm_map_address(h->slot) + h->done;
  size_t n = piece_of((uintptr_t)at, range_of(h) - h->done, most), left;
  int why;
  h->fetched += lm_refit_fetch(&how, at, n, &left, &why);
  h->astray += left;
  if (why) h->why = why;
  h->done += n;
  return h->done < range_of(h);
}

/* ---- The ends */

static lm_token token_of(const lm_home *h) {
  return atomic_load_explicit(&lm_map_span(h->slot)->token, memory_order_relaxed);
}

/* What was freed meanwhile is not in the new limit. */
static void adopt_span(lm_home *h, lm_pool *to, lm_renew_fn *renew, void *ctx) {
  uint32_t held = lm_store_adopt(&to->store[h->class_], store_of(h->from, h->class_), h->slot,
                                 renew, ctx);
  size_t now = held * lm_class_size(h->class_);
  pay(h, h->to, h->bytes - now);
  pay(h, h->from, now);
  h->bytes = now;
}

static unsigned large_class(const lm_home *h) {
  uint32_t bin = atomic_load_explicit(&lm_map_span(h->slot)->bin, memory_order_relaxed);
  return bin ? lm_bin_class(bin) : 0;
}

static void adopt_large(lm_home *h, lm_pool *to, lm_renew_fn *renew, void *ctx) {
  unsigned class_ = large_class(h);
  lm_token old = token_of(h);
  lm_large_adopt(&to->large, &lm_pool_of(h->from)->large, h->slot,
                 class_ ? lm_pool_bin(h->to, class_) : 0, old, renew(ctx, old));
  pay(h, h->from, h->bytes);
}

bool lm_rehome_adopt(lm_home *h, lm_renew_fn *renew, void *ctx) {
  lm_pool *to = lm_pool_for(h->to), *from = lm_pool_of(h->from);
  if (!to) return false;
  lm_regions_gain(&to->regions, h->slots);
  if (h->small) adopt_span(h, to, renew, ctx);
  else adopt_large(h, to, renew, ctx);
  lm_regions_part(&from->regions, h->slots);
  h->adopted = true;
  return true;
}

void lm_rehome_finish(lm_home *h) {
  if (!h->small)
    lm_limit_give(h->to, (int64_t)lm_large_release(&lm_pool_of(h->to)->large, h->slot, false));
}

void lm_rehome_release(lm_home *h) {
  lm_store *store = h->small ? store_of(h->from, h->class_) : NULL;
  if (h->accepted) pay(h, h->to, h->bytes);
  if (!store)
    lm_limit_give(h->from,
                  (int64_t)lm_large_release(&lm_pool_of(h->from)->large, h->slot, h->stray));
  else if (h->stray) lm_store_abandon(store, h->slot);
  else lm_store_rejoin(store, h->slot);
}
