/* control_reply.c - the answers of a host to the requests on its control socket. */
#include "service/control_reply.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device_export.h"
#include "engine/placement_audit.h"
#include "engine/resident.h"
#include "engine/sample.h"
#include "engine/sleep_tag.h"
#include "engine/stats.h"
#include "gpu/gpu.h"
#include "heap/share_export.h"
#include "move/rebalance.h"
#include "os/error.h"
#include "os/version.h"
#include "service/policy.h"
#include "service/stats_json.h"
#include "service/status.h"

/* A request that is being answered. */
typedef struct reply {
  const char *argument; /* the text after the request's name; "" if there is none */
  lm_control_follow_fn *follow;
  lm_json *out; /* the answer */
  int *fd;      /* for a descriptor that goes with the answer */
} reply;

/* ---- the host and its figures ---- */

static void write_error(lm_json *out, const char *words) {
  lm_json_open(out, NULL, '{');
  lm_json_bool(out, "ok", false);
  lm_json_text(out, "error", words);
  lm_json_close(out, '}');
}

/* Begins the answer to a request that has succeeded. If it has failed, writes the whole answer,
 * with the words of the error, and returns false. */
static bool begin_answer(lm_json *out, loam_status status) {
  if (status != LOAM_OK) {
    write_error(out, loam_error());
    return false;
  }
  lm_json_open(out, NULL, '{');
  lm_json_bool(out, "ok", true);
  return true;
}

static void answer_ping(const reply *r) {
  (void)begin_answer(r->out, LOAM_OK);
  lm_json_int(r->out, "pid", getpid());
  lm_json_close(r->out, '}');
}

static void answer_status(const reply *r) {
  struct loam_policy_info info;
  uint64_t refused_hash = lm_policy_info_get(&info);
  lm_json_open(r->out, NULL, '{');
  lm_status_put(r->out, &(lm_status){ getpid(), lm_status_program(), LM_VERSION, lm_thread_count(),
                                      &info, refused_hash });
  lm_json_close(r->out, '}');
}

static void put_devices(lm_json *out) {
  lm_device_figures has[LM_DEVICES_MAX];
  for (int device = 0; device < LM_DEVICES_MAX; device++)
    lm_device_pool_figures(device, &has[device]);
  lm_stats_json_devices(out, has);
}

static void answer_stats(const reply *r) {
  lm_json *out = r->out;
  struct loam_stats stats;
  if (lm_stats_get(&stats) != LOAM_OK) {
    write_error(out, loam_error());
    return;
  }
  lm_json_open(out, NULL, '{');
  lm_json_int(out, "pid", getpid());
  lm_stats_json_sums(out, &stats);
  lm_stats_json_resident(out, lm_resident_read());
  put_devices(out);
  lm_json_open(out, "rows", '[');
  lm_stats_each_row(lm_stats_json_row, out);
  lm_json_close(out, ']');
  lm_json_open(out, "got", '[');
  lm_placement_audit_each(lm_stats_json_got, out);
  lm_json_close(out, ']');
  lm_json_close(out, '}');
}

/* ---- the policy ---- */

/* Loads the policy again from its file, or loads another file. A host that follows its policy file
 * follows the other file from now on. `info` is memory for use in here: it is large, so the caller,
 * which needs one too, lends its own. */
static loam_status reload(const reply *r, struct loam_policy_info *info) {
  const char *path = r->argument;
  lm_policy_info_get(info);
  const char *from = *path ? path : info->path;
  if (!*from) return lm_error(LOAM_EINVAL, "the live policy came from no file: name one to reload");
  loam_status status = info->watching ? lm_policy_load_followed(from, false)
                                      : lm_policy_load_file(from);
  if (status == LOAM_OK && info->watching && *path) status = r->follow(path);
  return status;
}

static void answer_reload(const reply *r) {
  lm_json *out = r->out;
  struct loam_policy_info info;
  loam_status status = reload(r, &info);
  lm_json_open(out, NULL, '{');
  lm_json_bool(out, "ok", status == LOAM_OK);
  lm_json_text(out, "error", status == LOAM_OK ? "" : loam_error());
  lm_policy_info_get(&info);
  lm_json_uint(out, "generation", info.generation);
  lm_json_close(out, '}');
}

/* ---- samples ---- */

/* Reads `length` bytes as a decimal number. Returns false if they are no number of at most
 * `most`. */
static bool read_number(const char *text, size_t length, uint64_t most, uint64_t *out) {
  char *end;
  *out = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && end == text + length && *out <= most;
}

