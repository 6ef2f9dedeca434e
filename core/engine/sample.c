/* sample.c - draws which blocks are sampled, and keeps the samples that live. */
#include "engine/sample.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/probes.h"
#include "heap/pool.h"
#include "os/error.h"

lm_samples lm_sample_all;

/* ---- Random numbers ----------------------------------------------------------------------- */

void lm_sample_seed(lm_thread *t, uint64_t seed) {
  t->sample_random = seed * 0x9e3779b97f4a7c15u | 1;
  t->sample_left = 0;
}

/* Returns a random number of 64 bits: xorshift64* (Vigna, "An experimental exploration of
 * Marsaglia's xorshift generators, scrambled", 2016). */
static uint64_t draw(lm_thread *t) {
  uint64_t x = t->sample_random;
  if (lm_unlikely(!x)) lm_sample_seed(t, lm_sys_random());
  x = t->sample_random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  t->sample_random = x;
  return x * 0x2545f4914f6cdd1du;
}

/* Returns the natural logarithm of x, which is normal and above 0, with an error below 1e-10. x is
 * m * 2^e with m from 1 to 2; ln(m) is ln(sqrt 2) + 2 artanh((m - sqrt 2) / (m + sqrt 2)), by the
 * series of artanh. Has no branch, so the processor goes on while it is computed. libm is not
 * linked (CMakeLists.txt). */
static double ln(double x) {
  const double LN_2 = 0.69314718055994531, SQRT_2 = 1.4142135623730951;
  uint64_t bits;
  double m;
  memcpy(&bits, &x, sizeof bits);
  int e = (int)(bits >> 52) - 1023;
  bits = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52;
  memcpy(&m, &bits, sizeof m);
  double s = (m - SQRT_2) / (m + SQRT_2), z = s * s, z2 = z * z;
  double series = 1 + z * (1.0 / 3) + z2 * (1.0 / 5 + z * (1.0 / 7)) +
                  z2 * z2 * (1.0 / 9 + z * (1.0 / 11));
  return (e + 0.5) * LN_2 + 2 * s * series;
}

/* Returns a random number from the exponential distribution of mean 1: -ln(u), where u is uniform
 * above 0 and below 1. */
static double draw_exponential(lm_thread *t) {
  return -ln(((double)(draw(t) >> 12) + 0.5) * 0x1p-52);
}

/* Returns the interval by which the calling thread draws; 0: nothing is sampled. The thread reads
 * the interval once in each epoch, so that all its numbers of an epoch, and the weights of their
 * samples, are of one interval. With a new interval it draws a new distance to its next sample.
 * That has no bias, because the distribution has no memory. */
static uint64_t interval_of(lm_thread *t) {
  uint64_t now = atomic_load_explicit(&lm_sample_all.interval, memory_order_relaxed);
  if (!now) return 0;
  if (!t->sample_interval) {
    t->sample_interval = now;
    t->sample_left = 0;
  }
  return t->sample_interval;
}

int32_t lm_sample_stock(lm_thread *t, size_t size) {
  uint64_t interval = interval_of(t);
  if (lm_likely(!interval || !size)) return LM_STATS_STOCK;
  double blocks = draw_exponential(t) * (double)interval / (double)size;
  return blocks < LM_STATS_STOCK ? (int32_t)blocks : LM_STATS_STOCK;
}

/* sample_left is above 0 from the first draw on. The distance to the next point is counted from the
 * end of a block that bore one, as the distribution has no memory. */
bool lm_sample_wants(lm_thread *t, size_t size) {
  uint64_t interval = interval_of(t);
  if (!interval) return false;
  if (t->sample_left <= 0) t->sample_left = 1 + (int64_t)(draw_exponential(t) * (double)interval);
  t->sample_left -= (int64_t)size;
  return t->sample_left <= 0;
}

/* Returns the hyperbolic cotangent of x > 0, with a relative error below 1e-9: for small x by the
 * series; coth(2y) is (coth y + 1 / coth y) / 2. */
static double coth(double x) {
  int doublings = 0;
  if (x > 32) return 1;
  for (; x > 1.0 / 8; x /= 2) doublings++;
  double z = x * x;
  double c = 1 / x + x * (1.0 / 3 - z * (1.0 / 45 - z * (2.0 / 945)));
  while (doublings--) c = (c + 1 / c) / 2;
  return c;
}

