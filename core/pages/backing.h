/* backing.h - the file that a pool's memory is in, where it is not plain memory: one in memory that
 * other processes may be let into, or one on a disk that may be larger than memory.
 *
 * What stands at an address of the range stands in the file as far from its beginning as the
 * address is from the range's: so nothing has to be kept of where a region is in its file, and
 * regions join as those of plain memory do. The file has holes wherever the pool has no region.
 *
 * The file has no name. Its descriptor is the host's to close, like all that loam opens
 * (descriptor.h): what is mapped stays, and the next region is another file's; only blocks of the
 * file that is gone can then not be shown to other processes.
 *
 * Fork. The memory, and the file, are the parent's. The child sees in its blocks what the parent
 * sees, up to the first store to a page: from then on it has that page for itself. So a child never
 * disturbs its parent. What it allocates is in a file of its own. */
#ifndef LM_BACKING_H
#define LM_BACKING_H

#include "os/descriptor.h"
#include "pages/map.h"

/* Under the lock of the regions that are in it, but for `dir` and `reserves`, which are constant,
 * and `error`. */
typedef struct lm_backing {
  const char *dir;    /* of the file; NULL: it is in memory */
  bool reserves;      /* regions have their memory, or room on the disk, before a touch */
  bool is_open, lost; /* it has had a file; one of those was closed by the host */
  lm_descriptor file;
  uint64_t length;
  _Atomic int error; /* why there is no further region: an errno */
} lm_backing;

/* `b` is zeroed memory. Nothing is opened yet. */
void lm_backing_init(lm_backing *b, const char *dir);
void lm_backing_finish(lm_backing *b);
/* Puts the file's memory at a place in the range. */
bool lm_backing_map(lm_backing *b, void *at, size_t size);
/* Once it is bound and advised: the memory is there, where it has to be. */
bool lm_backing_reserve(lm_backing *b, void *at, size_t size);
/* Takes the memory of a place out of the file; false if the system does not. */
bool lm_backing_punch(const lm_backing *b, void *at, size_t size, bool locked);
/* Whether another process has what is at a place, which was shown to others. */
bool lm_backing_is_held(const lm_backing *b, void *at, size_t size);
/* In a forked child: what was the parent's at a place becomes a private view of it; and, when that
 * has been done of all places, the file is let go. */
void lm_backing_inherit(const lm_backing *b, void *at, size_t size);
void lm_backing_fork_child(lm_backing *b);

/* Why a folder will not do, in words; NULL: it will, so far as can be tried. */
const char *lm_backing_refusal(const char *dir, char *words, size_t size);
/* Why the last region could not be had. */
const char *lm_backing_why(const lm_backing *b);

LM_INLINE uint64_t lm_backing_offset(const void *at) { return (uintptr_t)at - lm_map.base; }

#endif
