/* device_export.h - blocks of a device that stand in memory mapped to addresses, and that other
 * processes may map: the owner's side.
 *
 * A driver's own handles are of memory that it allocated by itself; of what is mapped it gives
 * descriptors, piece by piece (extent.h). A block that was shown has a key. Who comes with key and
 * address, over the control socket, gets the piece of memory that stands at a place of the block;
 * the whole of it, and so of what shares it with the block. What he has mapped stays his when the
 * block is freed and the piece given back. */
#ifndef LM_DEVICE_EXPORT_H
#define LM_DEVICE_EXPORT_H

#include "loam.h"
#include "os/base.h"

typedef struct lm_device_export {
  uint64_t base, size; /* of the block */
  uint32_t key;        /* never 0 */
} lm_device_export;

/* The live block that p is in. False if that is in no mapped memory: then the driver's handles are
 * the way. *status: whether it can be shown. */
bool lm_device_export_key(const void *p, lm_device_export *out, loam_status *status);

/* A piece of memory under a block: from `at` on, `size` bytes. Those under all of the block are
 * from `begin` to `end`. */
typedef struct lm_device_export_piece {
  uint64_t begin, end, at, size;
} lm_device_export_piece;

/* The piece at an address in the block that begins at `base` and has the key; `fd` is the
 * caller's. */
loam_status lm_device_export_open(uint64_t base, uint32_t key, uint64_t at,
                                  lm_device_export_piece *out, int *fd);

#endif