/* The weight is 1 / (1 - exp(-size / interval)), since (1 + coth x) / 2 is 1 / (1 - exp(-2x)). */
uint64_t lm_sample_weight(size_t size, uint64_t interval) {
  lm_assert(size && interval);
  double weight = (1 + coth((double)size / (double)interval / 2)) / 2;
  return (uint64_t)(weight * (1 << LM_SAMPLE_SHIFT) + 0.5);
}

/* ---- The table of live samples ------------------------------------------------------------ */

static uint32_t chain_of(uintptr_t base) {
  return (uint32_t)(base / 16 * 0x9e3779b97f4a7c15u >> 40) % LM_SAMPLE_HEADS;
}

static _Atomic uint32_t *heads(void) {
  return atomic_load_explicit(&lm_sample_all.head, memory_order_relaxed);
}
static _Atomic uint32_t *head_of(const void *p) { return &heads()[chain_of((uintptr_t)p)]; }

/* Adds to `live`, which only a thread that holds the lock changes. */
static void add_live_locked(lm_samples *all, int more) {
  uint64_t now = atomic_load_explicit(&all->live, memory_order_relaxed);
  atomic_store_explicit(&all->live, now + (uint64_t)(int64_t)more, memory_order_release);
}

/* Returns the index plus 1 of an unused entry; 0: all are used. */
static uint32_t new_entry_locked(lm_samples *all) {
  uint32_t at = all->unused;
  if (at) all->unused = all->sample[at - 1].next;
  else if (all->used < LM_SAMPLE_LIVE) at = ++all->used;
  return at;
}

static void put_locked(lm_samples *all, uintptr_t base, uint64_t size, uint64_t weight,
                       uint32_t stack) {
  _Atomic uint32_t *head = head_of((const void *)base);
  uint32_t at = new_entry_locked(all);
  if (!at) {
    atomic_fetch_add_explicit(&all->live_lost, 1, memory_order_relaxed);
    return;
  }
  all->sample[at - 1] = (lm_sample_live){ base, size, weight, stack,
                                          atomic_load_explicit(head, memory_order_relaxed) };
  atomic_store_explicit(head, at, memory_order_relaxed);
  add_live_locked(all, 1);
  lm_stack_add(&all->stacks.row[stack].live, weight, lm_sample_bytes(size, weight), 1);
}

/* Takes the sample of the block at `base` out, and copies it to *out. Returns false if there is
 * none. */
static bool take_out_locked(lm_samples *all, uintptr_t base, lm_sample_live *out) {
  _Atomic uint32_t *head = head_of((const void *)base);
  uint32_t before = 0, at = atomic_load_explicit(head, memory_order_relaxed);
  while (at && all->sample[at - 1].base != base) {
    before = at;
    at = all->sample[at - 1].next;
  }
  if (!at) return false;
  lm_sample_live *sample = &all->sample[at - 1];
  lm_stack *stack = &all->stacks.row[sample->stack];
  if (before) all->sample[before - 1].next = sample->next;
  else atomic_store_explicit(head, sample->next, memory_order_relaxed);
  lm_stack_add(&stack->live, sample->weight, lm_sample_bytes(sample->size, sample->weight), -1);
  add_live_locked(all, -1);
  *out = *sample;
  *sample = (lm_sample_live){ .next = all->unused };
  all->unused = at;
  return true;
}

/* The fence makes the caller's load of `live` an acquire load. The chain is read relaxed: whoever
 * frees a block that is a sample knows the block from the thread that was given it, after the block
 * was put into its chain. */
bool lm_sample_may_have(const void *p) {
  lm_load_fence();
  return p && atomic_load_explicit(head_of(p), memory_order_relaxed) != 0;
}

LM_NOINLINE bool lm_sample_take_out(const void *p, lm_sample_live *out) {
  lm_lock_take(&lm_sample_all.lock);
  bool was_sample = take_out_locked(&lm_sample_all, (uintptr_t)p, out);
  lm_lock_drop(&lm_sample_all.lock);
  return was_sample;
}

void lm_sample_put_back(const lm_sample_live *sample) {
  lm_lock_take(&lm_sample_all.lock);
  put_locked(&lm_sample_all, sample->base, sample->size, sample->weight, sample->stack);
  lm_lock_drop(&lm_sample_all.lock);
}

void lm_sample_forget(const void *p) {
  lm_sample_live sample;
  if (lm_sample_take_out(p, &sample)) lm_probe_free(sample.base);
}

/* ---- Taking samples ----------------------------------------------------------------------- */

/* Gives the block, which is live, a SAMPLED state, if its state is plain. A free of a block whose
 * token is counted looks into the table anyway, and so do frees of blocks outside of pools. */
