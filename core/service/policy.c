/* policy.c - the live policy: loads a policy, checks it, makes it live, and keeps the last good
 * one.
 *
 * Each site has a plan of the live generation. The thread that makes a site calls on_new_site,
 * which finds the site's plan in the live image, under `live_lock`; lm_site_at finds the site by
 * then. A load finds the plans of all sites that lm_site_at finds, repeats that for the sites that
 * came during the load, and becomes live; the last repetition happens under `live_lock`. So a new
 * site either takes the lock before the swap and is seen by the load, or takes it afterwards and
 * gets its plan from the new image. */
#include "service/policy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/pinned.h"
#include "engine/engine.h"
#include "engine/guard_fault.h"
#include "engine/live_bytes.h"
#include "heap/pools.h"
#include "heap/retire.h"
#include "heap/token_ids.h"
#include "os/error.h"
#include "os/sys.h"
#include "os/text.h"
#include "plan/image_text.h"
#include "script/policy_open.h"
#include "service/quota_file.h"

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static lm_script_limits limits = { .max_leaves = 1000, .step_ms = 200, .step_bytes = 4 * LM_MIB };
/* The hash of the last refused path and text, or of the path and the reason why the file could not
 * be read; 0: the last load succeeded. */
static uint64_t refused_hash;

/* Taken after `load_lock` and before any lock of memory.
 * Law: record.generation = lm_site_generation. live is NULL exactly while that is 0. */
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;
static lm_policy_image *live; /* NULL: the built-in default policy */
static uint32_t live_slot;    /* the generation slot in tokens of the live generation */
static LM_SPARSE struct loam_policy_info record;
/* The hash of the text that the last load refused; 0: it succeeded, or it could not read a text. */
static uint64_t refused_text;

/* Written by the service layer, read by any thread; relaxed: no other memory depends on them. */
static _Atomic bool is_watched;
static void (*_Atomic on_live)(bool is_followed);
static void (*_Atomic on_attempt)(void);

/* Takes a lock of this file. Its holder counts as inside loam: there, memory is served under the
 * default plan and no site is made, so the thread does not want the lock again. A fork waits until
 * `live_lock` is free (a guarded section: os/fork_gate.h). It does not wait for `load_lock`, which
 * may be held for seconds. */
static void lock(pthread_mutex_t *mutex) {
  (void)lm_thread_inside_begin();
  if (mutex == &live_lock) lm_lock_hold_cancel();
  pthread_mutex_lock(mutex);
}

static void unlock(pthread_mutex_t *mutex) {
  pthread_mutex_unlock(mutex);
  if (mutex == &live_lock) lm_lock_allow_cancel();
  lm_thread_inside_end(lm_thread_self);
}

void lm_policy_set_limits(const lm_script_limits *given) {
  lm_assert(given);
  lock(&load_lock);
  if (given->max_leaves) limits.max_leaves = given->max_leaves;
  if (given->step_ms) limits.step_ms = given->step_ms;
  if (given->step_bytes) limits.step_bytes = given->step_bytes;
  unlock(&load_lock);
}

const lm_script_limits *lm_policy_limits(void) { return &limits; }

/* ---- one site ---- */

/* Writes the plan that a site has under `generation`. Relaxed: a swap orders the stores by the
 * release of lm_site_generation. Other threads cannot get a new site before its plan is
 * set (lm_site_on_new). */
static void set_site_plan(loam_site *site, uint64_t generation, const lm_plan *plan) {
  lm_assert(plan);
  lm_site_plan *now = &site->now[generation & 1];
  atomic_store_explicit(&now->plan, plan, memory_order_relaxed);
  atomic_store_explicit(&now->token, lm_site_token(site, live_slot), memory_order_relaxed);
}

/* Begins to count the live bytes of the site's tag if the plan reads req.live. The count must be
 * complete (lm_live_begin) before such a plan decides anything. */
static void count_live_bytes(loam_site *site, const lm_plan *plan) {
  if (plan->reads & 1u << LM_IN_LIVE) lm_live_mark(site);
}

