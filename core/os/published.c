/* published.c - the page of the published word. */
#include "os/published.h"

#include "os/sys_file.h"

lm_published_page lm_published __attribute__((aligned(LM_PAGE)));
lm_published_words lm_published_obeyed;

_Static_assert(sizeof lm_published == LM_PAGE, "the page holds nothing else");

static _Atomic bool is_mapped; /* relaxed: the holder of the board's lock alone changes it */

bool lm_published_is_mapped(void) { return atomic_load_explicit(&is_mapped, memory_order_relaxed); }

int lm_published_map(int fd, uint64_t offset) {
  atomic_store_explicit(&is_mapped, true, memory_order_relaxed); /* no thread writes from now on */
  int error = lm_sys_file_cover(fd, offset, &lm_published, sizeof lm_published);
  if (error) atomic_store_explicit(&is_mapped, false, memory_order_relaxed);
  return error;
}

void lm_published_unmap(void) {
  if (!atomic_load_explicit(&is_mapped, memory_order_relaxed)) return;
  if (lm_sys_file_uncover(&lm_published, sizeof lm_published)) return;
  atomic_store_explicit(&is_mapped, false, memory_order_relaxed);
  atomic_store_explicit(&lm_published_obeyed.word, 0, memory_order_relaxed);
  atomic_store_explicit(&lm_published_obeyed.number, 0, memory_order_relaxed);
}
