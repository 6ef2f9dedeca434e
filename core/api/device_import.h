/* device_import.h - device memory of another process that it has mapped piece by piece: the side of
 * who opens it. The owner's is device_export.h.
 *
 * Its handle is as large as a driver's own and travels like one, but names process, block and key.
 * The pieces that the block is in are asked of the owner's control socket, one after the other, and
 * mapped next to each other; so what shares the first and the last with the block is seen, too. */
#ifndef LM_DEVICE_IMPORT_H
#define LM_DEVICE_IMPORT_H

#include "device/device_export.h"
#include "gpu/gpu.h"

typedef struct lm_device_import lm_device_import;

/* The handle of a block of this process. */
void lm_device_import_write(const lm_device_export *block, unsigned char handle[LM_GPU_IPC_SIZE]);
/* Whether a handle is of this kind. */
bool lm_device_import_is(const unsigned char handle[LM_GPU_IPC_SIZE]);

/* *at: where the block begins here. */
loam_status lm_device_import_open(const unsigned char handle[LM_GPU_IPC_SIZE], int device,
                                  lm_device_import **out, void **at);
void lm_device_import_close(lm_device_import *import);

#endif
