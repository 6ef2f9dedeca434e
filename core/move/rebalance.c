/* rebalance.c - the job that moves live memory: one at a time, over all live extents.
 *
 * The job walks the extents of the address range (map.h) once, in the order of addresses. It
 * surveys each extent (survey.h). An extent whose objects all want one other strategy is claimed;
 * claims are collected in a batch. After a grace period the job surveys each claimed extent again,
 * since now its objects can only be freed. Then it prepares the pages, one piece a step, and gives
 * the batch to its new strategies (migrate.h). Between steps the program and all other parts of
 * loam go on.
 *
 * The lock is held during a step, and a fork waits for it (os/fork_gate.h). So a forked child never
 * inherits half a step.
 * The child has no thread that goes on with the job: it releases the claims and ends the job. */
#include "move/rebalance.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "heap/age.h"
#include "heap/large.h"
#include "heap/walk.h"
#include "move/migrate.h"
#include "move/move_report.h"
#include "move/survey.h"
#include "os/error.h"
#include "pages/metadata.h"

enum {
  BATCH = 64,              /* claims in a batch */
  EXTENTS_PER_STEP = 512,  /* extents that one step surveys at most */
  OBJECTS_PER_STEP = 20000 /* objects that one step surveys, about */
};
#define WAIT_MAX_NS ((int64_t)100000000)   /* the longest wait between two steps */
#define LEASE_NS ((int64_t)3 * 1000000000) /* a watched job ends this long after its watcher left */
#define PIECE (4 * LM_MIB)                 /* bytes that one step prepares, about */
#define BATCH_BYTES (64 * LM_MIB)          /* bytes of a batch, about */

typedef enum phase {
  IDLE,    /* there is no job */
  WALKING, /* the next step surveys extents and fills a batch */
  MOVING   /* the next step prepares a piece of the batch, or finishes the batch */
} phase;

/* Guards `job`. It lies apart from `job`, whose page most processes never write to. */
static lm_lock job_lock;

/* The job in progress, or the last job.
 *
 * Law: next <= n <= BATCH.
 *      In phase IDLE and WALKING the batch is empty between steps: n == 0.
 *      phase != IDLE if and only if progress.running. */
static LM_SPARSE struct {
  phase phase;
  lm_job_owner owner;
  lm_job_order order;
  uint64_t number; /* jobs so far, with this one */
  bool cancelled;
  uint32_t at, end;          /* the walk: the next slot to survey, and its end */
  lm_migration batch[BATCH]; /* the claimed extents */
  uint32_t n, next;          /* claims in the batch; index of the claim that is prepared next */
  int64_t due_ns;            /* when the rate allows the next piece */
  bool is_watched;           /* the job ends if lm_rebalance_keep_alive is not called any more */
  int64_t last_step_ns;      /* time of the last step */
  int64_t unwatched_ns;      /* time since the last lm_rebalance_keep_alive, as steps count it */
  uint32_t mappings;         /* kernel mappings that the moves of the job may have added */
  uint32_t last_end;         /* the slot behind the last accepted extent */
  loam_progress progress;
  lm_move_report report;
} job;

static bool is_valid_locked(void) {
  if (job.next > job.n || job.n > BATCH) return false;
  if (job.phase != MOVING && job.n) return false;
  return (job.phase != IDLE) == (job.progress.running != 0);
}

/* ---- Report -------------------------------------------------------------------------------- */

/* One result for all live objects of an extent. */
typedef struct outcome {
  const char *what, *why;
} outcome;

static void report_object(void *ctx, const lm_object *object) {
  const outcome *o = ctx;
  lm_move_report_add(&job.report, object->token, o->what, o->why, object->size);
}

/* Adds each live object of an extent to the report with the same result. */
static void report_extent(uint32_t slot, const char *what, const char *why) {
  lm_walk_extent(slot, report_object, &(outcome){ what, why });
}

static const char shares_pages[] = "it shares its pages";
static const char neighbours_differ[] = "its pages hold objects that go elsewhere";
static const char is_changing[] = "it was just being freed or resized";

/* The reason of a refusal for an errno. */
static const char *error_words(int error) {
  switch (error) {
    case ENOSPC:
    case EIO: return "its nodes have no room";
    case EACCES: return "a forked process shares its pages";
    case EINVAL: return "this process may not use its nodes, or they have no memory";
    case EPERM: return "it is not permitted";
    case ENOMEM: return "the kernel has no memory, mappings or locked pages left for it";
    case EINTR: return "it was stopped";
    case EAGAIN: return "the kernel would not lock it";
    default: return "the kernel refused";
  }
}

