/* engine.c - a request in, a pointer out: plan, strategy, fallback, account.
 *
 * A request is decided while its thread is active, and the chain is copied: the plan may go as soon
 * as the thread is not. Then the members of the chain are tried in order. Handlers, the system's
 * allocator and events are foreign code, called while the thread is not active, and with `inside`
 * raised where it allocates: what such code asks of loam is served under the default plan, so that
 * a handler built on an allocator that loam has replaced ends.
 *
 * Account of a block, besides the totals (stats.h):
 *   - its token carries LM_TOKEN_COUNTED if its tag is counted, and then its usable bytes are in
 *   what
 *     lives under it (live.h);
 *   - if its strategy has a limit, they are in strategy->used, which is the pool's to see to.
 * Frees of such tokens come here (lm_pool_give refuses them): most to lm_engine_give_counted. */
#include "engine/engine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/device_pool.h"
#include "device/pinned.h"
#include "engine/lane.h"
#include "gpu/gpu.h"
#include "heap/freed_log.h"
#include "heap/large.h"
#include "os/error.h"
#include "os/lock.h"
#include "pages/provided.h"
#include "plan/settle.h"

typedef struct order {
  lm_thread *t;
  loam_site *site;
  union {
    lm_wish wish;
    struct {
      size_t size, align;
      bool zero;
    };
  };
  const char *why; /* the last member asked could not serve */
} order;

/* A chain, and the token of the generation that decided. */
typedef struct answer {
  lm_token token;
  uint32_t n;
  uint32_t chain[LM_CHAIN_MAX];
} answer;

/* A live block, whoever made it. */
typedef struct block {
  char *base;
  size_t size;
  lm_token token;
  uint32_t strategy;
  bool is_foreign;
  lm_provided foreign; /* only then */
} block;

loam_site *lm_engine_site(loam_site *site) {
  if (site) return site;
  lm_thread *t = lm_thread_get();
  return t ? lm_engine_scope(t) : lm_site_default();
}

/* ---- Account ------------------------------------------------------------------------------ */

static void bump(_Atomic uint64_t *figure) {
  atomic_fetch_add_explicit(figure, 1, memory_order_relaxed);
}

/* ---- Deciding ----------------------------------------------------------------------------- */

/* While active. */
static void decide(const order *o, answer *out) {
  lm_decision *d = lm_engine_decision(o->site);
  const lm_plan *plan = o->t->inside ? lm_plan_default()
                                     : atomic_load_explicit(&d->plan, memory_order_acquire);
  lm_request request = {
    .size = o->size, .align = o->align, .zero = o->zero, .gauge = lm_lane_gauge, .site = o->site
  };
  const lm_leaf *leaf = &plan->leaf[lm_plan_decide(plan, &request)];
  out->token = atomic_load_explicit(&d->token, memory_order_relaxed);
  out->n = leaf->n;
  for (uint32_t i = 0; i < leaf->n; i++) out->chain[i] = plan->chain[leaf->first + i];
}

/* ---- Members of a chain ------------------------------------------------------------------- */

static bool cannot(order *o, const char *why) {
  o->why = why;
  return false;
}

static void describe(const lm_object *object, block *out) {
  out->base = object->base;
  out->size = object->size;
  out->token = object->token;
  out->strategy = object->strategy;
  out->is_foreign = false;
}

/* The token is stamped and counted in one active section: see lm_engine_count_settle. */
static bool pool_take(order *o, lm_strategy *s, lm_token token, block *out, bool *zeroed) {
  lm_object object;
  size_t align = o->align > s->desc.align ? o->align : s->desc.align;
  lm_thread_enter(o->t);
  token = lm_site_token_now(o->site, token);
  void *p = lm_pool_alloc(o->t, s, o->size, align, token, zeroed);
  if (p) {
    lm_require(lm_pool_find(p, &object));
    lm_site_add_live(token, (int64_t)object.size);
    describe(&object, out);
  }
  lm_thread_leave(o->t);
  return p;
}

static bool serve_host(order *o, lm_strategy *s, lm_token token, block *out) {
  bool zeroed;
  if (!pool_take(o, s, token, out, &zeroed))
    return cannot(o, lm_strategy_limit_left(s) < o->size ? "it is at its limit" : lm_pool_why(s));
  if (zeroed || !(o->zero || s->desc.zero)) return true;
  size_t size = s->desc.zero ? out->size : o->size;
  bool is_sparse = size > LM_LARGE_MAX && s->desc.kind == LM_KIND_HOST;
  if (is_sparse) lm_large_zero(out->base, size);
  else memset(out->base, 0, size);
  return true;
}

/* Blocks of handlers that are loam's own memory, because the handler's allocator is loam. They are
 * known twice: to the pools, by a COUNTED token of the outer request's site, which is what is
 * counted, and to the map of foreign blocks, by a token that is not counted. */
