/* core_module.h - `loam.core`: what the trusted Lua modules may ask of C. */
#ifndef LM_CORE_MODULE_H
#define LM_CORE_MODULE_H

#include "os/embed.h"
#include "script/json.h"
#include "script/vm.h"

/* Law: plan holds `plans` plans in `slots` places (a power of two, or 0), each found by linear
 *      probing from its hash; no two of them have equal images. */
struct lm_script {
  lm_vm vm;  /* first: the functions of the seam find the script by it */
  bool host; /* false: inspected from a command line */
  lm_plan **plan;
  uint32_t plans, slots;
  const lm_plan *only; /* of every site, since the policy asks nothing about one; NULL: not known */
  lm_json answer;      /* what core.write has gathered */
  loam_write_fn write;
  void *ctx;
  char file[1024]; /* stands for the file in messages */
  char *text;      /* a copy, terminated; messages show lines of it */
  size_t length;
  char policy[64]; /* the policy's own name */
  bool applies_live;
};

/* Puts loam.core and the embedded modules within reach of require(). A vm body: lm_vm_setup. */
loam_status lm_core_module_open(lua_State *L, void *script);
/* Lets require() of any Lua state find the library's embedded modules, and those of the table
 * `others` (embed.h); NULL: no others. May raise. */
void lm_core_module_embed(lua_State *L, const lm_embedded *others);
void lm_core_module_flush(lm_script *script);
/* The script's plan of an image, made if it has none such; NULL: it is refused. */
const lm_plan *lm_core_module_plan(lm_script *script, const void *image, size_t size);
void lm_core_module_close(lm_script *script);

#endif
