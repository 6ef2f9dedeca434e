/* share_export.c - blocks of shared memory that other processes may open: the owner's side. */
#include "heap/share_export.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "heap/pool.h"
#include "heap/pools.h"
#include "os/error.h"
#include "os/sys_file.h"

/* Finds the live block of shared memory that begins at p. Returns its pool; NULL: there is none. */
static lm_pool *find(const void *p, lm_map_object *out) {
  if (!lm_map_find(p, out) || !lm_state_is_live(out->state) || out->base != (uintptr_t)p)
    return NULL;
  const lm_strategy *s = lm_strategy_at(out->strategy);
  return s->desc.kind == LM_KIND_SHARED && out->large ? lm_pool_of(s) : NULL;
}

/* The key of a block, or LM_LARGE_LENT_*. Sequentially consistent, as the lock of the file orders
 * it against a free in another thread. */
static _Atomic uint64_t *lent_of(const lm_map_object *place) {
  lm_assert(place->large);
  return &lm_map_span_of_state(place->cell)->lent;
}

static loam_status refuse(const void *p) {
  lm_object object;
  if (!lm_pool_find(p, &object))
    return lm_error(LOAM_EBADPTR, "%p is in no live block of loam's pools", p);
  const lm_desc *desc = &lm_strategy_at(object.strategy)->desc;
  if (desc->kind != LM_KIND_SHARED)
    return lm_error(LOAM_EINVAL,
                    "%p is %s memory, of strategy '%s': others can open that of loam.shared alone",
                    p, lm_strategy_kind_text(desc->kind), desc->name);
  return lm_error(LOAM_EINVAL, "%p is %zu bytes into a block, not its start", p,
                  (size_t)((const char *)p - (const char *)object.base));
}

/* The block's key, which is made if it has none. If two threads make one, the first stays. */
static uint64_t key_of(_Atomic uint64_t *lent) {
  uint64_t key = atomic_load(lent), made;
  do made = lm_sys_random();
  while (made == LM_LARGE_LENT_NEVER || made == LM_LARGE_LENT_INHERITED);
  if (key == LM_LARGE_LENT_NEVER && atomic_compare_exchange_strong(lent, &key, made)) return made;
  return key;
}

/* Tells whether the host has closed the descriptor of the pool's file. */
static bool is_lost(lm_pool *pool) {
  lm_lock_take(&pool->regions.lock);
  bool lost = pool->backing.lost || !lm_descriptor_is_ours(&pool->backing.file);
  lm_lock_drop(&pool->regions.lock);
  return lost;
}

loam_status lm_share_export_key(const void *p, loam_share *out) {
  lm_map_object place;
  lm_pool *pool = find(p, &place);
  if (!pool) return refuse(p);
  if (atomic_load(lent_of(&place)) == LM_LARGE_LENT_INHERITED)
    return lm_error(LOAM_ESTATE,
                    "%p was allocated before the fork: it is the parent's to show to others", p);
  if (is_lost(pool))
    return lm_error(LOAM_ESTATE, "%p cannot be shown: the program has closed loam's descriptor", p);
  *out = (loam_share){ .pid = getpid(),
                       .key = key_of(lent_of(&place)),
                       .offset = lm_backing_offset(p),
                       .size = place.size };
  return LOAM_OK;
}

/* ---- Opening a handle --------------------------------------------------------------------- */

/* Opens the pool's file again, with a lock on a part of it. Returns 0 or an errno. */
static int open_locked_part(lm_pool *pool, uint64_t offset, size_t size, int *out) {
  int fd = -1, error = EBADF;
  lm_lock_take(&pool->regions.lock);
  if (!pool->backing.lost && lm_descriptor_is_ours(&pool->backing.file))
    error = lm_sys_file_reopen(pool->backing.file.fd, &fd);
  lm_lock_drop(&pool->regions.lock);
  if (error) return error;
  error = lm_sys_file_lock(fd, offset, size);
  if (error) lm_sys_file_close(fd);
  else *out = fd;
  return error;
}

/* Tells whether the block at p lives and has this key. A free waits for the lock before the span
 * becomes a part of something else. */
static bool is_known(lm_pool *pool, const void *p, uint64_t key) {
  lm_map_object place;
  lm_assert(key != LM_LARGE_LENT_NEVER && key != LM_LARGE_LENT_INHERITED);
  lm_lock_take(&pool->large.lock);
  bool known = find(p, &place) == pool && atomic_load(lent_of(&place)) == key;
  lm_lock_drop(&pool->large.lock);
  return known;
}

static loam_status gone(void) {
  return lm_error(LOAM_EBADPTR, "the block is not there any more: its owner has freed it");
}

static loam_status open_block(uint64_t key, uint64_t offset, int *fd, size_t *size) {
  lm_map_object place;
  const void *p = (void *)(lm_map.base + offset);
  lm_pool *pool = offset < atomic_load(&lm_map.top) ? find(p, &place) : NULL;
  bool has_key = key != LM_LARGE_LENT_NEVER && key != LM_LARGE_LENT_INHERITED;
  if (!pool || !has_key || !is_known(pool, p, key)) return gone();
  size_t slots = (size_t)atomic_load(&lm_map_span_of_state(place.cell)->slots) << LM_SLOT_SHIFT;
  int given, error = open_locked_part(pool, offset, slots, &given);
  if (error)
    return lm_error(LOAM_EIO, "the block's owner cannot open its file: %s", strerrordesc_np(error));
  if (!is_known(pool, p, key)) {
    lm_sys_file_close(given);
    return gone();
  }
  *fd = given;
  *size = place.size;
  return LOAM_OK;
}

/* The thread is active, so the pool does not end during this. */
loam_status lm_share_export_open(uint64_t key, uint64_t offset, int *fd, size_t *size) {
  lm_thread *t = lm_thread_get();
  if (!t) return lm_error(LOAM_ENOMEM, "no memory for what a thread has of loam");
  lm_thread_enter(t);
  loam_status status = open_block(key, offset, fd, size);
  lm_thread_leave(t);
  return status;
}
