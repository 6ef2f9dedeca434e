/* page_scan.c - reads the page table of another process, from /proc/PID/pagemap.
 *
 * Since Linux 6.7 a call (PAGEMAP_SCAN) returns the ranges of pages that are alike. It also tells
 * huge pages, and pages of zeros. Older kernels have only an entry of 64 bits for each page.
 * Documentation/admin-guide/mm/pagemap.rst of Linux describes both. */
#include "cli/page_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/sys.h"

/* ---- The interface of the kernel: headers before Linux 6.7 do not have it. */

enum { IS_PRESENT = 1 << 3, IS_SWAPPED = 1 << 4, IS_ZERO = 1 << 5, IS_HUGE = 1 << 6 };

typedef struct page_region {
  uint64_t start, end, categories;
} page_region;

typedef struct scan_argument {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
} scan_argument;

#define SCAN _IOWR('f', 16, scan_argument)

#define ENTRY_PRESENT ((uint64_t)1 << 63)
#define ENTRY_SWAPPED ((uint64_t)1 << 62)

/* ---- Reading ---- */

/* Notes a range of pages that are alike. */
static void note(lm_page_scan *scan, const page_region *region) {
  uintptr_t from = scan->base + ((uintptr_t)scan->first << LM_SLOT_SHIFT);
  uintptr_t end = from + ((uintptr_t)scan->slots << LM_SLOT_SHIFT);
  if (region->start < from || region->end > end) return;
  bool is_present = region->categories & IS_PRESENT && !(region->categories & IS_ZERO);
  for (uintptr_t at = region->start; at < region->end; at += LM_PAGE) {
    lm_slot_pages *slot = &scan->slot[(at - from) >> LM_SLOT_SHIFT];
    uint16_t bit = (uint16_t)(1u << (at - from) / LM_PAGE % LM_PAGE_SCAN_PAGES);
    if (is_present) slot->present |= bit;
    if (is_present && region->categories & IS_HUGE) slot->huge |= bit;
    if (region->categories & IS_SWAPPED) slot->swapped |= bit;
  }
}

/* Returns 0, or an errno value. */
static int read_ranges(lm_page_scan *scan) {
  page_region region[512];
  uintptr_t from = scan->base + ((uintptr_t)scan->first << LM_SLOT_SHIFT);
  scan_argument argument = {
    .size = sizeof argument,
    .start = from,
    .end = from + ((uintptr_t)scan->slots << LM_SLOT_SHIFT),
    .vec = (uintptr_t)region,
    .vec_len = LM_COUNT(region),
    .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
    .return_mask = IS_PRESENT | IS_SWAPPED | IS_ZERO | IS_HUGE,
  };
  while (argument.start < argument.end) {
    int n = ioctl(scan->fd, SCAN, &argument);
    if (n < 0) return errno;
    for (int i = 0; i < n; i++) note(scan, &region[i]);
    if (argument.walk_end <= argument.start) return EIO;
    argument.start = argument.walk_end;
  }
  return 0;
}

/* Returns 0, or an errno value. */
static int read_entries(lm_page_scan *scan) {
  size_t pages = (size_t)scan->slots * LM_PAGE_SCAN_PAGES, done = 0;
  uintptr_t first = scan->base / LM_PAGE + (uintptr_t)scan->first * LM_PAGE_SCAN_PAGES;
  while (done < pages * sizeof *scan->entry) {
    ssize_t n = pread(scan->fd, (char *)scan->entry + done, pages * sizeof *scan->entry - done,
                      (off_t)(first * sizeof *scan->entry + done));
    if (n <= 0) return n ? errno : EIO;
    done += (size_t)n;
  }
  for (size_t i = 0; i < pages; i++) {
    lm_slot_pages *slot = &scan->slot[i / LM_PAGE_SCAN_PAGES];
    uint16_t bit = (uint16_t)(1u << i % LM_PAGE_SCAN_PAGES);
    if (scan->entry[i] & ENTRY_PRESENT) slot->present |= bit;
    if (scan->entry[i] & ENTRY_SWAPPED) slot->swapped |= bit;
  }
  return 0;
}

static bool read_window(lm_page_scan *scan, uint32_t first) {
  if (lm_sys_clock_ns() > scan->remote->deadline_ns) scan->remote->is_late = true;
  if (scan->remote->is_late) return false;
  scan->first = first;
  scan->slots = scan->end - first;
  if (scan->slots > LM_PAGE_SCAN_SLOTS) scan->slots = LM_PAGE_SCAN_SLOTS;
  memset(scan->slot, 0, sizeof scan->slot);
  int error = scan->is_old ? read_entries(scan) : read_ranges(scan);
  if (!error) return true;
  scan->slots = 0;
  if (scan->is_old || (error != ENOTTY && error != EINVAL)) return false;
  scan->is_old = true;
  return read_window(scan, first);
}

/* ---- The interface ---- */

bool lm_page_scan_open(lm_page_scan *scan, lm_remote *remote, uintptr_t base, uint32_t end) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/pagemap", remote->pid);
  scan->remote = remote;
  scan->base = base;
  scan->end = end;
  scan->fd = open(path, O_RDONLY | O_CLOEXEC);
  return scan->fd >= 0;
}

void lm_page_scan_close(lm_page_scan *scan) {
  if (scan->fd >= 0) close(scan->fd);
  scan->fd = -1;
}

const lm_slot_pages *lm_page_scan_slot(lm_page_scan *scan, uint32_t slot) {
  lm_assert(slot < scan->end);
  bool is_there = slot - scan->first < scan->slots;
  return is_there || read_window(scan, slot) ? &scan->slot[slot - scan->first] : NULL;
}
