/* placement_audit.h - where the kernel put the live memory of each strategy. The kernel may
 * silently take another node than the strategy names, or small pages in place of huge ones. loam
 * can see that only afterwards, so it looks when the host calls loam_got_each. */
#ifndef LM_PLACEMENT_AUDIT_H
#define LM_PLACEMENT_AUDIT_H

#include "loam.h"

/* loam_got_each. */
loam_status lm_placement_audit_each(loam_got_fn callback, void *ctx);

#endif
