/* embed.h - the Lua modules that the build put into the library and into the command. */
#ifndef LM_EMBED_H
#define LM_EMBED_H

#include <stdint.h>

/* A module. It holds no address: the dynamic linker would write each address at every start of a
 * program, also where no Lua runs. */
typedef struct lm_embedded {
  char name[48];     /* as require() takes it: "loam.driver" */
  uint32_t at, size; /* where its code is in the code of the set */
} lm_embedded;

/* A set of modules, ended by a module whose name is "". */
typedef struct lm_embedded_set {
  const lm_embedded *modules;
  const unsigned char *code;
} lm_embedded_set;

/* Only the `loam` executable has lm_command_modules, the command's own modules. */
extern const lm_embedded_set lm_embedded_modules;
extern const lm_embedded_set lm_command_modules;

#endif
