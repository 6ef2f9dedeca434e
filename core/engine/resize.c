/* resize.c - gives a live block another size without a copy, where whoever made it can. */
#include <string.h>

#include "device/provider.h"
#include "engine/chain.h"
#include "heap/freed_log.h"

/* Grows or shrinks a pool's block in place, or by moving its pages. NULL: nothing changed. The
 * token is replaced before the size: so a thread that walks live memory counts the old size. */
static char *pool_resize(lm_order *o, const lm_strategy *s, lm_record *b) {
  lm_object object;
  lm_token old = b->token;
  size_t was = b->size;
  lm_thread_enter(o->t);
  /* It may have become another strategy's since it was found (migrate.c). */
  if (!lm_pool_find(b->base, &object) || !lm_strategy_is_kin(lm_strategy_at(object.strategy), s)) {
    lm_thread_leave(o->t);
    return NULL;
  }
  lm_record_retoken(b, lm_site_token_now(o->r.site, o->token));
  char *p = lm_pool_resize(b->base, o->r.size) ? b->base : lm_pool_move(b->base, o->r.size);
  if (p && p != b->base)
    lm_freed_log_add(o->t, &(lm_object){ b->base, was, old, object.strategy, true, NULL });
  if (p) {
    lm_require(lm_pool_find(p, &object));
    lm_site_add_live(object.token, (int64_t)object.size - (int64_t)was);
    lm_record_of_object(&object, b);
  } else {
    lm_record_retoken(b, lm_site_token_now(lm_site_of(old), old));
  }
  lm_thread_leave(o->t);
  return p;
}

/* An estimate of the bytes by which the system's allocator exceeds the size of a request, since
 * some allocators round up to size classes. The bytes are taken from the limit before the resize,
 * because a block that was resized cannot be refused. */
static size_t spare_of(const lm_strategy *s, size_t size) {
  return s->desc.kind == LM_KIND_SYSTEM ? size / 4 + 64 : 0;
}

/* Resizes a provided block by the allocator that made it. During the call the table of provided
 * blocks does not have the block: as soon as the allocator frees the old address, another thread
 * may get a block there. */
static char *provider_resize(lm_order *o, const lm_strategy *s, lm_record *b) {
  lm_provided_node *node;
  if (!lm_record_remove(o->t, b->base, b, &node)) return NULL;
  lm_lock_suspended section = lm_thread_foreign_begin(o->t);
  char *p = lm_provider_resize(b, o->r.size);
  lm_thread_foreign_end(o->t, section);
  if (p) {
    b->base = b->made = p;
    b->size = lm_provider_size(b, p, o->r.size);
    b->asked = o->r.size ? o->r.size : 1;
    b->strategy = s->id;
  }
  lm_record_enter(o->t, p ? o->r.site : lm_site_of(b->token), p ? o->token : b->token, b, node);
  return p;
}

/* Before the resize, takes from the limit the most bytes that the block may gain. After it, gives
 * back those that the block did not gain. So the account is never below the live bytes. */
bool lm_resize(lm_order *o, lm_strategy *s, lm_record *b) {
  lm_strategy *from = lm_strategy_at(b->strategy);
  bool in_heap = b->maker == LM_PROVIDER_HEAP, stays = lm_strategy_limit_is_shared(from, s);
  lm_assert(lm_record_is_valid(b));
  if (!(in_heap ? lm_strategy_is_kin(from, s) : lm_provider_can_resize(b, &o->r, s))) return false;
  /* Only a large block can grow in place, and then by whole pages. */
  size_t size = in_heap ? lm_align_up(o->r.size, LM_PAGE) : o->r.size, was = b->size;
  size_t kept = stays ? was : 0, more = o->r.size > kept ? size - kept : 0;
  if (more) more += spare_of(s, o->r.size);
  if (!lm_strategy_limit_take(s, more)) return false;
  char *p = in_heap ? pool_resize(o, s, b) : provider_resize(o, s, b);
  lm_strategy_limit_give(s, (int64_t)more - (p ? (int64_t)b->size - (int64_t)kept : 0));
  if (p && !stays) lm_strategy_limit_give(from, (int64_t)was);
  if (p && in_heap && s->desc.zero && b->size > was) memset(p + was, 0, b->size - was);
  return p;
}