_Atomic uint64_t lm_engine_nested;

static bool is_nested(const void *p) {
  return lm_unlikely(atomic_load_explicit(&lm_engine_nested, memory_order_relaxed)) &&
         lm_pool_owns(p);
}

/* Replaces the token of a live pool block of ours. */
static void retoken(block *b, lm_token to) {
  lm_object now = { .token = b->token, .size = b->size };
  while (now.token != to && !lm_pool_retoken(b->base, now.token, to))
    if (!lm_pool_find(b->base, &now))
      return; /* the caller frees it meanwhile: a bug of the host's */
  lm_site_add_live(now.token, -(int64_t)now.size);
  lm_site_add_live(to, (int64_t)now.size);
  b->token = to;
}

static void describe_foreign(const lm_provided *f, block *out) {
  *out = (block){ f->base, f->size, f->token, f->strategy, true, *f };
}

static bool record(order *o, const lm_strategy *s, lm_token token, block *b) {
  lm_object object;
  lm_thread_enter(o->t);
  b->token = lm_site_token_now(o->site, token);
  b->strategy = s->id;
  bool in_pool = lm_pool_find(b->base, &object);
  lm_provided entry = b->foreign;
  entry.token = in_pool ? b->token & ~LM_TOKEN_COUNTED : b->token;
  entry.strategy = s->id;
  bool ok = lm_provided_put(&entry);
  if (ok && in_pool) {
    block inner;
    describe(&object, &inner);
    retoken(&inner, b->token | LM_TOKEN_COUNTED);
    bump(&lm_engine_nested);
  } else if (ok) {
    lm_site_add_live(b->token, (int64_t)b->size);
  }
  lm_thread_leave(o->t);
  return ok;
}

static void foreign_release(lm_thread *t, const lm_provided *f, const lm_stream *on) {
  t->inside++;
  lm_provider_free(f, on);
  t->inside--;
}

static bool serve_foreign(order *o, lm_strategy *s, lm_token token, block *out) {
  lm_provided f;
  if (!lm_strategy_limit_take(s, o->size)) return cannot(o, "it is at its limit");
  o->t->inside++;
  o->why = lm_provider_alloc(&o->wish, s, &f);
  o->t->inside--;
  describe_foreign(&f, out);
  bool in_limit = !o->why && lm_strategy_limit_take(s, f.size - o->size);
  if (in_limit && record(o, s, token, out)) return true;
  if (in_limit) lm_strategy_limit_give(s, (int64_t)(f.size - o->size));
  lm_strategy_limit_give(s, (int64_t)o->size);
  if (o->why) return false;
  foreign_release(o->t, &f, NULL);
  return cannot(o, in_limit ? "loam has no memory to keep its block" : "it is at its limit");
}

/* From what loam has of a device; by the driver if need be. */
static bool cache_take(order *o, lm_device_pool *c, size_t size, lm_device_owner owner,
                       lm_provided *f) {
  lm_token token = owner.token;
  lm_stream_ref line = lm_device_pool_stream(c, o->wish.stream);
  lm_thread_enter(o->t);
  owner.token = lm_site_token_now(o->site, token);
  bool ok = lm_device_pool_take(c, size, line, &owner, f);
  if (ok) lm_site_add_live(f->token, (int64_t)f->size);
  lm_thread_leave(o->t);
  if (ok) return true;
  o->t->inside++;
  void *p = lm_device_pool_take_slow(c, size, line);
  o->t->inside--;
  if (!p) return cannot(o, lm_provider_words);
  lm_thread_enter(o->t);
  owner.token = lm_site_token_now(o->site, token);
  lm_device_pool_set_owner(c, p, &owner, f);
  lm_site_add_live(f->token, (int64_t)f->size);
  lm_thread_leave(o->t);
  return true;
}

static bool serve_cached(order *o, lm_strategy *s, lm_token token, block *out) {
  lm_provided f;
  size_t size = lm_device_pool_round_aligned(o->size, o->align);
  const char *why = NULL;
  lm_device_pool *c = lm_provider_pool(&o->wish, s, &why);
  if (!c) return cannot(o, why);
  if (!lm_strategy_limit_take(s, size)) return cannot(o, "it is at its limit");
  bool ok = cache_take(o, c, size, (lm_device_owner){ token, s->id, (uint8_t)o->wish.want }, &f);
  lm_strategy_limit_give(s, (int64_t)size - (ok ? (int64_t)f.size : 0));
  if (!ok) return false;
  describe_foreign(&f, out);
  if (o->zero) memset(out->base, 0, o->size);
  return true;
}

