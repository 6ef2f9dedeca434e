/* share_export.h - blocks of shared memory that other processes may open: the owner's side.
 *
 * A block that was shown has a key, in its span (large.h). Who comes with key and place gets a
 * descriptor of the pool's file, opened for him alone, with a lock of the block's part of it. His
 * mapping keeps the lock, whatever becomes of descriptors and of either process: the owner knows,
 * when the block is freed, whether somebody has it still.
 *
 * Whoever opens sets the lock and then looks at the key; whoever frees takes the key away and then
 * looks at the lock: so one of them sees the other. */
#ifndef LM_SHARE_EXPORT_H
#define LM_SHARE_EXPORT_H

#include "loam.h"
#include "os/base.h"

/* The handle of a live block of shared memory, for processes other than this one. */
loam_status lm_share_export_key(const void *p, loam_share *out);
/* What a handle stands for: a descriptor, which is the caller's, and the block's size. */
loam_status lm_share_export_open(uint64_t key, uint64_t offset, int *fd, size_t *size);

#endif
