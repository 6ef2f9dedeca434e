/* rebalance.c - one job at a time over all live memory.
 *
 * The job walks the extents of the range once, in the order of addresses. What seems to want
 * another place is claimed, a batch at a time; after a grace it is asked again, now that it cannot
 * change but be freed; then its pages are moved, a piece a step, and the batch becomes its new
 * strategies' (migrate.h). Between steps the program and everything else of loam go on.
 *
 * The lock is held during a step, and by fork: so a child inherits no half of one. It has nobody to
 * go on with the job, and gives its claims up. */
#include "move/rebalance.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/device_pool.h"
#include "heap/age.h"
#include "heap/large.h"
#include "heap/walk.h"
#include "move/migrate.h"
#include "move/move_report.h"
#include "move/redecide.h"
#include "os/error.h"
#include "pages/metadata.h"
#include "pages/provided.h"

enum {
  BATCH = 64,           /* claims */
  EXTENTS_A_STEP = 512, /* looked at */
  OBJECTS_A_STEP = 20000,
  TOKENS = 8, /* of one span whose answers are remembered */
};
#define WAIT_NS ((int64_t)100000000)
#define LEASE_NS ((int64_t)3 * 1000000000)
#define PIECE (4 * LM_MIB)
#define BATCH_BYTES (64 * LM_MIB)

typedef enum phase { IDLE, WALKING, MOVING } phase;

/* Guards all of the job; apart from it, which most processes do not write to. */
static lm_lock job_lock;
static LM_SPARSE struct {
  bool hooked;
  phase phase;
  lm_job_owner owner;
  lm_job_order order;
  uint64_t number;
  bool cancelled, has_foreign;
  uint32_t at, end; /* slots of the walk */
  lm_migration home[BATCH];
  uint32_t n, next;          /* claims of the batch; the one whose pages are moved */
  int64_t due_ns;            /* when the rate allows the next piece */
  bool is_watched;           /* whoever began it is to attend to it */
  int64_t seen_ns, alone_ns; /* the step before; for how long nobody has attended */
  uint32_t pieces, last_end; /* mappings that this may have cost; where the last move ended */
  loam_progress progress;
  lm_move_report placed;
} job;

/* ---- Fates -------------------------------------------------------------------------------- */

static bool is_wanted(const lm_object *object) {
  if (!job.order.has_tag) return true;
  const loam_site *site = lm_site_at(lm_site_token_index(object->token));
  size_t length = strlen(job.order.tag);
  if (!site || strncmp(site->where.tag, job.order.tag, length) != 0) return false;
  return !length || !site->where.tag[length] || site->where.tag[length] == '.';
}

static lm_redecision refusal(const char *why) {
  return (lm_redecision){ LM_REDECIDE_REFUSED, NULL, why };
}

/* What stands for a strategy on a slower node: the same, but there, where there is room. */
static lm_strategy *demoted(const lm_strategy *from) {
  lm_strategy *to;
  lm_desc desc = from->desc;
  snprintf(desc.name, sizeof desc.name, "%.48s@node%d", from->desc.name, job.order.node);
  desc.limit = 0;
  desc.guard = 0;
  desc.prefault = false;
  desc.placement = (lm_placement){ .mode = LM_BIND_PREFERRED, .nodes = 1ull << job.order.node };
  return lm_strategy_intern(&desc, &to) == LOAM_OK ? to : NULL;
}

static bool is_on_node(const lm_strategy *s) {
  const lm_placement *p = &s->desc.placement;
  return p->nodes == 1ull << job.order.node &&
         (p->mode == LM_BIND_PREFERRED || p->mode == LM_BIND_BIND);
}

