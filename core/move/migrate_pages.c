/* migrate_pages.c - changes the preparation of pages in use: mbind(2) and move_pages(2) for NUMA
 * nodes, madvise(2) for huge pages, mlock(2) for locked pages. */
#include "move/migrate_pages.h"

#include <errno.h>
#include <string.h>

#define HUGE (2 * LM_MIB)

/* The placement of a preparation that has none. */
static const lm_placement anywhere;

static const lm_placement *placement_of(const lm_preparation *how) {
  return how->placement ? how->placement : &anywhere;
}

static bool has_same_placement(const lm_preparation *a, const lm_preparation *b) {
  return !memcmp(placement_of(a), placement_of(b), sizeof(lm_placement));
}

const char *lm_migrate_pages_refusal(const lm_preparation *from, const lm_preparation *to,
                                     const void *at, size_t size) {
  lm_assert(size && ((uintptr_t)at | size) % LM_PAGE == 0);
  if (from->page != to->page)
    return "memory in use cannot change to or from pages of an exact size";
  if (to->page && ((uintptr_t)at | size) % to->page) return "it shares its huge pages";
  return NULL;
}

/* Splits the huge page that holds `page` if `edge`, an end of the range, lies within it. Otherwise
 * the kernel would move the whole huge page, with memory beyond the range. MADV_COLD of one small
 * page makes the kernel split the huge page. */
static void split_at(uintptr_t edge, uintptr_t page) {
  lm_assert(page % LM_PAGE == 0);
  if (edge % HUGE) (void)lm_sys_advise_cold((void *)page, LM_PAGE);
}

/* Splits every huge page that lies within the range. */
static void split_all(uintptr_t from, uintptr_t end) {
  for (uintptr_t at = lm_align_up(from, HUGE); at + HUGE <= end; at += HUGE)
    (void)lm_sys_advise_cold((void *)at, LM_PAGE);
}

/* Returns whether memory without any advice gets transparent huge pages on this machine. madvise(2)
 * cannot take advice back; so for `thp` 0, loam gives the advice that matches the default. */
static bool is_huge_by_default(void) {
  char text[64];
  size_t length;
  return !lm_sys_read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text,
                           &length) &&
         strstr(text, "[always]");
}

static bool wants_huge(const lm_preparation *to) {
  return to->thp > 0 || (to->thp == 0 && is_huge_by_default());
}

/* The piece size in which a range is interleaved: a huge page or a page. Without advice, pieces are
 * as large as the pages would be when they are first touched; so a range without room for a huge
 * page is interleaved page by page. */
static size_t unit_of(const lm_preparation *to, const void *at, size_t size) {
  uintptr_t from = lm_align_up((uintptr_t)at, HUGE);
  bool has_room = from + HUGE <= (uintptr_t)at + size;
  return to->thp > 0 || (has_room && wants_huge(to)) ? HUGE : LM_PAGE;
}

/* Returns whether neighbouring pieces that are smaller than a huge page go to different nodes. Then
 * huge pages must be split first: the kernel moves a huge page as a whole. */
static bool cuts_huge_pages(const lm_preparation *to, size_t unit) {
  const lm_placement *p = placement_of(to);
  if (p->mode == LM_BIND_INTERLEAVE) return unit < HUGE;
  return p->mode == LM_BIND_WEIGHTED && !p->huge;
}

/* Moves the pages of a range to the nodes of a preparation. Returns 0 or an errno. */
static int place(const lm_preparation *to, void *at, size_t size) {
  lm_assert(size >= LM_PAGE && ((uintptr_t)at | size) % LM_PAGE == 0);
  uintptr_t from = (uintptr_t)at, end = from + size;
  split_at(from, from);
  split_at(end, end - LM_PAGE);
  size_t unit = unit_of(to, at, size);
  if (cuts_huge_pages(to, unit)) split_all(from, end);
  int error = lm_numa_rebind(at, size, placement_of(to), unit);
  /* On a machine with one node every page is in its place: no permission is needed. */
  bool has_one_node = lm_is_pow2((size_t)lm_numa_nodes());
  return has_one_node && lm_migrate_pages_is_barred(error) ? 0 : error;
}

