/* region.c - preparing memory of the range as a strategy asks. */
#include "pages/region.h"

#include <errno.h>

#include "os/available.h"

const char lm_region_no_memory[] = "it has no memory";
static const char no_room_on_nodes[] = "its nodes have no room";

size_t lm_region_page_size(const lm_preparation *how) { return how->page ? how->page : LM_PAGE; }

bool lm_region_is_eager(const lm_preparation *how) {
  return how->page || how->prefault || how->lock || how->registered ||
         (how->backing && how->backing->reserves);
}

bool lm_region_is_plain(const lm_preparation *how) {
  return !how->backing && !how->stays && !lm_region_is_eager(how);
}

/* Binds a range to the nodes of a placement. A kernel or container that refuses mbind does no harm
 * on a machine with one node. It does none either where memory is to be local, since the kernel
 * puts a page on the node of the first touch by itself. */
static const char *bind_range(const lm_placement *placement, void *at, size_t size) {
  if (!placement || placement->mode == LM_BIND_DEFAULT) return NULL;
  int error = lm_numa_bind(at, size, placement);
  bool refused = error == EPERM || error == ENOSYS;
  bool needless = lm_is_pow2((size_t)lm_numa_nodes()) || placement->mode == LM_BIND_LOCAL;
  if (!error || (refused && needless)) return NULL;
  return refused           ? "placing memory (mbind) is refused here"
         : error == EINVAL ? "its nodes are not there"
                           : lm_region_no_memory;
}

/* Returns whether every page must get its memory in lm_region_prepare. A huge page that is
 * reserved, but bound to a node without a free one, would end the process with SIGBUS at its first
 * touch. */
static bool must_prefault(const lm_preparation *how) {
  return how->prefault || (how->page && how->placement);
}

/* Returns a bit for each node that the memory must be on; 0: on any. */
static uint64_t bound_nodes(const lm_preparation *how) {
  return how->placement && how->placement->mode == LM_BIND_BIND ? how->placement->nodes : 0;
}

/* Returns whether lm_region_prepare takes usual pages of the system for all of the memory. */
static bool takes_all(const lm_preparation *how) {
  return (how->prefault || how->lock) && !how->page && !how->backing;
}

bool lm_region_populates(const lm_preparation *how) {
  return bound_nodes(how) && !lm_is_pow2((size_t)lm_numa_nodes()) && !takes_all(how) &&
         !how->page && !how->backing;
}

static const char *words_no_room(uint64_t nodes) {
  return nodes ? "its nodes or its control group have no room" : "its control group has no room";
}

const char *lm_region_populate(const lm_preparation *how, void *at, size_t size) {
  lm_assert((uintptr_t)at % LM_PAGE == 0 && size > 0);
  if (lm_likely(!how->placement) || !lm_region_populates(how)) return NULL;
  if (!lm_available_has(size, bound_nodes(how))) return words_no_room(bound_nodes(how));
  int error = lm_sys_prefault(at, size);
  /* An older kernel cannot do it, a container may refuse it. Then lm_available_has must do. */
  return !error || error == EINVAL || error == EPERM || error == ENOSYS ? NULL : no_room_on_nodes;
}

static const char *words_no_page(const lm_preparation *how) {
  if (how->placement) return "its nodes have no such huge page free";
  return how->page == LM_GIB ? "no page of 1 GiB is free" : "no page of 2 MiB is free";
}

static const char *words_not_prefaulted(const lm_preparation *how, int error) {
  if (error == EPERM || error == ENOSYS)
    return "taking memory beforehand (madvise) is refused here";
  if (error == EINVAL) return "this kernel cannot take memory beforehand";
  return how->page ? words_no_page(how) : bound_nodes(how) ? no_room_on_nodes : lm_region_no_memory;
}

static bool make_accessible(const lm_preparation *how, void *at, size_t size) {
  if (how->backing) return lm_backing_map(how->backing, at, size);
  return !(how->page ? lm_sys_commit_huge(at, size, how->page) : lm_sys_commit(at, size));
}

const char *lm_region_prepare(const lm_preparation *how, void *at, size_t size) {
  lm_assert(lm_map_owns(at) && (uintptr_t)at % LM_PAGE == 0 && size > 0);
  lm_assert(!how->page || ((uintptr_t)at | size) % how->page == 0);
  if (takes_all(how) && !lm_available_has(size, bound_nodes(how)))
    return words_no_room(bound_nodes(how));
  if (!make_accessible(how, at, size)) return how->page ? words_no_page(how) : lm_region_no_memory;
  /* A kernel without transparent huge pages refuses. Then the memory has small pages. */
  if (how->thp) (void)lm_sys_advise_huge(at, size, how->thp > 0);
  const char *why = bind_range(how->placement, at, size);
  if (why) return why;
  if (how->backing && !lm_backing_reserve(how->backing, at, size)) return lm_region_no_memory;
  int error = must_prefault(how) ? lm_sys_prefault(at, size) : 0;
  if (error) return words_not_prefaulted(how, error);
  if (how->lock && lm_sys_mlock(at, size)) return "no more memory may be locked";
  return NULL;
}

bool lm_region_punch(const lm_preparation *how, void *at, size_t size) {
  return !how->backing || lm_backing_punch(how->backing, at, size, how->lock);
}