/* ---- A batch ------------------------------------------------------------------------------- */

/* Returns whether the job gives the kernel advice about pages, instead of moving them. */
static bool is_advice(void) { return job.order.demotes && job.order.to != LOAM_TO_NODE; }

/* Returns whether the kernel has mappings left for one more move (vm.max_map_count). An extent
 * whose memory policy differs from its neighbours' splits their mapping: that adds two mappings. */
static bool has_mappings_for(const lm_migration *m) {
  if (m->slot != job.last_end) job.mappings += 2;
  job.last_end = m->slot + m->slots;
  return job.mappings <= lm_large_guard_max();
}

/* Takes a claim that has ended out of the batch. The last claim takes its place. */
static void drop(uint32_t i) {
  lm_assert(i < job.n);
  job.batch[i] = job.batch[--job.n];
}

/* Reports the objects of a claimed extent as refused, and ends the claim. */
static void refuse(uint32_t i, const char *why) {
  lm_assert(i < job.n);
  report_extent(job.batch[i].slot, lm_move_report_refused, why);
  lm_migrate_release(&job.batch[i]);
}

/* Returns whether all objects of an extent are right, but the kernel put pages on other nodes than
 * their strategy names. */
static bool has_spilled(uint32_t slot, const lm_survey *s) {
  if (job.order.demotes || !s->right || s->right != s->objects) return false;
  return lm_migrate_has_spilled(slot, s->kept);
}

/* The node whose threads memory at an address is local to: the node that it is on, or the nearest
 * node with CPUs. -1: the kernel does not tell the node. */
static int local_node_of(const void *at) {
  int node = lm_numa_of(at), near = node < 0 ? -1 : lm_numa_nearest_with_cpus(1ull << node);
  return near < 0 ? node : near;
}

/* Reports an extent whose objects do not all want one other strategy. */
static void report_mixed(uint32_t slot, const lm_survey *s) {
  lm_survey_report(&job.order, slot, s->differ ? neighbours_differ : shares_pages, &job.report);
}

/* Lets the new strategy accept a claimed extent. NULL; or the reason of the refusal. */
static const char *accept_for(lm_migration *m, lm_strategy *to) {
  int node = to->shares ? local_node_of(lm_map_address(m->slot)) : -1;
  const char *why = lm_migrate_accept(m, node < 0 ? lm_strategy_here(to)
                                                  : lm_strategy_on_node(to, (unsigned)node));
  if (!why && !has_mappings_for(m)) why = "memory is too scattered: no mappings are left for it";
  return why;
}

/* Surveys claim i of the batch once more. Returns false if the extent will not be moved: then it is
 * reported, and its claim has ended. */
static bool accept(uint32_t i) {
  lm_migration *m = &job.batch[i];
  lm_survey s = lm_survey_extent(&job.order, m->slot);
  m->keeps_strategy = has_spilled(m->slot, &s);
  if (m->keeps_strategy) return true;
  if (!s.movers || s.others || s.differ) {
    report_mixed(m->slot, &s);
    lm_migrate_release(m);
    return false;
  }
  const char *why = accept_for(m, s.to);
  if (why) refuse(i, why);
  return !why;
}

/* Confirms and accepts each claim of the batch. `waited` is the result of lm_migrate_wait. */
static void confirm_batch(lm_thread *t, bool waited) {
  lm_thread_enter(t);
  for (uint32_t i = 0; i < job.n;) {
    lm_migration *m = &job.batch[i];
    if (!lm_migrate_confirm(m)) {
      report_extent(m->slot, lm_move_report_refused, is_changing);
      drop(i);
    } else if (!waited) {
      refuse(i, "this kernel has no membarrier");
      drop(i);
    } else if (!accept(i)) {
      drop(i);
    } else {
      i++;
    }
  }
  lm_thread_leave(t);
}

/* Adds an extent to the batch without a claim. Advice does no harm if the extent is freed and its
 * memory used again before the advice is given. */
static void keep_for_advice(uint32_t slot) {
  lm_assert(job.n < BATCH);
  job.batch[job.n++] = (lm_migration){
    .slot = slot,
    .slots = atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed),
  };
}

