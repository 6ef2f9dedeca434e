/* status.h - the status of a process as JSON: what `loam status --json` shows, and the answer to
 * the socket's request `status`. */
#ifndef LM_STATUS_H
#define LM_STATUS_H

#include "loam.h"
#include "script/json.h"

typedef struct lm_status {
  int pid;
  const char *program, *version;
  unsigned threads;
  const struct loam_policy_info *info;
  uint64_t refused_hash; /* of the text that the last attempt refused; 0: there is none */
} lm_status;

/* Returns the name of the program. It is copied before main: servers later write a text about their
 * work over argv, to which program_invocation_short_name points. */
const char *lm_status_program(void);

/* Writes a hash of a policy's text as a member: 16 digits, as all commands show it. */
void lm_status_put_hash(lm_json *out, const char *key, uint64_t hash);
/* Writes the members of the status into an object that is open. */
void lm_status_put(lm_json *out, const lm_status *status);

#endif
