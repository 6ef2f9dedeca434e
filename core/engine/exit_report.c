/* exit_report.c - the report at a program's end. */
#include "engine/exit_report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/log_line.h"
#include "engine/stats.h"
#include "os/error.h"
#include "os/sys_file.h"

/* The report has at most ROWS pairs of tag and strategy, the largest first, and LIMITS limits. */
enum { ROWS = 10, LIMITS = 10, LINE = 640, TEXT = LINE * (ROWS + LIMITS + 4) };

/* Where the report goes: to events, to a file, or, if both are empty, nowhere. */
static LM_SPARSE char path[LM_LOG_LINE_PATH];
static bool is_event;

/* The lines for the file. The thread that ends the process writes them. */
static LM_SPARSE struct {
  size_t length;
  char bytes[TEXT];
} text;

/* Appends the text to the file. If that fails, there is no file from then on. */
static void append_to_file(void) {
  int error = lm_sys_file_append(path, text.bytes, text.length);
  text.length = 0;
  if (!error) return;
  lm_error_event(LOAM_EVENT_ENVIRONMENT, 0, NULL,
                 "LOAM_REPORT=%s: %s, so there is no report at the end", path, strerror(error));
  path[0] = 0;
}

/* Opens the file at the start too, and appends no bytes. So a program that runs for weeks reports a
 * wrong path at its start. */
static void start_file(const char *where) {
  strcpy(path, where);
  append_to_file();
}

static void report(void);

/* Registers the report with atexit(3), once. A host's objects of C++ that were made before the
 * start are destroyed after the report, and its callback for events may use them. A process without
 * a report does nothing at its end. */
static void register_report(void) {
  static bool is_registered;
  if (!is_registered) is_registered = !atexit(report);
}

void lm_exit_report_start(const char *where) {
  if (!where || !*where) return;
  if (!strcmp(where, "stderr")) is_event = true;
  else if (lm_log_line_start(where)) start_file(where);
  else
    lm_error_event(LOAM_EVENT_ENVIRONMENT, 0, NULL,
                   "LOAM_REPORT=%.100s: it is neither stderr nor an absolute path of at most %d "
                   "bytes, so there is no report at the end",
                   where, LM_LOG_LINE_PATH - 1);
  if (is_event || path[0]) register_report();
}

/* ---- Lines -------------------------------------------------------------------------------- */

/* Adds a line to the report. */
static void LM_PRINTF(1, 2) put(const char *format, ...) {
  char words[LINE - 128]; /* the file has the time, the program and its process id before them */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  if (is_event) lm_error_event(LOAM_EVENT_REPORT, 0, NULL, "%s", words);
  else if (text.length + LINE <= TEXT)
    text.length += lm_log_line_write(text.bytes + text.length, LINE, words);
}

/* Words for a size, as the command shows it: "9.9 MiB", "16 MiB", "547 KiB" from 100 on, and
 * "1 GiB" for 1023.6 MiB. */
typedef struct size_words {
  char bytes[24];
} size_words;

static size_words size_of(uint64_t bytes) {
  static const char units[] = "KMGTPE";
  size_words out;
  double size = (double)bytes;
  int unit = -1;
  for (; size >= 1023.5 && unit < (int)sizeof units - 2; unit++) size /= 1024;
  uint64_t tenths = (uint64_t)(size * 10 + 0.5);
  bool has_tenths = tenths < 1000 && tenths % 10;
  if (unit < 0) snprintf(out.bytes, sizeof out.bytes, "%" PRIu64 " B", bytes);
  else snprintf(out.bytes, sizeof out.bytes, "%.*f %ciB", has_tenths, size, units[unit]);
  return out;
}

static const char *plural(uint64_t n) { return n == 1 ? "" : "s"; }

/* ---- Contents ----------------------------------------------------------------------------- */

/* The most memory that the process had in RAM, or 0 if the kernel does not tell. */
static uint64_t most_resident(void) {
  char status[LM_SYS_STATUS];
  const char *found = lm_sys_process_field(0, "\nVmHWM:", status);
  return found ? strtoull(found, NULL, 10) * 1024 : 0;
}

static void put_requests(uint64_t n, const char *what) {
  if (n) put("at exit: %" PRIu64 " request%s %s", n, plural(n), what);
}

static void put_totals(void) {
  struct loam_stats s;
  if (lm_stats_get(&s) != LOAM_OK) return;
  put("at exit: %s live in %" PRIu64 " block%s; %s in %" PRIu64 " block%s allocated in all; at "
      "most %s resident",
      size_of(s.live_bytes).bytes, s.live_blocks, plural(s.live_blocks),
      size_of(s.total_bytes).bytes, s.total_blocks, plural(s.total_blocks),
      size_of(most_resident()).bytes);
  put_requests(s.fallbacks, "served by a fallback");
  put_requests(s.denied, "denied by the policy");
  put_requests(s.failed, "failed: no strategy of the chain could serve");
}

/* Counts the rows, and adds a line for each of the first ones. */
static void put_row(void *ctx, const loam_stats_row *row) {
  size_t *n = ctx;
  if (++*n > ROWS) return;
  put("at exit: tag '%.80s', strategy '%.64s': %s live in %" PRIu64 " block%s; %s in %" PRIu64
      " block%s in all",
      row->tag, row->strategy, size_of(row->live_bytes).bytes, row->live_blocks,
      plural(row->live_blocks), size_of(row->total_bytes).bytes, row->total_blocks,
      plural(row->total_blocks));
}

static void put_rows(void) {
  size_t n = 0;
  (void)lm_stats_by(LOAM_BY_TAG | LOAM_BY_STRATEGY, put_row, &n);
  if (n > ROWS) put("at exit: and %zu more tags and strategies with less", n - ROWS);
}

/* Returns how many requests the strategies of a family could not serve. */
static uint64_t failed_of(const lm_strategy *family) {
  uint64_t failed = 0;
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++) {
    const lm_strategy *s = lm_strategy_at(id);
    if (s->family == family) failed += atomic_load_explicit(&s->failed, memory_order_relaxed);
  }
  return failed;
}

static void put_limit(const lm_strategy *s, const lm_limit_use *use) {
  uint64_t failed = failed_of(s);
  char words[64] = "";
  if (failed)
    snprintf(words, sizeof words, "; it could not serve %" PRIu64 " request%s", failed,
             plural(failed));
  put("at exit: strategy '%.64s': at most %s of its limit of %s were used%s%s", s->desc.name,
      size_of(use->peak).bytes, size_of(use->limit).bytes,
      use->shared ? " by all that share it" : "", words);
}

static void put_limits(void) {
  lm_live_limits limits;
  lm_live_limits_read(&limits);
  int shown = 0;
  for (uint32_t id = 0; id < limits.n && shown < LIMITS; id++) {
    lm_limit_use use = limits.member[id] ? lm_live_limits_of(&limits, id) : (lm_limit_use){ 0 };
    if (!use.limit) continue;
    put_limit(lm_strategy_at(id), &use);
    shown++;
  }
  lm_live_limits_finish(&limits);
}

/* Returns whether the thread is in the middle of a call of loam: a signal handler of the program,
 * or foreign code that loam calls, has called exit. */
static bool is_amid_call(void) {
  bool is_inside = lm_thread_self && lm_thread_self->inside;
  return is_inside || lm_lock_cancel_holds || lm_thread_is_active();
}

/* Runs as the process ends by exit or by the return of main. */
static void report(void) {
  if ((!is_event && !path[0]) || is_amid_call()) return;
  put_totals();
  put_rows();
  put_limits();
  if (path[0]) append_to_file();
}
