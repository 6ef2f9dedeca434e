/* run_plain.h - `loam run` in its plainest form, without Lua. */
#ifndef LM_RUN_PLAIN_H
#define LM_RUN_PLAIN_H

/* Does what `loam run --policy FILE -- COMMAND [ARGUMENT]...` does, if the arguments have
 * exactly this form and nothing unusual is needed: replaces this process by the command. Returns
 * in every other case, also if the policy is refused or the command cannot be run. The function
 * has then shown nothing and has left the environment as it was, and the caller runs the Lua
 * code of the verb (lua/loam/command/verbs/run.lua), which does the work from the beginning. The
 * start of Lua alone would take longer than all that this function does. */
void lm_run_plainly(int argc, char **argv);

#endif