static lm_redecision fate_of_demotion(const lm_object *object) {
  lm_strategy *from = lm_strategy_at(object->strategy);
  if (lm_redecide_is_nested(object)) return refusal(lm_redecide_keeps_handler);
  if (from->desc.kind != LM_KIND_HOST) return refusal(lm_redecide_keeps_kind);
  if (job.order.older_s && !object->large) return refusal("small objects have no age");
  if (job.order.older_s && lm_age_of(lm_map_slot(object->base)) < job.order.older_s)
    return refusal("it is younger");
  if (job.order.to != LOAM_TO_NODE) return (lm_redecision){ LM_REDECIDE_OTHER, from, NULL };
  if (is_on_node(from)) return (lm_redecision){ LM_REDECIDE_RIGHT, from, NULL };
  lm_strategy *to = demoted(from);
  return to ? (lm_redecision){ LM_REDECIDE_OTHER, to, NULL }
            : refusal("there is no room for a strategy");
}

/* The answers of one extent, remembered by token: its objects have one size and one strategy. */
typedef struct survey {
  bool tallies;        /* of the report: everything but what is to be moved */
  const char *instead; /* what is told of that, if it is not to be moved after all; or NULL */
  uint32_t slot;
  lm_token token[TOKENS];
  lm_redecision fate[TOKENS];
  uint32_t known, objects, others, movers;
  uint32_t right;    /* of the others */
  lm_strategy *to;   /* what movers want; NULL: not the same */
  lm_strategy *kept; /* of one that is right */
  bool differ;
} survey;

static lm_redecision fate_of(survey *s, const lm_object *object) {
  for (uint32_t i = 0; i < s->known; i++)
    if (s->token[i] == object->token) return s->fate[i];
  lm_redecision w = job.order.demotes ? fate_of_demotion(object) : lm_redecide(object);
  if (object->large || s->known == TOKENS || object->token & LM_TOKEN_COUNTED) return w;
  s->token[s->known] = object->token;
  s->fate[s->known++] = w;
  return w;
}

static void note_fate(survey *s, const lm_object *object, const lm_redecision *w) {
  if (w->kind == LM_REDECIDE_OTHER) {
    s->movers++;
    s->differ = s->differ || (s->to && s->to != w->strategy);
    s->to = w->strategy;
    if (s->instead)
      lm_move_report_add(&job.placed, object->token, lm_move_report_refused, s->instead,
                         object->size, 1);
    return;
  }
  bool right = w->kind == LM_REDECIDE_RIGHT;
  s->others++;
  s->right += right;
  if (right) s->kept = lm_strategy_at(object->strategy);
  if (!s->tallies) return;
  lm_move_report_add(&job.placed, object->token,
                     right ? lm_move_report_right : lm_move_report_refused, right ? "" : w->why,
                     object->size, 1);
}

static const char refused_before[] = "the kernel refused to move it before";

static void survey_object(void *ctx, const lm_object *object) {
  survey *s = ctx;
  s->objects++;
  if (!is_wanted(object)) {
    s->others++;
    return;
  }
  uint32_t use = atomic_load_explicit(&lm_map_span(s->slot)->use, memory_order_relaxed);
  lm_redecision w;
  if (use == LM_USE_GUARDED) w = refusal("a guarded block stays where it is");
  else if (use == LM_USE_UNPREPARED) w = refusal(refused_before);
  else w = fate_of(s, object);
  note_fate(s, object, &w);
}

static survey survey_of(uint32_t slot, bool tallies, const char *instead) {
  survey s = { .tallies = tallies, .instead = instead, .slot = slot };
  lm_walk_extent(slot, survey_object, &s);
  return s;
}

/* ---- Report -------------------------------------------------------------------------------- */

/* All that lives in an extent, as one thing. */
typedef struct verdict {
  const char *what, *why;
} verdict;

static void tally_object(void *ctx, const lm_object *object) {
  const verdict *v = ctx;
  lm_move_report_add(&job.placed, object->token, v->what, v->why, object->size, 1);
}

static void tally(uint32_t slot, const char *what, const char *why) {
  lm_walk_extent(slot, tally_object, &(verdict){ what, why });
}

