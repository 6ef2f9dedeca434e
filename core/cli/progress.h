/* progress.h - a line on the terminal while the command compiles a policy for long. */
#ifndef LM_PROGRESS_H
#define LM_PROGRESS_H

#include "os/base.h"

/* Shows the present step of the compiler on standard error, from the second second on, until
 * lm_progress_end. Does nothing if standard error is no terminal. `name` is the policy's, and
 * stays the caller's. One thread at a time. */
void lm_progress_begin(const char *name);
/* Removes the line. */
void lm_progress_end(void);

/* Writes the line for a step into `line`, cut to `size`, without control characters. Returns false
 * if it is too early for a line. */
bool lm_progress_line(char *line, size_t size, const char *name, const char *step,
                      int64_t elapsed_ns);

#endif
