/* migrate.c - the steps by which a live extent becomes another strategy's: migrate.h. */
#include "move/migrate.h"

#include <errno.h>

#include "heap/pools.h"
#include "heap/sweep.h"
#include "heap/tcache_slow.h"
#include "heap/walk.h"
#include "move/migrate_pages.h"

#define HUGE (2 * LM_MIB)
/* How often lm_migrate_wait makes threads give back cached objects, and the pause in between. */
enum { RECALLS = 8, RECALL_PAUSE_NS = 20000 };

static lm_central *central_of(const lm_strategy *s, unsigned class_) {
  lm_assert(class_ < LM_CLASSES && lm_pool_of(s));
  return &lm_pool_of(s)->central[class_];
}

bool lm_migration_is_valid(const lm_migration *m) {
  if (m->done > lm_migration_bytes(m)) return false;
  if (m->accepted != (m->to != NULL)) return false;
  if (m->adopted && !m->accepted) return false;
  if (m->keeps_strategy && m->accepted) return false;
  return !m->is_span || m->class_ < LM_CLASSES;
}

/* ---- Claims */

static bool describe(uint32_t slot, lm_migration *out) {
  lm_span_info view;
  uint32_t version;
  const lm_span *span = lm_map_span(slot);
  uint32_t use = atomic_load_explicit(&span->use, memory_order_relaxed);
  if ((use != LM_USE_SMALL && use != LM_USE_LARGE) || !lm_map_read(span, &view, &version))
    return false;
  *out = (lm_migration){ .slot = slot, .is_span = use == LM_USE_SMALL };
  out->from = lm_strategy_at(view.strategy);
  if (out->is_span) out->class_ = lm_class_of_usable(view.size);
  return out->from->desc.kind == LM_KIND_HOST && lm_pool_of(out->from);
}

bool lm_migrate_claim(uint32_t slot, lm_migration *out) {
  lm_assert(lm_thread_self && lm_thread_self->active);
  if (!describe(slot, out)) return false;
  bool done = out->is_span ? lm_central_detach(central_of(out->from, out->class_), slot,
                                               lm_tcache_bin_offset(0, out->class_))
                           : lm_large_claim(&lm_pool_of(out->from)->large, slot);
  /* Relaxed: the claim keeps the length of the extent from changing. */
  out->slots = atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed);
  lm_assert(!done || lm_migration_is_valid(out));
  return done;
}

static void count_live(void *ctx, const lm_object *object) {
  (void)object;
  ++*(uint32_t *)ctx;
}

/* Whether each object of the span that is not free is live: so no thread caches one, or is about to
 * give one back. The objects that are not free are counted before the live ones. A free between the
 * two counts then makes the answer false. In the other order, a free could hide an object that a
 * thread caches. */
static bool is_quiet(const lm_migration *m) {
  uint32_t live = 0, used = lm_central_detached_count(central_of(m->from, m->class_), m->slot);
  lm_walk_extent(m->slot, count_live, &live);
  return used == live;
}

static bool are_quiet(const lm_migration *claim, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (claim[i].is_span && !is_quiet(&claim[i])) return false;
  return true;
}

/* A thread empties its bins a moment after lm_sweep_recall, at its next operation: so this asks
 * several times. */
bool lm_migrate_wait(const lm_migration *claim, uint32_t n) {
  lm_assert(claim && n);
  lm_assert(!lm_thread_self || !lm_thread_self->active);
  if (!lm_thread_grace()) return false;
  for (int tries = 0; tries < RECALLS && !are_quiet(claim, n); tries++) {
    if (tries) lm_sys_sleep(RECALL_PAUSE_NS);
    lm_sweep_recall();
  }
  return true;
}

bool lm_migrate_confirm(lm_migration *m) {
  size_t freed;
  lm_assert(lm_thread_self && lm_thread_self->active);
  lm_assert(lm_migration_is_valid(m) && !m->accepted);
  if (m->is_span) {
    lm_central *central = central_of(m->from, m->class_);
    bool quiet = is_quiet(m);
    m->bytes = lm_central_detached_count(central, m->slot) * lm_class_size(m->class_);
    if (!quiet) lm_central_reattach(central, m->slot);
    return quiet;
  }
  bool live = lm_large_confirm(&lm_pool_of(m->from)->large, m->slot, &freed);
  m->bytes = atomic_load_explicit(&lm_map_span(m->slot)->size, memory_order_relaxed);
  if (freed) lm_strategy_limit_give(m->from, (int64_t)freed);
  return live;
}

