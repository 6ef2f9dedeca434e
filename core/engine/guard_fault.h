/* guard_fault.h - says whose block it was, when guarded memory stops the program. */
#ifndef LM_GUARD_FAULT_H
#define LM_GUARD_FAULT_H

#include "os/base.h"

/* Whether faults are to be told at all; before a policy is loaded. */
void lm_guard_fault_enable(bool wanted);
/* After a policy has gone live: if faults are wanted, and some strategy guards, they are told from
 * now on, for the life of the process. */
void lm_guard_fault_install(void);

#endif
