/* embed.h - the Lua modules that the build put into the library and into the command. */
#ifndef LM_EMBED_H
#define LM_EMBED_H

#include <stddef.h>

typedef struct {
  const char *name; /* as require() takes it: "loam.driver" */
  const unsigned char *data;
  size_t size;
} lm_embedded;

/* Two tables, each ended by an entry whose name is NULL. Only the `loam` executable has
 * lm_command_modules, the command's own modules. */
extern const lm_embedded lm_embedded_modules[];
extern const lm_embedded lm_command_modules[];

#endif