/* ---- The new strategy */

static bool is_aligned(const lm_migration *m, size_t align) {
  if (!align) return true;
  lm_assert(lm_is_pow2(align));
  if (m->is_span && lm_class_size(m->class_) & (align - 1)) return false;
  return ((uintptr_t)lm_map_address(m->slot) & (align - 1)) == 0;
}

/* Gives bytes back to the limit of `s`, which is `from` or `to`. If both strategies have one
 * account, a move between them changes nothing there. */
static void give_to_limit(const lm_migration *m, lm_strategy *s, size_t bytes) {
  lm_assert(s == m->from || s == m->to);
  if (!lm_strategy_limit_is_shared(m->from, m->to)) lm_strategy_limit_give(s, (int64_t)bytes);
}

const char *lm_migrate_accept(lm_migration *m, lm_strategy *to) {
  lm_assert(to && !m->accepted && !m->keeps_strategy);
  lm_preparation from = lm_pool_prepare(&m->from->desc), how = lm_pool_prepare(&to->desc);
  if (to->desc.kind != LM_KIND_HOST) return "the policy now gives it memory of another kind";
  if (to->desc.guard == 1) return "a live block cannot be given a guard page";
  if (!is_aligned(m, to->desc.align))
    return "its address is less aligned than the strategy requires";
  const char *why = lm_migrate_pages_refusal(&from, &how, lm_map_address(m->slot),
                                             lm_migration_bytes(m));
  if (why) return why;
  if (!lm_strategy_limit_is_shared(m->from, to) && !lm_strategy_limit_take(to, m->bytes))
    return "the strategy is at its limit";
  m->to = to;
  m->accepted = true;
  lm_pool_note_oversized(0, m->from->desc.align);
  lm_assert(lm_migration_is_valid(m));
  return NULL;
}

/* The length of the piece at address `at`: it ends at a multiple of a huge page if it can, so that
 * no huge page is cut. */
static size_t piece_of(uintptr_t at, size_t left, size_t most) {
  if (left <= most) return left;
  uintptr_t end = lm_align_down(at + most, HUGE);
  return end > at ? end - at : most;
}

static lm_migrate_progress bring_back(lm_migration *m, size_t most) {
  lm_preparation from = lm_pool_prepare(&m->from->desc), to = lm_pool_prepare(&m->to->desc);
  size_t n = m->done < most ? m->done : most;
  char *at = (char *)lm_map_address(m->slot) + m->done - n;
  if (n && lm_migrate_pages(&to, &from, at, n)) m->is_unprepared = true;
  m->done -= n;
  return m->done ? LM_MIGRATE_MORE : LM_MIGRATE_UNDONE;
}

void lm_migrate_undo(lm_migration *m, int error) {
  lm_assert(error && m->accepted && !m->adopted);
  m->is_undone = true;
  m->error = error;
}

/* A page that stayed on another node is a failure if the strategy demands its nodes. If the
 * strategy only prefers them, it is a failure when another process shares many of the pages
 * (EACCES): those can be moved once that process has ended. */
static int prepare_piece(lm_migration *m, char *at, size_t n) {
  lm_preparation from = lm_pool_prepare(&m->from->desc), to = lm_pool_prepare(&m->to->desc);
  int why, error = lm_migrate_pages(&from, &to, at, n);
  if (error) return error;
  size_t misplaced = lm_migrate_pages_misplaced(&from, &to, at, n, &why);
  if (misplaced && m->to->desc.placement.mode == LM_BIND_BIND) return why;
  if (misplaced > n / 16 && why == EACCES) return why;
  m->misplaced += misplaced;
  if (why) m->misplaced_error = why;
  return 0;
}

lm_migrate_progress lm_migrate_prepare(lm_migration *m, size_t most) {
  lm_assert(m->accepted && !m->adopted);
  most = lm_align_up(most ? most : 1, LM_SLOT);
  if (m->is_undone) return bring_back(m, most);
  char *at = (char *)lm_map_address(m->slot) + m->done;
  size_t n = piece_of((uintptr_t)at, lm_migration_bytes(m) - m->done, most);
  int error = prepare_piece(m, at, n);
  if (!lm_migrate_pages_is_barred(error)) m->done += n;
  lm_assert(lm_migration_is_valid(m));
  if (error) lm_migrate_undo(m, error);
  else if (m->done == lm_migration_bytes(m)) return LM_MIGRATE_DONE;
  return LM_MIGRATE_MORE;
}

