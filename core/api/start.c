/* start.c - starts loam: from a host's configuration, or from the environment when memory is first
 * asked for.
 *
 * No thread waits for a start: the thread that starts may need a lock that a waiting thread holds,
 * for example the loader's. Until the start is done, other threads are served under the built-in
 * default policy, and so is the start itself. */
#include "api/start.h"

#include <string.h>

#include "device/handler.h"
#include "engine/block_watch.h"
#include "engine/exit_report.h"
#include "engine/guard_fault.h"
#include "engine/last_words.h"
#include "engine/sample.h"
#include "heap/large.h"
#include "heap/tails.h"
#include "os/error.h"
#include "os/numa.h"
#include "os/pressure.h"
#include "os/sys.h"
#include "os/thread.h"
#include "pages/range.h"
#include "plan/policy_image.h"
#include "service/board.h"
#include "service/control.h"
#include "service/control_client.h"
#include "service/policy.h"
#include "service/publish.h"
#include "service/quota_file.h"

_Atomic uint32_t lm_start_state = LM_START_COLD;

/* Returns whether a variable is 1; `usual` if it is not set. Any other value is reported as
 * an event, so that a misspelt value is noticed, and `usual` is returned. */
static bool is_on(const char *name, bool usual) {
  const char *value = lm_sys_getenv(name);
  if (!value || !*value) return usual;
  if (!strcmp(value, "0") || !strcmp(value, "1")) return *value == '1';
  lm_error_event(LOAM_EVENT_ENVIRONMENT, 0, NULL, "%s=%.100s: it may be %s; taken as %d", name,
                 value, usual ? "1|0" : "0|1", usual);
  return usual;
}

static const char *missing_function(const loam_system *s) {
  if (!s->malloc) return "malloc";
  if (!s->calloc) return "calloc";
  if (!s->realloc) return "realloc";
  if (!s->free) return "free";
  if (!s->aligned_alloc) return "aligned_alloc";
  return s->usable_size ? NULL : "usable_size";
}

/* Copies the fields that the host knew when it was compiled. Fields that it did not know are 0. */
static loam_status read_config(const loam_config *given, loam_config *out) {
  *out = (loam_config){ .size = sizeof *out };
  if (!given) return LOAM_OK;
  if (given->size < offsetof(loam_config, control))
    return lm_error(LOAM_EINVAL, "loam_config.size %zu: it must be sizeof(loam_config)",
                    given->size);
  memcpy(out, given, given->size < sizeof *out ? given->size : sizeof *out);
  const char *missing = out->system ? missing_function(out->system) : NULL;
  if (missing) return lm_error(LOAM_EINVAL, "loam_config.system: it has no %s", missing);
  return LOAM_OK;
}

/* Returns whether a configuration asks for the service thread. */
static bool has_service(const loam_config *config) { return config->watch || config->control > 0; }

/* A guest follows the board of its tree, and obeys the policy that was published there last.
 * Returns whether it does; else it loads the policy file. */
static bool is_obeying_board(const loam_config *config) {
  if (!config->guest || has_service(config)) return false;
  lm_board_follow();
  lm_publish_obey_if_new();
  lm_guard_fault_install(); /* a later edit installs nothing: it is part of a request for memory */
  return atomic_load(&lm_site_generation) > 0;
}

/* A policy that a lenient host's start refuses has been told as an event. */
static loam_status start_policy(const loam_config *config) {
  if (!config->policy || is_obeying_board(config)) return LOAM_OK;
  loam_status status = config->watch ? lm_policy_load_followed(config->policy, false)
                                     : lm_policy_load_file(config->policy);
  if (status && !config->lenient) return status;
  if (config->watch) status = lm_control_watch(config->policy);
  return config->lenient ? LOAM_OK : status;
}

/* A guest takes a place on the board of its tree. If it was started by a set LD_PRELOAD, and not by
 * `loam run`, there is no board yet, and it makes one. */
static void join_board(const loam_config *config, bool may_make) {
  char dir[LM_CONTROL_PATH];
  loam_status status = may_make ? lm_control_dir(config->control_dir, dir, sizeof dir) : LOAM_OK;
  if (status == LOAM_OK) status = lm_board_join(may_make ? dir : NULL);
  if (lm_board_halves()) { /* a later policy may need files that the program may not open then */
    (void)lm_large_guard_max();
    (void)lm_numa_nodes();
  }
  if (status != LOAM_OK) lm_error_event(LOAM_EVENT_CONTROL, 0, NULL, "%s", loam_error());
}

