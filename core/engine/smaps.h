/* smaps.h - the mappings of a process that lie in loam's address range: how much of each is in
 * memory, and how much of that is on huge pages. */
#ifndef LM_SMAPS_H
#define LM_SMAPS_H

#include "os/base.h"

/* A mapping with memory. The kernel tells huge pages only for a mapping as a whole.
 *
 * Law: from < to; huge <= resident. */
typedef struct lm_smaps_mapping {
  uintptr_t from, to;
  uint64_t resident, huge; /* bytes; `huge` counts transparent and reserved huge pages */
} lm_smaps_mapping;

/* Mappings with memory. Law: they rise in address and do not overlap; n <= room. */
typedef struct lm_smaps {
  lm_smaps_mapping *mapping;
  size_t n, room;
} lm_smaps;

/* Reads /proc/PID/smaps into a zeroed lm_smaps: the mappings that begin in [from, to). `pid` is 0
 * for this process. Returns false if the file cannot be read. Leaves mappings out when it has no
 * memory to list them. Never calls malloc. */
bool lm_smaps_read(lm_smaps *maps, int pid, uintptr_t from, uintptr_t to);
/* Returns whether the laws of the list and of each of its mappings hold. */
bool lm_smaps_is_valid(const lm_smaps *maps);
/* Gives back the memory of the list. */
void lm_smaps_finish(lm_smaps *maps);
/* Returns the first mapping that ends behind `at`, or lm_smaps_end if there is none. */
const lm_smaps_mapping *lm_smaps_behind(const lm_smaps *maps, uintptr_t at);
LM_INLINE const lm_smaps_mapping *lm_smaps_end(const lm_smaps *maps) {
  return maps->mapping + maps->n;
}

#endif
