/* governed.h - whether `loam run` can govern a program.
 *
 * It can if the dynamic linker of this C library loads the program, because that linker obeys
 * LD_PRELOAD. */
#ifndef LM_GOVERNED_H
#define LM_GOVERNED_H

#include "os/base.h"

/* Returns why the program runs as if loam were not there, in static words behind "it is"; NULL if
 * loam governs it, or if the file cannot be read. `program` is searched for as execvp(3) does. If
 * it is a script, its interpreter is examined. */
const char *lm_governed_why_not(const char *program);

#endif