/* ---- Pages that spilled over to other nodes */

bool lm_migrate_has_spilled(uint32_t slot, const lm_strategy *s) {
  lm_preparation how = lm_pool_prepare(&s->desc);
  if (!how.placement || !how.placement->nodes || how.page || how.backing) return false;
  return lm_numa_spilled(lm_map_address(slot), lm_map_extent_bytes(slot), how.placement);
}

bool lm_migrate_fetch(lm_migration *m, size_t most) {
  lm_assert(m->keeps_strategy && lm_migration_is_valid(m));
  lm_preparation how = lm_pool_prepare(&m->from->desc);
  char *at = (char *)lm_map_address(m->slot) + m->done;
  size_t n = piece_of((uintptr_t)at, lm_migration_bytes(m) - m->done, most), left;
  int why;
  m->fetched += lm_migrate_pages_fetch(&how, at, n, &left, &why);
  m->misplaced += left;
  if (why) m->misplaced_error = why;
  m->done += n;
  lm_assert(lm_migration_is_valid(m));
  return m->done < lm_migration_bytes(m);
}

/* ---- The end of a claim */

static lm_token token_of(const lm_migration *m) {
  return atomic_load_explicit(&lm_map_span(m->slot)->token, memory_order_relaxed);
}

/* Objects that were freed after lm_migrate_accept are not counted in the limit of the new strategy:
 * their bytes go back to it. The old strategy gets back the bytes of the others. */
static void adopt_span(lm_migration *m, lm_pool *to, lm_retoken_fn *renew) {
  uint32_t held = lm_central_adopt(&to->central[m->class_], central_of(m->from, m->class_), m->slot,
                                   renew);
  size_t now = held * lm_class_size(m->class_);
  lm_assert(now <= m->bytes);
  give_to_limit(m, m->to, m->bytes - now);
  give_to_limit(m, m->from, now);
  m->bytes = now;
}

static unsigned large_class(const lm_migration *m) {
  uint32_t bin = atomic_load_explicit(&lm_map_span(m->slot)->bin, memory_order_relaxed);
  return bin ? lm_tcache_bin_class(bin) : 0;
}

static void adopt_large(lm_migration *m, lm_pool *to, lm_retoken_fn *renew) {
  unsigned class_ = large_class(m);
  lm_token old = token_of(m);
  lm_large_adoption as = { .slot = m->slot, .old = old, .token = renew(old) };
  if (class_) as.bin = lm_pool_bin(m->to, class_);
  lm_large_adopt(&to->large, &lm_pool_of(m->from)->large, &as);
  give_to_limit(m, m->from, m->bytes);
}

bool lm_migrate_adopt(lm_migration *m, lm_retoken_fn *renew) {
  lm_assert(lm_thread_self && lm_thread_self->active);
  lm_assert(m->accepted && !m->is_undone && m->done == lm_migration_bytes(m));
  lm_pool *to = lm_pool_for(m->to), *from = lm_pool_of(m->from);
  if (!to) return false;
  lm_regions_add_used(&to->regions, m->slots);
  if (m->is_span) adopt_span(m, to, renew);
  else adopt_large(m, to, renew);
  lm_regions_remove_used(&from->regions, m->slots);
  m->adopted = true;
  lm_assert(lm_migration_is_valid(m));
  return true;
}

void lm_migrate_finish(lm_migration *m) {
  lm_assert(m->adopted);
  if (m->is_span) return; /* lm_central_adopt has ended the claim of a span */
  size_t freed = lm_large_release(&lm_pool_of(m->to)->large, m->slot, false);
  lm_strategy_limit_give(m->to, (int64_t)freed);
}

static void release_large(lm_migration *m) {
  size_t freed = lm_large_release(&lm_pool_of(m->from)->large, m->slot, m->is_unprepared);
  lm_strategy_limit_give(m->from, (int64_t)freed);
}

void lm_migrate_release(lm_migration *m) {
  lm_assert(m->from && !m->adopted && lm_migration_is_valid(m));
  if (m->accepted) give_to_limit(m, m->to, m->bytes);
  if (!m->is_span) release_large(m);
  else if (m->is_unprepared) lm_central_abandon(central_of(m->from, m->class_), m->slot);
  else lm_central_reattach(central_of(m->from, m->class_), m->slot);
}
