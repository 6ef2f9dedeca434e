/* in_fork.c - slow calls of malloc's family while another thread forks. */
#include "api/in_fork.h"

#include <string.h>

#include "api/memory.h"
#include "engine/record.h"

LM_NOINLINE void lm_in_fork_free_noted(void) {
  if (lm_lock_cancel_holds > 1) return;
  for (void *ptr; (ptr = lm_spare_next_noted());) lm_memory_free(ptr, SIZE_MAX, NULL, NULL);
}

/* The part of lm_in_fork_begin for a fork that lasts. These requests wait for the fork: a request
 * for pinned or device memory; and a request that names a handler, because the handler's own
 * function will reallocate the block. */
LM_NOINLINE void *lm_in_fork_alloc(const lm_request *r) {
  bool may_be_spare = r->want == LM_WANT_HOST && !r->handler;
  void *p = may_be_spare ? lm_spare_alloc(r->size, r->align) : NULL;
  if (!p) lm_lock_hold_cancel();
  return p;
}

/* The part of lm_in_fork_begin_free for a fork that lasts, and for spare blocks. `has_begun` says
 * whether the free has begun a guarded section. Returns true, in no section, if the block is free
 * or will be freed after the fork; else returns false, in a section. */
LM_NOINLINE bool lm_in_fork_free(void *ptr, const lm_stream *on, bool has_begun) {
  if (lm_spare_free(ptr) || (!has_begun && !on && lm_spare_note_free(ptr))) {
    if (has_begun) lm_lock_allow_cancel();
    return true;
  }
  if (!has_begun) lm_lock_hold_cancel();
  lm_in_fork_free_noted();
  return false;
}

void *lm_in_fork_realloc_spare(loam_site *site, void *ptr, size_t size) {
  size_t usable = lm_spare_usable(ptr);
  void *p = loam_malloc(site, size);
  if (!p) return NULL;
  memcpy(p, ptr, usable < size ? usable : size);
  (void)lm_spare_free(ptr);
  return p;
}

/* Moves an object of a pool to spare memory. Returns NULL if the realloc has to wait: the block is
 * of another kind, or there is no spare memory. */
static void *move_to_spare(void *ptr, size_t size) {
  lm_object object = { 0 };
  if (ptr && (lm_record_is_nested(ptr) || !lm_pool_find(ptr, &object))) return NULL;
  if (size > LM_SIZE_MAX || object.base != ptr) return NULL;
  void *p = lm_spare_alloc(size, 16);
  if (!p || !ptr) return p;
  memcpy(p, ptr, object.size < size ? object.size : size);
  loam_free(ptr);
  return p;
}

void *lm_in_fork_begin_realloc(void *ptr, size_t size) {
  if (lm_likely(lm_lock_try_hold())) return NULL;
  void *p = move_to_spare(ptr, size);
  if (!p) lm_lock_hold_cancel();
  return p;
}