/* The pool of host memory that serves what is asked of pinned memory, NULL: that of the device. */
static lm_strategy *pinned_pool(const order *o, lm_strategy *s, int device) {
  bool for_host = o->wish.want == LM_WANT_HOST || o->wish.want == LM_WANT_PINNED;
  if (!s->twins || !for_host || o->wish.flags & LM_GPU_WRITE_COMBINED) return NULL;
  return lm_pinned_twin(s, device, o->wish.want == LM_WANT_PINNED);
}

/* What is asked again is what another thread took first. */
static bool serve_pinned(order *o, lm_strategy *s, int device, lm_token token, block *out) {
  enum { TRIES = 8 };
  const char *why = NULL;
  size_t size = lm_class_size(lm_class_of(o->size));
  for (int i = 0; i < TRIES; i++) {
    if (serve_host(o, s, token, out)) {
      if (s->desc.asked) lm_lane_open_pinned(o->t, o->site, out->base, o->size, o->wish.flags, s);
      return true;
    }
    if (lm_strategy_limit_left(s) < size) return cannot(o, "it is at its limit");
    o->t->inside++;
    why = lm_pinned_grow(s, device, o->size);
    o->t->inside--;
    if (why) return cannot(o, why);
  }
  return false;
}

static bool serve_near(order *o, lm_strategy *s, lm_token token, block *out) {
  if (!lm_pinned_serves(s, o->size, o->align)) return serve_cached(o, s, token, out);
  int device = lm_provider_device(s->desc.device);
  lm_strategy *twin = pinned_pool(o, s, device);
  if (!twin || !lm_pool_reserve(twin)) return serve_cached(o, s, token, out);
  return serve_pinned(o, twin, device, token, out);
}

static bool serve(order *o, lm_strategy *s, lm_token token, block *out) {
  if (s->twins) return serve_near(o, s, token, out);
  if (lm_provider_is_pooled(s)) return serve_cached(o, s, token, out);
  return lm_provider_serves(s->desc.kind) ? serve_foreign(o, s, token, out)
                                          : serve_host(o, s, token, out);
}

/* ---- Allocating --------------------------------------------------------------------------- */

static void *too_large(size_t size) {
  return lm_error_null("size %zu: it is above the address space, %zu", size, LM_SIZE_MAX);
}

static void *denied(const order *o) {
  bump(&lm_stats_denied);
  return lm_error_null("size %zu under tag '%s': the policy denies it", o->size,
                       o->site->where.tag);
}

static void copy_why(const order *o, char *words, size_t size) {
  snprintf(words, size, "%s", o->why == lm_provider_words ? loam_error() : o->why);
}

/* A member could not serve. Who is told may call loam, and the words are asked for after that. */
static LM_NOINLINE void missed(const order *o, lm_strategy *s) {
  char words[LM_ERROR_SIZE / 2];
  bump(&s->failed);
  if (!lm_site_generation_first(&s->told_failed)) return;
  copy_why(o, words, sizeof words);
  lm_error_event(
      LOAM_EVENT_SHORTFALL, atomic_load(&lm_site_generation), NULL,
      "strategy '%s' cannot serve size %zu under tag '%s': %s (told once; loam stats counts)",
      s->desc.name, o->size, o->site->where.tag, words);
  if (o->why == lm_provider_words) (void)lm_error_null("%s", words);
}

static void *failed(const order *o, const lm_strategy *last, uint32_t n) {
  char words[LM_ERROR_SIZE / 2];
  copy_why(o, words, sizeof words);
  bump(&lm_stats_failed);
  return lm_error_null("size %zu under tag '%s': strategy '%s'%s cannot serve it: %s", o->size,
                       o->site->where.tag, last->desc.name, n > 1 ? ", the last of its chain," : "",
                       words);
}

/* A member served; those before it could not. */
static void *served(order *o, lm_strategy *s, uint32_t at, const block *b) {
  lm_stats_note(o->t, o->site->index, s->id, 1, b->size);
  if (at) {
    bump(&s->served_late);
    bump(&lm_stats_fallbacks);
  }
  return b->base;
}

/* From a bin of the chain's first member, in the section that decided; NULL: another way. */
static void *serve_decided(const order *o, const answer *a, block *out) {
  lm_strategy *s = lm_strategy_at(a->chain[0]);
  if (o->align > 16 || o->size > LM_SMALL_MAX || o->wish.want != LM_WANT_HOST || s->twins)
    return NULL;
  if (lm_site_token_now(o->site, a->token) & LM_TOKEN_COUNTED) return NULL;
  uint32_t bin = lm_pool_bin(lm_strategy_here(s), lm_class_of(o->size));
  uint8_t hint = lm_state_hint(a->token);
  out->base = bin ? lm_tcache_take(o->t, bin, a->token, &hint) : NULL;
  out->size = out->base ? lm_table_bin_size(bin) : 0;
  return out->base;
}

