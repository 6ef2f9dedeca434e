/* compile.h - writes the policy image of a policy file into a file. */
#ifndef LM_COMPILE_H
#define LM_COMPILE_H

#include "loam.h"
#include "os/base.h"

/* The figures of an image that lm_compile has written. */
typedef struct lm_compiled {
  size_t bytes;
  uint32_t plans; /* different ones */
} lm_compiled;

/* Compiles the policy in the file `path` and runs its tests, as a load does; handlers need not be
 * registered. Writes the image beside `file` and then renames it to `file`, so that a reader of
 * `file` finds the old image or the new one. If `file` is NULL, the image is written to standard
 * output. `path` may itself be an image: the text in it is compiled. Fails as lm_script_compile,
 * and with LOAM_EIO if a file cannot be read or written, or if `file` is the policy's text. */
loam_status lm_compile(const char *path, const char *file, lm_compiled *out);

#endif
