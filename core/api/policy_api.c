/* policy_api.c - loam_policy_*: a policy that goes live, and questions about a policy file. */
#include <string.h>

#include "api/slow_call.h"
#include "loam.h"
#include "os/error.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "script/policy_open.h"
#include "service/control.h"
#include "service/policy.h"

loam_status loam_policy_load(const char *path) {
  if (!path) return lm_error_missing("path");
  lm_slow_call_chores();
  return lm_policy_load_file(path);
}

/* A file without a newline at its end may be cut off, so it is refused. A text is whole: it gets
 * the newline. */
loam_status loam_policy_load_text(const char *name, const char *text) {
  if (!text) return lm_error_missing("text");
  lm_slow_call_chores();
  size_t length = strlen(text);
  char *whole = lm_metadata_take(length + 1);
  if (!whole) return lm_error(LOAM_ENOMEM, "%s: no memory for its text", name ? name : "text");
  memcpy(whole, text, length);
  if (length && text[length - 1] != '\n') whole[length++] = '\n';
  loam_status status = lm_policy_load(name ? name : "text", whole, length);
  lm_metadata_free(whole);
  return status;
}

loam_status loam_policy_watch(const char *path) {
  lm_slow_call_chores();
  loam_status loaded = path ? lm_policy_load_followed(path, false) : LOAM_OK;
  char words[LM_ERROR_SIZE];
  size_t length = strnlen(loam_error(), sizeof words - 1);
  memcpy(words, loam_error(), length);
  words[length] = 0;
  loam_status watched = lm_control_watch(path);
  return loaded ? lm_error(loaded, "%s", words) : watched;
}

loam_status loam_policy_inspect(const char *path, const char *query, loam_write_fn write,
                                void *ctx) {
  char *text;
  size_t length;
  if (!path || !query || !write) return lm_error_missing("path, query or write");
  loam_status status = lm_policy_file_read(path, LM_READ_TO_INSPECT, &text, &length);
  if (status) return status;
  lm_script_source source = { path, text, length, lm_policy_limits(), .is_host = false };
  lm_policy_make_room();
  status = lm_policy_open_to_report(&source);
  if (!status) status = lm_script_inspect(&source, query, write, ctx);
  lm_metadata_free(text);
  return status;
}

loam_status loam_policy_info(struct loam_policy_info *out) {
  if (!out) return lm_error_missing("out");
  lm_slow_call_chores();
  lm_policy_info_get(out);
  return LOAM_OK;
}
