/* record.c - what loam knows of a live block, and how it keeps account of it. */
#include "engine/record.h"

#include "device/pinned.h"
#include "device/provider.h"
#include "heap/large.h"
#include "os/spare.h"

_Atomic uint64_t lm_record_nested;

bool lm_record_is_valid(const lm_record *b) {
  bool has_size = b->size || (!b->is_provided && lm_large_is_empty(b->base, 1));
  if (!b->base || !has_size || b->strategy >= lm_strategy_count()) return false;
  if (!lm_site_at(lm_site_token_index(b->token))) return false;
  if (!b->is_provided) return lm_pool_owns(b->base);
  return b->provided.base == b->base && b->provided.size == b->size;
}

/* ---- Finding ------------------------------------------------------------------------------ */

void lm_record_of_pool(const lm_object *object, lm_record *out) {
  out->base = object->base;
  out->size = object->size;
  out->token = object->token;
  out->strategy = object->strategy;
  out->is_provided = false;
}

void lm_record_of_provided(const lm_provided *f, lm_record *out) {
  *out = (lm_record){ f->base, f->size, f->token, f->strategy, true, *f };
}

static bool find_provided(const void *p, lm_record *out) {
  lm_provided f;
  if (!lm_provider_find(p, &f)) return false;
  lm_record_of_provided(&f, out);
  lm_assert(lm_record_is_valid(out));
  return true;
}

bool lm_record_find(const void *p, lm_record *out) {
  lm_object object;
  if (lm_record_is_nested(p) && find_provided(p, out)) return true;
  if (!lm_pool_owns(p)) return find_provided(p, out);
  if (!lm_pool_find(p, &object)) return false;
  lm_record_of_pool(&object, out);
  lm_assert(lm_record_is_valid(out));
  return true;
}

/* ---- Account ------------------------------------------------------------------------------ */

void lm_record_retoken(lm_record *b, lm_token token) {
  lm_assert(token != LM_TOKEN_NONE && lm_thread_is_active());
  lm_object now = { .token = b->token, .size = b->size };
  while (now.token != token && !lm_pool_retoken(b->base, now.token, token))
    if (!lm_pool_find(b->base, &now))
      return; /* the host frees the block while it resizes it: a mistake of the host's */
  lm_site_add_live(now.token, -(int64_t)now.size);
  lm_site_add_live(token, (int64_t)now.size);
  b->token = token;
}

bool lm_record_enter(lm_thread *t, const loam_site *site, const lm_strategy *s, lm_token token,
                     lm_record *b) {
  lm_object object;
  lm_assert(b->is_provided && b->base && b->size && !lm_thread_is_active());
  lm_thread_enter(t);
  b->token = lm_site_token_now(site, token);
  b->strategy = s->id;
  bool in_pool = lm_pool_find(b->base, &object);
  lm_provided entry = b->provided;
  entry.token = in_pool ? b->token & ~LM_TOKEN_COUNTED : b->token;
  entry.strategy = s->id;
  bool ok = lm_provided_put(&entry);
  if (ok && in_pool) {
    lm_record inner;
    lm_record_of_pool(&object, &inner);
    lm_record_retoken(&inner, b->token | LM_TOKEN_COUNTED);
    atomic_fetch_add_explicit(&lm_record_nested, 1, memory_order_relaxed);
  } else if (ok) {
    lm_site_add_live(b->token, (int64_t)b->size);
  }
  lm_thread_leave(t);
  return ok;
}

bool lm_record_remove(lm_thread *t, const void *p, lm_record *out) {
  lm_provided f;
  lm_thread_enter(t);
  bool is_there = lm_provided_take(p, &f);
  if (is_there) {
    lm_record_of_provided(&f, out);
    lm_site_add_live(f.token, -(int64_t)f.size);
    if (lm_record_is_nested(p))
      atomic_fetch_sub_explicit(&lm_record_nested, 1, memory_order_relaxed);
  }
  lm_thread_leave(t);
  return is_there;
}

/* ---- Answering ---------------------------------------------------------------------------- */

bool lm_record_is_block(const void *p) {
  lm_record b;
  return lm_record_find(p, &b) && b.base == p;
}

size_t lm_record_usable(const void *p) {
  lm_record b;
  size_t size = lm_record_is_nested(p) ? 0 : lm_pool_usable(p);
  if (lm_likely(size != 0) || (size = lm_spare_usable(p))) return size;
  return lm_record_find(p, &b) && b.base == p ? b.size : 0;
}

LM_INLINE void tell_owner(const lm_object *object, const lm_provided *provided,
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
  out->handler = provided ? lm_provider_name(provided) : "loam";
  out->generation = lm_site_generation_of(lm_site_token_slot(object->token));
  out->base = object->base;
  out->size = object->size;
  out->device = provided ? provided->device : -1;
  if (lm_unlikely(s->whole->twins != NULL) && !provided)
    out->device = lm_pinned_device(object->base);
  out->stream = provided ? provided->stream : NULL;
  out->handler_version = provided ? lm_provider_version(provided) : 0;
}

static LM_NOINLINE bool find_owner(const void *p, loam_owner_info *out) {
  lm_record b;
  if (!lm_record_find(p, &b)) return false;
  lm_object object = { b.base, b.size, b.token, b.strategy, true };
  tell_owner(&object, b.is_provided ? &b.provided : NULL, out);
  return true;
}

bool lm_record_owner(const void *p, loam_owner_info *out) {
  lm_map_object at;
  if (lm_unlikely(atomic_load_explicit(&lm_record_nested, memory_order_relaxed)))
    return find_owner(p, out);
  if (!lm_likely(lm_map_find_fast(p, &at))) return find_owner(p, out);
  size_t size = lm_large_usable((void *)at.base, at.size);
  tell_owner(&(lm_object){ (void *)at.base, size, at.token, at.strategy, at.large }, NULL, out);
  return true;
}
