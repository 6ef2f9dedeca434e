/* ipc.h - the list of opened memory of other processes (ipc.c), for resets and tests. */
#ifndef LM_IPC_H
#define LM_IPC_H

#include "os/base.h"

/* Returns whether the list obeys the law in ipc.c. Takes its lock. */
bool lm_ipc_is_valid(void);

/* Before a context of a device is reset: closes the memory of other processes that was opened in it
 * (NULL: in any context of the device). loam_ipc_close may still be called for it, and
 * loam_ipc_open opens a handle again. Takes the list's lock, and calls the manager. */
void lm_ipc_reset(int device, const void *context);
/* Returns whether memory of other processes is open on the device in another context than
 * `context`. Takes the list's lock. */
bool lm_ipc_is_elsewhere(int device, const void *context);

#endif
