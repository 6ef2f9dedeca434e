/* machine.h - what this machine offers to policies, told as JSON. */
#ifndef LM_MACHINE_H
#define LM_MACHINE_H

#include "loam.h"

/* loam_machine. */
loam_status lm_machine_tell(loam_write_fn write, void *ctx);

#endif