/* No member of the chain is what the call can use. */
static void *serve_default(order *o, lm_token token) {
  block b;
  lm_strategy *s = lm_provider_default(&o->wish);
  if (!s) return NULL;
  if (serve(o, s, token, &b)) return served(o, s, 1, &b);
  missed(o, s);
  return failed(o, s, 1);
}

static void *serve_chain(order *o) {
  answer a;
  block b;
  uint32_t asked = 0;
  lm_thread_enter(o->t);
  decide(o, &a);
  void *p = serve_decided(o, &a, &b);
  lm_thread_leave(o->t);
  lm_strategy *s = lm_strategy_at(a.chain[0]);
  if (p && o->zero) memset(p, 0, o->size);
  if (p) return served(o, s, 0, &b);
  for (uint32_t i = 0; i < a.n; i++) {
    s = lm_strategy_at(a.chain[i]);
    if (!lm_provider_fits(&o->wish, s)) continue;
    if (s->desc.kind == LM_KIND_DENY) return denied(o);
    if (serve(o, s, a.token, &b)) return served(o, s, asked, &b);
    asked++;
    missed(o, s);
  }
  return asked ? failed(o, s, a.n) : serve_default(o, a.token);
}

void *lm_engine_alloc(loam_site *site, size_t size, size_t align, bool zero) {
  if (size > LM_SIZE_MAX || align > LM_SIZE_MAX) return too_large(size > align ? size : align);
  lm_thread *t = lm_thread_get();
  if (!t) return lm_error_null("size %zu: no memory for what a thread has of loam", size);
  lm_wish wish = { .size = size, .align = align < 16 ? 16 : align, .zero = zero };
  order o = { t, lm_engine_site(site), { wish }, "" };
  void *p = align <= 16 ? lm_engine_decided(t, o.site, size, zero, 0) : NULL;
  return p ? p : serve_chain(&o);
}

void *lm_engine_make(loam_site *site, const lm_wish *wish) {
  if (wish->size > LM_SIZE_MAX) return too_large(wish->size);
  lm_thread *t = lm_thread_get();
  if (!t) return lm_error_null("size %zu: no memory for what a thread has of loam", wish->size);
  order o = { t, lm_engine_site(site), { *wish }, "" };
  o.align = 16;
  return serve_chain(&o);
}

/* ---- Finding ------------------------------------------------------------------------------ */

static bool find_foreign(const void *p, block *out) {
  lm_provided f;
  if (!lm_provider_find(p, &f)) return false;
  describe_foreign(&f, out);
  return true;
}

/* The live block that p is in. */
static bool find(const void *p, block *out) {
  lm_object object;
  if (is_nested(p) && find_foreign(p, out)) return true;
  if (!lm_pool_owns(p)) return find_foreign(p, out);
  if (!lm_pool_find(p, &object)) return false;
  describe(&object, out);
  return true;
}

size_t lm_engine_usable(const void *ptr) {
  block b;
  size_t size = is_nested(ptr) ? 0 : lm_pool_usable(ptr);
  if (lm_likely(size != 0)) return size;
  return find(ptr, &b) && b.base == ptr ? b.size : 0;
}

LM_INLINE void tell_owner(const lm_object *object, const lm_provided *foreign,
                          loam_owner_info *out) {
  const loam_site *site = lm_site_of(object->token);
  const lm_strategy *s = lm_strategy_at(object->strategy);
  out->tag = site->where.tag;
  out->file = site->where.file;
  out->func = site->where.func;
  out->module = site->where.module;
  out->line = site->where.line;
  out->strategy = s->desc.name;
  out->kind = lm_strategy_kind_text(s->desc.kind);
  out->handler = foreign ? lm_provider_name(foreign) : "loam";
  out->generation = lm_site_generation_of(lm_site_token_slot(object->token));
  out->base = object->base;
  out->size = object->size;
  out->device = foreign ? foreign->device : -1;
  if (lm_unlikely(s->whole->twins != NULL) && !foreign)
    out->device = lm_pinned_device(object->base);
  out->stream = foreign ? foreign->stream : NULL;
}

static LM_NOINLINE bool find_owner(const void *ptr, loam_owner_info *out) {
  block b;
  if (!find(ptr, &b)) return false;
  lm_object object = { b.base, b.size, b.token, b.strategy, true };
  tell_owner(&object, b.is_foreign ? &b.foreign : NULL, out);
  return true;
}

/* Most are in pools, and nobody else's. */
bool lm_engine_owner(const void *ptr, loam_owner_info *out) {
  lm_map_object at;
  if (lm_unlikely(atomic_load_explicit(&lm_engine_nested, memory_order_relaxed)))
    return find_owner(ptr, out);
  if (!lm_likely(lm_map_find_fast(ptr, &at))) return find_owner(ptr, out);
  tell_owner(&(lm_object){ (void *)at.base, at.size, at.token, at.strategy, at.large }, NULL, out);
  return true;
}

