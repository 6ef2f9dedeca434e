/* chain.c - serves a request by the chain of strategies that the policy names.
 *
 * The plan of the request's site is evaluated in an active section. After that, the members of the
 * chain are tried in order. Handlers, the system's allocator, drivers and the host's callbacks are
 * foreign code: they are called outside an active section, and with `inside` raised where they may
 * allocate. A request of such code is served by a decision that the thread has kept
 * (engine/decision.h), or else under the default plan. Both name pools of loam alone, so a handler
 * on top of an allocator which loam has replaced does not call itself for ever. */
#include "engine/chain.h"

#include <stdio.h>
#include <string.h>

#include "device/device_pool.h"
#include "device/pinned.h"
#include "device/provider.h"
#include "engine/decision.h"
#include "engine/engine.h"
#include "engine/last_words.h"
#include "engine/probes.h"
#include "engine/sample.h"
#include "heap/large.h"
#include "heap/sweep.h"
#include "os/error.h"

/* ---- Members of a chain ------------------------------------------------------------------- */

/* Notes why a member cannot serve the order. Returns false. */
static bool cannot(lm_order *o, const char *why) {
  o->why = why;
  o->takes = 0;
  return false;
}

/* The reason of a member of which too little of the limit is left; compared by address. */
static const char at_limit[] = "this would pass its limit";

/* Serves the order by an object of the strategy's pool; with `by_larger`, only by a free object of
 * a larger class. One active section gives the object its token and counts it (step 1 in
 * live_bytes.c). Few requests come here, so the thread's own sum (lm_live_count) is not used. */
static bool serve_from_pool(lm_order *o, lm_strategy *s, bool by_larger, lm_record *out) {
  bool is_zeroed = false;
  lm_object object;
  size_t align = o->r.align > s->desc.align ? o->r.align : s->desc.align;
  o->t->is_at_limit = false;
  lm_thread_enter(o->t);
  lm_token token = lm_site_token_now(o->r.site, o->token);
  lm_pool_request request = { o->r.size, align, token };
  void *p = by_larger ? lm_pool_alloc_larger(o->t, s, &request)
                      : lm_pool_alloc(o->t, s, &request, &is_zeroed);
  if (p) {
    lm_require(lm_pool_find(p, &object));
    lm_site_add_live(token, (int64_t)object.size);
    lm_record_of_object(&object, out);
  }
  const char *why = p ? NULL : lm_pool_why(s); /* the pool may end after the section */
  lm_thread_leave(o->t);
  bool is_at_limit = o->t->is_at_limit || lm_strategy_limit_left(s) < o->r.size;
  if (!p) return cannot(o, is_at_limit ? at_limit : why);
  if (is_zeroed || !(o->r.zero || s->desc.zero)) return true;
  size_t size = s->desc.zero ? out->size : o->r.size;
  if (size > LM_LARGE_MAX && s->desc.kind == LM_KIND_HOST) lm_large_zero(p, size);
  else memset(p, 0, size);
  return true;
}

/* Serves the order by a handler, the system's allocator or a driver. The limit counts the request's
 * size before the call, and the block's size after it. */
static bool serve_provided(lm_order *o, lm_strategy *s, lm_record *out) {
  if (!lm_strategy_limit_take(s, o->r.size)) return cannot(o, at_limit);
  lm_lock_suspended section = lm_thread_foreign_begin(o->t);
  o->why = lm_provider_alloc(&o->r, s, out);
  lm_thread_foreign_end(o->t, section);
  bool in_limit = !o->why && lm_strategy_limit_take(s, out->size - o->r.size);
  out->strategy = s->id;
  if (in_limit && lm_record_enter(o->t, o->r.site, o->token, out, NULL)) return true;
  lm_strategy_limit_give(s, (int64_t)(in_limit ? out->size : o->r.size));
  if (o->why) return false;
  section = lm_thread_foreign_begin(o->t);
  lm_provider_free(out, NULL);
  lm_thread_foreign_end(o->t, section);
  (void)cannot(o, in_limit ? "loam has no memory to keep its block" : at_limit);
  o->takes = out->size;
  return false;
}