/* Claims an extent into the batch; false if it cannot be claimed now. */
static bool claim(uint32_t slot) {
  lm_assert(job.n < BATCH);
  if (!lm_migrate_claim(slot, &job.batch[job.n])) return false;
  job.n++;
  return true;
}

/* Reports an extent whose objects all want to move, but that cannot be claimed now. */
static void report_unclaimed(uint32_t slot) {
  uint32_t use = atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
  bool is_abandoned = use == LM_USE_SMALL && lm_central_has_abandoned(slot);
  lm_survey_report(&job.order, slot, is_abandoned ? lm_survey_refused_before : is_changing,
                   &job.report);
}

/* Surveys an extent; then claims it, or reports its objects. Returns the number of visits to
 * objects that this may have cost. */
static uint32_t survey_and_claim(uint32_t slot) {
  lm_survey s = lm_survey_extent(&job.order, slot);
  if (!s.movers) {
    if (!has_spilled(slot, &s) || !claim(slot))
      lm_survey_report(&job.order, slot, NULL, &job.report);
  } else if (s.others || (s.differ && !is_advice())) {
    report_mixed(slot, &s);
  } else if (is_advice()) {
    keep_for_advice(slot);
  } else if (!claim(slot)) {
    report_unclaimed(slot);
  }
  return 2 * s.objects;
}

/* Walks on until the batch is full, or until the step is long enough. */
static void walk(lm_thread *t) {
  uint32_t seen = 0;
  size_t bytes = 0;
  for (uint32_t i = 0; i < EXTENTS_PER_STEP && seen < OBJECTS_PER_STEP; i++) {
    if (job.at >= job.end || job.n == BATCH || bytes >= BATCH_BYTES) break;
    uint32_t next = lm_map_next(job.at), before = job.n;
    if (lm_map_has_objects(job.at)) {
      size_t size = lm_map_extent_bytes(job.at);
      lm_thread_enter(t);
      seen += survey_and_claim(job.at);
      lm_thread_leave(t);
      if (job.n > before) bytes += size;
      else job.progress.done += size;
    }
    job.at = next > job.at ? next : job.at + 1;
  }
}

/* Collects the claims of a batch and confirms them. */
static void gather(lm_thread *t) {
  lm_assert(job.phase == WALKING && !job.n);
  lm_lock_take(&lm_large_claiming);
  walk(t);
  if (job.n && !is_advice()) confirm_batch(t, lm_migrate_wait(job.batch, job.n));
  lm_lock_drop(&lm_large_claiming);
  job.next = 0;
  if (job.n) job.phase = MOVING;
}

/* ---- Moving -------------------------------------------------------------------------------- */

/* Sets when the next step is due, after `bytes` bytes were moved at the rate of the job. */
static void delay_for_rate(size_t bytes) {
  uint64_t rate = job.order.rate;
  lm_assert(rate);
  if (rate == UINT64_MAX) return;
  int64_t now = lm_sys_clock_ns(), delay = (int64_t)((double)bytes / (double)rate * 1e9);
  job.due_ns = (job.due_ns > now ? job.due_ns : now) + delay;
}

/* Gives the kernel the advice for one piece of an extent. */
static void advise_piece(lm_migration *m) {
  char *at = (char *)lm_map_address(m->slot) + m->done;
  size_t left = lm_migration_bytes(m) - m->done, n = left < PIECE ? left : PIECE;
  bool out = job.order.to == LOAM_TO_PAGEOUT;
  if (out) m->resident += lm_numa_resident(at, n);
  int error = out ? lm_sys_page_out(at, n) : lm_sys_advise_cold(at, n);
  if (error && !m->error) m->error = error;
  if (out) m->bytes += lm_numa_resident(at, n); /* bytes that the kernel did not page out */
  m->done += n;
  lm_assert(lm_migration_is_valid(m));
  delay_for_rate(n);
}

/* Returns the reason why advice for an extent had no effect; NULL if it had. */
static const char *advice_refusal(const lm_migration *m) {
  if (m->error == EINVAL) return "its pages are locked";
  if (m->error) return error_words(m->error);
  return m->bytes > m->resident / 2 ? "the kernel kept it: is there swap?" : NULL;
}

