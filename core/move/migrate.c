/* migrate.c - live memory that becomes another strategy's, at its address. */
#include "move/migrate.h"

#include <errno.h>

#include "heap/sweep.h"
#include "heap/tcache.h"
#include "heap/walk.h"
#include "move/migrate_pages.h"

#define HUGE (2 * LM_MIB)
enum { RECALLS = 8, RECALL_NAP_NS = 20000 };

static lm_central *store_of(const lm_strategy *s, unsigned class_) {
  return &lm_pool_of(s)->store[class_];
}

static size_t range_of(const lm_migration *h) { return (size_t)h->slots << LM_SLOT_SHIFT; }

/* ---- Claims */

static bool describe(uint32_t slot, lm_migration *out) {
  lm_span_info view;
  uint32_t version;
  const lm_span *span = lm_map_span(slot);
  uint32_t use = atomic_load_explicit(&span->use, memory_order_relaxed);
  if ((use != LM_USE_SMALL && use != LM_USE_LARGE) || !lm_map_read(span, &view, &version))
    return false;
  *out = (lm_migration){ .slot = slot, .small = use == LM_USE_SMALL };
  out->from = lm_strategy_at(view.strategy);
  if (out->small) out->class_ = lm_class_of_usable(view.size);
  return out->from->desc.kind == LM_KIND_HOST && lm_pool_of(out->from);
}

bool lm_migrate_claim(uint32_t slot, lm_migration *out) {
  if (!describe(slot, out)) return false;
  bool done = out->small ? lm_central_detach(store_of(out->from, out->class_), slot,
                                             lm_tcache_bin_offset(0, out->class_))
                         : lm_large_claim(&lm_pool_of(out->from)->large, slot);
  out->slots = atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed);
  return done;
}

static void count_live(void *ctx, const lm_object *object) {
  (void)object;
  ++*(uint32_t *)ctx;
}

/* No thread caches an object of the span, nor is about to bring one home. */
static bool is_quiet(const lm_migration *h) {
  uint32_t live = 0;
  lm_walk_extent(h->slot, count_live, &live);
  return lm_central_detached_count(store_of(h->from, h->class_), h->slot) == live;
}

static bool are_quiet(const lm_migration *home, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (home[i].small && !is_quiet(&home[i])) return false;
  return true;
}

/* A thread that was asked gives up its bins a moment after it says so. */
bool lm_migrate_wait(const lm_migration *home, uint32_t n) {
  if (!lm_thread_grace()) return false;
  for (int tries = 0; tries < RECALLS && !are_quiet(home, n); tries++) {
    if (tries) lm_sys_sleep(RECALL_NAP_NS);
    lm_sweep_recall();
  }
  return true;
}

bool lm_migrate_confirm(lm_migration *h) {
  size_t freed;
  if (h->small) {
    lm_central *store = store_of(h->from, h->class_);
    bool quiet = is_quiet(h);
    h->bytes = lm_central_detached_count(store, h->slot) * lm_class_size(h->class_);
    if (!quiet) lm_central_reattach(store, h->slot);
    return quiet;
  }
  bool live = lm_large_confirm(&lm_pool_of(h->from)->large, h->slot, &freed);
  h->bytes = atomic_load_explicit(&lm_map_span(h->slot)->size, memory_order_relaxed);
  if (freed) lm_strategy_limit_give(h->from, (int64_t)freed);
  return live;
}

/* ---- The new strategy */

static bool is_aligned(const lm_migration *h, size_t align) {
  if (!align) return true;
  if (h->small && lm_class_size(h->class_) & (align - 1)) return false;
  return ((uintptr_t)lm_map_address(h->slot) & (align - 1)) == 0;
}

/* Of two limits; what stays in one account neither takes nor gives. */
static void pay(const lm_migration *h, lm_strategy *s, size_t bytes) {
  if (!lm_strategy_limit_is_shared(h->from, h->to)) lm_strategy_limit_give(s, (int64_t)bytes);
}

const char *lm_migrate_accept(lm_migration *h, lm_strategy *to) {
  lm_preparation from = lm_pool_prepare(&h->from->desc), how = lm_pool_prepare(&to->desc);
  if (to->desc.kind != LM_KIND_HOST) return "what the plan says now is not host memory";
  if (to->desc.guard == 1) return "a live block cannot be given a guard page";
  if (!is_aligned(h, to->desc.align)) return "its address is less aligned than the strategy asks";
  const char *why = lm_migrate_pages_refusal(&from, &how, lm_map_address(h->slot), range_of(h));
  if (why) return why;
  if (!lm_strategy_limit_is_shared(h->from, to) && !lm_strategy_limit_take(to, h->bytes))
    return "the strategy is at its limit";
  h->to = to;
  h->accepted = true;
  lm_pool_note_oversized(0, h->from->desc.align);
  return NULL;
}

/* A piece ends at a multiple of a huge page, where it can. */
static size_t piece_of(uintptr_t at, size_t left, size_t most) {
  if (left <= most) return left;
  uintptr_t end = lm_align_down(at + most, HUGE);
  return end > at ? end - at : most;
}

