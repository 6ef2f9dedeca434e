/* control_reply.c - what a host says of itself over its control socket. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device_export.h"
#include "engine/placement_audit.h"
#include "engine/stats.h"
#include "heap/share_export.h"
#include "move/rebalance.h"
#include "os/error.h"
#include "os/version.h"
#include "service/control.h"
#include "service/policy.h"

static void answer_error(lm_json *out, const char *words) {
  lm_json_open(out, NULL, '{');
  lm_json_bool(out, "ok", false);
  lm_json_text(out, "error", words);
  lm_json_close(out, '}');
}

static void answer_ping(lm_json *out) {
  lm_json_open(out, NULL, '{');
  lm_json_bool(out, "ok", true);
  lm_json_int(out, "pid", getpid());
  lm_json_close(out, '}');
}

static void put_last(lm_json *out, const struct loam_policy_info *info) {
  lm_json_open(out, "last", '{');
  lm_json_bool(out, "ok", info->last == LOAM_OK);
  lm_json_int(out, "at", info->last_at);
  lm_json_text(out, "error", info->last_error);
  lm_json_close(out, '}');
}

static void answer_status(lm_json *out) {
  struct loam_policy_info info;
  char hash[24];
  lm_policy_info_get(&info);
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)info.hash);
  lm_json_open(out, NULL, '{');
  lm_json_int(out, "pid", getpid());
  lm_json_text(out, "program", program_invocation_short_name);
  lm_json_text(out, "version", LM_VERSION);
  lm_json_uint(out, "generation", info.generation);
  lm_json_text(out, "name", info.name);
  lm_json_text(out, "path", info.path);
  lm_json_text(out, "hash", hash);
  lm_json_int(out, "loaded_at", info.loaded_at);
  lm_json_bool(out, "watching", info.watching);
  lm_json_uint(out, "loads", info.loads);
  lm_json_uint(out, "refused", info.refused);
  put_last(out, &info);
  lm_json_uint(out, "tags_refused", info.tags_refused);
  lm_json_uint(out, "plans", info.plans);
  lm_json_uint(out, "sites", info.sites);
  lm_json_uint(out, "threads", lm_thread_count());
  lm_json_close(out, '}');
}

static void put_row(void *ctx, const loam_stats_row *row) {
  lm_json *out = ctx;
  lm_json_open(out, NULL, '{');
  lm_json_text(out, "tag", row->tag);
  lm_json_text(out, "strategy", row->strategy);
  lm_json_text(out, "kind", row->kind);
  lm_json_uint(out, "live_bytes", row->live_bytes);
  lm_json_uint(out, "live_blocks", row->live_blocks);
  lm_json_uint(out, "total_bytes", row->total_bytes);
  lm_json_uint(out, "total_blocks", row->total_blocks);
  lm_json_close(out, '}');
}

static void put_sums(lm_json *out, const struct loam_stats *s) {
  lm_json_uint(out, "generation", s->generation);
  lm_json_uint(out, "live_bytes", s->live_bytes);
  lm_json_uint(out, "live_blocks", s->live_blocks);
  lm_json_uint(out, "total_bytes", s->total_bytes);
  lm_json_uint(out, "total_blocks", s->total_blocks);
  lm_json_uint(out, "reserved_bytes", s->reserved_bytes);
  lm_json_uint(out, "region_bytes", s->region_bytes);
  lm_json_uint(out, "metadata_bytes", s->metadata_bytes);
  lm_json_uint(out, "denied", s->denied);
  lm_json_uint(out, "fallbacks", s->fallbacks);
  lm_json_uint(out, "failed", s->failed);
  lm_json_uint(out, "bad_frees", s->bad_frees);
}

static void put_got(void *ctx, const loam_got *got) {
  lm_json *out = ctx;
  lm_json_open(out, NULL, '{');
  lm_json_text(out, "strategy", got->strategy);
  lm_json_uint(out, "failed", got->failed);
  lm_json_uint(out, "served_late", got->served_late);
  lm_json_uint(out, "live_bytes", got->live_bytes);
  lm_json_uint(out, "checked_bytes", got->checked_bytes);
  lm_json_uint(out, "untouched_bytes", got->untouched_bytes);
  lm_json_uint(out, "elsewhere_bytes", got->elsewhere_bytes);
  lm_json_uint(out, "unknown_bytes", got->unknown_bytes);
  lm_json_open(out, "nodes", '[');
  for (unsigned node = 0; node < LM_NODES_MAX; node++) {
    if (!got->node_bytes[node]) continue;
    lm_json_open(out, NULL, '{');
    lm_json_uint(out, "node", node);
    lm_json_uint(out, "bytes", got->node_bytes[node]);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
  lm_json_uint(out, "huge_asked_bytes", got->huge_asked_bytes);
  lm_json_uint(out, "huge_bytes", got->huge_bytes);
  lm_json_close(out, '}');
}

static void answer_stats(lm_json *out) {
  struct loam_stats stats;
  if (lm_stats_get(&stats) != LOAM_OK) {
    answer_error(out, loam_error());
    return;
  }
  lm_json_open(out, NULL, '{');
  lm_json_int(out, "pid", getpid());
  put_sums(out, &stats);
  lm_json_open(out, "rows", '[');
  lm_stats_by(LOAM_BY_TAG | LOAM_BY_STRATEGY, put_row, out);
  lm_json_close(out, ']');
  lm_json_open(out, "got", '[');
  lm_placement_audit_each(put_got, out);
  lm_json_close(out, ']');
  lm_json_close(out, '}');
}

/* A host that follows its file follows the new one from now on. */
static loam_status reload(const char *path, struct loam_policy_info *info) {
  lm_policy_info_get(info);
  const char *from = *path ? path : info->path;
  if (!*from) return lm_error(LOAM_EINVAL, "the live policy came from no file: name one to reload");
  loam_status status = info->watching ? lm_policy_load_followed(from, false)
                                      : lm_policy_load_file(from, false);
  if (status == LOAM_OK && info->watching && *path) status = lm_control_watch(path);
  return status;
}

