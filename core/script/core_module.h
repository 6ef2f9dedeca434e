/* core_module.h - the Lua module `loam.core`: the C functions that loam's own Lua modules call. */
#ifndef LM_CORE_MODULE_H
#define LM_CORE_MODULE_H

#include "os/embed.h"
#include "plan/plan_set.h"
#include "script/json.h"
#include "script/vm.h"

/* A policy that is being compiled: its text, its Lua state, and the plans compiled from it.
 * Law: text[length] is 0. */
struct lm_script {
  lm_vm vm; /* must be first: loam.core's functions cast the lm_vm of a Lua state to its script */
  bool is_host;   /* lm_script_source.is_host */
  uint64_t nodes; /* NUMA nodes that the policy knows of; 0 if it did not ask */
  int devices;    /* GPUs that the policy knows of; -1 if it did not ask */
  lm_plan_set plans;
  lm_json answer;      /* what core.write has gathered and lm_core_module_flush has not written */
  loam_write_fn write; /* of lm_script_inspect; NULL: no answer is wanted */
  void *ctx;           /* the first argument of `write` */
  char file[1024];     /* the name of the file in messages */
  char *text;          /* a copy of the policy's text; messages show lines of it */
  size_t length;
  char policy[64]; /* the name that the policy gives itself; "" none */
  bool applies_live;
};

/* Registers loam.core, makes the embedded modules known to require(), and loads the driver. The
 * body of an lm_vm_setup, whose argument is the script. */
loam_status lm_core_module_open(lua_State *L, void *script);
/* Lets require() of any Lua state find the library's embedded modules, and those of the set
 * `others` (embed.h); NULL: no others. May raise a Lua error. */
void lm_core_module_embed(lua_State *L, const lm_embedded_set *others);
/* Writes what core.write has gathered, if the script has a `write` function, and forgets it. */
void lm_core_module_flush(lm_script *script);
/* Frees the plans and the gathered answer. */
void lm_core_module_close(lm_script *script);

#endif
