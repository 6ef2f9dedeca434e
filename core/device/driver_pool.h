/* driver_pool.h - gives back the memory that the driver's own pools keep: `pool = "driver"`.
 *
 * The driver itself gives nothing back, since loam makes its pools with a threshold of SIZE_MAX.
 * So such a pool keeps what a program freed until a function below returns it. Memory that work on
 * a stream may still use stays. Nothing is done for a manager whose memalloc_async is not the
 * driver's. The threads that call these functions, except the notes, are in no active section. */
#ifndef LM_DRIVER_POOL_H
#define LM_DRIVER_POOL_H

#include "gpu/gpu.h"

/* Notes that a pool of the driver has memory of a device, or that memory of it became free. */
void lm_driver_pool_note_use(int device);
void lm_driver_pool_note_free(void);
/* Return all free memory of a device's pools (-1: of all devices) to the device, and how many bytes
 * it was. lm_driver_pool_trim first waits for the work of the device. */
size_t lm_driver_pool_trim(int device);
size_t lm_driver_pool_make_room(int device);
/* A tick of decay (lm_device_pool_decay): returns the memory that was free for two ticks, except
 * for what loam_device_keep keeps. Returns whether there is more to do at a later tick. The caller
 * is between lm_gpu_begin and lm_gpu_end. */
bool lm_driver_pool_decay(void);
/* Fills in the bytes that the pools of a device have, and the bytes in use. */
void lm_driver_pool_figures(int device, size_t *reserved, size_t *used);

#endif
