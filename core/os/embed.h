/* embed.h - the Lua modules that the build put into the library. */
#ifndef LM_EMBED_H
#define LM_EMBED_H

#include <stddef.h>

typedef struct {
  const char *name; /* as require() takes it: "loam.driver" */
  const unsigned char *data;
  size_t size;
} lm_embedded;

/* The bytes of all have pages of their own, in a section of which the linker knows the ends: they
 * are read when Lua starts, and need not stay in memory. */
#define LM_EMBEDDED_BYTES __attribute__((section("loam_lua"), aligned(64)))
extern const unsigned char __start_loam_lua[] __attribute__((visibility("hidden")));
extern const unsigned char __stop_loam_lua[] __attribute__((visibility("hidden")));

extern const lm_embedded lm_embedded_modules[]; /* ends in one with a NULL name */

#endif