static const char *words_of(int error) {
  switch (error) {
    case ENOSPC:
    case EIO: return "its nodes have no room";
    case EACCES: return "a forked process shares its pages";
    case EINVAL: return "its nodes are not there";
    case EPERM: return "it is not permitted";
    case ENOMEM: return "the kernel has no memory, mappings or locked pages left for it";
    case EINTR: return "it was stopped";
    case EAGAIN: return "the kernel would not lock it";
    default: return "the kernel refused";
  }
}

static size_t extent_bytes(uint32_t slot) {
  return (size_t)atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed)
         << LM_SLOT_SHIFT;
}

static bool is_live_extent(uint32_t slot) {
  uint32_t use = atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
  return use == LM_USE_SMALL || use == LM_USE_GUARDED || lm_map_use_is_large(use);
}

/* ---- A batch ------------------------------------------------------------------------------- */

static bool is_advice(void) { return job.order.demotes && job.order.to != LOAM_TO_NODE; }

/* An extent cut out of its neighbours costs two mappings, of which a process has not many. */
static bool has_room_for(const lm_migration *h) {
  if (h->slot != job.last_end) job.pieces += 2;
  job.last_end = h->slot + h->slots;
  return job.pieces <= lm_large_guard_max();
}

/* What will not be moved goes out of the batch. */
static void drop(uint32_t i) { job.home[i] = job.home[--job.n]; }

static void refuse(uint32_t i, const char *why) {
  tally(job.home[i].slot, lm_move_report_refused, why);
  lm_migrate_release(&job.home[i]);
}

/* All in an extent is where its strategy was chosen to be, but the kernel put some elsewhere. */
static bool has_spilled(uint32_t slot, const survey *s) {
  if (job.order.demotes || !s->right || s->right != s->objects) return false;
  return lm_migrate_has_spilled(slot, s->kept);
}

/* Where it is; but nobody is local to a node without CPUs. -1: nobody knows. */
static int node_to_be_local_on(const void *at) {
  int node = lm_numa_of(at), near = node < 0 ? -1 : lm_numa_nearest_with_cpus(1ull << node);
  return near < 0 ? node : near;
}

/* Looks at a claimed extent once more. False: it is not to be moved. */
static bool accept(lm_migration *h) {
  survey s = survey_of(h->slot, false, NULL);
  h->stays = has_spilled(h->slot, &s);
  if (h->stays) return true;
  if (!s.movers || s.others || s.differ) {
    (void)survey_of(h->slot, true,
                    s.differ ? "its page has others that go elsewhere" : "it shares its pages");
    lm_migrate_release(h);
    return false;
  }
  int node = s.to->shares ? node_to_be_local_on(lm_map_address(h->slot)) : -1;
  const char *why = lm_migrate_accept(h, node < 0 ? lm_strategy_here(s.to)
                                                  : lm_strategy_on_node(s.to, (unsigned)node));
  if (!why && !has_room_for(h)) why = "memory is too scattered: no mappings are left for it";
  if (!why) return true;
  tally(h->slot, lm_move_report_refused, why);
  lm_migrate_release(h);
  return false;
}

static void confirm_batch(lm_thread *t, bool settled) {
  lm_thread_enter(t);
  for (uint32_t i = 0; i < job.n;) {
    lm_migration *h = &job.home[i];
    if (!lm_migrate_confirm(h)) {
      tally(h->slot, lm_move_report_refused, "it was just being freed or resized");
      drop(i);
    } else if (!settled) {
      refuse(i, "this kernel has no membarrier");
      drop(i);
    } else if (!accept(h)) {
      drop(i);
    } else {
      i++;
    }
  }
  lm_thread_leave(t);
}

/* Blocks without a claim: what is advised harms nobody who has the memory by then. */
static void keep_for_advice(uint32_t slot) {
  job.home[job.n++] = (lm_migration){
    .slot = slot,
    .slots = atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed),
  };
}

