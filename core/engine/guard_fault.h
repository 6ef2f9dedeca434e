/* guard_fault.h - reports which block was accessed wrongly when guarded memory faults (SIGSEGV). */
#ifndef LM_GUARD_FAULT_H
#define LM_GUARD_FAULT_H

#include "os/base.h"

/* Sets whether the host wants reports of faults (loam_config.guard_report). Called at the start of
 * loam, before a policy is loaded. */
void lm_guard_fault_enable(bool wanted);

/* Installs the signal handler if reports are wanted and any strategy guards blocks. The loader
 * calls it after each policy has gone live. Once installed, the handler stays for the life of the
 * process; later calls do nothing. */
void lm_guard_fault_install(void);

#endif