/* Gives a new site the live policy's plan. If there is no memory for it, the site gets the default
 * plan, and the error's words say so. */
static loam_status set_late_plan_locked(loam_site *site) {
  const lm_plan *plan = lm_plan_default();
  loam_status status = live ? lm_policy_image_find(live, &site->where, &plan) : LOAM_OK;
  if (status != LOAM_OK) record.tags_refused++;
  count_live_bytes(site, plan);
  lm_live_begin();
  set_site_plan(site, atomic_load(&lm_site_generation), plan);
  return status;
}

static void report_refused_tag(const loam_site *site) {
  char tag[96], words[LM_ERROR_SIZE];
  snprintf(words, sizeof words, "%s", loam_error());
  lm_error_event(LOAM_EVENT_TAG_REFUSED, atomic_load(&lm_site_generation), NULL,
                 "tag %s has the default memory: %s",
                 lm_error_quote(tag, sizeof tag, site->where.tag), words);
}

/* lm_site_on_new: gives a new site its plan. */
static void on_new_site(loam_site *site) {
  lock(&live_lock);
  loam_status status = set_late_plan_locked(site);
  unlock(&live_lock);
  if (status != LOAM_OK) report_refused_tag(site);
}

/* ---- fork ---- */

/* A child abandons the load of another thread, which the child does not have. */
static void fork_child(void) {
  pthread_mutex_init(&live_lock, NULL);
  pthread_mutex_init(&load_lock, NULL);
}

void lm_policy_start(void) {
  static const lm_thread_hooks hooks = { .fork_child = fork_child };
  static _Atomic bool
      done; /* stored with release after the hooks; the acquire here pairs with it */
  if (atomic_load_explicit(&done, memory_order_acquire)) return;
  lm_lock_hold_cancel(); /* a forked child has all of this or nothing */
  if (!atomic_load_explicit(&done, memory_order_relaxed)) {
    lm_engine_start(); /* registers the hooks of memory: a load takes locks of memory later */
    lm_thread_add_hooks(&hooks);
    atomic_store_explicit(&done, true, memory_order_release);
  }
  lm_lock_allow_cancel();
}

__attribute__((constructor)) static void register_site_hook(void) { lm_site_on_new = on_new_site; }

/* ---- a load ---- */

/* One load.
 * Law: plan[i] is the plan of site LM_SITE_FIRST + i for i < sites; sites <= room. */
typedef struct load {
  lm_script_source source;
  const char *path; /* absolute; "" for a text from no file */
  uint64_t hash;    /* of the text */
  lm_policy_opened opened;
  const lm_plan **plan;
  uint32_t sites, room;
} load;

/* Returns whether the law holds, as far as the plans show it: each site has one. */
static inline bool load_is_valid(const load *l) {
  if (l->sites > l->room || !l->plan != !l->room) return false;
  for (uint32_t i = 0; i < l->sites; i++)
    if (!l->plan[i]) return false;
  return true;
}

/* Makes room for the plans of `sites` sites. */
static loam_status make_room(load *l, uint32_t sites) {
  if (sites <= l->room) return LOAM_OK;
  uint32_t room = sites + sites / 4 + 64;
  const lm_plan **plan = lm_metadata_realloc(l->plan, room * sizeof *plan);
  if (!plan)
    return lm_error(LOAM_ENOMEM, "%s: no memory for the plans of %u sites", l->source.name, sites);
  l->plan = plan;
  l->room = room;
  return LOAM_OK;
}

/* Finds the plans of the sites that were made since the last call, and completes the counts of live
 * bytes that these plans read. */
static loam_status plan_sites(load *l) {
  uint32_t sites = lm_site_count();
  loam_status status = make_room(l, sites);
  for (; status == LOAM_OK && l->sites < sites; l->sites++) {
    loam_site *site = lm_site_at(LM_SITE_FIRST + l->sites);
    status = lm_policy_image_find(l->opened.image, &site->where, &l->plan[l->sites]);
    if (status == LOAM_OK) count_live_bytes(site, l->plan[l->sites]);
  }
  lm_verify(load_is_valid(l));
  lm_live_begin();
  return status;
}

