/* manager.h - the manager: the table of functions that allocates device memory and pinned memory
 * (NBEP 7). It is the driver's own table, or one that the host or the library in LOAM_MANAGER gave;
 * loam fills the entries that such a table lacks with the driver's.
 *
 * Memory that is freed is collected first (defer.h). Results are those of gpu.h, and a call that
 * failed has set the thread's error words. No lock that malloc needs is held while a manager or a
 * driver is called. Any thread may call these functions, outside an active section. */
#ifndef LM_MANAGER_H
#define LM_MANAGER_H

#include "gpu/gpu.h"

enum { LM_MANAGER_INTERFACE = 1 }; /* the version of NBEP 7 that loam has */

/* The driver as a manager. All its entries are set. */
extern const loam_manager lm_manager_driver;

/* Makes a table of the host the manager; NULL: the driver. LOAM_EINVAL or LOAM_EUNSUPPORTED: the
 * table is not one that loam can use; LOAM_ESTATE: a manager is already in effect. If LOAM_MANAGER
 * names a library, an event says that the host's table is not used. */
loam_status lm_manager_set(const loam_manager *manager);
/* Returns the manager with all entries set, initialized for the device. NULL: there is no manager
 * or no such device, and the thread's error words say why. The first call chooses the manager,
 * which then stays in effect. */
const loam_manager *lm_manager(int device);

/* Returns whether all entries of the manager in effect are set; true if none is in effect. */
bool lm_manager_is_valid(void);

/* Fills in how many bytes of a device are free, and how many there are: by the manager if one was
 * chosen, set or named in LOAM_MANAGER, else by the driver. It chooses no manager where the driver
 * would be chosen, so loam_manager_set can be called afterwards. Within get_memory_info of a
 * manager it asks the driver. */
loam_status lm_manager_memory(int device, size_t *free, size_t *total);
/* Like lm_gpu_watch, for the free memory that lm_manager_memory tells. */
void lm_manager_watch(unsigned device);

typedef enum lm_manager_kind {
  LM_MANAGER_DEVICE,  /* memalloc */
  LM_MANAGER_MANAGED, /* memalloc_managed: memory that the GPU and the CPU can use */
  LM_MANAGER_HOST,    /* memhostalloc: pinned memory */
  LM_MANAGER_KINDS
} lm_manager_kind;

/* Returns whether memory of this kind is not allocated by the driver's table, but by another one or
 * by none. Then loam must not get such memory by calling the driver itself. */
bool lm_manager_is_custom(lm_manager_kind kind);

/* Allocates memory; `flags` (LM_GPU_*) count for LM_MANAGER_HOST. If the manager has no memory,
 * frees the pending memory and tries again. *out is written on success alone. */
lm_gpu_result lm_manager_alloc(lm_manager_kind kind, int device, size_t size, unsigned flags,
                               void **out);
/* Frees memory, later (defer.h). The manager waits for the work that may still use it. */
void lm_manager_free(lm_manager_kind kind, int device, void *at, size_t size);
/* Frees the pending memory of a device; -1: of all devices. Returns the bytes; does nothing and
 * returns 0 while cleanup is deferred. */
size_t lm_manager_flush(int device);
/* Frees the pending memory of a device and resets the manager, which is initialized again on the
 * next lm_manager of the device. */
void lm_manager_reset(int device);

#endif
