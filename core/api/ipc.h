/* ipc.h - the list of opened memory of other processes (ipc.c), for tests. */
#ifndef LM_IPC_H
#define LM_IPC_H

#include "os/base.h"

/* Returns whether the list obeys the law in ipc.c. Takes its lock. */
bool lm_ipc_is_valid(void);

#endif