/* Fills the record of the live policy. */
static void describe_locked(const load *l, uint64_t generation) {
  const char *name = lm_policy_image_name(l->opened.image);
  record.generation = generation;
  record.hash = l->hash;
  record.loaded_at = lm_sys_unix_ns();
  record.tags_refused = 0;
  lm_text_put(record.name, sizeof record.name, *name ? name : l->source.name, NULL);
  lm_text_put(record.path, sizeof record.path, l->path, NULL);
}

/* Makes the loaded policy live: writes every site's plan for the new generation, then the
 * generation's number, which makes these plans the valid ones. */
static void swap_locked(const load *l, uint64_t generation, uint32_t slot) {
  lm_assert(l->opened.image && generation == atomic_load(&lm_site_generation) + 1);
  lm_assert(l->sites <= lm_site_count()); /* a newer site takes `live_lock` after this */
  live = l->opened.image;
  live_slot = slot;
  for (uint32_t i = 0; i < l->sites; i++)
    set_site_plan(lm_site_at(LM_SITE_FIRST + i), generation, l->plan[i]);
  describe_locked(l, generation);
  /* The release pairs with the acquire of a thread that picks a site's plan by the parity. */
  atomic_store_explicit(&lm_site_generation, generation, memory_order_release);
}

/* Returns n bytes, of which byte i is 1 if *image names strategy i; NULL: there is no memory. An
 * image that is NULL names none. The caller frees the bytes. Takes `live_lock`, so that *image
 * stays open, and no site gets a new plan of the live image. */
static uint8_t *mark_used(lm_policy_image *const *image, uint32_t n) {
  uint8_t *used = lm_metadata_alloc(n);
  lock(&live_lock);
  if (used && *image) lm_policy_image_mark_used(*image, used, n);
  unlock(&live_lock);
  return used;
}

uint8_t *lm_policy_strategies_named(uint32_t n) { return mark_used(&live, n); }

/* Tells whether a token carries the live generation's slot. */
static bool is_of_live(lm_token token) { return lm_site_token_slot(token) == live_slot; }

/* Images that were replaced without a grace, because the kernel has no membarrier, or because the
 * load was part of a program's request for memory. Under `load_lock`. Law: parked_n <= PARKED. */
enum { PARKED = 256 };
static LM_SPARSE lm_policy_image *parked[PARKED];
static uint32_t parked_n;

/* Keeps an image until no thread can read its plans. If there is no room, the image stays for
 * good. */
static void park(lm_policy_image *image) {
  if (parked_n < PARKED) parked[parked_n++] = image;
}

/* How many images were parked before the first grace of a retirement began (`step`).
 * Law: retiring_n <= parked_n. Both are under `load_lock`. */
static uint32_t retiring_n;

LM_INLINE bool parked_is_valid(void) { return retiring_n <= parked_n && parked_n <= PARKED; }

/* Closes the n images that were parked first. In a guarded section, because a fork does not wait
 * for `load_lock`: a child would close again what is closed and still parked. */
static void close_parked(uint32_t n) {
  lm_assert(n <= parked_n && parked_is_valid());
  lm_lock_hold_cancel();
  for (uint32_t i = 0; i < n; i++) lm_policy_image_close(parked[i]);
  memmove(parked, parked + n, (parked_n - n) * sizeof *parked);
  parked_n -= n;
  retiring_n -= n < retiring_n ? n : retiring_n;
  lm_lock_allow_cancel();
}

/* ---- the memory of strategies that no plan of the live policy names ---- */

/* A load that waited for a grace retires the strategies itself. After any other load, threads that
 * obey a policy, or that request memory later, do the steps of a retirement (heap/retire.h), with
 * calm graces between them. Under `load_lock`.
 *
 * Law: a calm grace is under way unless `step` is RETIRING_NOTHING. The first `retiring_n` parked
 * images were replaced before the first grace began. */
static enum { RETIRING_NOTHING, RETIRING_BEGUN, RETIRING_LOOKED } step;
static bool wants_retiring; /* a policy was replaced since the last beginning */