static void mark(lm_thread *t, const void *p) {
  lm_map_object place;
  lm_thread_begin(t);
  while (lm_map_find(p, &place) && lm_state_is_plain(place.state)) {
    lm_state sampled = LM_STATE_SAMPLED + place.state % LM_STATE_IDS;
    if (atomic_compare_exchange_strong_explicit(place.cell, &place.state, sampled,
                                                memory_order_acq_rel, memory_order_relaxed))
      break;
  }
  lm_thread_leave(t);
}

/* The frames of Python at a sample. */
typedef struct python_stack {
  lm_python_frame frame[LM_PYTHON_FRAMES];
  uint32_t n;
  uint64_t hash;
} python_stack;

static void read_python(python_stack *out) {
  out->n = lm_python_frames_read(out->frame);
  out->hash = out->n;
  for (uint32_t i = 0; i < out->n; i++)
    out->hash = (out->hash ^ (uintptr_t)out->frame[i].code ^ (uint64_t)out->frame[i].line << 48) *
                0x9e3779b97f4a7c15u;
}

/* Looks for the row of the stack that the thread has read. */
static LM_NOINLINE uint32_t find_row_locked(lm_thread *t, const loam_site *site, uint32_t strategy,
                                            const python_stack *python) {
  lm_stack like;
  like.site = site->index;
  like.strategy = (uint16_t)strategy;
  lm_stacks *stacks = &lm_sample_all.stacks;
  lm_stacks_describe(stacks, &like, &t->sample_stack, python->frame, python->n);
  return lm_stacks_get(stacks, &like);
}

/* Returns the row of the thread's stack. `is_same` says that the C stack is the one of its last
 * sample. */
static lm_stack *row_locked(lm_thread *t, const loam_site *site, uint32_t strategy, bool is_same,
                            const python_stack *python) {
  lm_stack *row = &lm_sample_all.stacks.row[t->sample_row];
  is_same = is_same && t->sample_python == python->hash;
  if (is_same && row->site == site->index && row->strategy == strategy) return row;
  t->sample_row = find_row_locked(t, site, strategy, python);
  t->sample_python = python->hash;
  return &lm_sample_all.stacks.row[t->sample_row];
}

static void note_sample(lm_thread *t, const loam_site *site, uint32_t strategy, void *p,
                        size_t size) {
  lm_samples *all = &lm_sample_all;
  uint64_t weight = lm_sample_weight(size, t->sample_interval),
           bytes = lm_sample_bytes(size, weight);
  python_stack python;
  lm_sample_live old;
  bool is_same = lm_unwind(&t->sample_stack);
  read_python(&python);
  lm_lock_take(&all->lock);
  lm_stack *row = row_locked(t, site, strategy, is_same, &python);
  lm_stack_add(&row->total, weight, bytes, 1);
  /* There is an old sample if the process did a free without loam's notice. */
  (void)take_out_locked(all, (uintptr_t)p, &old);
  put_locked(all, (uintptr_t)p, size, weight, t->sample_row);
  lm_lock_drop(&all->lock);
  lm_probe_alloc((uintptr_t)p, size, bytes);
}

LM_NOINLINE void lm_sample_take_marked(lm_thread *t, const loam_site *site, uint32_t strategy,
                                       void *p, size_t size) {
  lm_assert(t == lm_thread_self && p && size && !lm_thread_is_active());
  if (t->is_sampling || !lm_lock_try_hold_now()) {
    atomic_fetch_add_explicit(&lm_sample_all.skipped, 1, memory_order_relaxed);
    return;
  }
  t->is_sampling = 1;
  if (lm_sample_is_on()) note_sample(t, site, strategy, p, size);
  t->is_sampling = 0;
  lm_lock_allow_cancel();
}

LM_NOINLINE void lm_sample_take(lm_thread *t, const loam_site *site, uint32_t strategy, void *p,
                                size_t size) {
  mark(t, p);
  lm_sample_take_marked(t, site, strategy, p, size);
}

/* ---- On and off --------------------------------------------------------------------------- */

static bool make_tables_locked(lm_samples *all) {
  _Atomic uint32_t *head = heads();
  if (!head) head = lm_metadata_alloc(LM_SAMPLE_HEADS * sizeof *head);
  atomic_store_explicit(&all->head, head, memory_order_relaxed);
  if (!all->sample) all->sample = lm_metadata_alloc(LM_SAMPLE_LIVE * sizeof *all->sample);
  return head && all->sample && lm_stacks_make(&all->stacks);
}