static loam_status start_as(const loam_config *config) {
  lm_assert(lm_start_state % LM_START_STATES == LM_START_STARTING);
  lm_script_limits limits = { config->max_leaves, config->step_ms, config->step_bytes };
  bool may_have = is_on("LOAM_CONTROL", true); /* read for a guest too: a wrong value is reported */
  (void)is_on("LOAM_KEEP", false); /* os/decay.c and os/pressure.c read both where they need them */
  (void)is_on("LOAM_PRESSURE", true);
  lm_policy_image_guard_as(lm_sys_getenv("LOAM_GUARD"));
  lm_policy_start();
  lm_tails_learn();
  lm_quota_file_start(config->control_dir, may_have);
  lm_sample_set_as(lm_sys_getenv("LOAM_PROFILE"));
  lm_last_words_start(lm_sys_getenv("LOAM_LAST_WORDS"));
  lm_exit_report_start(lm_sys_getenv("LOAM_REPORT"));
  lm_policy_set_limits(&limits);
  const loam_system *before = lm_handler_system();
  if (!lm_handler_set_system(config->system))
    return lm_error(LOAM_ENOMEM, "no memory for a copy of loam_config.system");
  lm_guard_fault_enable(config->guard_report);
  lm_guard_fault_install(); /* for the built-in default: LOAM_GUARD */
  lm_control_set_guest(config->guest && !has_service(config));
  lm_pressure_set_guest(config->guest && !has_service(config));
  loam_status status = start_policy(config);
  if (status) {
    (void)lm_handler_set_system(before); /* there is a copy of it already, so this cannot fail */
    return status;
  }
  if (config->leaks || is_on("LOAM_LEAKS", false)) lm_block_watch_want(LM_BLOCK_WATCH_LIST, true);
  bool has_socket = config->control ? config->control > 0 : may_have && !config->guest;
  (void)lm_control_start(config->control_dir, has_socket); /* its failure is an event */
  if (config->guest && !has_socket) join_board(config, may_have);
  return LOAM_OK;
}

/* Begins a start and returns true, unless one is done, or under way in this process. After a
 * loam_stop, a start begins only if `may_follow_stop`. *before becomes the state to which a start
 * that fails returns. A child that was forked in the middle of a start inherits its state without
 * the thread that makes it; in the child no start has begun. */
static bool begin(bool may_follow_stop, uint32_t *before) {
  uint32_t own = LM_START_STARTING + LM_START_STATES * lm_thread_forks;
  uint32_t now = atomic_load_explicit(&lm_start_state, memory_order_acquire);
  bool is_inherited = now % LM_START_STATES == LM_START_STARTING && now != own;
  *before = is_inherited ? LM_START_COLD : now;
  return (*before == LM_START_COLD || (may_follow_stop && *before == LM_START_STOPPED)) &&
         atomic_compare_exchange_strong_explicit(&lm_start_state, &now, own, memory_order_acq_rel,
                                                 memory_order_relaxed);
}

/* Cancellation is off: a thread cancelled here would leave a start that never ends. */
loam_status loam_start(const loam_config *given) {
  loam_config config;
  loam_status status = read_config(given, &config);
  if (status || (status = lm_range_check())) return status;
  lm_sys_cancel_off();
  uint32_t before;
  bool is_first = begin(true, &before);
  status = is_first ? start_as(&config) : lm_error(LOAM_ESTATE, "loam is started already");
  if (is_first)
    atomic_store_explicit(&lm_start_state, status ? before : LM_START_RUNNING,
                          memory_order_release);
  lm_sys_cancel_restore();
  return status;
}

static void start_from_environment(void) {
  uint32_t before;
  if (!begin(false, &before)) return;
  loam_config config = { .size = sizeof config, .lenient = 1 };
  const char *policy = lm_sys_getenv("LOAM_POLICY");
  if (policy && *policy) config.policy = policy;
  config.watch = is_on("LOAM_WATCH", false);
  (void)start_as(&config);
  atomic_store_explicit(&lm_start_state, LM_START_RUNNING, memory_order_release);
}

/* A fork does not wait for the start, which may last long. */
LM_NOINLINE void lm_start_from_environment(void) {
  if (atomic_load_explicit(&lm_start_state, memory_order_acquire) == LM_START_STOPPED) return;
  lm_sys_cancel_off();
  lm_lock_suspended section = lm_lock_suspend();
  start_from_environment();
  lm_lock_resume(section);
  lm_sys_cancel_restore();
}

/* The call also ends a watch that loam_policy_watch began after an earlier loam_stop. */
void loam_stop(void) {
  uint32_t now = LM_START_RUNNING;
  bool was_running = atomic_compare_exchange_strong_explicit(
      &lm_start_state, &now, LM_START_STOPPED, memory_order_acq_rel, memory_order_relaxed);
  if (was_running || now == LM_START_STOPPED) lm_control_stop();
}
