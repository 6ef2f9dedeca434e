/* policy.c - generations: load, vet, swap, keep the last good.
 *
 * A site is settled (compiled by the live script) by the hook that its maker calls, under `live`.
 * It is among lm_site_at's by then. A load walks them, compiles what came since it looked last, and
 * swaps, the last round under `live` too. So a site is settled either by the old script before the
 * swap, and was seen by it, or by the new one after it. */
#include "service/policy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/pinned.h"
#include "engine/engine.h"
#include "engine/guard_fault.h"
#include "engine/live_bytes.h"
#include "heap/pool.h"
#include "heap/retire.h"
#include "heap/token_ids.h"
#include "os/decay.h"
#include "os/error.h"
#include "os/sys.h"
#include "service/control.h"

/* After this many new tags went over the budget, those to come are refused untried: each try may
 * keep its thread waiting for a whole step. */
enum { LATE_EXCESSES = 8 };
/* Ticks without a new tag after which the live script rests. */
enum { TICKS_AWAKE = 4 };

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static lm_script_limits limits = { .max_leaves = 1000, .step_ms = 200, .step_bytes = 4 * LM_MIB };
static uint64_t refused_hash; /* of the last path and text refused, or why it could not be read */

/* Taken after `load`, before any lock of memory. */
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;
static lm_script *live;    /* NULL: the built-in default */
static uint32_t live_slot; /* generation slot of the tokens */
static unsigned late_excesses;
static unsigned ticks_awake; /* since the live script was last asked */
static LM_SPARSE struct loam_policy_info record;

/* Who holds a lock of this file is inside, where no site is made that wants the lock again. */
static void lock(pthread_mutex_t *mutex) {
  (void)lm_thread_inside_begin();
  pthread_mutex_lock(mutex);
}

static void unlock(pthread_mutex_t *mutex) {
  pthread_mutex_unlock(mutex);
  lm_thread_inside_end(lm_thread_self);
}

void lm_policy_set_limits(const lm_script_limits *given) {
  lock(&load_lock);
  if (given->max_leaves) limits.max_leaves = given->max_leaves;
  if (given->step_ms) limits.step_ms = given->step_ms;
  if (given->step_bytes) limits.step_bytes = given->step_bytes;
  unlock(&load_lock);
}

const lm_script_limits *lm_policy_limits(void) { return &limits; }

/* ---- one site ---- */

static void settle(loam_site *site, uint64_t generation, const lm_plan *plan) {
  lm_site_plan *now = &site->now[generation & 1];
  atomic_store_explicit(&now->plan, plan, memory_order_relaxed);
  atomic_store_explicit(&now->token, lm_site_token(site, live_slot), memory_order_relaxed);
}

/* `live` has to be counted, and that settled, before a plan that reads it decides anything. */
static void count_live(loam_site *site, const lm_plan *plan) {
  if (plan->reads & 1u << LM_IN_LIVE) lm_live_mark(site);
}

/* A tick is wanted, by which the script comes to rest. */
static void stay_awake(void) {
  ticks_awake = 0;
  if (!lm_script_is_suspended(live)) lm_decay_stir();
}

static loam_status plan_late(loam_site *site, const lm_plan **out) {
  loam_status status = lm_script_plan(live, &site->where, out);
  stay_awake();
  return status;
}

static loam_status compile_late(loam_site *site, const lm_plan **out) {
  *out = lm_plan_default();
  if (!live) return LOAM_OK;
  char tag[96];
  loam_status status;
  const lm_plan *plan = NULL;
  if (late_excesses >= LATE_EXCESSES)
    status = lm_error(LOAM_EBUDGET, "%s: tag %s was not tried: %u tags before it took too long",
                      record.name, lm_error_quote(tag, sizeof tag, site->where.tag), late_excesses);
  else status = plan_late(site, &plan);
  if (status == LOAM_OK) {
    *out = plan;
    return status;
  }
  record.tags_refused++;
  if (status == LOAM_EBUDGET && late_excesses < LATE_EXCESSES) late_excesses++;
  return status;
}

/* Gives a site the live policy's plan; on failure the default, with the error's words set. */
static loam_status settle_late_locked(loam_site *site) {
  const lm_plan *plan;
  loam_status status = compile_late(site, &plan);
  count_live(site, plan);
  lm_live_begin();
  settle(site, atomic_load(&lm_site_generation), plan);
  return status;
}

