/* embed.h - the Lua modules that the build put into the library and into the command. */
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

/* Two tables, each ended by an entry whose name is NULL. Only the `loam` executable has the second
 * one, the command's own modules. */
extern const lm_embedded lm_embedded_modules[];
extern const lm_embedded lm_command_modules[];

#endif
