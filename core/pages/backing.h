/* backing.h - the file that holds a pool's memory, for a pool that does not use plain memory: a
 * file in memory, which other processes may map, or a file on a disk, which may be larger than
 * memory.
 *
 * An address of the range has the offset (address - lm_map.base) in the file. So nothing has to be
 * noted about where a region is in its file, and regions join like those of plain memory do. The
 * file has holes at the addresses that are in no region of the pool.
 *
 * The file has no name. The host may close its descriptor, like all descriptors that loam opens
 * (os/descriptor.h). Memory that is mapped stays mapped, and the next region is in a new file.
 * Blocks in the old file can then not be shown to other processes.
 *
 * Fork: the memory and the file belong to the parent. The child sees in its blocks what the parent
 * writes to them, up to the child's first store to a page: from then on it has its own copy of the
 * page. So a child never changes what its parent sees. New blocks of the child are in a new file.
 */
#ifndef LM_BACKING_H
#define LM_BACKING_H

#include "os/descriptor.h"
#include "pages/map.h"

/* The file of one pool. The lock of the regions in it guards all fields except `dir` and
 * `reserves`, which are constant, and `error`.
 *
 * Law: without `is_open` there is no file and `lost` is false. A region of the current file ends at
 * offset `length` or before. */
typedef struct lm_backing {
  const char *dir;    /* folder of the file on a disk; NULL: the file is in memory */
  bool reserves;      /* a region gets its memory, or its room on the disk, before it is touched */
  bool is_open;       /* a file was opened, and not given up by a fork */
  bool lost;          /* some regions are in a file whose descriptor the host has closed */
  lm_descriptor file; /* of the current file */
  uint64_t length;    /* bytes of the current file, with its holes */
  _Atomic int error;  /* errno of the last failure to make a region; 0: none. Relaxed: words for
                         people are made of it, and nothing else */
} lm_backing;

/* Prepares a struct whose bytes are zero. Opens no file: the first region does. `dir` is NULL or
 * must stay valid as long as the struct. */
void lm_backing_init(lm_backing *b, const char *dir);
/* Closes the descriptor of the file. */
void lm_backing_finish(lm_backing *b);

/* Maps the file at a place in the range, readable and writable; opens and lengthens the file if
 * that is needed. False: the system refuses (lm_backing_why). The lock is held. */
bool lm_backing_map(lm_backing *b, void *at, size_t size);
/* Takes the memory or the room on the disk for a mapped place, if this backing reserves at all. To
 * be called after the place was bound to nodes and advised. False: there is none. The lock is
 * held. */
bool lm_backing_reserve(lm_backing *b, void *at, size_t size);
/* Removes the content of a place from the file, and its memory or room with it. `locked` says that
 * the place is locked in memory (mlock). False if the system refuses: then nothing has changed.
 * Needs no lock. */
bool lm_backing_punch(const lm_backing *b, void *at, size_t size, bool locked);
/* Returns whether another process still uses a place that was shown to it; also true when that
 * cannot be found out. */
bool lm_backing_is_held(const lm_backing *b, void *at, size_t size);

/* In a forked child, for each place in use that is a shared mapping of the parent's file: replaces
 * it by a private mapping, or by a copy if the host has closed the file. If the system refuses
 * both, the child can only read the place, or a part of it, and sees the parent's stores there.
 * Returns false then: nothing may be allocated in the place. */
bool lm_backing_inherit(const lm_backing *b, void *at, size_t size);
/* In a forked child, after lm_backing_inherit for all places: closes the parent's file. */
void lm_backing_fork_child(lm_backing *b);

/* Says why a folder cannot hold such a file, in `words` or in a static text; NULL: it can, as far
 * as a trial shows. Makes and removes an unnamed file there. Any thread. */
const char *lm_backing_refusal(const char *dir, char *words, size_t size);
/* Says why the last region could not be made. Static text. Any thread. */
const char *lm_backing_why(const lm_backing *b);
/* Returns whether the law above holds. The lock is held. */
bool lm_backing_is_valid(const lm_backing *b);

/* Returns the offset in the file of an address of the range. */
LM_INLINE uint64_t lm_backing_offset(const void *at) { return (uintptr_t)at - lm_map.base; }

#endif