size_t lm_samples_unfilled(const lm_samples *all) {
  size_t live = all->sample ? (LM_SAMPLE_LIVE - all->used) * sizeof *all->sample : 0;
  return live + lm_stacks_unfilled(&all->stacks);
}

size_t lm_sample_unfilled(void) {
  lm_lock_take(&lm_sample_all.lock);
  size_t bytes = lm_samples_unfilled(&lm_sample_all);
  lm_lock_drop(&lm_sample_all.lock);
  return bytes;
}

/* Sets the sums to 0. A block that lives keeps its sample, so its free finds it, but the sample
 * stands for nothing any more. */
static void begin_session_locked(lm_samples *all) {
  for (uint32_t i = 0; i < all->used; i++) all->sample[i].weight = 0;
  lm_stacks_begin_session(&all->stacks);
  atomic_store_explicit(&all->live_lost, 0, memory_order_relaxed);
  atomic_store_explicit(&all->skipped, 0, memory_order_relaxed);
  atomic_store_explicit(&all->started_at, (uint64_t)lm_sys_clock_ns(), memory_order_relaxed);
}

/* Relaxed: a thread that takes a sample holds the lock before it reads a table. */
static bool set_locked(lm_samples *all, uint64_t interval) {
  if (interval && !make_tables_locked(all)) return false;
  if (interval && !atomic_load_explicit(&all->interval, memory_order_relaxed))
    begin_session_locked(all);
  atomic_store_explicit(&all->interval, interval, memory_order_relaxed);
  return true;
}

loam_status lm_sample_set(uint64_t interval) {
  lm_samples *all = &lm_sample_all;
  lm_assert(interval <= LM_SAMPLE_INTERVAL_MAX && !lm_thread_is_active());
  lm_lock_take(&all->lock);
  bool ok = set_locked(all, interval);
  lm_lock_drop(&all->lock);
  if (!ok) return lm_error(LOAM_ENOMEM, "samples: no memory for their tables");
  lm_thread_set_slow_all(LM_SLOW_STALE); /* each thread draws again: interval_of */
  return LOAM_OK;
}

bool lm_sample_parse(const char *text, uint64_t *interval) {
  static const struct {
    const char *name;
    unsigned shift;
  } units[] = { { "", 0 },    { "b", 0 },    { "k", 10 }, { "kb", 10 }, { "kib", 10 }, { "m", 20 },
                { "mb", 20 }, { "mib", 20 }, { "g", 30 }, { "gb", 30 }, { "gib", 30 } };
  char *end;
  uint64_t n = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9') return false;
  for (size_t i = 0; i < LM_COUNT(units); i++)
    if (!strcasecmp(end, units[i].name)) {
      if (n > LM_SAMPLE_INTERVAL_MAX >> units[i].shift) return false;
      *interval = n << units[i].shift;
      return true;
    }
  return false;
}

static void set_as(const char *text) {
  uint64_t interval;
  if (lm_sample_parse(text, &interval)) (void)lm_sample_set(interval);
  else
    lm_error_event(LOAM_EVENT_ENVIRONMENT, 0, NULL,
                   "LOAM_PROFILE=%.100s: it may be the mean bytes between samples, such as 512KiB, "
                   "at most 1024GiB; nothing is sampled",
                   text);
}

void lm_sample_set_as(const char *text) {
  if (text && *text) set_as(text);
}

void lm_sample_start(void) { lm_thread_add_fork_lock(&lm_sample_all.lock); }

/* ---- The law ------------------------------------------------------------------------------ */

static bool is_valid_locked(lm_samples *all) {
  uint64_t n = 0, live = 0, bytes = 0;
  const _Atomic uint32_t *head = heads();
  if (!head || !all->sample || !lm_stacks_is_valid(&all->stacks)) return !all->used;
  for (uint32_t i = 0; i < LM_SAMPLE_HEADS; i++)
    for (uint32_t at = head[i]; at; at = all->sample[at - 1].next) {
      const lm_sample_live *sample = &all->sample[at - 1];
      if (++n > all->used || chain_of(sample->base) != i || sample->stack >= all->stacks.count)
        return false;
      bytes += lm_sample_bytes(sample->size, sample->weight);
    }
  for (uint32_t i = 0; i < all->stacks.count; i++) {
    live += all->stacks.row[i].live.samples;
    bytes -= all->stacks.row[i].live.bytes;
  }
  return n == live && n == all->live && !bytes;
}

bool lm_sample_is_valid(void) {
  lm_lock_take(&lm_sample_all.lock);
  bool is_valid = is_valid_locked(&lm_sample_all);
  lm_lock_drop(&lm_sample_all.lock);
  return is_valid;
}