/* Advises one piece of an extent; after the last piece, reports the extent. */
static void advise(lm_migration *m) {
  if (job.cancelled) m->error = EINTR;
  else advise_piece(m);
  if (!job.cancelled && m->done < lm_migration_bytes(m)) return;
  const char *why = advice_refusal(m);
  report_extent(m->slot, why ? lm_move_report_refused : lm_move_report_moved, why ? why : "");
  job.next++;
}

/* Returns the token for an object that moves: its site in the live generation. An object that is
 * demoted keeps its token, because the policy did not decide its new place. */
static lm_token renew(lm_token old) {
  loam_site *site = lm_site_at(lm_site_token_index(old));
  if (job.order.demotes || !site) return old;
  /* Relaxed: lm_decision_live_plan pairs with the swap of generations. */
  lm_token now = atomic_load_explicit(&lm_decision_live_plan(site)->token, memory_order_relaxed);
  return (now & ~LM_TOKEN_COUNTED) | (old & LM_TOKEN_COUNTED);
}

/* The note for an extent that was moved. If more than a sixteenth of it stayed on other nodes,
 * which a strategy that only prefers its nodes allows, the note says so. */
static const char *moved_words(const lm_migration *m) {
  if (m->misplaced <= lm_migration_bytes(m) / 16) return "";
  return m->misplaced_error == ENOSPC ? "in part: its nodes have no room for all"
                                      : "in part: the kernel left pages where they were";
}

static void report_fetched(const lm_migration *m) {
  if (m->fetched) report_extent(m->slot, lm_move_report_moved, moved_words(m));
  else if (m->misplaced)
    report_extent(m->slot, lm_move_report_refused, error_words(m->misplaced_error));
  else report_extent(m->slot, lm_move_report_right, "");
}

/* Fetches one piece of an extent that keeps its strategy; after the last piece, reports it. */
static void fetch_piece(lm_thread *t, lm_migration *m) {
  size_t before = m->fetched;
  bool more = !job.cancelled && lm_migrate_fetch(m, PIECE);
  delay_for_rate(m->fetched - before);
  if (more) return;
  lm_thread_enter(t);
  report_fetched(m);
  lm_migrate_release(m);
  lm_thread_leave(t);
  drop(job.next);
}

/* Refuses claim i, whose pieces are all brought back. */
static void refuse_undone(lm_thread *t, uint32_t i) {
  lm_thread_enter(t);
  refuse(i, error_words(job.batch[i].error));
  lm_thread_leave(t);
  drop(i);
}

/* Prepares one piece of an extent; if the job is cancelled, brings one piece back. */
static void prepare_piece(lm_thread *t, lm_migration *m) {
  size_t before = m->done;
  if (job.cancelled && !m->is_undone) lm_migrate_undo(m, EINTR);
  lm_migrate_progress progress = lm_migrate_prepare(m, PIECE);
  delay_for_rate(m->done > before ? m->done - before : before - m->done);
  if (progress == LM_MIGRATE_UNDONE) refuse_undone(t, job.next);
  else if (progress == LM_MIGRATE_DONE) job.next++;
}

/* One piece of the extent whose turn it is. */
static void move_piece(lm_thread *t) {
  lm_assert(job.phase == MOVING && job.next < job.n);
  lm_migration *m = &job.batch[job.next];
  if (is_advice()) advise(m);
  else if (m->keeps_strategy) fetch_piece(t, m);
  else prepare_piece(t, m);
}

static bool adopt(lm_thread *t, lm_migration *m) {
  lm_thread_enter(t);
  bool done = lm_migrate_adopt(m, renew);
  if (done) report_extent(m->slot, lm_move_report_moved, moved_words(m));
  lm_thread_leave(t);
  return done;
}

/* Gives the extents of the batch to their new strategies. Where there is no memory for that, which
 * is rare, all pieces of the extent are brought back in this step. */
static void adopt_batch(lm_thread *t) {
  for (uint32_t i = 0; i < job.n;) {
    lm_migration *m = &job.batch[i];
    if (adopt(t, m)) {
      i++;
      continue;
    }
    lm_migrate_undo(m, ENOMEM);
    while (lm_migrate_prepare(m, PIECE) == LM_MIGRATE_MORE) continue;
    refuse_undone(t, i);
  }
}