static void answer_reload(const char *path, lm_json *out) {
  struct loam_policy_info info;
  loam_status status = reload(path, &info);
  lm_json_open(out, NULL, '{');
  lm_json_bool(out, "ok", status == LOAM_OK);
  lm_json_text(out, "error", status == LOAM_OK ? "" : loam_error());
  lm_policy_info_get(&info);
  lm_json_uint(out, "generation", info.generation);
  lm_json_close(out, '}');
}

static void answer_share(const char *handle, lm_json *out, int *given) {
  uint64_t key = 0, offset = 0;
  size_t size = 0;
  loam_status status = LOAM_EINVAL;
  if (sscanf(handle, "%" SCNx64 " %" SCNx64, &key, &offset) == 2)
    status = lm_share_export_open(key, offset, given, &size);
  else lm_error(status, "a key and an offset are expected");
  if (status != LOAM_OK) {
    answer_error(out, loam_error());
    return;
  }
  lm_json_open(out, NULL, '{');
  lm_json_bool(out, "ok", true);
  lm_json_uint(out, "size", size);
  lm_json_close(out, '}');
}

static void answer_device(const char *handle, lm_json *out, int *given) {
  uint64_t base = 0, at = 0;
  uint32_t key = 0;
  lm_device_export_piece under = { 0 };
  loam_status status = LOAM_EINVAL;
  if (sscanf(handle, "%" SCNx64 " %" SCNx32 " %" SCNx64, &base, &key, &at) == 3)
    status = lm_device_export_open(base, key, at, &under, given);
  else lm_error(status, "a base, a key and an address are expected");
  if (status != LOAM_OK) {
    answer_error(out, loam_error());
    return;
  }
  lm_json_open(out, NULL, '{');
  lm_json_bool(out, "ok", true);
  lm_json_uint(out, "begin", under.begin);
  lm_json_uint(out, "end", under.end);
  lm_json_uint(out, "at", under.at);
  lm_json_uint(out, "size", under.size);
  lm_json_close(out, '}');
}

/* ---- Moving live memory */

static void put_placed(void *ctx, const loam_placed *row) {
  lm_json *out = ctx;
  lm_json_open(out, NULL, '{');
  lm_json_text(out, "tag", row->tag);
  lm_json_text(out, "what", row->what);
  lm_json_text(out, "why", row->why);
  lm_json_uint(out, "bytes", row->bytes);
  lm_json_uint(out, "blocks", row->blocks);
  lm_json_close(out, '}');
}

