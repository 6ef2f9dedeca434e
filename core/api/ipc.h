/* ipc.h - the list of opened memory of other processes (ipc.c), for resets and tests. */
#ifndef LM_IPC_H
#define LM_IPC_H

#include "os/base.h"

/* Returns whether the list obeys the law in ipc.c. Takes its lock. */
bool lm_ipc_is_valid(void);

/* Closes the memory of other processes that was opened in a context of a device (NULL: all memory
 * that is open on the device), which is about to be reset. loam_ipc_close may still be called for
 * it, and loam_ipc_open opens a handle again. Takes the list's lock, and calls the manager. */
void lm_ipc_reset(int device, const void *context);
/* Returns whether memory is open on the device in another context. Takes the list's lock. */
bool lm_ipc_is_elsewhere(int device, const void *context);

#endif