static void finish_batch(lm_thread *t) {
  lm_assert(job.phase == MOVING && job.next == job.n);
  if (!is_advice()) {
    adopt_batch(t);
    (void)lm_thread_grace();
    lm_thread_enter(t);
    for (uint32_t i = 0; i < job.n; i++) lm_migrate_finish(&job.batch[i]);
    lm_thread_leave(t);
  }
  for (uint32_t i = 0; i < job.n; i++) job.progress.done += lm_migration_bytes(&job.batch[i]);
  job.n = job.next = 0;
  job.phase = WALKING;
}

/* ---- The job ------------------------------------------------------------------------------- */

/* Reports provided blocks, under the lock of their map. Under that lock nothing can be allocated:
 * so the rows of the report are made before. */
static void report_provided(lm_thread *t) {
  lm_move_report_reserve(&job.report, 4 * lm_site_tag_count() + 64);
  lm_thread_enter(t);
  lm_survey_provided(&job.order, &job.report);
  lm_thread_leave(t);
}

static void end_job(void) {
  lm_assert(!job.n);
  job.phase = IDLE;
  job.progress.running = 0;
  job.progress.done = job.cancelled ? job.progress.done : job.progress.bytes;
}

static void update_progress(void) {
  job.progress.moved = job.report.moved;
  job.progress.right = job.report.right;
  job.progress.refused = job.report.refused;
  if (job.progress.done > job.progress.bytes) job.progress.bytes = job.progress.done;
}

/* Not inlined: lm_rebalance_step is called at each tick of every process, and mostly finds that
 * there is no job. */
static LM_NOINLINE void step_locked(lm_thread *t) {
  if (job.phase == MOVING && job.next < job.n) {
    move_piece(t);
  } else if (job.phase == MOVING) {
    finish_batch(t);
  } else if (job.at < job.end && !job.cancelled) {
    gather(t);
  } else {
    if (!job.cancelled) report_provided(t);
    end_job();
  }
  update_progress();
  lm_assert(is_valid_locked());
}

/* Returns whether the watcher of a watched job has gone. Of the time between two steps at most
 * WAIT_MAX_NS counts: in a longer pause the process was stopped, or loaded a policy, and could not
 * hear the watcher. */
static bool has_lost_watcher(int64_t now) {
  int64_t since = now - job.last_step_ns;
  job.last_step_ns = now;
  job.unwatched_ns += since < WAIT_MAX_NS ? since : WAIT_MAX_NS;
  return job.is_watched && job.unwatched_ns > LEASE_NS;
}

int64_t lm_rebalance_step(lm_job_owner owner) {
  lm_thread *t = lm_thread_get();
  int64_t wait = -1;
  lm_lock_take(&job_lock);
  if (t && job.phase != IDLE && job.owner == owner) {
    int64_t now = lm_sys_clock_ns();
    if (has_lost_watcher(now)) job.cancelled = true;
    if (job.due_ns <= now || job.cancelled) step_locked(t);
    wait = job.due_ns - lm_sys_clock_ns();
    if (wait < 0) wait = 0;
    if (wait > WAIT_MAX_NS) wait = WAIT_MAX_NS; /* so that a cancelled job ends soon */
    if (job.phase == IDLE) wait = -1;
  }
  lm_lock_drop(&job_lock);
  return wait;
}

/* Bytes of all live extents below slot `end`. */
static uint64_t sum_of_extents(uint32_t end) {
  uint64_t sum = 0;
  for (uint32_t slot = LM_MAP_FIRST; slot < end;) {
    uint32_t next = lm_map_next(slot);
    if (lm_map_has_objects(slot)) sum += lm_map_extent_bytes(slot);
    slot = next > slot ? next : slot + 1;
  }
  return sum;
}

static void begin_locked(const lm_job_order *order, lm_job_owner owner) {
  lm_assert(job.phase == IDLE && owner != LM_JOB_NONE);
  lm_move_report_clear(&job.report);
  job.order = *order;
  if (!job.order.rate) job.order.rate = LM_REBALANCE_RATE;
  job.owner = owner;
  job.number++;
  job.cancelled = false;
  job.n = job.next = job.mappings = job.last_end = 0;
  job.due_ns = job.unwatched_ns = 0;
  job.last_step_ns = lm_sys_clock_ns();
  job.is_watched = false;
  job.at = LM_MAP_FIRST;
  job.end = lm_map_end();
  job.progress = (loam_progress){ .bytes = sum_of_extents(job.end), .running = 1 };
  job.phase = WALKING;
  lm_assert(is_valid_locked());
}