/* Looks at an extent: claims it, or tells of it. The number of objects seen. */
static uint32_t look(uint32_t slot) {
  survey s = survey_of(slot, false, NULL);
  if (!s.movers && has_spilled(slot, &s) && lm_migrate_claim(slot, &job.home[job.n])) {
    job.n++;
  } else if (!s.movers) {
    (void)survey_of(slot, true, NULL);
  } else if (is_advice()) {
    if (!s.others) keep_for_advice(slot);
    else (void)survey_of(slot, true, "it shares its pages");
  } else if (s.others || s.differ) {
    (void)survey_of(slot, true,
                    s.differ ? "its page has others that go elsewhere" : "it shares its pages");
  } else if (lm_migrate_claim(slot, &job.home[job.n])) {
    job.n++;
  } else {
    uint32_t use = atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
    bool stays = use == LM_USE_SMALL && lm_central_has_abandoned(slot);
    (void)survey_of(slot, true, stays ? refused_before : "it was just being freed or resized");
  }
  return 2 * s.objects;
}

/* Walks on until a batch is full, or long enough. */
static void walk(lm_thread *t) {
  uint32_t seen = 0;
  size_t bytes = 0;
  for (uint32_t i = 0; i < EXTENTS_A_STEP && seen < OBJECTS_A_STEP; i++) {
    if (job.at >= job.end || job.n == BATCH || bytes >= BATCH_BYTES) break;
    uint32_t next = lm_map_next(job.at), before = job.n;
    if (is_live_extent(job.at)) {
      size_t size = extent_bytes(job.at);
      lm_thread_enter(t);
      seen += look(job.at);
      lm_thread_leave(t);
      if (job.n > before) bytes += size;
      else job.progress.done += size;
    }
    job.at = next > job.at ? next : job.at + 1;
  }
}

static void gather(lm_thread *t) {
  walk(t);
  if (job.n && !is_advice()) confirm_batch(t, lm_migrate_wait(job.home, job.n));
  job.next = 0;
  if (job.n) job.phase = MOVING;
}

/* ---- Moving -------------------------------------------------------------------------------- */

static void pay(size_t bytes) {
  uint64_t rate = job.order.rate;
  if (rate == UINT64_MAX) return;
  int64_t now = lm_sys_clock_ns(), price = (int64_t)((double)bytes / (double)rate * 1e9);
  job.due_ns = (job.due_ns > now ? job.due_ns : now) + price;
}

static void advise_piece(lm_migration *h) {
  char *at = (char *)lm_map_address(h->slot) + h->done;
  size_t left = ((size_t)h->slots << LM_SLOT_SHIFT) - h->done, n = left < PIECE ? left : PIECE;
  bool out = job.order.to == LOAM_TO_PAGEOUT;
  int error = out ? lm_sys_page_out(at, n) : lm_sys_advise_cold(at, n);
  if (error && !h->error) h->error = error;
  if (out) h->bytes += lm_numa_resident(at, n); /* what stayed */
  h->done += n;
  pay(n);
}

static void end_advice(lm_migration *h) {
  size_t range = (size_t)h->slots << LM_SLOT_SHIFT;
  const char *why = h->error == EINVAL          ? "its pages are locked"
                    : h->error                  ? words_of(h->error)
                    : h->bytes >= range / 2 + 1 ? "the kernel kept it: is there swap?"
                                                : NULL;
  tally(h->slot, why ? lm_move_report_refused : lm_move_report_moved, why ? why : "");
}

/* The token of the generation that decides now; of what is demoted it stays. */
static lm_token renew(void *ctx, lm_token old) {
  (void)ctx;
  loam_site *site = lm_site_at(lm_site_token_index(old));
  if (job.order.demotes || !site) return old;
  lm_token now = atomic_load_explicit(&lm_decision_now(site)->token, memory_order_relaxed);
  return (now & ~LM_TOKEN_COUNTED) | (old & LM_TOKEN_COUNTED);
}

