/* loam.c - the public functions for policies, sites, scopes and figures. */
#include "loam.h"

#include <string.h>

#include "api/start.h"
#include "engine/engine.h"
#include "engine/placement_audit.h"
#include "os/error.h"
#include "os/version.h"
#include "script/policy_open.h"
#include "service/control.h"
#include "service/control_client.h"
#include "service/machine.h"
#include "service/policy.h"

const char *loam_version(void) { return LM_VERSION; }

/* ---- Policy ------------------------------------------------------------------------------- */

static loam_status null_argument(const char *name) {
  return lm_error(LOAM_EINVAL, "%s: it is NULL", name);
}

loam_status loam_policy_load(const char *path) {
  if (!path) return null_argument("path");
  lm_start_awake();
  return lm_policy_load_file(path, false);
}

loam_status loam_policy_load_text(const char *name, const char *text) {
  if (!text) return null_argument("text");
  lm_start_awake();
  return lm_policy_load(name ? name : "text", "", text, strlen(text));
}

loam_status loam_policy_watch(const char *path) {
  lm_start_awake();
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
  if (!path || !query || !write) return null_argument("path, query or write");
  loam_status status = lm_policy_file_read(path, LM_READ_TO_INSPECT, &text, &length);
  if (status) return status;
  lm_script_source source = { path, text, length, lm_policy_limits(), .is_host = false };
  lm_policy_make_room();
  status = lm_policy_open_text(path, &source.text, &source.length);
  if (!status) status = lm_script_inspect(&source, query, write, ctx);
  lm_metadata_free(text);
  return status;
}

loam_status loam_policy_info(struct loam_policy_info *out) {
  if (!out) return null_argument("out");
  lm_start_awake();
  lm_policy_info_get(out);
  return LOAM_OK;
}

/* ---- Sites -------------------------------------------------------------------------------- */

static const char *or_empty(const char *text) { return text ? text : ""; }

/* As lm_site_get, before a start as well. */
static loam_site *site_of(const loam_where *where) {
  lm_assert(where->tag && where->file && where->func && where->module);
  lm_policy_start();
  return lm_site_get(where);
}

loam_site *loam_site_get(const char *tag) {
  return site_of(&(loam_where){ or_empty(tag), "", "", "", 0 });
}

LM_COMMON loam_site *loam_site_at(const loam_where *w) {
  if (!w) return lm_error_null("where: it is NULL");
  return site_of(&(loam_where){ or_empty(w->tag), or_empty(w->file), or_empty(w->func),
                                or_empty(w->module), w->line });
}

static void use_scope(lm_thread *t, loam_site *site) {
  t->site = site;
  t->scoped = site ? LM_SCOPED : 0;
}

void loam_scope_enter(loam_site *site) {
  lm_thread *t = lm_thread_get();
  if (!t) return;
  if (t->depth < LM_SCOPES) use_scope(t, t->scope[t->depth] = site);
  t->depth++;
  lm_assert(t->depth);
}

void loam_scope_leave(void) {
  lm_thread *t = lm_thread_get();
  if (!t || !t->depth) return;
  t->depth--;
  if (t->depth < LM_SCOPES) use_scope(t, t->depth ? t->scope[t->depth - 1] : NULL);
}

loam_site *loam_scope_get(void) {
  const lm_thread *t = lm_thread_self; /* making an area could wait for a fork */
  return t ? t->site : NULL;
}

/* ---- Figures and other processes ---------------------------------------------------------- */

loam_status loam_got_each(loam_got_fn callback, void *ctx) {
  return callback ? lm_placement_audit_each(callback, ctx) : null_argument("callback");
}

loam_status loam_stats(struct loam_stats *out) {
  return out ? lm_stats_get(out) : null_argument("out");
}

loam_status loam_stats_by(int keys, loam_row_fn callback, void *ctx) {
  if (!callback) return null_argument("callback");
  if (keys & ~(LOAM_BY_TAG | LOAM_BY_STRATEGY | LOAM_BY_GENERATION))
    return lm_error(LOAM_EINVAL, "keys %#x: they are a sum of LOAM_BY_*", (unsigned)keys);
  return lm_stats_by(keys, callback, ctx);
}

loam_status loam_stats_each(loam_row_fn callback, void *ctx) {
  return loam_stats_by(LOAM_BY_TAG | LOAM_BY_STRATEGY, callback, ctx);
}

loam_status loam_ask(int pid, const char *request, unsigned timeout_ms, loam_write_fn write,
                     void *ctx) {
  if (!request || !write) return null_argument("request or write");
  return lm_control_ask(&(lm_control_request){ pid, request, timeout_ms }, write, ctx);
}

loam_status loam_hosts(loam_pid_fn callback, void *ctx) {
  return callback ? lm_control_hosts(callback, ctx) : null_argument("callback");
}

loam_status loam_machine(loam_write_fn write, void *ctx) {
  return write ? lm_machine_write(write, ctx) : null_argument("write");
}
