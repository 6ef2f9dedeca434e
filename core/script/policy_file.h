/* policy_file.h - reads the file of a policy. */
#ifndef LM_POLICY_FILE_H
#define LM_POLICY_FILE_H

#include "loam.h"
#include "os/base.h"

/* The purpose of reading a policy file decides whether other users may be able to change the file:
 * users other than root and the effective user of this process. */
typedef enum lm_reading {
  LM_READ_TO_INSPECT, /* the text is shown or explained: other users may change the file */
  LM_READ_TO_LOAD,    /* the file is loaded once: other users may change the file, unless the
                         effective user is root */
  LM_READ_TO_FOLLOW   /* later edits are loaded as well: other users may not change the file */
} lm_reading;

/* Reads a whole policy file (a text of at most 1 MiB, or an image of at most 64 MiB) into
 * lm_metadata memory and terminates the text. Returns LOAM_EIO if it is not a regular file, if it
 * changes during the read, or if other users can change it and `reading` forbids that
 * (policy_file.c has the rule). loam_error() then has the path to mend. */
loam_status lm_policy_file_read(const char *path, lm_reading reading, char **text, size_t *length);
/* The path in a form that still names the file after the process changes its working directory. It
 * is `path` if that is absolute, or if the absolute path does not fit into the buffer; else the
 * absolute path in the buffer. */
const char *lm_policy_file_absolute(const char *path, char *buffer, size_t size);
/* A hash of the text (FNV-1a, 64 bits): loam tells versions of a policy apart by it. */
uint64_t lm_policy_file_hash(const char *text, size_t length);

#endif