static void move_advice(lm_migration *h) {
  if (job.cancelled) h->error = EINTR;
  else advise_piece(h);
  if (!job.cancelled && h->done < (size_t)h->slots << LM_SLOT_SHIFT) return;
  end_advice(h);
  job.next++;
}

/* What of an extent is elsewhere all the same is told apart: its strategy prefers, it does not
 * demand. */
static const char *words_of_rest(const lm_migration *h) {
  if (h->astray <= ((size_t)h->slots << LM_SLOT_SHIFT) / 16) return "";
  return h->why == ENOSPC ? "in part: its nodes have no room for all"
                          : "in part: the kernel left pages where they were";
}

/* What spilled over, and stays its strategy's. */
static void move_spilled(lm_thread *t, lm_migration *h) {
  size_t before = h->fetched;
  bool more = !job.cancelled && lm_migrate_fetch(h, PIECE);
  pay(h->fetched - before);
  if (more) return;
  lm_thread_enter(t);
  if (h->fetched) tally(h->slot, lm_move_report_moved, words_of_rest(h));
  else if (h->astray) tally(h->slot, lm_move_report_refused, words_of(h->why));
  else tally(h->slot, lm_move_report_right, "");
  lm_migrate_release(h);
  lm_thread_leave(t);
  drop(job.next);
}

/* One piece of one extent. */
static void move_piece(lm_thread *t) {
  lm_migration *h = &job.home[job.next];
  size_t before = h->done;
  if (is_advice()) {
    move_advice(h);
    return;
  }
  if (h->stays) {
    move_spilled(t, h);
    return;
  }
  if (job.cancelled && !h->reverse) lm_migrate_reverse(h, EINTR);
  lm_migrate_progress fitted = lm_migrate_fit(h, PIECE);
  pay(h->done > before ? h->done - before : before - h->done);
  if (fitted == LM_MIGRATE_MORE) return;
  if (fitted == LM_MIGRATE_UNDONE) {
    lm_thread_enter(t);
    refuse(job.next, words_of(h->error));
    lm_thread_leave(t);
    drop(job.next);
    return;
  }
  job.next++;
}

static void tell_moved(const lm_migration *h) {
  tally(h->slot, lm_move_report_moved, words_of_rest(h));
}

static void adopt_batch(lm_thread *t) {
  for (uint32_t i = 0; i < job.n;) {
    lm_migration *h = &job.home[i];
    lm_thread_enter(t);
    bool done = lm_migrate_adopt(h, renew, NULL);
    if (done) tell_moved(h);
    lm_thread_leave(t);
    if (done) {
      i++;
      continue;
    }
    lm_migrate_reverse(h, ENOMEM); /* rare: all of it at once */
    while (lm_migrate_fit(h, PIECE) == LM_MIGRATE_MORE) continue;
    lm_thread_enter(t);
    refuse(i, words_of(h->error));
    lm_thread_leave(t);
    drop(i);
  }
}

static void finish_batch(lm_thread *t) {
  size_t bytes = 0;
  if (!is_advice()) {
    adopt_batch(t);
    (void)lm_thread_grace();
    lm_thread_enter(t);
    for (uint32_t i = 0; i < job.n; i++) lm_migrate_finish(&job.home[i]);
    lm_thread_leave(t);
  }
  for (uint32_t i = 0; i < job.n; i++) bytes += (size_t)job.home[i].slots << LM_SLOT_SHIFT;
  job.progress.done += bytes;
  job.n = job.next = 0;
  job.phase = WALKING;
}

/* ---- Blocks of handlers, of the system, of devices ------------------------------------------ */

static lm_redecision fate_of_foreign(const lm_object *object) {
  if (!job.order.demotes) return lm_redecide(object);
  lm_kind kind = lm_strategy_at(object->strategy)->desc.kind;
  bool is_handlers = kind == LM_KIND_SYSTEM || kind == LM_KIND_HANDLER || kind == LM_KIND_HOST;
  return refusal(is_handlers ? lm_redecide_keeps_handler : lm_redecide_keeps_kind);
}