/* Moves pages that were demoted to a node without CPUs to the nearest node with CPUs, as far as
 * there is room, if the new preparation names no nodes. Without this they would stay there. */
static void move_to_cpu_node(const lm_preparation *from, const lm_preparation *to, void *at,
                             size_t size) {
  int near = to->placement ? -1 : lm_numa_nearest_with_cpus(placement_of(from)->nodes);
  if (near < 0) return;
  lm_placement there = { .mode = LM_BIND_PREFERRED, .nodes = 1ull << near };
  (void)place(&(lm_preparation){ .placement = &there, .thp = to->thp }, at, size);
}

/* Makes huge pages of the small pages that fill whole huge pages of the range. */
static void collapse(void *at, size_t size) {
  uintptr_t from = lm_align_up((uintptr_t)at, HUGE);
  uintptr_t end = lm_align_down((uintptr_t)at + size, HUGE);
  if (from < end) (void)lm_sys_collapse((void *)from, end - from);
}

/* Gives the kernel the advice about huge pages of a preparation, and makes or splits huge pages. */
static void set_huge(const lm_preparation *to, void *at, size_t size) {
  bool wanted = wants_huge(to);
  (void)lm_sys_advise_huge(at, size, wanted);
  if (to->thp > 0) collapse(at, size);
  if (!wanted) split_all((uintptr_t)at, (uintptr_t)at + size);
}

/* Locks or unlocks the pages of a range where the two preparations differ. Returns 0 or an
 * errno. */
static int change_lock(const lm_preparation *from, const lm_preparation *to, void *at,
                       size_t size) {
  if (from->lock && !to->lock) return lm_sys_munlock(at, size);
  return to->lock && !from->lock ? lm_sys_mlock(at, size) : 0;
}

bool lm_migrate_pages_is_barred(int error) { return error == EPERM || error == ENOSYS; }

int lm_migrate_pages(const lm_preparation *from, const lm_preparation *to, void *at, size_t size) {
  lm_assert(from->page == to->page && size && ((uintptr_t)at | size) % LM_PAGE == 0);
  int error = change_lock(from, to, at, size); /* first, since it is the step that fails most */
  if (error) return error;
  move_to_cpu_node(from, to, at, size);
  if (!has_same_placement(from, to)) error = place(to, at, size);
  /* Barred means that nothing was changed: the lock is taken back, or the error is another one. */
  if (lm_migrate_pages_is_barred(error) && change_lock(to, from, at, size)) error = EBUSY;
  if (error) return error;
  if (from->thp != to->thp && !to->page) set_huge(to, at, size);
  error = to->prefault && !from->prefault ? lm_sys_prefault(at, size) : 0;
  return lm_migrate_pages_is_barred(error) ? EBUSY : error;
}

size_t lm_migrate_pages_misplaced(const lm_preparation *from, const lm_preparation *to,
                                  const void *at, size_t size, int *why) {
  *why = 0;
  if (!to->placement || has_same_placement(from, to)) return 0;
  return lm_numa_misplaced(at, size, to->placement, unit_of(to, at, size), why);
}

/* The kernel splits a huge page for which the node has no room; collapse makes it whole again. */
size_t lm_migrate_pages_fetch(const lm_preparation *how, void *at, size_t size, size_t *left,
                              int *why) {
  lm_assert(how->placement && how->placement->nodes);
  lm_numa_fetched done = lm_numa_fetch(at, size, how->placement, unit_of(how, at, size));
  *left = done.left;
  *why = done.why;
  if (how->thp > 0 && (done.came || done.left)) collapse(at, size);
  return done.came;
}
