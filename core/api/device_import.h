/* device_import.h - opens device memory of another process that is mapped to a range of addresses.
 *
 * This is the side of the process that opens the memory; device_export.h is the side of its owner.
 * A handle is as large as a handle of a driver, and is passed on in the same way; but it contains
 * the process, the block and a key. The opening process requests the pieces of memory under the
 * block from the control socket of the owner, one after the other, and maps them side by side. The
 * first and the last piece may contain other memory of the owner, which becomes visible too. */
#ifndef LM_DEVICE_IMPORT_H
#define LM_DEVICE_IMPORT_H

#include "device/device_export.h"
#include "gpu/gpu.h"

/* The pieces of one block of another process, mapped in this process. */
typedef struct lm_device_import lm_device_import;

/* Writes the handle of a block of this process. */
void lm_device_import_write(const lm_device_export *block, unsigned char handle[LM_GPU_IPC_SIZE]);

/* Returns whether lm_device_import_write, and not a driver, wrote the handle. */
bool lm_device_import_wrote(const unsigned char handle[LM_GPU_IPC_SIZE]);

/* Returns the bytes of the block of a handle that lm_device_import_write wrote. */
uint64_t lm_device_import_size(const unsigned char handle[LM_GPU_IPC_SIZE]);

/* Maps the block of a handle for a device; *at becomes its address in this process. Fails with
 * LOAM_EBADPTR if the block does not exist any more, LOAM_EIO if its owner does not answer, and
 * LOAM_EINVAL if the handle is not valid. Waits for the owner: call with no lock that it needs. */
loam_status lm_device_import_open(const unsigned char handle[LM_GPU_IPC_SIZE], int device,
                                  lm_device_import **out, void **at);

/* Unmaps the pieces, and frees their addresses. NULL does nothing. */
void lm_device_import_close(lm_device_import *import);

/* Returns whether the pieces obey the law in device_import.c. */
bool lm_device_import_is_valid(const lm_device_import *import);

#endif