static void tell_refused_tag(const loam_site *site) {
  char tag[96], words[LM_ERROR_SIZE];
  snprintf(words, sizeof words, "%s", loam_error());
  lm_error_event(LOAM_EVENT_TAG_REFUSED, atomic_load(&lm_site_generation), NULL,
                 "tag %s has the default memory: %s",
                 lm_error_quote(tag, sizeof tag, site->where.tag), words);
}

static void on_new_site(loam_site *site) {
  lock(&live_lock);
  loam_status status = settle_late_locked(site);
  unlock(&live_lock);
  if (status != LOAM_OK) tell_refused_tag(site);
}

/* ---- fork ---- */

/* Not `load`, which may be held for seconds: a child abandons the load of a thread that it lost,
 * and renews the lock. */
static void fork_prepare(void) { pthread_mutex_lock(&live_lock); }
static void fork_parent(void) { pthread_mutex_unlock(&live_lock); }
static void fork_child(void) {
  pthread_mutex_unlock(&live_lock);
  pthread_mutex_init(&load_lock, NULL);
}

void lm_policy_start(void) {
  static const lm_thread_hooks hooks = { .fork_prepare = fork_prepare,
                                         .fork_parent = fork_parent,
                                         .fork_child = fork_child };
  static _Atomic bool done; /* release when all is hooked; pairs with the acquire here */
  if (atomic_load_explicit(&done, memory_order_acquire)) return;
  lm_thread_hold_forks();
  if (!atomic_load_explicit(&done, memory_order_relaxed)) {
    lm_engine_start(); /* all of memory is hooked first: what a load takes comes after ours */
    lm_thread_add_hooks(&hooks);
    atomic_store_explicit(&done, true, memory_order_release);
  }
  lm_thread_allow_forks();
}

__attribute__((constructor)) static void listen_for_sites(void) { lm_site_on_new = on_new_site; }

/* ---- a load ---- */

typedef struct load {
  const char *name, *path;
  const char *text;
  size_t length;
  uint64_t hash;
  lm_script *script;
  const lm_plan **plan; /* of the first `sites` sites, by index */
  uint32_t sites, room;
} load;

enum { FIRST_SITE = 2 };

static loam_status make_room(load *l, uint32_t sites) {
  if (sites <= l->room) return LOAM_OK;
  uint32_t room = sites + sites / 4 + 64;
  const lm_plan **plan = lm_metadata_realloc(l->plan, room * sizeof *plan);
  if (!plan)
    return lm_error(LOAM_ENOMEM, "%s: no memory for the plans of %u sites", l->name, sites);
  l->plan = plan;
  l->room = room;
  return LOAM_OK;
}

/* Compiles the sites that came since the last time. */
static loam_status compile_sites(load *l) {
  uint32_t sites = lm_site_count();
  loam_status status = make_room(l, sites);
  for (; status == LOAM_OK && l->sites < sites; l->sites++) {
    loam_site *site = lm_site_at(FIRST_SITE + l->sites);
    status = lm_script_plan(l->script, &site->where, &l->plan[l->sites]);
    if (status == LOAM_OK) count_live(site, l->plan[l->sites]);
  }
  lm_live_begin();
  return status;
}

static void describe_locked(const load *l, uint64_t generation) {
  const char *name = lm_script_name(l->script);
  record.generation = generation;
  record.hash = l->hash;
  record.loaded_at = lm_sys_unix_ns();
  record.tags_refused = 0;
  snprintf(record.name, sizeof record.name, "%s", *name ? name : l->name);
  snprintf(record.path, sizeof record.path, "%s", l->path);
}

/* Every site's decision of the next parity, then the number that makes them count. */
static void swap_locked(const load *l, uint64_t generation, uint32_t slot) {
  live = l->script;
  live_slot = slot;
  late_excesses = 0;
  for (uint32_t i = 0; i < l->sites; i++)
    settle(lm_site_at(FIRST_SITE + i), generation, l->plan[i]);
  describe_locked(l, generation);
  if (lm_script_has_one_plan(live)) lm_script_suspend(live);
  stay_awake();
  /* Pairs with the acquire of whoever picks a decision by its parity. */
  atomic_store_explicit(&lm_site_generation, generation, memory_order_release);
}