static void begin_retiring(void) {
  uint32_t n = lm_strategy_count();
  uint8_t *used = mark_used(&live, n);
  if (!used) return;
  lm_retire_begin(used, n);
  lm_metadata_free(used);
  wants_retiring = false;
  retiring_n = parked_n;
  step = RETIRING_BEGUN;
  lm_thread_calm_begin();
}

static void look_retiring(void) {
  close_parked(retiring_n);
  lm_retire_look();
  step = RETIRING_LOOKED;
  lm_thread_calm_begin();
}

/* Does the last step of a retirement, and ends free regions that are registered with a driver. */
static void end_retiring(void) {
  uint32_t n = lm_strategy_count();
  uint8_t *used = mark_used(&live, n);
  lm_retire_end(true);
  step = RETIRING_NOTHING;
  if (used) lm_pinned_end_unused(used, n);
  lm_metadata_free(used);
}

/* Does the steps that can be done now. */
static void retire_calmly_locked(void) {
  if (step != RETIRING_NOTHING && lm_thread_calm_is_over()) {
    if (step == RETIRING_BEGUN) look_retiring();
    else end_retiring();
  }
  if (step == RETIRING_NOTHING && wants_retiring) begin_retiring();
}

/* Keeps the strategies that a policy names which is about to become live. */
static void keep_named(lm_policy_image *image) {
  uint32_t n = lm_strategy_count();
  uint8_t *used = step == RETIRING_NOTHING ? NULL : mark_used(&image, n);
  if (used) lm_retire_keep(used, n);
  else lm_retire_end(false);
  lm_metadata_free(used);
}

/* Gives back the memory of strategies after a grace. */
static void retire_strategies(void) {
  uint32_t n = lm_strategy_count();
  uint8_t *used = mark_used(&live, n);
  step = RETIRING_NOTHING;
  wants_retiring = false;
  close_parked(parked_n);
  if (!used) return;
  lm_retire_unused(used, n);
  lm_pinned_end_unused(used, n);
  lm_metadata_free(used);
}

static bool is_crowded(void) { return lm_pools_places_left() < LM_POOL_PLACES / 2; }

/* If few places for bins are left, takes them from the strategies that the live policy does not
 * name and that hold no memory. A policy that was refused, or only inspected, leaves such
 * strategies: its plans had places for their bins (reserve_bins in plan/plan.c). */
static void make_room_locked(void) {
  if (!is_crowded()) return;
  if (lm_thread_grace()) {
    retire_strategies();
  } else {
    wants_retiring = true;
    retire_calmly_locked();
  }
}

void lm_policy_make_room(void) {
  lm_policy_start();
  if (!is_crowded()) return;
  lock(&load_lock);
  make_room_locked();
  unlock(&load_lock);
}

/* Makes the loaded policy live. Sites that were made during the load get their plans here, under
 * the lock: only that keeps threads with new tags waiting. */
static loam_status go_live(load *l) {
  uint64_t generation = atomic_load(&lm_site_generation) + 1;
  uint32_t slot = lm_site_generation_slot(generation);
  if (parked_n && lm_thread_is_none_stale()) close_parked(parked_n);
  lm_quota_file_bind();
  keep_named(l->opened.image);
  lm_token_ids_reclaim(is_of_live);
  lock(&live_lock);
  lm_policy_image *old = live;
  loam_status status = plan_sites(l);
  if (status == LOAM_OK) swap_locked(l, generation, slot);
  /* Under the lock, so that a fork comes before the swap or after this: a child in which the swap
   * is done, and no thread is stale, would keep its old decisions. */
  if (status == LOAM_OK) lm_thread_set_slow_all(LM_SLOW_STALE);
  unlock(&live_lock);
  if (status != LOAM_OK) return status;
  l->opened.image = NULL;
  if (!old) return LOAM_OK;
  if (!lm_thread_grace()) {
    park(old);
    wants_retiring = true;
    retire_calmly_locked();
    return LOAM_OK;
  }
  lm_policy_image_close(old);
  retire_strategies();
  return LOAM_OK;
}

