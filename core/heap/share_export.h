/* share_export.h - blocks of shared memory that other processes may open: the owner's side.
 *
 * A block that was exported has a key, in its span's `lent` (large.h). A process that presents the
 * key and the place gets a descriptor of the pool's file, opened for it alone, with a lock on the
 * block's part of the file. The process's mapping keeps that lock, whatever becomes of the
 * descriptor and of either process. So the owner knows, when it frees the block, whether another
 * process maps it.
 *
 * Whoever opens a block sets the lock and then looks at the key. Whoever frees it removes the key
 * and then looks at the lock. So one of the two sees the other. */
#ifndef LM_SHARE_EXPORT_H
#define LM_SHARE_EXPORT_H

#include "loam.h"
#include "os/base.h"

/* Makes the handle of the live block of shared memory that begins at p, for other processes.
 * LOAM_EBADPTR, LOAM_EINVAL: there is no such block at p. LOAM_ESTATE: the block was inherited from
 * a parent, or the host has closed loam's descriptor. Any thread. */
loam_status lm_share_export_key(const void *p, loam_share *out);
/* Opens the block of a handle's key and offset: *fd is a descriptor, which the caller closes, and
 * *size the block's usable bytes. LOAM_EBADPTR: the block was freed, or the key is wrong;
 * LOAM_EIO, LOAM_ENOMEM. Any thread, not while active. */
loam_status lm_share_export_open(uint64_t key, uint64_t offset, int *fd, size_t *size);

#endif
