/* embed.h - the Lua modules that the build put into the library. */
#ifndef LM_EMBED_H
#define LM_EMBED_H

#include <stddef.h>

typedef struct {
  const char *name; /* as require() takes it: "loam.driver" */
  const unsigned char *data;
  size_t size;
} lm_embedded;

extern const lm_embedded lm_embedded_modules[]; /* ends in one with a NULL name */

#endif