/* Takes a block from a device pool: from the memory that the pool has, else with the driver's help,
 * for which the thread leaves its active section. */
static bool take_from_device_pool(lm_order *o, lm_device_pool *c, size_t size,
                                  lm_device_owner owner, lm_record *out) {
  lm_stream_ref line = lm_device_pool_stream(c, o->r.want, o->r.stream);
  void *p = NULL;
  do {
    lm_thread_enter(o->t);
    owner.token = lm_site_token_now(o->r.site, o->token);
    if (p) lm_device_pool_set_owner(c, p, &owner, out);
    bool is_taken = p || lm_device_pool_take(c, size, line, &owner, out);
    if (is_taken) lm_site_add_live(out->token, (int64_t)out->size);
    lm_thread_leave(o->t);
    if (is_taken) return true;
    lm_lock_suspended section = lm_thread_foreign_begin(o->t);
    p = lm_device_pool_take_slow(c, size, line);
    lm_thread_foreign_end(o->t, section);
  } while (p);
  return cannot(o, lm_provider_words);
}

static bool serve_from_device_pool(lm_order *o, lm_strategy *s, lm_record *out) {
  size_t size = lm_device_pool_round_aligned(o->r.size, o->r.align);
  const char *why = NULL;
  lm_device_pool *c = lm_provider_pool(&o->r, s, &why);
  if (!c) return cannot(o, why);
  if (!lm_strategy_limit_take(s, size)) return cannot(o, at_limit);
  lm_device_owner owner = { o->token, s->id, (uint8_t)o->r.want, (uint8_t)o->r.flags };
  bool ok = take_from_device_pool(o, c, size, owner, out);
  /* Now the limit counts the block's real size, or nothing if there is no block. */
  lm_strategy_limit_give(s, (int64_t)size - (ok ? (int64_t)out->size : 0));
  if (ok && o->r.zero) memset(out->base, 0, o->r.size);
  return ok;
}

/* Serves the order by a strategy of pinned memory that has twins: from the pool of a twin, which
 * grows if it has no memory for the order; else from the device's pool. The loop tries again
 * because another thread may take the memory that this thread added to the pool. */
static bool serve_pinned(lm_order *o, lm_strategy *s, lm_record *out) {
  enum { TRIES = 8 };
  bool is_asked = o->r.want == LM_WANT_PINNED, for_host = o->r.want == LM_WANT_HOST || is_asked;
  bool by_twin = for_host && !(o->r.flags & LM_GPU_WRITE_COMBINED) &&
                 lm_pinned_serves(s, o->r.size, o->r.align);
  int device = by_twin ? lm_provider_device(s->desc.device) : 0;
  lm_strategy *twin = by_twin ? lm_pinned_twin(s, device, is_asked) : s;
  for (int i = 0; by_twin && i < TRIES && lm_pool_reserve(twin); i++) {
    if (serve_from_pool(o, twin, false, out)) {
      if (twin->desc.asked) lm_decision_remember_pinned(o->t, &o->r, twin);
      return true;
    }
    if (o->why == at_limit) return false;
    lm_lock_suspended section = lm_thread_foreign_begin(o->t);
    const char *why = lm_pinned_grow(twin, device, o->r.size);
    lm_thread_foreign_end(o->t, section);
    if (why == lm_pinned_elsewhere) break;
    if (why) return cannot(o, why);
  }
  return serve_from_device_pool(o, s, out);
}

