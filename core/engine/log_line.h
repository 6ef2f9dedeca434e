/* log_line.h - lines of a file to which many processes append, such as that of LOAM_LAST_WORDS. */
#ifndef LM_LOG_LINE_H
#define LM_LOG_LINE_H

#include "os/base.h"

/* The longest path of such a file, with its NUL. */
enum { LM_LOG_LINE_PATH = 256 };

/* Returns whether a path is absolute and short enough. If it is, notes the name of the program for
 * the lines. Called by the start. */
bool lm_log_line_start(const char *path);

/* Writes `words` as a line to `line`, which has room for `size` bytes: behind the time, the program
 * and its process id, and with a newline at its end. A line without room is cut. Returns its
 * length; the line has no NUL. Called after lm_log_line_start. Any thread; allocates nothing. */
size_t lm_log_line_write(char *line, size_t size, const char *words);

#endif