/* ---- Freeing ------------------------------------------------------------------------------ */

static uint64_t live_generation(void) {
  return atomic_load_explicit(&lm_site_generation, memory_order_relaxed);
}

enum { WORDS = 1024 };

/* Counts a bad free and tells it, with the tag under which it is made, where a scope says one. */
static void LM_PRINTF(3, 4) tell_bad(uint64_t generation, const void *p, const char *format, ...) {
  char words[WORDS];
  const loam_site *under = lm_thread_self ? lm_thread_self->site : NULL;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  bump(&lm_stats_bad_frees);
  lm_error_event(LOAM_EVENT_BAD_FREE, generation, p, "%s%s%s%s", words,
                 under ? "; freed under tag '" : "", under ? under->where.tag : "",
                 under ? "'" : "");
}

/* A token that says whose a block is, or was. */
static bool is_known(lm_token token) { return (token & ~LM_TOKEN_COUNTED) != LM_TOKEN_NONE; }

/* In words of at most WORDS bytes: what is known of a block, live or dead. */
static const char *describe_owner(char *words, size_t size, lm_token token, uint32_t strategy) {
  const char *name = lm_strategy_at(strategy)->desc.name;
  if (is_known(token))
    snprintf(words, WORDS,
             "%zu bytes of tag '%s' and strategy '%s', decided by generation %" PRIu64, size,
             lm_site_at(lm_site_token_index(token))->where.tag, name,
             lm_site_generation_of(lm_site_token_slot(token)));
  else snprintf(words, WORDS, "%zu bytes of strategy '%s'", size, name);
  return words;
}

static uint64_t generation_of(lm_token token) {
  return is_known(token) ? lm_site_generation_of(lm_site_token_slot(token)) : live_generation();
}

/* `what` was asked with p, which is in a block of that state. */
static void tell_object(const char *what, const void *p, const lm_object *object,
                        const char *state) {
  char whose[WORDS], into[48] = "";
  size_t offset = (size_t)((const char *)p - (const char *)object->base);
  if (offset) snprintf(into, sizeof into, "%zu bytes into ", offset);
  tell_bad(generation_of(object->token), p, "%s of %p, %sa %s of %s", what, p, into, state,
           describe_owner(whose, object->size, object->token, object->strategy));
}

/* A pointer that is not the start of a live block. `what` was asked with it. */
static void tell_wrong(const char *what, const void *p) {
  block b;
  lm_object dead;
  if (find(p, &b))
    tell_object(what, p, &(lm_object){ b.base, b.size, b.token, b.strategy, true }, "block");
  else if (lm_freed_log_find(p, &dead)) tell_object(what, p, &dead, "freed block");
  else if (lm_pool_owns(p))
    tell_bad(live_generation(), p, "%s of %p, where no block lives: it was freed before", what, p);
  else tell_bad(live_generation(), p, "%s of %p, which loam did not allocate", what, p);
}

/* What a dead object still tells, if it does. */
static void tell_double(const void *p, lm_object *object) {
  if (!object->size && !lm_freed_log_find(p, object))
    tell_bad(live_generation(), p, "double free of %p", p);
  else if (object->base == p) tell_object("double free", p, object, "block");
  else tell_object("free", p, object, "freed block");
}

/* Takes a block of a handler or the system out of loam's books. */
static bool foreign_take(lm_thread *t, const void *p, block *out) {
  lm_provided f;
  lm_thread_enter(t);
  bool taken = lm_provided_take(p, &f);
  if (taken) {
    describe_foreign(&f, out);
    lm_site_add_live(f.token, -(int64_t)f.size);
    if (is_nested(p)) atomic_fetch_sub_explicit(&lm_engine_nested, 1, memory_order_relaxed);
  }
  lm_thread_leave(t);
  return taken;
}

static bool free_foreign(lm_thread *t, void *p, const lm_stream *on) {
  block b;
  if (!foreign_take(t, p, &b)) return false;
  lm_strategy_limit_give(lm_strategy_at(b.strategy), (int64_t)b.size);
  foreign_release(t, &b.foreign, on);
  return true;
}

/* What a stream may still use of pinned memory waits for it. */
static void free_pool(lm_thread *t, void *p, const lm_stream *on) {
  lm_object object;
  bool waits = on && lm_pinned_owns(p);
  lm_thread_enter(t);
  lm_free_result freed = waits ? lm_pool_hold(p, &object) : lm_pool_free(t, p, &object);
  if (freed == LM_FREE_DONE && object.token & LM_TOKEN_COUNTED)
    lm_live_count(t, lm_site_of(object.token), -(int64_t)object.size);
  if (freed == LM_FREE_DONE && object.large) lm_freed_log_add(t, &object);
  lm_thread_leave(t);
  if (freed == LM_FREE_DONE && waits) {
    t->inside++;
    lm_pinned_free_after(p, *on);
    t->inside--;
  }
  if (freed == LM_FREE_DONE) return;
  if (freed == LM_FREE_DOUBLE) tell_double(p, &object);
  else tell_wrong("free", p);
}

