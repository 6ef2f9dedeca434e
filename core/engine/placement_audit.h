/* placement_audit.h - asked versus got: where the kernel put the live memory of each strategy. It
 * may silently take another node than the one that was asked for, or small pages for huge ones:
 * that is known only afterwards, and so looked up when somebody asks (loam_got). */
#ifndef LM_PLACEMENT_AUDIT_H
#define LM_PLACEMENT_AUDIT_H

#include "loam.h"

/* loam_got_each. */
loam_status lm_placement_audit_each(loam_got_fn callback, void *ctx);

#endif