static void answer_progress(lm_json *out) {
  loam_progress now;
  uint64_t number;
  lm_rebalance_get(&now, &number);
  lm_json_open(out, NULL, '{');
  lm_json_bool(out, "ok", true);
  lm_json_uint(out, "job", number);
  lm_json_bool(out, "running", now.running);
  lm_json_bool(out, "by_reload", lm_rebalance_applies());
  lm_json_uint(out, "bytes", now.bytes);
  lm_json_uint(out, "done", now.done);
  lm_json_uint(out, "moved", now.moved);
  lm_json_uint(out, "right", now.right);
  lm_json_uint(out, "refused", now.refused);
  lm_json_open(out, "rows", '[');
  if (!now.running) lm_rebalance_rows(put_placed, out);
  lm_json_close(out, ']');
  lm_json_close(out, '}');
}

static bool is_word(const char *text, size_t length, const char *word) {
  return strlen(word) == length && !strncmp(text, word, length);
}

/* One `key=value`; false: it is none of those. */
static bool read_word(const char *text, size_t length, lm_job_order *order) {
  if (is_word(text, length, "to=node")) order->to = LOAM_TO_NODE;
  else if (is_word(text, length, "to=cold")) order->to = LOAM_TO_COLD;
  else if (is_word(text, length, "to=pageout")) order->to = LOAM_TO_PAGEOUT;
  else if (!strncmp(text, "rate=", 5)) order->rate = strtoull(text + 5, NULL, 10);
  else if (!strncmp(text, "node=", 5)) order->node = (int)strtol(text + 5, NULL, 10);
  else if (!strncmp(text, "older=", 6)) order->older_s = (unsigned)strtoul(text + 6, NULL, 10);
  else return false;
  return true;
}

/* Words, of which the tag runs to the end of the line. */
static bool read_order(const char *text, lm_job_order *order) {
  for (size_t n; *text; text += n + (text[n] == ' ')) {
    n = strcspn(text, " ");
    if (!strncmp(text, "tag=", 4)) {
      order->has_tag = true;
      return snprintf(order->tag, sizeof order->tag, "%s", text + 4) < (int)sizeof order->tag;
    }
    if (!read_word(text, n, order)) return false;
  }
  return !order->demotes;
}

/* Whoever begins a job has to ask after it. */
static void begin_job(bool demotes, const char *text, lm_json *out) {
  lm_job_order order = { .demotes = demotes, .node = -1 };
  char words[256], quoted[96];
  if (!read_order(text, &order)) {
    snprintf(words, sizeof words, "%s %s: rate=, node=, older=, to=node|cold|pageout, tag=",
             demotes ? "demote" : "rebalance", lm_error_quote(quoted, sizeof quoted, text));
    answer_error(out, words);
  } else if (lm_rebalance_begin(&order, LM_JOB_SERVICE) != LOAM_OK) {
    answer_error(out, loam_error());
  } else {
    lm_rebalance_keep_alive(true);
    answer_progress(out);
  }
}

/* False: it is another request. */
static bool answer_job(const char *request, lm_json *out) {
  if (!strcmp(request, "moved")) {
    lm_rebalance_keep_alive(false);
    answer_progress(out);
  } else if (!strcmp(request, "move stop")) {
    lm_rebalance_cancel();
    answer_progress(out);
  } else if (!strcmp(request, "rebalance")) {
    begin_job(false, "", out);
  } else if (!strncmp(request, "rebalance ", 10)) {
    begin_job(false, request + 10, out);
  } else if (!strncmp(request, "demote ", 7)) {
    begin_job(true, request + 7, out);
  } else {
    return false;
  }
  return true;
}

void lm_control_reply(const char *request, lm_json *out, int *given) {
  char words[256], quoted[96];
  if (!strcmp(request, "ping")) {
    answer_ping(out);
  } else if (!strcmp(request, "status")) {
    answer_status(out);
  } else if (!strcmp(request, "stats")) {
    answer_stats(out);
  } else if (!strcmp(request, "reload")) {
    answer_reload("", out);
  } else if (!strncmp(request, "reload ", 7)) {
    answer_reload(request + 7, out);
  } else if (!strncmp(request, "share ", 6)) {
    answer_share(request + 6, out, given);
  } else if (!strncmp(request, "device ", 7)) {
    answer_device(request + 7, out, given);
  } else if (!answer_job(request, out)) {
    snprintf(words, sizeof words,
             "unknown request %s: ping, status, stats, reload, share, device, rebalance, demote, "
             "moved, move stop",
             lm_error_quote(quoted, sizeof quoted, request));
    answer_error(out, words);
  }
  lm_json_raw(out, "\n", 1);
}
