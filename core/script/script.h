/* script.h - the guarded door into Lua: a sandboxed Lua state that holds one loaded policy and
 * compiles it, tag by tag, into plans.
 *
 * A script's Lua state has a capped heap of its own, loads text only, runs without the JIT, and has
 * a budget of instructions and time for each step. The words that a policy may use are those of
 * lua/loam/language/dsl.lua. Whatever happens in the state comes out as a loam_status with the
 * error in words (loam_error). One thread at a time may use a script: the owner of the script
 * brings the lock.
 *
 * Once a policy is live, its Lua state is needed only to compile new tags. So the state can be
 * suspended: it is closed, and lm_script_plan opens it again from the policy's text when a new tag
 * comes. The plans stay. Plans that are compiled later still share memory with them, because equal
 * plans are found by their content. */
#ifndef LM_SCRIPT_H
#define LM_SCRIPT_H

#include "plan/plan_text.h"

/* The limits of loam_config: decision leaves of one plan, and wall time (in ms) and memory (in
 * bytes) of one step. */
typedef struct lm_script_limits {
  unsigned max_leaves, step_ms;
  size_t step_bytes;
} lm_script_limits;

/* A policy's text, and the settings with which it is compiled. All pointers belong to the caller; a
 * script copies the text and the name. */
typedef struct lm_script_source {
  const char *name; /* the file's name in messages */
  const char *text; /* need not end with a NUL */
  size_t length;
  const lm_script_limits *limits;
  /* True: this process will serve memory under the policy, so each handler that the policy names
   * has to be registered. False: the policy is only inspected, or checked for another process. */
  bool is_host;
} lm_script_source;

typedef struct lm_script lm_script;

/* Tells whether programs on this machine can load LuaJIT. */
bool lm_script_is_available(void);

/* Runs the policy's file in a new Lua state and checks what the file returned. On failure *out is
 * NULL and the status is LOAM_EPOLICY, LOAM_EBUDGET, LOAM_ENOMEM or LOAM_EUNSUPPORTED
 * (no LuaJIT). */
loam_status lm_script_open(const lm_script_source *source, lm_script **out);
/* Makes a suspended script from a text whose only plan came as text in `carried` (plan_text.h).
 * NULL: `carried` cannot be used, or there is no memory; the caller then uses lm_script_open. */
lm_script *lm_script_from_plan_text(const lm_script_source *source, const char *carried);
/* Gives *out the plan of a call site. The plan is compiled and compared with plain Lua, or it is
 * found: sites that the policy cannot tell apart get the same pointer. Opens the Lua state again if
 * it is suspended. Plans live until lm_script_close. On failure *out is NULL. */
loam_status lm_script_plan(lm_script *script, const loam_where *where, const lm_plan **out);
/* Closes the Lua state and gives back its memory, until lm_script_plan needs the state again. */
void lm_script_suspend(lm_script *script);
bool lm_script_is_suspended(const lm_script *script);
/* The plan that every site gets, because the policy asks nothing about the site; NULL: the policy
 * has several plans, or lm_script_plan was not called yet. No later site needs Lua then. */
const lm_plan *lm_script_only_plan(const lm_script *script);
/* Runs the policy's `tests`, and checks `always` over every leaf of every plan made so far. The
 * script is not suspended. */
loam_status lm_script_vet(lm_script *script);
/* The name that the policy gives itself; "" if it has none. */
const char *lm_script_name(const lm_script *script);
/* Tells whether the policy wants live memory to be moved to follow it: `apply = "live"`. */
bool lm_script_applies_live(const lm_script *script);
/* The number of different plans made so far. */
uint32_t lm_script_plans(const lm_script *script);
/* Sets used[id] to 1 for each strategy id below `n` that one of the script's plans names. */
void lm_script_mark_used(const lm_script *script, uint8_t *used, uint32_t n);
/* Frees the script and its plans; NULL: nothing. No thread may still read one of the plans. */
void lm_script_close(lm_script *script);

/* loam_policy_inspect on a text: `write` gets the answer in pieces. source->is_host has to be
 * false. A policy that exceeds its budget is an answer as well, not a failure. */
loam_status lm_script_inspect(const lm_script_source *source, const char *query,
                              loam_write_fn write, void *ctx);

/* Checks the law of lm_script (core_module.h). Tests and lm_verify call it. */
bool lm_script_is_valid(const lm_script *script);

#endif