/* What the old policy's strategies hold goes back, as far as nothing of it lives. Under `live`, so
 * that no plan is made meanwhile. */
static void retire_strategies(void) {
  uint32_t n = lm_strategy_count();
  uint8_t *used = lm_metadata_alloc(n);
  if (!used) return;
  lock(&live_lock);
  lm_script_mark_used(live, used, n);
  lm_retire_unused(used, n);
  unlock(&live_lock);
  lm_pinned_end_unused(used, n);
  lm_metadata_free(used);
}

/* Of a token: of the generation that is live, or in its slot. */
static bool is_of_live(lm_token token) { return lm_site_token_slot(token) == live_slot; }

/* What came while we compiled is compiled here; only that keeps new tags waiting. */
static loam_status go_live(load *l) {
  uint64_t generation = atomic_load(&lm_site_generation) + 1;
  uint32_t slot = lm_site_generation_slot(generation);
  lm_token_ids_reclaim(is_of_live);
  lock(&live_lock);
  lm_script *old = live;
  loam_status status = compile_sites(l);
  if (status == LOAM_OK) swap_locked(l, generation, slot);
  unlock(&live_lock);
  if (status != LOAM_OK) return status;
  lm_thread_set_slow_all(LM_SLOW_STALE);
  l->script = NULL;
  /* Without a grace nothing tells when the old plans are read no more: they stay. */
  if (!old || !lm_thread_grace()) return LOAM_OK;
  lm_script_close(old);
  retire_strategies();
  return LOAM_OK;
}

/* `loam run` has run this text's tests just before it started us; what we start inherits that. What
 * follows the hash: nothing, or a colon and what plan_text.h says; NULL: it is another text's. */
static const char *vetted(uint64_t hash) {
  char *rest = NULL;
  const char *text = lm_sys_getenv("LOAM_VETTED");
  bool is_it = text && !atomic_load(&lm_site_generation) && strtoull(text, &rest, 16) == hash;
  return is_it ? rest : NULL;
}

loam_status lm_policy_vet(const char *path, char vetted[LM_POLICY_VETTED]) {
  char *text, carried[LM_PLAN_TEXT_SIZE];
  size_t length;
  loam_status status = lm_policy_file_read(path, LM_READ_TO_LOAD, &text, &length);
  if (status != LOAM_OK) return status;
  status = lm_script_check(path, text, length, &limits, carried);
  if (status == LOAM_OK)
    snprintf(vetted, LM_POLICY_VETTED, "%016llx%s%s",
             (unsigned long long)lm_policy_file_hash(text, length), *carried ? ":" : "", carried);
  lm_metadata_free(text);
  return status;
}

/* It tells whether there is but one plan. */
static loam_status compile_empty_tag(const load *l) {
  const lm_plan *plan;
  return lm_script_plan(l->script, &(loam_where){ .tag = "" }, &plan);
}

static loam_status compile_and_vet(load *l) {
  const char *rest = vetted(l->hash);
  if (rest && *rest == ':')
    l->script = lm_script_from_plan_text(l->name, l->text, l->length, &limits, rest + 1);
  if (l->script) return compile_sites(l);
  loam_status status = lm_script_open(l->name, l->text, l->length, &limits, &l->script);
  if (status == LOAM_OK) status = compile_sites(l);
  if (status == LOAM_OK && !rest) status = lm_script_vet(l->script);
  if (status == LOAM_OK) status = compile_sites(l);
  return status == LOAM_OK ? compile_empty_tag(l) : status;
}

static uint64_t hash_attempt(const char *path, uint64_t hash) {
  return hash ^ lm_policy_file_hash(path, strlen(path)) * 0x9e3779b97f4a7c15u;
}

static void note_attempt(loam_status status, const char *path, uint64_t hash) {
  lock(&live_lock);
  record.loads++;
  record.last_at = lm_sys_unix_ns();
  record.last = status;
  snprintf(record.last_error, sizeof record.last_error, "%s", status ? loam_error() : "");
  if (status != LOAM_OK) record.refused++;
  unlock(&live_lock);
  refused_hash = status == LOAM_OK ? 0 : hash_attempt(path, hash);
}

