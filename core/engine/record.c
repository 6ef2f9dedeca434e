/* record.c - what loam knows of a live block, and how it keeps account of it. */
#include "engine/record.h"

#include "device/provider.h"
#include "heap/large.h"
#include "os/spare.h"

_Atomic uint64_t lm_record_nested;

bool lm_record_is_valid(const lm_record *b) {
  bool in_heap = b->maker == LM_PROVIDER_HEAP;
  bool has_size = b->size || (in_heap && lm_large_is_empty(b->base, 1));
  return b->base && has_size && b->strategy < lm_strategy_count() &&
         lm_site_at(lm_site_token_index(b->token)) && (!in_heap || lm_pool_owns(b->base));
}

bool lm_record_find(const void *p, lm_record *out) {
  lm_object object;
  bool in_pool = lm_pool_owns(p);
  if ((!in_pool || lm_record_is_nested(p)) && lm_provider_find(p, out)) return true;
  if (!in_pool || !lm_pool_find(p, &object)) return false;
  lm_record_of_object(&object, out);
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

/* Ends the account of a block that is in the table no more. */
static void uncount(const lm_record *b) {
  lm_site_add_live(b->token, -(int64_t)b->size);
  if (lm_record_is_nested(b->base))
    atomic_fetch_sub_explicit(&lm_record_nested, 1, memory_order_relaxed);
}

bool lm_record_enter(lm_thread *t, const loam_site *site, lm_token token, lm_record *b,
                     lm_provided_node *node) {
  lm_object object;
  lm_record inner, stale;
  lm_assert(b->maker != LM_PROVIDER_HEAP && b->base && b->size && !lm_thread_is_active());
  lm_thread_enter(t);
  token = lm_site_token_now(site, token);
  bool in_pool = lm_pool_find(b->base, &object);
  b->token = in_pool ? token & ~LM_TOKEN_COUNTED : token;
  bool ok = lm_provided_put(b, node, &stale);
  if (ok && in_pool) {
    lm_record_of_object(&object, &inner);
    lm_record_retoken(&inner, token | LM_TOKEN_COUNTED);
    atomic_fetch_add_explicit(&lm_record_nested, 1, memory_order_relaxed);
  } else if (ok) {
    lm_site_add_live(token, (int64_t)b->size);
  }
  if (ok && stale.size) uncount(&stale);
  lm_thread_leave(t);
  if (ok && stale.size) lm_strategy_limit_give(lm_strategy_at(stale.strategy), (int64_t)stale.size);
  return ok;
}

bool lm_record_remove(lm_thread *t, const void *p, lm_record *out, lm_provided_node **node) {
  lm_thread_enter(t);
  bool is_there = lm_provided_take(p, out, node);
  if (is_there) uncount(out);
  lm_thread_leave(t);
  return is_there;
}

size_t lm_record_usable(const void *p) {
  lm_record b;
  size_t size = lm_record_is_nested(p) ? 0 : lm_pool_usable(p);
  if (lm_likely(size != 0) || (size = lm_spare_usable(p))) return size;
  return lm_record_find(p, &b) && b.base == p ? b.size : 0;
}
