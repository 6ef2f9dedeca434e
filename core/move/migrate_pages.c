/* migrate_pages.c - brings memory in use from one preparation to another, at its address. */
#include "move/migrate_pages.h"

#include <errno.h>
#include <string.h>

#define HUGE (2 * LM_MIB)

static const lm_placement anywhere;

static const lm_placement *placement_of(const lm_preparation *how) {
  return how->placement ? how->placement : &anywhere;
}

static bool is_placed_alike(const lm_preparation *a, const lm_preparation *b) {
  return !memcmp(placement_of(a), placement_of(b), sizeof(lm_placement));
}

const char *lm_migrate_pages_refusal(const lm_preparation *from, const lm_preparation *to,
                                     const void *at, size_t size) {
  if (from->page != to->page) return "pages of an exact size cannot be had or left at its address";
  if (to->page && ((uintptr_t)at | size) % to->page) return "it shares its huge pages";
  return NULL;
}

/* A huge page that the range cuts would move as a whole, others' part of it too. What a page is
 * cooled for alone, it is split for. */
static void split_at(uintptr_t edge, uintptr_t page) {
  if (edge % HUGE) (void)lm_sys_advise_cold((void *)page, LM_PAGE);
}

static void split_all(uintptr_t from, uintptr_t end) {
  for (uintptr_t at = lm_align_up(from, HUGE); at + HUGE <= end; at += HUGE)
    (void)lm_sys_advise_cold((void *)at, LM_PAGE);
}

/* There is no word for "as before anything was said": it is what the machine does with such. */
static bool is_huge_by_default(void) {
  char text[64];
  size_t length;
  return !lm_sys_read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text,
                           &length) &&
         strstr(text, "[always]");
}

static bool is_huge(const lm_preparation *to) {
  return to->thp > 0 || (to->thp == 0 && is_huge_by_default());
}

/* Of what is interleaved. By default as it would be touched: what has no room for a huge page goes
 * page by page. */
static size_t unit_of(const lm_preparation *to, const void *at, size_t size) {
  uintptr_t from = lm_align_up((uintptr_t)at, HUGE);
  bool has_room = from + HUGE <= (uintptr_t)at + size;
  return to->thp > 0 || (has_room && is_huge(to)) ? HUGE : LM_PAGE;
}

/* What is shared out in pieces smaller than a huge page: one would go with each of its pieces. */
static bool is_shared_out(const lm_preparation *to, size_t unit) {
  const lm_placement *p = placement_of(to);
  if (p->mode == LM_BIND_INTERLEAVE) return unit < HUGE;
  return p->mode == LM_BIND_WEIGHTED && !p->huge;
}

static int place(const lm_preparation *to, void *at, size_t size) {
  uintptr_t from = (uintptr_t)at, end = from + size;
  split_at(from, from);
  split_at(end, end - LM_PAGE);
  size_t unit = unit_of(to, at, size);
  if (is_shared_out(to, unit)) split_all(from, end);
  int error = lm_numa_rebind(at, size, placement_of(to), unit);
  bool needless = lm_is_pow2((size_t)lm_numa_nodes()) && (error == EPERM || error == ENOSYS);
  return needless ? 0 : error;
}

/* Memory that is to be anywhere would stay on a node without CPUs, if that is where it was demoted
 * to: it comes back from there as far as there is room. */
static void bring_near(const lm_preparation *from, const lm_preparation *to, void *at,
                       size_t size) {
  int near = to->placement ? -1 : lm_numa_nearest_with_cpus(placement_of(from)->nodes);
  if (near < 0) return;
  lm_placement there = { .mode = LM_BIND_PREFERRED, .nodes = 1ull << near };
  (void)place(&(lm_preparation){ .placement = &there, .thp = to->thp }, at, size);
}

static void collapse(void *at, size_t size) {
  uintptr_t from = lm_align_up((uintptr_t)at, HUGE);
  uintptr_t end = lm_align_down((uintptr_t)at + size, HUGE);
  if (from < end) (void)lm_sys_collapse((void *)from, end - from);
}

static void set_huge(const lm_preparation *to, void *at, size_t size) {
  bool wanted = is_huge(to);
  (void)lm_sys_advise_huge(at, size, wanted);
  if (to->thp > 0) collapse(at, size);
  if (!wanted) split_all((uintptr_t)at, (uintptr_t)at + size);
}

static int change_lock(const lm_preparation *from, const lm_preparation *to, void *at,
                       size_t size) {
  if (from->lock && !to->lock) return lm_sys_munlock(at, size);
  return to->lock && !from->lock ? lm_sys_mlock(at, size) : 0;
}

bool lm_migrate_pages_is_barred(int error) { return error == EPERM || error == ENOSYS; }

int lm_migrate_pages(const lm_preparation *from, const lm_preparation *to, void *at, size_t size) {
  int error = change_lock(from, to, at, size); /* what fails most, first */
  if (error) return error;
  bring_near(from, to, at, size);
  if (!is_placed_alike(from, to)) error = place(to, at, size);
  if (lm_migrate_pages_is_barred(error) && change_lock(to, from, at, size)) error = EBUSY;
  if (error) return error;
  if (from->thp != to->thp && !to->page) set_huge(to, at, size);
  error = to->prefault && !from->prefault ? lm_sys_prefault(at, size) : 0;
  return lm_migrate_pages_is_barred(error) ? EBUSY : error;
}

size_t lm_migrate_pages_misplaced(const lm_preparation *from, const lm_preparation *to,
                                  const void *at, size_t size, int *why) {
  *why = 0;
  if (!to->placement || is_placed_alike(from, to)) return 0;
  return lm_numa_misplaced(at, size, to->placement, unit_of(to, at, size), why);
}

/* The kernel splits a huge page for which it finds no room. */
size_t lm_migrate_pages_fetch(const lm_preparation *how, void *at, size_t size, size_t *left,
                              int *why) {
  size_t came = lm_numa_fetch(at, size, how->placement, unit_of(how, at, size), left, why);
  if (how->thp > 0 && (came || *left)) collapse(at, size);
  return came;
}
