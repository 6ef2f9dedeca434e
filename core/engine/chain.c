/* chain.c - serves a request by the chain of strategies that the policy names.
 *
 * A request is decided while its thread is active. Then the members of the chain are tried in
 * order. Handlers, the system's allocator, drivers and the host's callbacks are foreign code. They
 * are called while the thread is not active, and with `inside` raised where they may allocate: what
 * such code asks of loam is served under the default plan. So a handler that is built on an
 * allocator which loam has replaced does not call itself for ever. */
#include "engine/chain.h"

#include <stdio.h>
#include <string.h>

#include "device/device_pool.h"
#include "device/pinned.h"
#include "device/provider.h"
#include "engine/decision.h"
#include "engine/engine.h"
#include "heap/large.h"
#include "os/error.h"

/* ---- Deciding ----------------------------------------------------------------------------- */

/* The chain of one decision, and the token of the generation that decided. It is copied, because
 * the plan may go as soon as the thread is not active. */
typedef struct answer {
  lm_token token;
  uint32_t n;
  uint32_t chain[LM_CHAIN_MAX];
} answer;

static void decide(const lm_order *o, answer *out) {
  lm_thread_enter(o->t);
  lm_site_plan *d = lm_decision_now(o->r.site);
  const lm_plan *plan = o->t->inside ? lm_plan_default()
                                     : atomic_load_explicit(&d->plan, memory_order_acquire);
  lm_inputs inputs = { .size = o->r.size,
                       .align = o->r.align,
                       .zero = o->r.zero,
                       .gauge = lm_decision_gauge,
                       .site = o->r.site };
  const lm_leaf *leaf = &plan->leaf[lm_plan_decide(plan, &inputs)];
  out->token = atomic_load_explicit(&d->token, memory_order_relaxed);
  out->n = leaf->n;
  for (uint32_t i = 0; i < leaf->n; i++) out->chain[i] = plan->chain[leaf->first + i];
  lm_thread_leave(o->t);
}

/* ---- Members of a chain ------------------------------------------------------------------- */

static bool cannot(lm_order *o, const char *why) {
  o->why = why;
  return false;
}

/* The token is stamped and counted in one active section, as live_bytes.c wants. */
static bool pool_take(lm_order *o, lm_strategy *s, lm_token token, lm_record *out, bool *zeroed) {
  lm_object object;
  size_t align = o->r.align > s->desc.align ? o->r.align : s->desc.align;
  lm_thread_enter(o->t);
  token = lm_site_token_now(o->r.site, token);
  void *p = lm_pool_alloc(o->t, s, &(lm_pool_request){ o->r.size, align, token }, zeroed);
  if (p) {
    lm_require(lm_pool_find(p, &object));
    lm_site_add_live(token, (int64_t)object.size);
    lm_record_of_pool(&object, out);
  }
  lm_thread_leave(o->t);
  return p;
}

static bool serve_host(lm_order *o, lm_strategy *s, lm_token token, lm_record *out) {
  bool zeroed;
  if (!pool_take(o, s, token, out, &zeroed))
    return cannot(o, lm_strategy_limit_left(s) < o->r.size ? "it is at its limit" : lm_pool_why(s));
  if (zeroed || !(o->r.zero || s->desc.zero)) return true;
  size_t size = s->desc.zero ? out->size : o->r.size;
  bool is_sparse = size > LM_LARGE_MAX && s->desc.kind == LM_KIND_HOST;
  if (is_sparse) lm_large_zero(out->base, size);
  else memset(out->base, 0, size);
  return true;
}

static void foreign_release(lm_thread *t, const lm_provided *f, const lm_stream *on) {
  lm_lock_suspended section = lm_thread_foreign_begin(t);
  lm_provider_free(f, on);
  lm_thread_foreign_end(t, section);
}

static bool serve_foreign(lm_order *o, lm_strategy *s, lm_token token, lm_record *out) {
  lm_provided f;
  if (!lm_strategy_limit_take(s, o->r.size)) return cannot(o, "it is at its limit");
  lm_lock_suspended section = lm_thread_foreign_begin(o->t);
  o->why = lm_provider_alloc(&o->r, s, &f);
  lm_thread_foreign_end(o->t, section);
  lm_record_of_foreign(&f, out);
  bool in_limit = !o->why && lm_strategy_limit_take(s, f.size - o->r.size);
  if (in_limit && lm_record_enter(o->t, o->r.site, s, token, out)) return true;
  if (in_limit) lm_strategy_limit_give(s, (int64_t)(f.size - o->r.size));
  lm_strategy_limit_give(s, (int64_t)o->r.size);
  if (o->why) return false;
  foreign_release(o->t, &f, NULL);
  return cannot(o, in_limit ? "loam has no memory to keep its block" : "it is at its limit");
}

