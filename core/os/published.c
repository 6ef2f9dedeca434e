/* published.c - the page of the published word. */
#include "os/published.h"

#include "os/lock.h"
#include "os/sys_file.h"
#include "os/thread.h"

/* Its alignment would leave gaps between other variables. */
LM_SPARSE lm_published_page lm_published __attribute__((aligned(LM_PAGE)));
lm_published_words lm_published_obeyed;

_Static_assert(sizeof lm_published == LM_PAGE, "the page holds nothing else");

/* Held while the page is mapped or unmapped, and while this process writes it. */
static lm_lock lock;
static _Atomic bool is_mapped; /* relaxed: only the holder of the lock changes it */

bool lm_published_is_mapped(void) { return atomic_load_explicit(&is_mapped, memory_order_relaxed); }

bool lm_published_begin_write(void) {
  lm_lock_take(&lock);
  if (!lm_published_is_mapped()) return true;
  lm_lock_drop(&lock);
  return false;
}

void lm_published_end_write(void) { lm_lock_drop(&lock); }

void lm_published_start(void) { lm_thread_add_fork_lock(&lock); }

int lm_published_map(int fd, uint64_t offset) {
  lm_lock_take(&lock);
  int error = lm_sys_file_cover(fd, offset, &lm_published, sizeof lm_published);
  if (!error) atomic_store_explicit(&is_mapped, true, memory_order_relaxed);
  lm_lock_drop(&lock);
  return error;
}

static void unmap_locked(void) {
  if (!lm_published_is_mapped()) return;
  if (lm_sys_file_uncover(&lm_published, sizeof lm_published)) return;
  atomic_store_explicit(&is_mapped, false, memory_order_relaxed);
  atomic_store_explicit(&lm_published_obeyed.word, 0, memory_order_relaxed);
  atomic_store_explicit(&lm_published_obeyed.number, 0, memory_order_relaxed);
}

void lm_published_unmap(void) {
  lm_lock_take(&lock);
  unmap_locked();
  lm_lock_drop(&lock);
}
