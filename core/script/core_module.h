/* core_module.h - the Lua module `loam.core`: the C functions that loam's own Lua modules call. */
#ifndef LM_CORE_MODULE_H
#define LM_CORE_MODULE_H

#include "os/embed.h"
#include "script/json.h"
#include "script/vm.h"

/* A loaded policy: its text, its Lua state, and the plans compiled from it.
 * Law: `plan` is a hash table of `slots` places (0, or a power of two, and at least 2 * plans)
 *      that holds `plans` plans. Each is found by linear probing from its hash. No two plans of the
 *      table have equal images. `only` is NULL or in the table. text[length] is 0. */
struct lm_script {
  lm_vm vm; /* must be first: loam.core's functions cast the lm_vm of a Lua state to its script */
  bool is_host; /* lm_script_source.is_host */
  lm_plan **plan;
  uint32_t plans, slots;
  const lm_plan *only; /* the plan of every site; NULL: lm_script_only_plan says when */
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
/* Lets require() of any Lua state find the library's embedded modules, and those of the table
 * `others` (embed.h); NULL: no others. May raise a Lua error. */
void lm_core_module_embed(lua_State *L, const lm_embedded *others);
/* Writes what core.write has gathered, if the script has a `write` function, and forgets it. */
void lm_core_module_flush(lm_script *script);
/* Gives the script's plan of an image. The plan is made if the script has no plan with that image.
 * NULL, with the error's words: the image is refused, or there is no memory. */
const lm_plan *lm_core_module_plan(lm_script *script, const void *image, size_t size);
/* Frees the plans and the gathered answer. */
void lm_core_module_close(lm_script *script);
/* Checks the law of the table of plans, in time proportional to the number of plans. */
bool lm_core_module_is_valid(const lm_script *script);

#endif