/* `loam run` checks the policy before it starts the program, and sets LOAM_VETTED to the hash of
 * the checked text, so that the program need not check the text again. Returns NULL if the variable
 * is not set, names another text, or this is not the first load of the process. Else returns the
 * text after the hash: "", or a colon and the policy's image as text (image_text.h). */
static const char *vetted(uint64_t hash) {
  char *rest = NULL;
  const char *text = lm_sys_getenv("LOAM_VETTED");
  bool is_it = text && !atomic_load(&lm_site_generation) && strtoull(text, &rest, 16) == hash;
  return is_it ? rest : NULL;
}

/* Opens the image of a policy's text that `loam run` carries (image_text.h). Returns false if it
 * cannot be used, or if the policy itself is an image, which needs no other. */
static bool open_carried(load *l, const char *carried) {
  size_t size;
  if (lm_policy_image_is(l->source.text, l->source.length)) return false;
  void *bytes = lm_image_text_read(carried, l->source.text, l->source.length, &size);
  if (!bytes) return false;
  if (lm_policy_image_open(bytes, size, true, &l->opened.image) == LOAM_OK) return true;
  lm_metadata_free(bytes);
  return false;
}

/* Compiles the policy and runs its tests, unless `loam run` has done both; or opens its image. */
static loam_status make_image(load *l) {
  const char *rest = vetted(l->hash);
  bool is_open = rest && *rest == ':' && open_carried(l, rest + 1);
  loam_status status = is_open ? LOAM_OK : lm_policy_open(&l->source, rest, &l->opened);
  if (status == LOAM_OK) lm_policy_image_watch_devices(l->opened.image);
  return status;
}

/* A number that stands for one attempt to load this text from this path. */
static uint64_t hash_attempt(const char *path, uint64_t hash) {
  return hash ^ lm_policy_file_hash(path, strlen(path)) * 0x9e3779b97f4a7c15u;
}

/* A policy with a strategy that this process cannot use now is a refused policy to the host. */
static loam_status told_as(loam_status status) {
  return status == LOAM_ESTATE ? LOAM_EPOLICY : status;
}

/* Says that the record of the last attempt has changed. Under `load_lock`. */
static void tell_attempt(void) {
  void (*note)(void) = atomic_load_explicit(&on_attempt, memory_order_relaxed);
  if (note) note();
}

/* Records how a load ended. Under `load_lock`. `hash` is the hash of the text if `has_text`, else
 * the hash of the reason why the file could not be read. A text that may be accepted at another
 * time is not remembered: if its file is saved or touched, it is loaded again. */
static void note_attempt(loam_status status, const char *path, uint64_t hash, bool has_text) {
  bool is_final = status != LOAM_OK && (!has_text || lm_policy_open_is_verdict(status));
  lock(&live_lock);
  record.loads++;
  record.last_at = lm_sys_unix_ns();
  record.last = told_as(status);
  lm_text_put(record.last_error, sizeof record.last_error, status ? loam_error() : "", NULL);
  if (status != LOAM_OK) record.refused++;
  refused_text = status != LOAM_OK && has_text ? hash : 0;
  unlock(&live_lock);
  refused_hash = is_final ? hash_attempt(path, hash) : 0;
  tell_attempt();
}

/* The result of a load, for the event that tells of it. */
typedef struct report {
  loam_status status;
  char recompiled[sizeof((lm_policy_opened *)0)->recompiled]; /* of lm_policy_opened */
} report;

/* Loads a text, or the bytes of an image, under `load_lock`. */
static report load_text_locked(const char *name, const char *path, const char *text,
                               size_t length) {
  load l = { .source = { name, text, length, &limits, .is_host = true },
             .path = path,
             .hash = lm_policy_open_hash(text, length) };
  lm_numa_free_pause(); /* this may be the service thread, which cannot read gauges during a load */
  make_room_locked();
  loam_status status = make_image(&l);
  if (status == LOAM_OK) status = plan_sites(&l);
  if (status == LOAM_OK) status = go_live(&l);
  if (status == LOAM_OK) lm_guard_fault_install();
  lm_verify(status != LOAM_OK || lm_policy_is_valid());
  note_attempt(status, path, l.hash, true);
  lm_policy_image_close(l.opened.image); /* NULL if it became live */
  lm_metadata_free(l.plan);
  report result = { .status = told_as(status) };
  memcpy(result.recompiled, l.opened.recompiled, sizeof result.recompiled);
  return result;
}

