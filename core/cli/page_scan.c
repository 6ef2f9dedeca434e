/* page_scan.c - reads the page table of another process, from /proc/PID/pagemap.
 *
 * By PAGEMAP_SCAN (os/pagemap.h), which also tells huge pages, and pages of zeros. Kernels before
 * Linux 6.7 have only an entry of 64 bits for each page. */
#include "cli/page_scan.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "os/sys.h"

#define ENTRY_PRESENT ((uint64_t)1 << 63)
#define ENTRY_SWAPPED ((uint64_t)1 << 62)

/* ---- Reading ---- */

static uintptr_t window_from(const lm_page_scan *scan) {
  return scan->base + ((uintptr_t)scan->first << LM_SLOT_SHIFT);
}
static uintptr_t window_to(const lm_page_scan *scan) {
  return window_from(scan) + ((uintptr_t)scan->slots << LM_SLOT_SHIFT);
}

/* Notes a range of pages that are alike. */
static void note(void *ctx, const lm_pagemap_run *run) {
  lm_page_scan *scan = ctx;
  uintptr_t from = window_from(scan);
  if (run->from < from || run->to > window_to(scan)) return;
  bool is_present = lm_pagemap_is_resident(run);
  for (uintptr_t at = run->from; at < run->to; at += LM_PAGE) {
    lm_slot_pages *slot = &scan->slot[(at - from) >> LM_SLOT_SHIFT];
    uint16_t bit = (uint16_t)(1u << (at - from) / LM_PAGE % LM_PAGE_SCAN_PAGES);
    if (is_present) slot->present |= bit;
    if (is_present && run->is & LM_PAGEMAP_HUGE) slot->huge |= bit;
    if (run->is & LM_PAGEMAP_SWAPPED) slot->swapped |= bit;
  }
}

static int read_ranges(lm_page_scan *scan) {
  return lm_pagemap_scan(&scan->pagemap, window_from(scan), window_to(scan), note, scan);
}

/* Returns 0, or an errno value. */
static int read_entries(lm_page_scan *scan) {
  size_t pages = (size_t)scan->slots * LM_PAGE_SCAN_PAGES, done = 0;
  uintptr_t first = scan->base / LM_PAGE + (uintptr_t)scan->first * LM_PAGE_SCAN_PAGES;
  while (done < pages * sizeof *scan->entry) {
    ssize_t n = pread(scan->pagemap.fd, (char *)scan->entry + done,
                      pages * sizeof *scan->entry - done,
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
  scan->remote = remote;
  scan->base = base;
  scan->end = end;
  scan->pagemap = lm_pagemap_open(remote->pid);
  return scan->pagemap.fd >= 0;
}

void lm_page_scan_close(lm_page_scan *scan) { lm_descriptor_close(&scan->pagemap); }

const lm_slot_pages *lm_page_scan_slot(lm_page_scan *scan, uint32_t slot) {
  lm_assert(slot < scan->end);
  bool is_there = slot - scan->first < scan->slots;
  return is_there || read_window(scan, slot) ? &scan->slot[slot - scan->first] : NULL;
}
