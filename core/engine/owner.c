/* owner.c - answers loam_owner: tag, place and strategy of the block at an address. */
#include "engine/owner.h"

#include "device/pinned.h"
#include "device/provider.h"
#include "engine/record.h"
#include "heap/large.h"

LM_INLINE void tell_owner(const lm_record *b, loam_owner_info *out) {
  const loam_site *site = lm_site_of(b->token);
  const lm_strategy *s = lm_strategy_at(b->strategy);
  bool in_heap = b->maker == LM_PROVIDER_HEAP;
  out->tag = site->where.tag;
  out->file = site->where.file;
  out->func = site->where.func;
  out->module = site->where.module;
  out->line = site->where.line;
  out->strategy = s->desc.name;
  out->kind = lm_strategy_kind_text(s->desc.kind);
  out->handler = in_heap ? "loam" : lm_provider_name(b);
  out->generation = lm_site_generation_of(lm_site_token_slot(b->token));
  out->base = b->base;
  out->size = b->size;
  out->device = b->device;
  if (lm_unlikely(s->whole->twins != NULL) && in_heap) out->device = lm_pinned_device(b->base);
  out->stream = b->stream;
  out->handler_version = in_heap ? 0 : lm_provider_version(b);
}

static LM_NOINLINE bool find_owner(const void *p, loam_owner_info *out) {
  lm_record b;
  bool found = lm_record_find(p, &b);
  if (found) tell_owner(&b, out);
  return found;
}

bool lm_owner_find(const void *p, loam_owner_info *out) {
  lm_map_object at;
  lm_record b;
  if (lm_unlikely(atomic_load_explicit(&lm_record_nested, memory_order_relaxed)) ||
      !lm_likely(lm_map_find_fast(p, &at)))
    return find_owner(p, out);
  size_t size = lm_large_usable((void *)at.base, at.size);
  lm_object object = { (void *)at.base, size, at.token, at.strategy, at.large, NULL };
  lm_record_of_object(&object, &b);
  tell_owner(&b, out);
  return true;
}