static lm_migrate_progress fit_back(lm_migration *h, size_t most) {
  lm_preparation from = lm_pool_prepare(&h->from->desc), to = lm_pool_prepare(&h->to->desc);
  size_t n = h->done < most ? h->done : most;
  char *at = (char *)lm_map_address(h->slot) + h->done - n;
  if (n && lm_migrate_pages(&to, &from, at, n)) h->stray = true;
  h->done -= n;
  return h->done ? LM_MIGRATE_MORE : LM_MIGRATE_UNDONE;
}

void lm_migrate_reverse(lm_migration *h, int error) {
  h->reverse = true;
  h->error = error;
}

/* Where the strategy demands its nodes, a page that stayed elsewhere is a failure; where it prefers
 * them, pages that others share are, since they can move when the others are gone. */
static int fit_piece(lm_migration *h, char *at, size_t n) {
  lm_preparation from = lm_pool_prepare(&h->from->desc), to = lm_pool_prepare(&h->to->desc);
  int why, error = lm_migrate_pages(&from, &to, at, n);
  if (error) return error;
  size_t astray = lm_migrate_pages_misplaced(&from, &to, at, n, &why);
  if (astray && h->to->desc.placement.mode == LM_BIND_BIND) return why;
  if (astray > n / 16 && why == EACCES) return why;
  h->astray += astray;
  if (why) h->why = why;
  return 0;
}

lm_migrate_progress lm_migrate_fit(lm_migration *h, size_t most) {
  most = lm_align_up(most ? most : 1, LM_SLOT);
  if (h->reverse) return fit_back(h, most);
  char *at = (char *)lm_map_address(h->slot) + h->done;
  size_t n = piece_of((uintptr_t)at, range_of(h) - h->done, most);
  int error = fit_piece(h, at, n);
  if (!lm_migrate_pages_is_barred(error)) h->done += n;
  if (error) lm_migrate_reverse(h, error);
  else if (h->done == range_of(h)) return LM_MIGRATE_DONE;
  return LM_MIGRATE_MORE;
}

/* ---- What spilled over */

static size_t bytes_at(uint32_t slot) {
  return (size_t)atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed)
         << LM_SLOT_SHIFT;
}

bool lm_migrate_has_spilled(uint32_t slot, const lm_strategy *s) {
  lm_preparation how = lm_pool_prepare(&s->desc);
  if (!how.placement || !how.placement->nodes || how.page || how.backing) return false;
  return lm_numa_spilled(lm_map_address(slot), bytes_at(slot), how.placement);
}

bool lm_migrate_fetch(lm_migration *h, size_t most) {
  lm_preparation how = lm_pool_prepare(&h->from->desc);
  char *at = (char *)lm_map_address(h->slot) + h->done;
  size_t n = piece_of((uintptr_t)at, range_of(h) - h->done, most), left;
  int why;
  h->fetched += lm_migrate_pages_fetch(&how, at, n, &left, &why);
  h->astray += left;
  if (why) h->why = why;
  h->done += n;
  return h->done < range_of(h);
}

/* ---- The ends */

static lm_token token_of(const lm_migration *h) {
  return atomic_load_explicit(&lm_map_span(h->slot)->token, memory_order_relaxed);
}

/* What was freed meanwhile is not in the new limit. */
static void adopt_span(lm_migration *h, lm_pool *to, lm_retoken_fn *renew, void *ctx) {
  uint32_t held = lm_central_adopt(&to->store[h->class_], store_of(h->from, h->class_), h->slot,
                                   renew, ctx);
  size_t now = held * lm_class_size(h->class_);
  pay(h, h->to, h->bytes - now);
  pay(h, h->from, now);
  h->bytes = now;
}

static unsigned large_class(const lm_migration *h) {
  uint32_t bin = atomic_load_explicit(&lm_map_span(h->slot)->bin, memory_order_relaxed);
  return bin ? lm_tcache_bin_class(bin) : 0;
}

static void adopt_large(lm_migration *h, lm_pool *to, lm_retoken_fn *renew, void *ctx) {
  unsigned class_ = large_class(h);
  lm_token old = token_of(h);
  lm_large_adopt(&to->large, &lm_pool_of(h->from)->large, h->slot,
                 class_ ? lm_pool_bin(h->to, class_) : 0, old, renew(ctx, old));
  pay(h, h->from, h->bytes);
}

bool lm_migrate_adopt(lm_migration *h, lm_retoken_fn *renew, void *ctx) {
  lm_pool *to = lm_pool_for(h->to), *from = lm_pool_of(h->from);
  if (!to) return false;
  lm_regions_add_used(&to->regions, h->slots);
  if (h->small) adopt_span(h, to, renew, ctx);
  else adopt_large(h, to, renew, ctx);
  lm_regions_remove_used(&from->regions, h->slots);
  h->adopted = true;
  return true;
}

void lm_migrate_finish(lm_migration *h) {
  if (!h->small)
    lm_strategy_limit_give(h->to,
                           (int64_t)lm_large_release(&lm_pool_of(h->to)->large, h->slot, false));
}

void lm_migrate_release(lm_migration *h) {
  lm_central *store = h->small ? store_of(h->from, h->class_) : NULL;
  if (h->accepted) pay(h, h->to, h->bytes);
  if (!store)
    lm_strategy_limit_give(
        h->from, (int64_t)lm_large_release(&lm_pool_of(h->from)->large, h->slot, h->stray));
  else if (h->stray) lm_central_abandon(store, h->slot);
  else lm_central_reattach(store, h->slot);
}