static loam_status load_text_locked(const char *name, const char *path, const char *text,
                                    size_t length) {
  load l = { .name = name,
             .path = path,
             .text = text,
             .length = length,
             .hash = lm_policy_file_hash(text, length) };
  lm_numa_free_pause(); /* it may be the service thread that is busy with this */
  loam_status status = compile_and_vet(&l);
  if (status == LOAM_OK) status = go_live(&l);
  if (status == LOAM_OK) lm_guard_fault_install();
  note_attempt(status, path, l.hash);
  lm_script_close(l.script);
  lm_metadata_free(l.plan);
  return status;
}

bool lm_policy_is_followed(void) {
  lock(&live_lock);
  bool wanted = live && lm_script_applies_live(live);
  unlock(&live_lock);
  return wanted;
}

/* With no lock held. The callback may change this thread's words; the caller is to find them. */
static loam_status announce(loam_status status, const char *name) {
  char words[LM_ERROR_SIZE];
  uint64_t generation = atomic_load(&lm_site_generation);
  if (status == LOAM_OK) {
    lm_error_event(LOAM_EVENT_POLICY_LIVE, generation, NULL, "%s is live as generation %llu", name,
                   (unsigned long long)generation);
    lm_control_apply(lm_policy_is_followed());
    return status;
  }
  snprintf(words, sizeof words, "%s", loam_error());
  lm_error_event(LOAM_EVENT_POLICY_REFUSED, generation, NULL, "%s", words);
  return lm_error(status, "%s", words);
}

loam_status lm_policy_load(const char *name, const char *path, const char *text, size_t length) {
  lm_policy_start();
  lock(&load_lock);
  loam_status status = load_text_locked(name, path, text, length);
  unlock(&load_lock);
  return announce(status, name);
}

/* ---- files ---- */

/* Whether the file is what is live, or what was refused last: then there is nothing to do. What is
 * live again after a refused edit is as good as loaded. */
static bool is_known_locked(const char *path, uint64_t hash) {
  if (hash_attempt(path, hash) == refused_hash) return true;
  lock(&live_lock);
  bool is_live = live && hash == record.hash && !strcmp(path, record.path);
  if (is_live) {
    record.last = LOAM_OK;
    record.last_error[0] = 0;
  }
  unlock(&live_lock);
  if (is_live) refused_hash = 0;
  return is_live;
}

/* *known: the file was left alone. */
static loam_status load_file_locked(const char *path, const char *full, lm_reading reading,
                                    bool if_changed, bool *known) {
  char *text = NULL;
  size_t length = 0;
  loam_status status = lm_policy_file_read(path, reading, &text, &length);
  uint64_t hash = status == LOAM_OK ? lm_policy_file_hash(text, length)
                                    : lm_policy_file_hash(loam_error(), strlen(loam_error()));
  *known = if_changed && is_known_locked(full, hash);
  if (*known) status = LOAM_OK;
  else if (status == LOAM_OK) status = load_text_locked(path, full, text, length);
  else note_attempt(status, full, hash);
  lm_metadata_free(text);
  return status;
}

static loam_status load_file(const char *path, lm_reading reading, bool if_changed) {
  char buffer[sizeof record.path];
  bool known;
  const char *full = lm_policy_file_absolute(path, buffer, sizeof buffer);
  lm_policy_start();
  lock(&load_lock);
  loam_status status = load_file_locked(path, full, reading, if_changed, &known);
  unlock(&load_lock);
  return known ? LOAM_OK : announce(status, path);
}

loam_status lm_policy_load_file(const char *path, bool if_changed) {
  return load_file(path, LM_READ_TO_LOAD, if_changed);
}

loam_status lm_policy_load_followed(const char *path, bool if_changed) {
  return load_file(path, LM_READ_TO_FOLLOW, if_changed);
}

bool lm_policy_decay(void) {
  lock(&live_lock);
  bool awake = live && !lm_script_is_suspended(live);
  bool later = awake && ticks_awake++ < TICKS_AWAKE;
  if (awake && !later) lm_script_suspend(live);
  unlock(&live_lock);
  return later;
}

/* ---- figures ---- */

void lm_policy_info_get(struct loam_policy_info *out) {
  bool watching = lm_control_watching();
  lock(&live_lock);
  *out = record;
  out->plans = live ? lm_script_plans(live) : 0;
  unlock(&live_lock);
  out->sites = lm_site_count();
  out->watching = watching;
}
