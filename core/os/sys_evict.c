/* sys_evict.c - gives back memory that maps a file, except the pages that were written to. */
#include <errno.h>
#include <sys/mman.h>

#include "os/sys.h"

/* What an entry of /proc/self/pagemap says of a page: the numbers of its bits, from the kernel's
 * pagemap.rst. */
enum { PAGE_IN_FILE = 61, PAGE_SWAPPED = 62, PAGE_PRESENT = 63 };

static bool has_bit(uint64_t entry, int bit) { return entry >> bit & 1; }

/* Returns whether a page was written to, so that it is no part of a file any more. */
static bool is_own_page(uint64_t entry) {
  return has_bit(entry, PAGE_SWAPPED) ||
         (has_bit(entry, PAGE_PRESENT) && !has_bit(entry, PAGE_IN_FILE));
}

/* Gives back the runs of pages that were not written to. `entry` has the `n` pages from `at` on. */
static int evict_runs(char *at, const uint64_t *entry, size_t n) {
  int error = 0, before = errno;
  size_t run = 0;
  for (size_t i = 0; i <= n && !error; i++) {
    if (i < n && !is_own_page(entry[i])) {
      run++;
    } else if (run) {
      if (madvise(at + (i - run) * LM_PAGE, run * LM_PAGE, MADV_DONTNEED)) error = errno;
      run = 0;
    }
  }
  errno = before;
  return error;
}

int lm_sys_evict_file(void *at, size_t size) {
  enum { ENTRIES = 128 };
  uint64_t entry[ENTRIES];
  int error = 0;
  char *page = at;
  for (size_t left = size / LM_PAGE, n; left && !error; page += n * LM_PAGE, left -= n) {
    size_t got = 0, first = (uintptr_t)page / LM_PAGE;
    n = left < ENTRIES ? left : ENTRIES;
    error = lm_sys_read_part("/proc/self/pagemap", first * sizeof *entry, entry, n * sizeof *entry,
                             &got);
    if (!error) error = got == n * sizeof *entry ? evict_runs(page, entry, n) : EIO;
  }
  return error;
}
