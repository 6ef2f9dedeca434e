/* metadata.h - memory for loam's own structures. It comes from the range, as the pools' memory
 * does, and never from malloc.
 *
 * Any thread may call these functions, before anything else and inside an allocation: they take
 * locks of this folder only, and use neither policies nor thread caches. Their memory is counted as
 * metadata. */
#ifndef LM_METADATA_H
#define LM_METADATA_H

#include "pages/map.h"

/* Returns `size` zeroed bytes, aligned to 16 bytes, and to a cache line if `size` is a multiple of
 * one. The caller owns them until lm_metadata_free. NULL: no memory. */
void *lm_metadata_alloc(size_t size);
/* Like lm_metadata_alloc, but the bytes may hold anything. */
void *lm_metadata_take(size_t size);
/* Returns `size` bytes that begin with the bytes of `p`, which is freed if they had to move. Added
 * bytes may hold anything. NULL: no memory, and p has not changed. NULL for p: as
 * lm_metadata_alloc. */
void *lm_metadata_realloc(void *p, size_t size);
/* Frees what the functions above returned; NULL is allowed. */
void lm_metadata_free(void *p);
/* Returns the usable bytes at p, at least as many as were asked for; 0 for NULL. */
size_t lm_metadata_size(const void *p);

/* Makes sure that this module's locks are renewed in a forked child. A module calls it before it
 * registers its own locks, which are then renewed later. */
void lm_metadata_start(void);
/* Returns the bytes of the range that this module may have memory in. */
size_t lm_metadata_held(void);
/* The slots of this module, for a process that reads them from outside (engine/outside.h). */
extern const struct lm_regions *const lm_metadata_outside __attribute__((visibility("hidden")));
/* Returns the bytes of the range that belong to this module. */
size_t lm_metadata_taken(void);
/* Gives all unused memory back to the system. */
void lm_metadata_trim(void);
/* One tick of decay (os/decay.h): gives back slots that were unused throughout the last interval,
 * at most *most, and subtracts their number from *most. Returns whether a later tick has more to
 * do. */
bool lm_metadata_decay(uint32_t *most);

/* Returns whether all structures of this module obey their laws. Takes the module's locks. */
bool lm_metadata_is_valid(void);

#endif
