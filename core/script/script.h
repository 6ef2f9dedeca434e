/* script.h - the guarded door into Lua: a sandboxed Lua state that holds one policy and compiles it
 * into a policy image (plan/policy_image.h).
 *
 * A script's Lua state has a capped heap of its own, loads text only, runs without the JIT, and has
 * a budget of instructions and time for each step. The words that a policy may use are those of
 * lua/loam/language/dsl.lua. Whatever happens in the state comes out as a loam_status with the
 * error in words (loam_error). One thread at a time may use a script: the owner of the script
 * brings the lock. An image holds all that serving memory needs, so a script is closed as soon as
 * its image is written. */
#ifndef LM_SCRIPT_H
#define LM_SCRIPT_H

#include "loam.h"
#include "os/base.h"

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
 * (no LuaJIT); for a host also LOAM_ESTATE: it lacks a handler, a folder, a node or a device. */
loam_status lm_script_open(const lm_script_source *source, lm_script **out);
/* Compiles the policy for every class of sites, compares the plans with plain Lua, and decides
 * `always` over every leaf of every plan. Writes the image into lm_metadata memory, which the
 * caller frees. On failure *bytes is NULL. */
loam_status lm_script_image(lm_script *script, void **bytes, size_t *size);
/* Runs the policy's `tests`, after lm_script_image. */
loam_status lm_script_vet(lm_script *script);
/* Frees the script; NULL: nothing. */
void lm_script_close(lm_script *script);

/* Opens a script, writes its image, runs its tests unless `is_vetted`, and closes it. The image is
 * in lm_metadata memory, which the caller frees. Fails as lm_script_open: *bytes is NULL then. */
loam_status lm_script_compile(const lm_script_source *source, bool is_vetted, void **bytes,
                              size_t *size);

/* loam_policy_inspect on a text: `write` gets the answer in pieces. source->is_host has to be
 * false. A policy that exceeds its budget is an answer as well, not a failure. */
loam_status lm_script_inspect(const lm_script_source *source, const char *query,
                              loam_write_fn write, void *ctx);

/* Checks the law of lm_script (core_module.h). Tests and lm_verify call it. */
bool lm_script_is_valid(const lm_script *script);

#endif