/* From what loam has of a device; by the driver if need be. */
static bool cache_take(lm_order *o, lm_device_pool *c, size_t size, lm_device_owner owner,
                       lm_provided *f) {
  lm_token token = owner.token;
  lm_stream_ref line = lm_device_pool_stream(c, o->r.stream);
  lm_thread_enter(o->t);
  owner.token = lm_site_token_now(o->r.site, token);
  bool ok = lm_device_pool_take(c, size, line, &owner, f);
  if (ok) lm_site_add_live(f->token, (int64_t)f->size);
  lm_thread_leave(o->t);
  if (ok) return true;
  lm_lock_suspended section = lm_thread_foreign_begin(o->t);
  void *p = lm_device_pool_take_slow(c, size, line);
  lm_thread_foreign_end(o->t, section);
  if (!p) return cannot(o, lm_provider_words);
  lm_thread_enter(o->t);
  owner.token = lm_site_token_now(o->r.site, token);
  lm_device_pool_set_owner(c, p, &owner, f);
  lm_site_add_live(f->token, (int64_t)f->size);
  lm_thread_leave(o->t);
  return true;
}

static bool serve_cached(lm_order *o, lm_strategy *s, lm_token token, lm_record *out) {
  lm_provided f;
  size_t size = lm_device_pool_round_aligned(o->r.size, o->r.align);
  const char *why = NULL;
  lm_device_pool *c = lm_provider_pool(&o->r, s, &why);
  if (!c) return cannot(o, why);
  if (!lm_strategy_limit_take(s, size)) return cannot(o, "it is at its limit");
  bool ok = cache_take(o, c, size, (lm_device_owner){ token, s->id, (uint8_t)o->r.want }, &f);
  lm_strategy_limit_give(s, (int64_t)size - (ok ? (int64_t)f.size : 0));
  if (!ok) return false;
  lm_record_of_foreign(&f, out);
  if (o->r.zero) memset(out->base, 0, o->r.size);
  return true;
}

/* Returns the pool of host memory that serves a pinned request. NULL: the device's pool serves
 * it. */
static lm_strategy *pinned_pool(const lm_order *o, lm_strategy *s, int device) {
  bool for_host = o->r.want == LM_WANT_HOST || o->r.want == LM_WANT_PINNED;
  if (!s->twins || !for_host || o->r.flags & LM_GPU_WRITE_COMBINED) return NULL;
  return lm_pinned_twin(s, device, o->r.want == LM_WANT_PINNED);
}

/* Serves a pinned request from a twin. The loop is for memory that this thread added to the pool
 * and another thread took first. */
static bool serve_pinned(lm_order *o, lm_strategy *s, int device, lm_token token, lm_record *out) {
  enum { TRIES = 8 };
  const char *why = NULL;
  size_t size = lm_class_size(lm_class_of(o->r.size));
  for (int i = 0; i < TRIES; i++) {
    if (serve_host(o, s, token, out)) {
      if (s->desc.asked) lm_decision_keep_pinned(o->t, &o->r, out->base, s);
      return true;
    }
    if (lm_strategy_limit_left(s) < size) return cannot(o, "it is at its limit");
    lm_lock_suspended section = lm_thread_foreign_begin(o->t);
    why = lm_pinned_grow(s, device, o->r.size);
    lm_thread_foreign_end(o->t, section);
    if (why) return cannot(o, why);
  }
  return false;
}

static bool serve_near(lm_order *o, lm_strategy *s, lm_token token, lm_record *out) {
  if (!lm_pinned_serves(s, o->r.size, o->r.align)) return serve_cached(o, s, token, out);
  int device = lm_provider_device(s->desc.device);
  lm_strategy *twin = pinned_pool(o, s, device);
  if (!twin || !lm_pool_reserve(twin)) return serve_cached(o, s, token, out);
  return serve_pinned(o, twin, device, token, out);
}

static bool serve(lm_order *o, lm_strategy *s, lm_token token, lm_record *out) {
  if (s->twins) return serve_near(o, s, token, out);
  if (lm_provider_is_pooled(s)) return serve_cached(o, s, token, out);
  return lm_provider_serves(s->desc.kind) ? serve_foreign(o, s, token, out)
                                          : serve_host(o, s, token, out);
}

/* ---- Outcomes ----------------------------------------------------------------------------- */

static void *denied(const lm_order *o) {
  lm_stats_bump(&lm_stats_denied);
  return lm_error_null("size %zu under tag '%s': the policy denies it", o->r.size,
                       o->r.site->where.tag);
}