/* ---- Fork ---------------------------------------------------------------------------------- */

/* Releases the claims in the child. An extent of which some pieces are prepared has pages of two
 * strategies; it must not be reused when it is freed. */
static void fork_child(void) {
  lm_lock_renew(&job_lock);
  for (uint32_t i = 0; i < job.n && !is_advice(); i++) {
    lm_migration *m = &job.batch[i];
    m->is_unprepared = m->is_unprepared || (m->done > 0 && !m->keeps_strategy);
    lm_migrate_release(m);
  }
  job.n = job.next = 0;
  job.phase = IDLE;
  job.progress.running = 0;
}

/* Registers the fork hook once. Memory is registered first: a child renews its locks before it
 * releases claims here. */
static void register_fork_hook(void) {
  static _Atomic bool hooked;
  if (atomic_exchange(&hooked, true)) return; /* seq_cst; guards only this block */
  lm_engine_start();
  lm_metadata_free(lm_metadata_alloc(1));
  lm_thread_add_hooks(&(lm_thread_hooks){ .fork_child = fork_child });
}

/* ---- Functions for service and api --------------------------------------------------------- */

/* Checks the order, and fills in order->node where it is -1. */
static loam_status check(lm_job_order *order) {
  char text[256];
  if (!order->demotes || order->to != LOAM_TO_NODE) return LOAM_OK;
  if (order->node == -1) order->node = lm_numa_memory_only();
  if (order->node == -1)
    return lm_error(LOAM_EUNSUPPORTED,
                    "no node was named, and this machine has no node without CPUs");
  if (lm_numa_has((unsigned)order->node)) return LOAM_OK;
  return lm_error(LOAM_EINVAL, "node %d: %s", order->node,
                  lm_numa_why_absent(order->node, text, sizeof text));
}

loam_status lm_rebalance_begin(const lm_job_order *given, lm_job_owner owner) {
  lm_job_order order = *given;
  lm_assert(!order.has_tag || memchr(order.tag, 0, sizeof order.tag));
  loam_status status = check(&order);
  if (status != LOAM_OK) return status;
  register_fork_hook();
  if (order.older_s) lm_age_tick();
  lm_lock_take(&job_lock);
  bool busy = job.phase != IDLE;
  if (!busy) begin_locked(&order, owner);
  lm_lock_drop(&job_lock);
  if (busy) return lm_error(LOAM_ESTATE, "live memory is being moved already");
  return LOAM_OK;
}

void lm_rebalance_cancel(void) {
  lm_lock_take(&job_lock);
  if (job.phase != IDLE) job.cancelled = true;
  lm_lock_drop(&job_lock);
}

void lm_rebalance_cancel_applied(void) {
  lm_lock_take(&job_lock);
  if (job.phase != IDLE && job.order.applies) job.cancelled = true;
  lm_lock_drop(&job_lock);
}

bool lm_rebalance_applies(void) {
  lm_lock_take(&job_lock);
  bool applies = job.order.applies;
  lm_lock_drop(&job_lock);
  return applies;
}

void lm_rebalance_keep_alive(bool begin) {
  lm_lock_take(&job_lock);
  job.is_watched = job.is_watched || begin;
  job.unwatched_ns = 0;
  lm_lock_drop(&job_lock);
}

void lm_rebalance_get(loam_progress *out, uint64_t *number) {
  lm_lock_take(&job_lock);
  *out = job.progress;
  *number = job.number;
  lm_lock_drop(&job_lock);
}

/* Works on a copy, without the lock, so that `visit` may call loam. */
void lm_rebalance_rows(loam_placed_fn visit, void *ctx) {
  lm_move_report copy = { 0 };
  lm_lock_take(&job_lock);
  lm_move_report_copy(&copy, &job.report);
  lm_lock_drop(&job_lock);
  lm_move_report_each(&copy, visit, ctx);
  lm_move_report_clear(&copy);
}

bool lm_rebalance_is_valid(void) {
  lm_lock_take(&job_lock);
  bool valid = is_valid_locked() && lm_move_report_is_valid(&job.report);
  for (uint32_t i = 0; i < job.n; i++) valid = valid && lm_migration_is_valid(&job.batch[i]);
  lm_lock_drop(&job_lock);
  return valid;
}