/* Sets after how many allocated bytes, on average, a block is sampled; 0 ends sampling. */
static void answer_sample(const reply *r) {
  char quoted[96], words[160];
  uint64_t interval;
  if (!read_number(r->argument, strlen(r->argument), LM_SAMPLE_INTERVAL_MAX, &interval)) {
    snprintf(words, sizeof words, "sample %s: it is a number of bytes, at most %" PRIu64,
             lm_error_quote(quoted, sizeof quoted, r->argument), LM_SAMPLE_INTERVAL_MAX);
    write_error(r->out, words);
  } else if (begin_answer(r->out, lm_sample_set(interval))) {
    lm_json_uint(r->out, "interval", interval);
    lm_json_close(r->out, '}');
  }
}

/* ---- shared memory ---- */

static void answer_share(const reply *r) {
  lm_json *out = r->out;
  uint64_t key = 0, offset = 0;
  size_t size = 0;
  bool is_read = sscanf(r->argument, "%" SCNx64 " %" SCNx64, &key, &offset) == 2;
  loam_status status = is_read ? lm_share_export_open(key, offset, r->fd, &size)
                               : lm_error(LOAM_EINVAL, "a key and an offset are expected");
  if (!begin_answer(out, status)) return;
  lm_json_uint(out, "size", size);
  lm_json_close(out, '}');
}

static void answer_device(const reply *r) {
  lm_json *out = r->out;
  uint64_t base = 0, at = 0;
  uint32_t key = 0;
  lm_device_export_piece piece = { 0 };
  bool is_read = sscanf(r->argument, "%" SCNx64 " %" SCNx32 " %" SCNx64, &base, &key, &at) == 3;
  loam_status status = is_read ? lm_device_export_open(base, key, at, &piece, r->fd)
                               : lm_error(LOAM_EINVAL, "a base, a key and an address are expected");
  if (!begin_answer(out, status)) return;
  lm_json_uint(out, "begin", piece.begin);
  lm_json_uint(out, "end", piece.end);
  lm_json_uint(out, "at", piece.at);
  lm_json_uint(out, "size", piece.size);
  lm_json_close(out, '}');
}

/* ---- moving live memory ---- */

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

