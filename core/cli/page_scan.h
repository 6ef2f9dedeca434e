/* page_scan.h - which pages of another process have memory, are in swap, or are huge. */
#ifndef LM_PAGE_SCAN_H
#define LM_PAGE_SCAN_H

#include "cli/remote.h"
#include "os/pagemap.h"
#include "pages/map.h"

enum { LM_PAGE_SCAN_PAGES = LM_SLOT / LM_PAGE, LM_PAGE_SCAN_SLOTS = 2048 };

/* The pages of a slot: a bit for each. A page of zeros that the kernel shows to all processes is
 * not present: it takes no memory. */
typedef struct lm_slot_pages {
  uint16_t present, swapped, huge;
} lm_slot_pages;

/* A window of slots, which are read together. */
typedef struct lm_page_scan {
  lm_remote *remote;
  uintptr_t base; /* where slot 0 begins */
  uint32_t end;   /* number of slots */
  lm_descriptor pagemap;
  /* The kernel refuses PAGEMAP_SCAN, as kernels before Linux 6.7 do: huge pages and pages of zeros
   * are not known. */
  bool is_old;
  uint32_t first, slots; /* the window */
  lm_slot_pages slot[LM_PAGE_SCAN_SLOTS];
  uint64_t entry[LM_PAGE_SCAN_SLOTS * LM_PAGE_SCAN_PAGES]; /* as an old kernel writes them */
} lm_page_scan;

/* Prepares zeroed memory for a process. False: its page table cannot be read. */
bool lm_page_scan_open(lm_page_scan *scan, lm_remote *remote, uintptr_t base, uint32_t end);
void lm_page_scan_close(lm_page_scan *scan);
/* Returns the pages of a slot, for the time until the next call; NULL: they cannot be read, or the
 * time is over. The caller asks for slots in ascending order, so few calls of the kernel serve
 * many slots. */
const lm_slot_pages *lm_page_scan_slot(lm_page_scan *scan, uint32_t slot);

#endif