static void tell_of(const lm_object *object) {
  if (!is_wanted(object)) return;
  lm_redecision w = fate_of_foreign(object);
  bool right = w.kind == LM_REDECIDE_RIGHT;
  lm_move_report_add(&job.placed, object->token,
                     right ? lm_move_report_right : lm_move_report_refused, right ? "" : w.why,
                     object->size, 1);
}

static lm_object object_of(const lm_provided *block) {
  bool large = block->size > LM_SMALL_MAX;
  return (lm_object){ block->base, block->size, block->token, block->strategy, large };
}

static void tell_foreign(void *ctx, lm_provided *block) {
  (void)ctx;
  lm_object object = object_of(block);
  tell_of(&object);
}

/* What pools of devices have live, copied: their locks are not for asking policies. */
typedef struct copies {
  lm_object *object;
  size_t n, room;
} copies;

static void copy_cached(void *ctx, lm_provided *block) {
  copies *c = ctx;
  if (c->n < c->room) c->object[c->n] = object_of(block);
  c->n++;
}

static void tell_cached(void) {
  copies c = { 0 };
  lm_device_pool_each(copy_cached, &c);
  if (!c.n) return;
  c.room = c.n + c.n / 8; /* others go on */
  c.n = 0;
  c.object = lm_metadata_alloc(c.room * sizeof *c.object);
  if (!c.object) return;
  lm_device_pool_each(copy_cached, &c);
  for (size_t i = 0; i < c.n && i < c.room; i++) tell_of(&c.object[i]);
  lm_metadata_free(c.object);
}

/* The map of these is locked meanwhile: no memory is asked for. */
static void look_at_foreign(lm_thread *t) {
  lm_move_report_reserve(&job.placed, 4 * lm_site_tag_count() + 64);
  lm_thread_enter(t);
  lm_provided_each(tell_foreign, NULL);
  tell_cached();
  lm_thread_leave(t);
}

/* ---- The job ------------------------------------------------------------------------------- */

static void end_job(void) {
  job.phase = IDLE;
  job.progress.running = 0;
  job.progress.done = job.cancelled ? job.progress.done : job.progress.bytes;
}

static void update_progress(void) {
  job.progress.moved = job.placed.moved;
  job.progress.right = job.placed.right;
  job.progress.refused = job.placed.refused;
  if (job.progress.done > job.progress.bytes) job.progress.bytes = job.progress.done;
}

/* Apart from who looks in whether there is a job, at each tick of every process. */
static LM_NOINLINE void step_locked(lm_thread *t) {
  if (job.phase == MOVING && job.next < job.n) {
    move_piece(t);
  } else if (job.phase == MOVING) {
    finish_batch(t);
  } else if (job.at < job.end && !job.cancelled) {
    gather(t);
  } else {
    if (!job.cancelled) look_at_foreign(t);
    end_job();
  }
  update_progress();
}

/* Time in which nobody could be heard does not count: it was stopped, or loaded a policy. */
static bool is_deserted(int64_t now) {
  int64_t since = now - job.seen_ns;
  job.seen_ns = now;
  job.alone_ns += since < WAIT_NS ? since : WAIT_NS;
  return job.is_watched && job.alone_ns > LEASE_NS;
}

int64_t lm_rebalance_step(lm_job_owner owner) {
  lm_thread *t = lm_thread_get();
  int64_t wait = -1;
  lm_lock_take(&job_lock);
  if (t && job.phase != IDLE && job.owner == owner) {
    int64_t now = lm_sys_clock_ns();
    if (is_deserted(now)) job.cancelled = true;
    if (job.due_ns <= now || job.cancelled) step_locked(t);
    wait = job.due_ns - lm_sys_clock_ns();
    if (wait < 0) wait = 0;
    if (wait > WAIT_NS) wait = WAIT_NS; /* it may be ended meanwhile */
    if (job.phase == IDLE) wait = -1;
  }
  lm_lock_drop(&job_lock);
  return wait;
}