static void check_guess(const void *p, size_t guess) {
  block b;
  lm_object object;
  char whose[WORDS];
  if (!find(p, &b) || b.base != p) return;
  bool can_be = guess <= b.size;
  if (!b.is_foreign && lm_pool_find(p, &object)) can_be = lm_pool_fits_request(&object, guess);
  if (can_be) return;
  tell_bad(generation_of(b.token), p, "free of %p with size %zu: the block has %s", p, guess,
           describe_owner(whose, b.size, b.token, b.strategy));
}

static int (*_Atomic on_foreign)(void *ptr);

void lm_engine_set_foreign(int (*free_it)(void *ptr)) {
  atomic_store_explicit(&on_foreign, free_it, memory_order_relaxed);
}

bool lm_engine_ask_foreign(void *p) {
  int (*ask)(void *) = atomic_load_explicit(&on_foreign, memory_order_relaxed);
  return ask && ask(p);
}

static void free_unknown(lm_thread *t, void *p) {
  t->inside++;
  bool done = !lm_map_reserves(p) && lm_engine_ask_foreign(p);
  t->inside--;
  if (!done) tell_wrong("free", p);
}

static bool free_cached(lm_thread *t, const void *p, const lm_stream *on) {
  lm_provided f;
  lm_device_pool *attend;
  lm_stream_ref line = { 0 };
  if (on) line = lm_device_pool_stream_at(p, *on);
  lm_thread_enter(t);
  bool freed = lm_device_pool_free(p, on ? &line : NULL, &f, &attend);
  if (freed) lm_site_add_live(f.token, -(int64_t)f.size);
  lm_thread_leave(t);
  if (!freed) return false;
  lm_strategy_limit_give(lm_strategy_at(f.strategy), (int64_t)f.size);
  t->inside++;
  if (attend) lm_device_pool_poll(attend, line);
  t->inside--;
  return true;
}

void lm_engine_free_on(void *ptr, size_t guess, const lm_stream *on) {
  lm_thread *t = lm_thread_get();
  if (!ptr || !t) return; /* no memory for a thread's area: the block is lost, the host is not */
  if (guess != SIZE_MAX) check_guess(ptr, guess);
  if (is_nested(ptr) && free_foreign(t, ptr, on)) return;
  if (lm_pool_owns(ptr)) free_pool(t, ptr, on);
  else if (!free_cached(t, ptr, on) && !free_foreign(t, ptr, on)) free_unknown(t, ptr);
}

void lm_engine_free(void *ptr, size_t guess) { lm_engine_free_on(ptr, guess, NULL); }

/* ---- Reallocating ------------------------------------------------------------------------- */

/* Grows or shrinks a pool block where it is, or by moving its pages; NULL: it is as it was. The
 * token is replaced first, so that whoever walks meanwhile counts the old size, whole. */
static char *pool_resize(order *o, const lm_strategy *s, lm_token token, block *b) {
  lm_object object;
  lm_token old = b->token;
  size_t was = b->size;
  lm_thread_enter(o->t);
  /* It may have become another strategy's since it was found (migrate.c). */
  if (!lm_pool_find(b->base, &object) || lm_strategy_whole(object.strategy) != s->id) {
    lm_thread_leave(o->t);
    return NULL;
  }
  retoken(b, lm_site_token_now(o->site, token));
  char *p = lm_pool_resize(b->base, o->size) ? b->base : lm_pool_move(o->t, b->base, o->size);
  if (p && p != b->base) lm_freed_log_add(o->t, &(lm_object){ b->base, was, old, s->id, true });
  if (p) {
    lm_require(lm_pool_find(p, &object));
    lm_site_add_live(object.token, (int64_t)object.size - (int64_t)was);
    describe(&object, b);
  } else {
    retoken(b, lm_site_token_now(lm_site_at(lm_site_token_index(old)), old));
  }
  lm_thread_leave(o->t);
  return p;
}

static bool resize_host(order *o, lm_strategy *s, lm_token token, block *b) {
  size_t was = b->size;
  /* What a large block can become; a small one stays as it is. */
  size_t whole = lm_align_up(o->size, LM_PAGE), more = o->size > was ? whole - was : 0;
  if (!lm_strategy_limit_take(s, more)) return false;
  char *p = pool_resize(o, s, token, b);
  lm_strategy_limit_give(s, (int64_t)more - (p ? (int64_t)b->size - (int64_t)was : 0));
  if (p && s->desc.zero && b->size > was) memset(p + was, 0, b->size - was);
  return p;
}

