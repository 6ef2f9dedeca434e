/* manager.h - who memory of devices, and pinned memory, comes from: the driver, or a table that the
 * host or LOAM_MANAGER brought, completed by the driver's.
 *
 * What is given back is collected first (defer.h). Results are as those of gpu.h: what failed has
 * set the thread's words. No lock is held while a manager or a driver is called. */
#ifndef LM_MANAGER_H
#define LM_MANAGER_H

#include "gpu/gpu.h"

enum { LM_MANAGER_INTERFACE = 1 }; /* of NBEP 7 */

/* The driver, which completes all others. */
extern const loam_manager lm_manager_driver;

/* loam_manager_set, of another than loam itself. */
loam_status lm_manager_set(const loam_manager *manager);
/* The manager in effect, complete, ready for the device; NULL, with words, if there is none. From
 * the first call on it stays. */
const loam_manager *lm_manager(int device);

typedef enum lm_manager_kind {
  LM_MANAGER_DEVICE,
  LM_MANAGER_MANAGED,
  LM_MANAGER_HOST,
  LM_MANAGER_KINDS
} lm_manager_kind;

/* Whether memory of the kind is made by a table of somebody's, not by the driver: then there is no
 * other way to it. */
bool lm_manager_is_custom(lm_manager_kind kind);

/* `flags` (LM_GPU_*) is of host memory. When there is no memory, what is pending goes first. */
lm_gpu_result lm_manager_alloc(lm_manager_kind kind, int device, size_t size, unsigned flags,
                               void **out);
/* Work that may still use it is waited for. */
void lm_manager_free(lm_manager_kind kind, int device, void *at, size_t size);
/* Ends what is pending; -1: of all devices. The bytes; 0 while cleanup is deferred. */
size_t lm_manager_flush(int device);
/* Ends what is pending, and has the manager start anew when it is next asked. */
void lm_manager_reset(int device);

#endif