/* Serves the order by one strategy. Returns false, and says why in o->why, if it cannot. */
static bool serve(lm_order *o, lm_strategy *s, lm_record *out) {
  if (s->twins) return serve_pinned(o, s, out);
  if (lm_provider_is_pooled(s)) return serve_from_device_pool(o, s, out);
  return lm_provider_serves(s->desc.kind) ? serve_provided(o, s, out)
                                          : serve_from_pool(o, s, false, out);
}

/* ---- Outcomes ----------------------------------------------------------------------------- */

/* Writes how many bytes of a member's limit are used. A block may take more bytes than were
 * requested, and pass the limit for that. */
static void copy_limit(const lm_order *o, const lm_strategy *s, char *words, size_t size) {
  char takes[48] = "";
  unsigned long long used = lm_strategy_limit_used(s);
  int64_t own = atomic_load_explicit(&s->account->used, memory_order_relaxed);
  if (o->takes > o->r.size) snprintf(takes, sizeof takes, ", and the block takes %zu", o->takes);
  if (s->desc.shared[0])
    snprintf(words, size, ", which '%s' shares: %llu of %zu bytes are used, %lld by this process%s",
             s->desc.shared, used, s->desc.limit, (long long)(own > 0 ? own : 0), takes);
  else snprintf(words, size, ": %llu of %zu bytes are used%s", used, s->desc.limit, takes);
}

/* Writes that a member could not serve the order, and why. `more` stands behind its name. */
static void copy_why(const lm_order *o, const lm_strategy *s, const char *more, char *words,
                     size_t size) {
  char limit[LM_STRATEGY_NAME + 192] = "";
  if (o->why == at_limit && s->desc.limit) copy_limit(o, s, limit, sizeof limit);
  snprintf(words, size, "strategy '%s'%s cannot serve it: %s%s", s->desc.name, more,
           o->why == lm_provider_words ? loam_error() : o->why, limit);
}

/* Names the alignment of an order in `words`, if it has one above 16. Returns `words`. */
static const char *name_alignment(const lm_order *o, char words[48]) {
  *words = 0;
  if (o->r.align > 16) snprintf(words, 48, " with alignment %zu", o->r.align);
  return words;
}

/* Tells the host what became of an order. */
static void tell(const lm_order *o, loam_event_kind kind, const char *words) {
  char align[48];
  lm_error_event(kind, atomic_load(&lm_site_generation), NULL,
                 "size %zu%s under tag '%s': %s (told once; loam stats counts)", o->r.size,
                 name_alignment(o, align), o->r.site->where.tag, words);
}

/* Tells the host, once in each generation, that a member could not serve. The next one is tried. */
static LM_NOINLINE void report_miss(const lm_order *o, lm_strategy *s) {
  char words[LM_ERROR_SIZE / 4];
  if (!lm_site_generation_first(&s->told_failed)) return;
  copy_why(o, s, "", words, sizeof words);
  tell(o, LOAM_EVENT_SHORTFALL, words);
}

/* Ends an order that gets no memory: sets the error words and returns NULL. If a limit or the
 * policy is the reason (`is_refused`), tells the host, once in each generation. `tried` is the
 * member that was tried last, or NULL. UNSERVED is sent before SHORTFALL, so that
 * a reader of both can ignore the SHORTFALL. */
static void *fail(const lm_order *o, const char *words, bool is_refused, lm_strategy *tried) {
  static _Atomic uint64_t told;
  char align[48];
  if (is_refused && lm_site_generation_first(&told)) tell(o, LOAM_EVENT_UNSERVED, words);
  if (tried && lm_site_generation_first(&tried->told_failed)) tell(o, LOAM_EVENT_SHORTFALL, words);
  if (tried) lm_last_words_tell(&o->r, &(lm_last_refusal){ tried, words, is_refused });
  return lm_error_null("size %zu%s under tag '%s': %s", o->r.size, name_alignment(o, align),
                       o->r.site->where.tag, words);
}

/* Ends an order that no member could serve. `tried` was tried last; `ends_chain`: it is the last of
 * several members. Not inlined, so that lm_chain_serve leaves the stack to handlers and drivers. */