/* ---- images of the board ---- */

bool lm_policy_try_begin(void) {
  (void)lm_thread_inside_begin();
  if (!pthread_mutex_trylock(&load_lock)) return true;
  lm_thread_inside_end(lm_thread_self);
  return false;
}

void lm_policy_tidy(void) {
  if (!lm_policy_try_begin()) return;
  retire_calmly_locked();
  lm_policy_end();
}

void lm_policy_begin(void) { lock(&load_lock); }
void lm_policy_end(void) { unlock(&load_lock); }

loam_status lm_policy_load_image_locked(const char *path, void *bytes, size_t size) {
  load l = { .source = { path, bytes, size, &limits, .is_host = true }, .path = path };
  l.hash = lm_policy_open_hash(bytes, size);
  make_room_locked();
  loam_status status = lm_policy_image_open(bytes, size, true, &l.opened.image);
  if (status == LOAM_OK) status = plan_sites(&l);
  if (status == LOAM_OK) status = go_live(&l);
  else if (!l.opened.image) lm_metadata_free(bytes);
  lm_policy_image_close(l.opened.image); /* NULL if it became live */
  lm_metadata_free(l.plan);
  return told_as(status);
}

void lm_policy_note_published_locked(loam_status status, const char *path, uint64_t text_hash) {
  note_attempt(status, path, text_hash, true);
}

/* Reports that a policy is live, as an event in these words, and to the service layer. */
static void announce_live(uint64_t generation, const char *words) {
  lm_error_event_tell(&(loam_event){ LOAM_EVENT_POLICY_LIVE, generation, NULL, words, NULL });
  lm_quota_file_tell();
  void (*announce)(bool) = atomic_load_explicit(&on_live, memory_order_relaxed);
  if (announce) announce(lm_policy_is_followed());
}

/* A start comes here: printf would bring 64 KiB of the C library into memory. */
void lm_policy_announce_published(loam_status status) {
  uint64_t generation = atomic_load(&lm_site_generation);
  char words[80], number[LM_TEXT_NUMBER];
  if (status != LOAM_OK) {
    lm_error_event(LOAM_EVENT_POLICY_REFUSED, generation, NULL, "%s", loam_error());
    return;
  }
  lm_text_put(words, sizeof words, "the policy on the board is live as generation ",
              lm_text_number(number, generation), NULL);
  announce_live(generation, words);
}

bool lm_policy_is_followed(void) {
  lock(&live_lock);
  bool wanted = live && lm_policy_image_applies_live(live);
  unlock(&live_lock);
  return wanted;
}

/* Reports the end of a load as an event, and to the service layer. With no lock held. The host's
 * event callback may change the thread's error words, so they are set again. */
static loam_status announce(const report *r, const char *name) {
  char words[LM_ERROR_SIZE];
  loam_status status = r->status;
  const char *again = *r->recompiled ? "; it was compiled again: " : "";
  uint64_t generation = atomic_load(&lm_site_generation);
  if (status == LOAM_OK) {
    char number[LM_TEXT_NUMBER];
    lm_text_put(words, sizeof words, name, " is live as generation ",
                lm_text_number(number, generation), again, r->recompiled, NULL);
    announce_live(generation, words);
    return status;
  }
  snprintf(words, sizeof words, "%s", loam_error());
  lm_error_event(LOAM_EVENT_POLICY_REFUSED, generation, NULL, "%s", words);
  return lm_error(status, "%s", words);
}

loam_status lm_policy_load(const char *name, const char *text, size_t length) {
  lm_assert(name && text);
  lm_policy_start();
  lock(&load_lock);
  report result = load_text_locked(name, "", text, length);
  unlock(&load_lock);
  return announce(&result, name);
}

