/* machine.h - describes this machine, for authors of policies, as JSON: loam_machine. */
#ifndef LM_MACHINE_H
#define LM_MACHINE_H

#include "loam.h"

/* Gives the description, one JSON object, to `write`. LOAM_ENOMEM: no memory for the text. */
loam_status lm_machine_write(loam_write_fn write, void *ctx);

#endif