/* What the system's allocator may have more in a block than was asked for: a share, as some round
 * up to classes. Taken of a limit beforehand, since a block that was resized cannot be refused. */
static size_t spare_of(const lm_strategy *s, size_t size) {
  return s->desc.kind == LM_KIND_SYSTEM ? size / 4 + 64 : 0;
}

/* By its own allocator. The block is out of the books meanwhile: once its allocator has it, its
 * address may be somebody else's block before we know. */
static bool resize_foreign(order *o, lm_strategy *s, lm_token token, block *b) {
  block old;
  lm_strategy *from = lm_strategy_at(b->strategy);
  size_t more = from != s ? o->size : o->size > b->size ? o->size - b->size : 0;
  if (more) more += spare_of(s, o->size);
  if (!lm_strategy_limit_take(s, more)) return false;
  if (!foreign_take(o->t, b->base, &old)) {
    lm_strategy_limit_give(s, (int64_t)more);
    return false;
  }
  o->t->inside++;
  char *p = lm_provider_resize(&old.foreign, o->size);
  o->t->inside--;
  if (!p) {
    order again = *o;
    again.site = lm_site_at(lm_site_token_index(old.token));
    lm_strategy_limit_give(s, (int64_t)more);
    record(&again, from, old.token, &old);
    return false;
  }
  old.foreign.base = old.foreign.made = p;
  old.foreign.size = lm_provider_size(&old.foreign, p, o->size);
  describe_foreign(&old.foreign, b);
  /* At no moment less than what lives. */
  bool stays = lm_strategy_limit_is_shared(from, s);
  lm_strategy_limit_give(s, (int64_t)more - (int64_t)b->size + (stays ? (int64_t)old.size : 0));
  if (!stays) lm_strategy_limit_give(from, (int64_t)old.size);
  record(o, s, token, b);
  return true;
}

/* Whether a member of the chain is what made the block, and can change it where it is. */
static bool is_own(const lm_strategy *s, const block *b) {
  return b->is_foreign ? lm_provider_can_resize(&b->foreign, s)
                       : s->id == lm_strategy_whole(b->strategy);
}

static bool resize(order *o, lm_strategy *s, lm_token token, block *b) {
  if (!is_own(s, b)) return false;
  return b->is_foreign ? resize_foreign(o, s, token, b) : resize_host(o, s, token, b);
}

/* A block that became another without moving to another strategy is told as what it grew by. */
static void *resized(order *o, lm_strategy *s, const block *was, const block *is) {
  if (lm_site_token_index(was->token) != o->site->index ||
      lm_strategy_whole(was->strategy) != s->id)
    lm_stats_note(o->t, o->site->index, s->id, 1, is->size);
  else if (is->size > was->size)
    lm_stats_note(o->t, o->site->index, s->id, 0, is->size - was->size);
  return is->base;
}

static bool copy(const order *o, const block *from, const block *to) {
  size_t size = from->size < o->size ? from->size : o->size;
  if (o->wish.want == LM_WANT_DEVICE)
    return lm_provider_copy(from->foreign.device, to->base, from->base, size, o->wish.stream);
  memcpy(to->base, from->base, size);
  return true;
}

static void *moved(order *o, lm_strategy *s, uint32_t at, const block *from, const block *to) {
  bool copied = copy(o, from, to);
  const block *gone = copied ? from : to;
  lm_engine_free_on(gone->base, SIZE_MAX, gone->is_foreign ? &o->wish.stream : NULL);
  return copied ? served(o, s, at, to) : NULL;
}

static void *realloc_by_default(order *o, lm_token token, const block *was) {
  block b;
  lm_strategy *s = lm_provider_default(&o->wish);
  if (!s) return NULL;
  if (serve(o, s, token, &b)) return moved(o, s, 1, was, &b);
  missed(o, s);
  return failed(o, s, 1);
}

static void *realloc_chain(order *o, const block *was) {
  answer a;
  uint32_t asked = 0;
  lm_strategy *s = NULL;
  lm_thread_enter(o->t);
  decide(o, &a);
  lm_thread_leave(o->t);
  for (uint32_t i = 0; i < a.n; i++) {
    block b = *was;
    s = lm_strategy_at(a.chain[i]);
    if (!lm_provider_fits(&o->wish, s)) continue;
    if (s->desc.kind == LM_KIND_DENY) return denied(o);
    if (resize(o, s, a.token, &b)) return resized(o, s, was, &b);
    if (serve(o, s, a.token, &b)) return moved(o, s, asked, was, &b);
    asked++;
    missed(o, s);
  }
  if (!asked) return realloc_by_default(o, a.token, was);
  if (o->size > was->size) return failed(o, s, a.n);
  lm_pool_note_oversized(o->size, was->size); /* what is to shrink may stay */
  return was->base;
}