/* ---- files ---- */

/* Tells whether the file's text is live, or was refused by the last load: then there is nothing to
 * do. If the text is live, the last load counts as a success: the file may have had a refused edit
 * in between. */
static bool is_known_locked(const char *path, uint64_t hash) {
  if (hash_attempt(path, hash) == refused_hash) return true;
  lock(&live_lock);
  bool is_live = live && hash == record.hash && !strcmp(path, record.path);
  if (is_live) {
    record.last = LOAM_OK;
    record.last_error[0] = 0;
    refused_text = 0;
  }
  unlock(&live_lock);
  if (is_live) refused_hash = 0;
  if (is_live) tell_attempt();
  return is_live;
}

/* The hash of the reason why a file could not be read, which is in loam_error(). The words begin
 * with the path. The hash leaves it out, because it may be relative in one call and absolute in the
 * next. */
static uint64_t hash_reason(const char *path) {
  const char *words = loam_error();
  if (!strncmp(words, path, strlen(path))) words += strlen(path);
  return lm_policy_file_hash(words, strlen(words));
}

/* Sets *known to true if the file was not loaded because nothing changed. */
static report load_file_locked(const char *path, const char *full, lm_reading reading,
                               bool if_changed, bool *known) {
  char *text = NULL;
  size_t length = 0;
  report result = { .status = lm_policy_file_read(path, reading, &text, &length) };
  bool is_read = result.status == LOAM_OK;
  uint64_t hash = is_read ? lm_policy_open_hash(text, length) : hash_reason(path);
  *known = if_changed && is_known_locked(full, hash);
  if (*known) result.status = LOAM_OK;
  else if (is_read) result = load_text_locked(path, full, text, length);
  else note_attempt(result.status, full, hash, false);
  lm_metadata_free(text);
  return result;
}

static loam_status load_file(const char *path, lm_reading reading, bool if_changed) {
  char buffer[sizeof record.path];
  bool known;
  const char *full = lm_policy_file_absolute(path, buffer, sizeof buffer);
  lm_policy_start();
  lock(&load_lock);
  report result = load_file_locked(path, full, reading, if_changed, &known);
  unlock(&load_lock);
  return known ? LOAM_OK : announce(&result, path);
}

loam_status lm_policy_load_file(const char *path) {
  return load_file(path, LM_READ_TO_LOAD, false);
}

loam_status lm_policy_load_followed(const char *path, bool if_changed) {
  return load_file(path, LM_READ_TO_FOLLOW, if_changed);
}

/* ---- the service layer, figures ---- */

void lm_policy_on_live(void (*call)(bool is_followed)) {
  atomic_store_explicit(&on_live, call, memory_order_relaxed);
}

void lm_policy_on_attempt(void (*note)(void)) {
  atomic_store_explicit(&on_attempt, note, memory_order_relaxed);
}

void lm_policy_set_watched(bool watched) {
  atomic_store_explicit(&is_watched, watched, memory_order_relaxed);
}

bool lm_policy_is_watched(void) { return atomic_load_explicit(&is_watched, memory_order_relaxed); }

uint64_t lm_policy_info_get(struct loam_policy_info *out) {
  lm_assert(out);
  lock(&live_lock);
  /* Without the bytes behind the error, so that they stay untouched. */
  memcpy(out, &record, sizeof record - sizeof record.last_error + strlen(record.last_error) + 1);
  out->plans = live ? lm_policy_image_plans(live) : 0;
  uint64_t refused = refused_text;
  unlock(&live_lock);
  out->sites = lm_site_count();
  out->watching = lm_policy_is_watched();
  return refused;
}

bool lm_policy_is_valid(void) {
  lock(&live_lock);
  uint64_t generation = atomic_load(&lm_site_generation);
  bool is_valid = record.generation == generation && !live == !generation;
  if (is_valid && live) is_valid = lm_policy_image_is_valid(live);
  unlock(&live_lock);
  return is_valid && record.refused <= record.loads;
}