static uint64_t sum_of_extents(uint32_t end) {
  uint64_t sum = 0;
  for (uint32_t slot = lm_map_first(); slot < end;) {
    uint32_t next = lm_map_next(slot);
    if (is_live_extent(slot)) sum += extent_bytes(slot);
    slot = next > slot ? next : slot + 1;
  }
  return sum;
}

static void begin_locked(const lm_job_order *order, lm_job_owner owner) {
  lm_move_report_clear(&job.placed);
  job.order = *order;
  if (!job.order.rate) job.order.rate = LM_REBALANCE_RATE;
  job.owner = owner;
  job.number++;
  job.cancelled = false;
  job.n = job.next = job.pieces = job.last_end = 0;
  job.due_ns = job.alone_ns = 0;
  job.seen_ns = lm_sys_clock_ns();
  job.is_watched = false;
  job.at = lm_map_first();
  job.end = (uint32_t)(atomic_load_explicit(&lm_map.top, memory_order_acquire) >> LM_SLOT_SHIFT);
  job.progress = (loam_progress){ .bytes = sum_of_extents(job.end), .running = 1 };
  job.phase = WALKING;
}

/* ---- Fork ---------------------------------------------------------------------------------- */

static void fork_prepare(void) { lm_lock_take(&job_lock); }
static void fork_parent(void) { lm_lock_drop(&job_lock); }

/* What is half moved is no pool's when it is freed. */
static void fork_child(void) {
  lm_lock_renew(&job_lock);
  for (uint32_t i = 0; i < job.n && !is_advice(); i++) {
    lm_migration *h = &job.home[i];
    h->stray = h->stray || (h->done > 0 && !h->stays);
    lm_migrate_release(h);
  }
  job.n = 0;
  job.phase = IDLE;
  job.progress.running = 0;
}

/* Its lock is taken before those of memory. */
static void hook_once(void) {
  static _Atomic bool hooked;
  if (atomic_exchange(&hooked, true)) return;
  lm_engine_start();
  lm_metadata_free(lm_metadata_alloc(1));
  lm_thread_add_hooks(&(lm_thread_hooks){ NULL, fork_prepare, fork_parent, fork_child });
}

/* ---- Beginning, asking ---------------------------------------------------------------------- */

static loam_status check(lm_job_order *order) {
  char text[256];
  if (!order->demotes || order->to != LOAM_TO_NODE) return LOAM_OK;
  if (order->node < 0) order->node = lm_numa_memory_only();
  if (order->node < 0)
    return lm_error(LOAM_EUNSUPPORTED, "this machine has no node without CPUs: name the node");
  if (lm_numa_has((unsigned)order->node)) return LOAM_OK;
  return lm_error(LOAM_EINVAL, "node %d: %s", order->node,
                  lm_numa_why_absent(order->node, text, sizeof text));
}

loam_status lm_rebalance_begin(const lm_job_order *given, lm_job_owner owner) {
  lm_job_order order = *given;
  loam_status status = check(&order);
  if (status != LOAM_OK) return status;
  hook_once();
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
  job.alone_ns = 0;
  lm_lock_drop(&job_lock);
}

void lm_rebalance_get(loam_progress *out, uint64_t *number) {
  lm_lock_take(&job_lock);
  *out = job.progress;
  *number = job.number;
  lm_lock_drop(&job_lock);
}

/* A copy, so that `visit` may call loam. */
void lm_rebalance_rows(loam_placed_fn visit, void *ctx) {
  lm_move_report copy = { 0 };
  lm_lock_take(&job_lock);
  lm_move_report_copy(&copy, &job.placed);
  lm_lock_drop(&job_lock);
  lm_move_report_each(&copy, visit, ctx);
  lm_move_report_clear(&copy);
}