static void write_progress(lm_json *out) {
  loam_progress now;
  uint64_t number;
  lm_rebalance_get(&now, &number);
  (void)begin_answer(out, LOAM_OK);
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

/* Reads `key`, which ends in "=", and the number behind it. Returns false if the text does not
 * begin with the key, or the number is above `most`. */
static bool read_value(const char *text, size_t length, const char *key, uint64_t most,
                       uint64_t *out) {
  size_t n = strlen(key);
  return !strncmp(text, key, n) && read_number(text + n, length - n, most, out);
}

/* Reads one `key=value` of an order; tag= is read by read_order. Returns false if the key is not
 * known, or its value is not possible. */
static bool read_word(const char *text, size_t length, lm_job_order *order) {
  uint64_t n;
  if (is_word(text, length, "to=node")) order->to = LOAM_TO_NODE;
  else if (is_word(text, length, "to=cold")) order->to = LOAM_TO_COLD;
  else if (is_word(text, length, "to=pageout")) order->to = LOAM_TO_PAGEOUT;
  else if (read_value(text, length, "rate=", UINT64_MAX, &n)) order->rate = n;
  else if (read_value(text, length, "node=", INT_MAX, &n)) order->node = (int)n;
  else if (read_value(text, length, "older=", UINT_MAX, &n)) order->older_s = (unsigned)n;
  else return false;
  return true;
}

/* Reads the words of an order. The tag is the last word, because it may contain spaces. Returns
 * false if a word is wrong, the tag is too long, or an order to demote names no tag. */
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

/* Begins a job. The client has to ask for `moved` again and again: a job whose client is gone ends
 * (lm_rebalance_keep_alive). */
static void begin_job(bool demotes, const reply *r) {
  lm_job_order order = { .demotes = demotes, .node = -1 };
  char words[256], quoted[96];
  if (!read_order(r->argument, &order)) {
    snprintf(words, sizeof words, "%s %s: rate=, node=, older=, to=node|cold|pageout, tag=",
             demotes ? "demote" : "rebalance", lm_error_quote(quoted, sizeof quoted, r->argument));
    write_error(r->out, words);
  } else if (lm_rebalance_begin(&order, LM_JOB_SERVICE) != LOAM_OK) {
    write_error(r->out, loam_error());
  } else {
    lm_rebalance_keep_alive(true);
    write_progress(r->out);
  }
}

static void answer_rebalance(const reply *r) { begin_job(false, r); }
static void answer_demote(const reply *r) { begin_job(true, r); }

static void answer_moved(const reply *r) {
  lm_rebalance_keep_alive(false);
  write_progress(r->out);
}

static void answer_move_stop(const reply *r) {
  lm_rebalance_cancel();
  write_progress(r->out);
}

/* ---- device memory that sleeps ---- */

/* A request of `sleep` or `wake`. */
typedef struct sleep_order {
  const char *where; /* NULL: to wake */
  const char *tag;
} sleep_order;

/* Carries an order out. In a process that has started no driver no memory can sleep. */
static loam_status carry_out(const sleep_order *order, size_t *bytes) {
  *bytes = 0;
  if (!lm_gpu_started()) return LOAM_OK;
  if (!lm_gpu_begin()) return lm_error(LOAM_ESTATE, "the process is ending");
  loam_status status = order->where ? lm_sleep_tag_put(order->tag, order->where, bytes)
                                    : lm_sleep_tag_wake(order->tag, bytes);
  lm_gpu_end();
  return status;
}

static void answer_order(const sleep_order *order, lm_json *out) {
  size_t bytes;
  if (!begin_answer(out, carry_out(order, &bytes))) return;
  lm_json_uint(out, "bytes", bytes);
  lm_json_uint(out, "asleep_bytes", lm_sleep_tag_asleep(order->tag));
  lm_json_close(out, '}');
}

/* `sleep WHERE tag=TAG`. WHERE may have spaces. */
static void answer_sleep(const reply *r) {
  char where[PATH_MAX];
  const char *end = strstr(r->argument, " tag=");
  size_t length = end ? (size_t)(end - r->argument) : 0;
  if (!length || length >= sizeof where) {
    write_error(r->out, "sleep: write a place and tag=");
    return;
  }
  snprintf(where, sizeof where, "%.*s", (int)length, r->argument);
  answer_order(&(sleep_order){ where, end + 5 }, r->out);
}

static void answer_wake(const reply *r) {
  answer_order(&(sleep_order){ NULL, r->argument }, r->out);
}

/* ---- all requests ---- */

typedef enum argument_rule { NO_ARGUMENT, MAY_HAVE_ARGUMENT, NEEDS_ARGUMENT } argument_rule;

/* Returns the argument of a line whose request is `name`; NULL if the line is another request, or
 * breaks the rule for arguments. */
static const char *argument_of(const char *line, const char *name, argument_rule rule) {
  size_t n = strlen(name);
  if (strncmp(line, name, n)) return NULL;
  if (line[n] == ' ') return rule == NO_ARGUMENT ? NULL : line + n + 1;
  return line[n] || rule == NEEDS_ARGUMENT ? NULL : line + n;
}

static void answer_unknown(const char *request, lm_json *out) {
  char words[256], quoted[96];
  snprintf(words, sizeof words,
           "unknown request %s: ping, status, stats, reload, sample, share, device, rebalance, "
           "demote, moved, move stop, sleep, wake",
           lm_error_quote(quoted, sizeof quoted, request));
  write_error(out, words);
}

void lm_control_reply(const char *request, lm_control_follow_fn *follow, lm_json *out, int *fd) {
  static const struct {
    const char *name;
    argument_rule rule;
    void (*answer)(const reply *r);
  } requests[] = {
    { "ping", NO_ARGUMENT, answer_ping },
    { "status", NO_ARGUMENT, answer_status },
    { "stats", NO_ARGUMENT, answer_stats },
    { "reload", MAY_HAVE_ARGUMENT, answer_reload },
    { "sample", NEEDS_ARGUMENT, answer_sample },
    { "share", NEEDS_ARGUMENT, answer_share },
    { "device", NEEDS_ARGUMENT, answer_device },
    { "rebalance", MAY_HAVE_ARGUMENT, answer_rebalance },
    { "demote", NEEDS_ARGUMENT, answer_demote },
    { "moved", NO_ARGUMENT, answer_moved },
    { "move stop", NO_ARGUMENT, answer_move_stop },
    { "sleep", NEEDS_ARGUMENT, answer_sleep },
    { "wake", MAY_HAVE_ARGUMENT, answer_wake },
  };
  reply r = { .follow = follow, .out = out, .fd = fd };
  lm_assert(request && follow && fd && *fd == -1);
  for (size_t i = 0; i < LM_COUNT(requests) && !r.argument; i++) {
    r.argument = argument_of(request, requests[i].name, requests[i].rule);
    if (r.argument) requests[i].answer(&r);
  }
  if (!r.argument) answer_unknown(request, out);
  lm_json_raw(out, "\n", 1);
  lm_assert(out->failed || lm_json_is_valid(out));
}
