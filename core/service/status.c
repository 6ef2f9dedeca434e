/* status.c - the status of a process as JSON. */
#include "service/status.h"

#include <errno.h>
#include <stdio.h>

#include "os/text.h"

static char program[64];

/* A constructor calls this before main; a library that allocates earlier may need the name before
 * that. */
__attribute__((constructor)) const char *lm_status_program(void) {
  if (!*program) lm_text_put(program, sizeof program, program_invocation_short_name, NULL);
  return program;
}

static void put_last(lm_json *out, const struct loam_policy_info *info) {
  lm_json_open(out, "last", '{');
  lm_json_bool(out, "ok", info->last == LOAM_OK);
  lm_json_int(out, "at", info->last_at);
  lm_json_text(out, "error", info->last_error);
  lm_json_close(out, '}');
}

void lm_status_put_hash(lm_json *out, const char *key, uint64_t hash) {
  char text[24];
  snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
  lm_json_text(out, key, text);
}

void lm_status_put(lm_json *out, const lm_status *status) {
  const struct loam_policy_info *info = status->info;
  lm_json_int(out, "pid", status->pid);
  lm_json_text(out, "program", status->program);
  lm_json_text(out, "loam", status->version);
  lm_json_uint(out, "generation", info->generation);
  lm_json_text(out, "name", info->name);
  lm_json_text(out, "path", info->path);
  lm_status_put_hash(out, "hash", info->hash);
  lm_json_int(out, "loaded_at", info->loaded_at);
  lm_json_bool(out, "watching", info->watching);
  lm_json_uint(out, "loads", info->loads);
  lm_json_uint(out, "refused", info->refused);
  put_last(out, info);
  if (status->refused_hash) lm_status_put_hash(out, "refused_hash", status->refused_hash);
  lm_json_uint(out, "tags_refused", info->tags_refused);
  lm_json_uint(out, "plans", info->plans);
  lm_json_uint(out, "sites", info->sites);
  lm_json_uint(out, "threads", status->threads);
}