/* Whether the object may stay for the new size. A shrink to less than half of the block is worth a
 * move (lm_pool_resize says the same). */
static bool fits(const lm_map_object *place, size_t size) {
  return size <= place->size && (size > place->size / 2 || place->size <= 64);
}

/* Whether a block with slots of its own would end at the same page. */
static bool is_as_large(const lm_map_object *place, size_t size) {
  return lm_align_up(size, LM_PAGE) == place->size;
}

/* Whether the new size, at most LM_LARGE_MAX, is decided as the object was: then it is what would
 * be had. */
static bool is_same(lm_thread *t, loam_site *site, const lm_map_object *place, size_t size) {
  lm_token token;
  lm_thread_enter(t);
  lm_decision *d = lm_engine_decision(site);
  token = lm_site_token_now(site, atomic_load_explicit(&d->token, memory_order_relaxed));
  const lm_plan *plan = atomic_load_explicit(&d->plan, memory_order_acquire);
  lm_serve serve = lm_lane_look_up(plan, size, false);
  uint32_t strategy = serve.strategy;
  bool is_whole = serve.bin == LM_BIN_HERE || serve.bin == LM_BIN_ASKS;
  if (lm_unlikely(serve.bin == LM_BIN_ASKS))
    strategy = (uint32_t)lm_lane_ask(t, plan, serve.node, site, size);
  lm_thread_leave(t);
  return serve.bin && token == place->token &&
         (strategy == place->strategy ||
          (is_whole && strategy == lm_strategy_whole(place->strategy)));
}

/* What lm_engine_give refused. */
static LM_NOINLINE void give_back(lm_thread *t, void *ptr) {
  lm_located refused = { 0 };
  lm_thread_begin(t);
  bool done = lm_pool_give_or(t, ptr, &refused);
  if (refused.mark)
    done = lm_engine_give_near(t, ptr, refused) || lm_engine_give_far(t, ptr, refused);
  lm_thread_leave(t);
  if (!done) lm_engine_free(ptr, SIZE_MAX);
}

LM_NOINLINE void *lm_engine_again(lm_thread *t, loam_site *site, void *ptr, size_t size) {
  lm_map_object place;
  if (!lm_map_find_fast(ptr, &place) || place.base != (uintptr_t)ptr) return NULL;
  if (t->inside || is_nested(ptr)) return NULL;
  if (!site) site = lm_site_of(place.token);
  if (place.large) return is_as_large(&place, size) && is_same(t, site, &place, size) ? ptr : NULL;
  if (size > LM_SMALL_MAX) return NULL;
  if (fits(&place, size)) return is_same(t, site, &place, size) ? ptr : NULL;
  if (lm_unlikely(lm_strategy_at(place.strategy)->desc.asked))
    return NULL; /* what was asked stays */
  void *p = lm_engine_take_or(t, site, size);
  if (!p) p = lm_engine_decided(t, site, size, false, 0);
  if (!p) return NULL;
  memcpy(p, ptr, place.size < size ? place.size : size);
  if (!lm_engine_give(t, ptr)) give_back(t, ptr);
  return p;
}

void *lm_engine_realloc(loam_site *site, void *ptr, size_t size) {
  if (!ptr) return lm_engine_alloc(site, size, 16, false);
  if (size > LM_SIZE_MAX) return too_large(size);
  lm_thread *t = lm_thread_get();
  if (!t) return lm_error_null("size %zu: no memory for what a thread has of loam", size);
  block b;
  if (!find(ptr, &b) || b.base != ptr) {
    tell_wrong("realloc", ptr);
    lm_error(LOAM_EBADPTR, "realloc of %p: it is not the start of a live block", ptr);
    return NULL;
  }
  if (!site) site = lm_site_at(lm_site_token_index(b.token));
  order o = { t, site, { { .size = size, .align = 16 } }, "" };
  if (b.is_foreign) {
    o.wish.want = (lm_want)b.foreign.want;
    o.wish.flags = b.foreign.flags;
    o.wish.stream = b.foreign.stream;
  } else if (lm_strategy_at(b.strategy)->desc.asked) {
    o.wish.want = LM_WANT_PINNED;
  }
  return realloc_chain(&o, &b);
}

/* ---- Start -------------------------------------------------------------------------------- */

void lm_engine_start(void) {
  static _Atomic bool begun;
  if (atomic_exchange_explicit(&begun, true, memory_order_relaxed)) return;
  lm_pool_start();
  lm_site_start();
  lm_stats_start();
  lm_settle_start();
}