static LM_NOINLINE void *fail_chain(const lm_order *o, lm_strategy *tried, bool ends_chain) {
  char words[LM_ERROR_SIZE / 4];
  lm_stats_bump(&lm_stats_failed);
  copy_why(o, tried, ends_chain ? ", the last of its chain," : "", words, sizeof words);
  return fail(o, words, o->why == at_limit, tried);
}

/* Counts a block that was served, and returns its address. A resized block (`was`) counts as a new
 * one if its site or strategy changed, else by the bytes that it grew. A handler's block in memory
 * of loam's pools is not sampled here: it was drawn for when the handler allocated it. */
static void *note_served(const lm_order *o, const lm_strategy *s, const lm_record *was,
                         const lm_record *b) {
  lm_assert(lm_record_is_valid(b));
  bool is_pooled = b->maker == LM_PROVIDER_HEAP;
  bool is_new = !was || lm_site_token_index(was->token) != o->r.site->index ||
                !lm_strategy_is_kin(lm_strategy_at(was->strategy), s);
  size_t more = is_new ? b->size : b->size > was->size ? b->size - was->size : 0;
  unsigned class_ = is_pooled ? lm_class_counted_object(b->size) : lm_class_counted(b->size);
  lm_stats_note(o->t, lm_stats_key(o->r.site->index, s->id, class_), is_new, more);
  if (is_pooled || !lm_pool_owns(b->base))
    lm_sample_maybe(o->t, o->r.site, s->id, b->base, b->size);
  return b->base;
}

/* Copies the contents of a block that is reallocated, as far as they fit, and frees it. Only a
 * driver can copy what a device has. If it fails, frees the new block instead and returns false. */
static bool move_contents(lm_order *o, const lm_record *from, const lm_record *to) {
  size_t size = from->size < o->r.size ? from->size : o->r.size;
  bool is_copied = true;
  if (o->r.want == LM_WANT_DEVICE && from->device >= 0)
    is_copied = lm_provider_copy(from, to, size, o->r.stream) || cannot(o, lm_provider_words);
  else memcpy(to->base, from->base, size);
  const lm_record *gone = is_copied ? from : to;
  lm_engine_free(gone->base, SIZE_MAX, gone->maker == LM_PROVIDER_HEAP ? NULL : &o->r.stream);
  return is_copied;
}

/* ---- The chain ---------------------------------------------------------------------------- */

static bool end_collected(lm_order *o, const lm_strategy *s) {
  if (o->why != at_limit && o->why != lm_provider_words) return false;
  lm_lock_suspended section = lm_thread_foreign_begin(o->t);
  bool has_ended = lm_provider_end_collected(&o->r, s);
  lm_thread_foreign_end(o->t, section);
  return has_ended;
}

/* Serves the order by one member. If that is memory of a device, or for devices, and there is none,
 * ends the frees that are collected (device/defer.h), and tries the member again. If the system
 * refuses memory, what loam keeps free goes back to the system, of all strategies, and the member
 * is tried again. If it still cannot, a small order gets a free object of a larger class, in memory
 * that the strategy's pool has. None of this is done for requests of foreign code that loam calls,
 * which may come while loam holds locks. */
static bool serve_or_reclaim(lm_order *o, lm_strategy *s, lm_record *out) {
  if (lm_likely(serve(o, s, out))) return true;
  if (o->t->inside) return false;
  if (end_collected(o, s) && serve(o, s, out)) return true;
  if (o->why != lm_region_no_memory) return false;
  if (lm_sweep_reclaim() && serve(o, s, out)) return true;
  return o->why == lm_region_no_memory && !s->twins && lm_strategy_kind_is_pooled(s->desc.kind) &&
         serve_from_pool(o, s, true, out);
}

/* Serves the order by one member: resizes the block `was`, or allocates a block and moves the
 * contents of `was`. NULL: the member cannot, which is counted and not yet reported. */
