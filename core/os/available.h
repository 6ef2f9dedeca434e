/* available.h - whether memory can be had at once, asked before it is taken: a kernel that finds
 * none on the nodes that are bound, or in the control group, does not refuse, it ends the process.
 * */
#ifndef LM_AVAILABLE_H
#define LM_AVAILABLE_H

#include "os/base.h"

/* Whether `bytes` can be taken now: from these nodes (a bit each; 0: any), by this process. A
 * little less than there is, since others take too. Costs some system calls. */
bool lm_available_has(size_t bytes, uint64_t nodes);

/* What the control groups of this process leave it; UINT64_MAX: no limit. *limit: the lowest. */
uint64_t lm_available_in_group(uint64_t *limit);

#if LOAM_CHECKS >= 1
/* For tests: the file that says which group we are in, the folder of all groups, and the file that
 * says what the machine has. */
void lm_available_pretend(const char *self, const char *groups, const char *machine);
#endif

#endif
