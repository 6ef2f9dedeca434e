/* device_export.h - other processes map blocks of device memory: the part of the process that owns
 * the block.
 *
 * A driver's own handles can name only memory that the driver allocated in one call. For memory
 * that is mapped to addresses piece by piece (extent.h) a driver makes a file descriptor for each
 * piece. A block that is exported has a key. A process that knows address and key asks for the
 * pieces over the control socket. It gets whole pieces, and so also sees other blocks that share a
 * piece with the block. Memory that it has mapped stays valid in that process when the owner frees
 * the block and returns the piece. */
#ifndef LM_DEVICE_EXPORT_H
#define LM_DEVICE_EXPORT_H

#include "loam.h"
#include "os/base.h"

typedef struct lm_device_export {
  uint64_t base, size; /* the block */
  uint32_t key;        /* a random number, never 0 */
} lm_device_export;

/* Exports the live block that `p` is in: fills in *out, and makes a key if there is none. Returns
 * false if `p` is in no block of mapped memory: then the driver's own handles can name it. If it
 * returns true, *status is LOAM_OK, or says with error words why the driver cannot export. The
 * thread is not in an active section. */
bool lm_device_export_key(const void *p, lm_device_export *out, loam_status *status);

/* A piece of memory under a block: `size` bytes from `at` on. The pieces under the whole block
 * reach from `begin` to `end`. Law: begin <= at, size > 0, at + size <= end. */
typedef struct lm_device_export_piece {
  uint64_t begin, end, at, size;
} lm_device_export_piece;

/* Finds the piece at address `at` of the block that begins at `base` and has the key, and makes a
 * file descriptor for it, which the caller closes. Fails with LOAM_EBADPTR if no live block has the
 * key, and with LOAM_EINVAL if `at` is not in the block's pieces. The thread is not in an active
 * section. */
loam_status lm_device_export_open(uint64_t base, uint32_t key, uint64_t at,
                                  lm_device_export_piece *out, int *fd);
/* Returns whether the law of a piece holds. */
bool lm_device_export_piece_is_valid(const lm_device_export_piece *piece);

#endif