static void copy_why(const lm_order *o, char *words, size_t size) {
  snprintf(words, size, "%s", o->why == lm_provider_words ? loam_error() : o->why);
}

/* Reports that a member could not serve. The host's callback may call loam and so change the error
 * words of the thread, so they are copied before and set again after. */
static LM_NOINLINE void missed(const lm_order *o, lm_strategy *s) {
  char words[LM_ERROR_SIZE / 2];
  lm_stats_bump(&s->failed);
  if (!lm_site_generation_first(&s->told_failed)) return;
  copy_why(o, words, sizeof words);
  lm_error_event(
      LOAM_EVENT_SHORTFALL, atomic_load(&lm_site_generation), NULL,
      "strategy '%s' cannot serve size %zu under tag '%s': %s (told once; loam stats counts)",
      s->desc.name, o->r.size, o->r.site->where.tag, words);
  if (o->why == lm_provider_words) (void)lm_error_null("%s", words);
}

static void *failed(const lm_order *o, const lm_strategy *last, uint32_t n) {
  char words[LM_ERROR_SIZE / 2];
  copy_why(o, words, sizeof words);
  lm_stats_bump(&lm_stats_failed);
  return lm_error_null("size %zu under tag '%s': strategy '%s'%s cannot serve it: %s", o->r.size,
                       o->r.site->where.tag, last->desc.name,
                       n > 1 ? ", the last of its chain," : "", words);
}

/* A member served; those before it could not. */
static void *served(lm_order *o, lm_strategy *s, uint32_t at, const lm_record *b) {
  lm_stats_note(o->t, o->r.site->index, s->id, 1, b->size);
  if (at) {
    lm_stats_bump(&s->served_late);
    lm_stats_bump(&lm_stats_fallbacks);
  }
  return b->base;
}

/* Counts a block that was resized: as a new block if its site or strategy changed, else as the
 * bytes by which it grew. */
static void *resized(lm_order *o, lm_strategy *s, const lm_record *was, const lm_record *is) {
  if (lm_site_token_index(was->token) != o->r.site->index ||
      lm_strategy_whole(was->strategy) != s->id)
    lm_stats_note(o->t, o->r.site->index, s->id, 1, is->size);
  else if (is->size > was->size)
    lm_stats_note(o->t, o->r.site->index, s->id, 0, is->size - was->size);
  return is->base;
}

static bool copy(const lm_order *o, const lm_record *from, const lm_record *to) {
  size_t size = from->size < o->r.size ? from->size : o->r.size;
  if (o->r.want == LM_WANT_DEVICE)
    return lm_provider_copy(from->foreign.device, to->base, from->base, size, o->r.stream);
  memcpy(to->base, from->base, size);
  return true;
}

static void *moved(lm_order *o, lm_strategy *s, uint32_t at, const lm_record *from,
                   const lm_record *to) {
  bool copied = copy(o, from, to);
  const lm_record *gone = copied ? from : to;
  lm_engine_free_on(gone->base, SIZE_MAX, gone->is_foreign ? &o->r.stream : NULL);
  return copied ? served(o, s, at, to) : NULL;
}

/* ---- The chain ---------------------------------------------------------------------------- */

/* Serves the order by one member, and moves what `was` holds. NULL: the member cannot. */
static void *serve_by(lm_order *o, lm_strategy *s, lm_token token, uint32_t asked,
                      const lm_record *was) {
  lm_record b;
  if (was) {
    b = *was;
    if (lm_resize(o, s, token, &b)) return resized(o, s, was, &b);
  }
  if (serve(o, s, token, &b)) return was ? moved(o, s, asked, was, &b) : served(o, s, asked, &b);
  missed(o, s);
  return NULL;
}

void *lm_chain_serve(lm_order *o, const lm_record *was) {
  answer a;
  uint32_t asked = 0;
  lm_strategy *s = NULL;
  decide(o, &a);
  for (uint32_t i = 0; i < a.n; i++) {
    s = lm_strategy_at(a.chain[i]);
    if (!lm_provider_fits(&o->r, s)) continue;
    if (s->desc.kind == LM_KIND_DENY) return denied(o);
    void *p = serve_by(o, s, a.token, asked++, was);
    if (p) return p;
  }
  if (!asked) { /* no member is what the call can use */
    s = lm_provider_default(&o->r);
    void *p = s ? serve_by(o, s, a.token, 1, was) : NULL;
    if (p || !s) return p;
  } else if (was && o->r.size <= was->size) {
    lm_pool_note_oversized(o->r.size, was->size); /* a larger block serves too */
    return was->base;
  }
  return failed(o, s, asked ? a.n : 1);
}
