/* script.h - the one guarded door into Lua: a sandboxed state that holds one loaded policy and
 * compiles it, tag by tag, into plans.
 *
 * A state has its own capped heap, text-only loading, JIT off, and a budget of instructions and
 * time for each step; the words a policy may use are those of lua/loam/language/dsl.lua.
 * Whatever happens inside comes out as a loam_status with the error in words. A script is used by
 * one thread at a time: its owner brings the lock.
 *
 * Once a policy is live its state is wanted only for tags that are new, so it may rest: the state
 * is closed, and made again from the text when it is asked. The plans stay; what is compiled later
 * shares them, since equal plans are found by what they are. */
#ifndef LM_SCRIPT_H
#define LM_SCRIPT_H

#include "plan/plan_text.h"

typedef struct lm_script_limits {
  unsigned max_leaves, step_ms;
  size_t step_bytes;
} lm_script_limits;

typedef struct lm_script lm_script;

/* Whether Lua can be had by the programs of this machine. */
bool lm_script_is_available(void);

/* Runs the file and checks what it returned. `name` stands in messages. */
loam_status lm_script_open(const char *name, const char *text, size_t length,
                           const lm_script_limits *limits, lm_script **out);
/* The plan of a site, compiled and compared with plain Lua, or found: sites that the policy cannot
 * tell apart get the same pointer. Plans live until lm_script_close. */
loam_status lm_script_plan(lm_script *script, const loam_where *where, const lm_plan **out);
/* Gives back the state's memory until the next plan; the plan of every site, if there is only one,
 * needs none. */
void lm_script_suspend(lm_script *script);
bool lm_script_is_suspended(const lm_script *script);
/* The script of a text whose only plan was carried here (plan_text.h), as if it rested; NULL: ask
 * lm_script_open. */
lm_script *lm_script_from_plan_text(const char *name, const char *text, size_t length,
                                    const lm_script_limits *limits, const char *carried);
/* Whether there is only one. */
bool lm_script_has_one_plan(const lm_script *script);
/* The policy's `tests`, and `always` over every leaf of every plan made so far. */
loam_status lm_script_vet(lm_script *script);
/* The policy's name, "" if it has none. */
const char *lm_script_name(const lm_script *script);
/* Whether live memory is to follow it: `apply = "live"`. */
bool lm_script_applies_live(const lm_script *script);
uint32_t lm_script_plans(const lm_script *script);
/* Sets used[id] for each strategy, of ids below n, that one of its plans names. */
void lm_script_mark_used(const lm_script *script, uint8_t *used, uint32_t n);
void lm_script_close(lm_script *script);

/* Whether a program would take the text: opens, vets and compiles it as a load does, but for the
 * handlers, which are the program's to bring. `carried` is its plan where there is but one that can
 * be carried (plan_text.h), else "". */
loam_status lm_script_check(const char *name, const char *text, size_t length,
                            const lm_script_limits *limits, char carried[LM_PLAN_TEXT_SIZE]);

/* loam_policy_inspect, on text. */
loam_status lm_script_inspect(const char *name, const char *text, size_t length, const char *query,
                              const lm_script_limits *limits, loam_write_fn write, void *ctx);

#endif
