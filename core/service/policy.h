/* policy.h - generations: load, vet, swap, keep the last good.
 *
 * Two locks. `load` makes loads one after the other and is held for all of one; `live` guards the
 * live generation's script and every write to a site's decisions, and is held for moments.
 * A load: open a script, compile every known site, vet; under `live`: compile the sites that came
 * meanwhile, write the decisions of the next parity, flip lm_site_generation; then grace, then
 * close the old script, which frees its plans. Allocating threads take neither lock; a thread that
 * makes a new site takes `live`. */
#ifndef LM_POLICY_H
#define LM_POLICY_H

#include "plan/site.h"
#include "script/policy_file.h"
#include "script/script.h"

/* Registers with threads, and all below it, once: before the first site is made, which takes a lock
 * that a forked child must not find taken. */
void lm_policy_start(void);
void lm_policy_set_limits(const lm_script_limits *limits);
const lm_script_limits *lm_policy_limits(void);

/* Loads text that came from `path` ("" if from nowhere), whole. */
loam_status lm_policy_load(const char *name, const char *path, const char *text, size_t length);
/* Whether a program that starts now would take the file, and what LOAM_VETTED is to tell it then,
 * so that it need not do the work again. */
enum { LM_POLICY_VETTED = LM_PLAN_TEXT_SIZE + 24 };
loam_status lm_policy_vet(const char *path, char vetted[LM_POLICY_VETTED]);
/* Reads the file, then the same. An empty, cut-off or changing file is LOAM_EIO or LOAM_EPOLICY. If
 * `if_changed`, a file that is what is live, or what was refused last, is left alone. */
loam_status lm_policy_load_file(const char *path, bool if_changed);
/* Like lm_policy_load_file, for a file whose later edits are loaded as well: LOAM_EIO where others
 * can change it (LM_READ_TO_FOLLOW in policy_file.h). */
loam_status lm_policy_load_followed(const char *path, bool if_changed);
/* A tick: whatever was last compiled some ticks ago, the live policy's Lua rests. True if it is to
 * at a later one. */
bool lm_policy_decay(void);
/* Whether live memory is to follow the live policy: apply = "live". */
bool lm_policy_is_followed(void);
void lm_policy_info_get(struct loam_policy_info *out);

#endif
