/* source.h - the file of a policy, and its text. */
#ifndef LM_SOURCE_H
#define LM_SOURCE_H

#include "loam.h"
#include "os/base.h"

/* Reads a whole policy file (at most 1 MiB) into lm_own memory, terminated. LOAM_EIO unless it is a
 * regular file that stayed as it was. */
loam_status lm_policy_read(const char *path, char **text, size_t *length);
/* The path as it can be opened later, from another working directory: itself, or in the buffer. */
const char *lm_policy_absolute(const char *path, char *buffer, size_t size);
uint64_t lm_policy_hash(const char *text, size_t length);

#endif