static void *serve_by(lm_order *o, lm_strategy *s, uint32_t misses, const lm_record *was) {
  lm_record b;
  if (was) {
    lm_sample_live sample;
    bool was_sample = lm_sample_suspend(was->base, &sample);
    b = *was;
    if (lm_resize(o, s, &b)) {
      if (was_sample) lm_probe_free((uintptr_t)was->base);
      return note_served(o, s, was, &b);
    }
    if (was_sample) lm_sample_put_back(&sample);
  }
  if (serve_or_reclaim(o, s, &b) && (!was || move_contents(o, was, &b))) {
    if (misses) {
      lm_stats_bump(&s->served_late);
      lm_stats_bump(&lm_stats_fallbacks);
    }
    return note_served(o, s, NULL, &b);
  }
  lm_stats_bump(&s->failed);
  if (o->why == at_limit) lm_stats_bump(&s->at_limit);
  return NULL;
}

/* Copies the chain that the plan names for the order: the plan may be reclaimed once the thread has
 * left its active section. If the order names a handler, the handler's strategy is the whole chain,
 * and the plan is not evaluated. Returns the length of the chain; 0 if there is no room for the
 * handler's strategy. Sets the order's token. */
static uint32_t decide(lm_order *o, uint32_t chain[LM_CHAIN_MAX]) {
  lm_inputs inputs;
  const lm_strategy *only = o->r.handler ? lm_provider_of_handler(o->r.handler) : NULL;
  uint32_t n = only != NULL;
  if (only) chain[0] = only->id;
  lm_thread_enter(o->t);
  lm_site_plan *now = lm_decision_live_plan(o->r.site);
  o->token = atomic_load_explicit(&now->token, memory_order_relaxed);
  if (!o->r.handler) {
    const lm_plan *plan = o->t->inside ? lm_plan_default()
                                       : atomic_load_explicit(&now->plan, memory_order_acquire);
    lm_decision_inputs(&o->r, NULL, &inputs);
    const lm_leaf *leaf = &plan->leaf[lm_plan_decide(plan, &inputs)];
    n = leaf->n;
    lm_assert(n > 0 && n <= LM_CHAIN_MAX);
    memcpy(chain, &plan->chain[leaf->first], n * sizeof *chain);
  }
  lm_thread_leave(o->t);
  return n;
}

void *lm_chain_serve(lm_order *o, const lm_record *was) {
  uint32_t chain[LM_CHAIN_MAX], misses = 0;
  lm_strategy *tried = NULL; /* the last member that failed; this is not reported yet */
  lm_assert(o->t == lm_thread_self && o->r.site && !lm_thread_is_active());
  lm_assert(!was || lm_record_is_valid(was));
  uint32_t n = decide(o, chain);
  if (!n) return NULL;
  for (uint32_t i = 0; i < n; i++) {
    lm_strategy *s = lm_strategy_at(chain[i]);
    if (!lm_provider_fits(&o->r, s)) continue;
    if (tried) report_miss(o, tried);
    if (s->desc.kind == LM_KIND_DENY) {
      lm_stats_bump(&lm_stats_denied);
      return fail(o, "the policy denies it", true, NULL);
    }
    void *p = serve_by(o, s, misses, was);
    if (p) return p;
    tried = s;
    misses++;
  }
  if (!misses) { /* no member fits the kind of memory that the call promises */
    tried = lm_provider_default(&o->r);
    void *p = tried ? serve_by(o, tried, 1, was) : NULL; /* counted as a fallback */
    if (p || !tried) return p;
  }
  if (was && o->r.size <= was->size) {
    report_miss(o, tried);
    lm_pool_note_oversized(o->r.size, was->size); /* the old block is large enough */
    return was->base;
  }
  return fail_chain(o, tried, misses && n > 1 && tried->id == chain[n - 1]);
}
