/* sample.h - `loam profile --stacks`: samples of allocations with their stacks.
 *
 * A block is sampled by chance. Imagine points strewn over all bytes that are ever allocated, at
 * random and on average one in `interval` bytes (a Poisson process). A block is sampled if one of
 * its bytes bears a point, so a block of `size` bytes is sampled with the probability
 * 1 - exp(-size / interval). Each sample counts as 1 / probability blocks, so that sums of samples
 * have the expectation of the true sums (lm_sample_weight).
 *
 * An entry of the decision cache does not draw for each block. It draws once how many blocks come
 * before the next sample, and counts down (lm_decision.left). The distribution of that number has
 * no memory, so an entry that is given up early, or a reload, spoils nothing. Blocks that no entry
 * counts draw from the bytes that the thread has left (lm_sample_wants).
 *
 * A sampled block has an entry in a table of live samples, with its stack and its weight, until it
 * is freed. Its state is SAMPLED, unless its token is counted (pages/state.h), so the fast path of
 * free refuses the block, and the slow path takes the entry out. Sampling adds no code to the fast
 * paths of malloc and free, and no byte to an object.
 *
 * Each stack has a row with sums: what was allocated, and what of it lives (engine/stacks.h). All
 * tables are bounded, and each refusal is counted. `loam profile` reads them from outside
 * (cli/look_samples.c), also when the process is stopped.
 *
 * Until sampling is switched on for the first time there are no tables. While nothing is sampled,
 * entries count down from LM_STATS_STOCK.
 *
 * Law: `live` of the row of a stack is the sum of the table's entries for that stack. */
#ifndef LM_SAMPLE_H
#define LM_SAMPLE_H

#include "engine/stacks.h"
#include "engine/stats.h"

enum {
  LM_SAMPLE_LIVE = 1 << 18,  /* live samples that are kept at most */
  LM_SAMPLE_HEADS = 1 << 15, /* chains of live samples */
  LM_SAMPLE_SHIFT = 16,      /* a weight is blocks times 2^LM_SAMPLE_SHIFT */
};
#define LM_SAMPLE_INTERVAL_MAX ((uint64_t)1 << 40)

/* A live sample. */
typedef struct lm_sample_live {
  uintptr_t base;  /* of the block */
  uint64_t size;   /* of the block: usable bytes */
  uint64_t weight; /* as lm_sample_weight says it; 0: the sample is of an earlier session */
  uint32_t stack;  /* index of its row */
  uint32_t next;   /* in its chain, or in the list of unused ones: index plus 1; 0: none */
} lm_sample_live;

/* What a process samples: the head of all tables. A reader outside finds it by lm_outside. */
typedef struct lm_samples {
  /* Mean bytes between samples; 0: nothing is sampled. Relaxed: a thread that sees a change late
   * samples a few blocks more or fewer. */
  _Atomic uint64_t interval;
  /* When this session began, or the last one, as lm_sys_clock_ns; 0: nothing was ever sampled. */
  _Atomic uint64_t started_at;
  /* Entries in the table of live samples. Release, which pairs with the fence in
   * lm_sample_may_have: a thread that reads a number above 0 also reads `head`. */
  _Atomic uint64_t live;
  _Atomic uint64_t live_lost; /* samples without room there: counted as allocated, not as live */
  _Atomic uint64_t skipped;   /* samples that were dropped, since the thread could not wait */
  lm_stacks stacks;
  lm_lock lock; /* guards all below, and the rows of `stacks` */
  /* LM_SAMPLE_HEADS chains: index plus 1 of a live sample. NULL: there are no tables. Written once,
   * under the lock, before `live` is above 0. Relaxed: `live` orders it. */
  _Atomic(_Atomic uint32_t *) head;
  lm_sample_live *sample; /* LM_SAMPLE_LIVE of them */
  uint32_t used;          /* how many of them were used so far */
  uint32_t unused;        /* a list of those that are unused again: index plus 1 */
} lm_samples;

extern lm_samples lm_sample_all __attribute__((visibility("hidden")));

/* Switches sampling on with this mean interval, or changes the interval; 0 switches sampling off.
 * Switching it on begins a session: from then on the sums have the samples of this session alone.
 * The sums can still be read after the session, and follow the frees of its blocks. The tables
 * stay. All threads begin new epochs. Returns LOAM_ENOMEM, with words, if there is no memory for
 * the tables. The caller is not active. */
loam_status lm_sample_set(uint64_t interval);

/* Reads an interval: a number of bytes, which a unit may follow as for the command (K, KB and KiB
 * are 1024, in upper or lower case). Returns false if the text is no such number, or if the number
 * is above LM_SAMPLE_INTERVAL_MAX. */
bool lm_sample_parse(const char *text, uint64_t *interval);
/* Switches sampling on with the interval in a text, the value of LOAM_PROFILE; NULL or "" does
 * nothing. If the text is no interval, loam tells the host by an event and samples nothing. */
void lm_sample_set_as(const char *text);

/* Returns whether blocks are sampled now. */
LM_INLINE bool lm_sample_is_on(void) {
  return lm_unlikely(lm_load(uint64_t, &lm_sample_all.interval) != 0);
}

/* Returns how many blocks of `size` bytes an entry of the decision cache serves before the next
 * sample. LM_STATS_STOCK while nothing is sampled, and for the size 0 of an entry of a large
 * class, which counts no blocks. */
int32_t lm_sample_stock(lm_thread *t, size_t size);
/* Returns whether a block of `size` bytes that no entry counts is to be sampled. */
bool lm_sample_wants(lm_thread *t, size_t size);

/* Notes the block at `p`, which the calling thread has just been given, as a sample with the stack
 * of the caller. The thread is not active. A thread that would have to wait for a fork notes
 * nothing. */
void lm_sample_take(lm_thread *t, const loam_site *site, uint32_t strategy, void *p, size_t size);
/* Like lm_sample_take, for an object of a size class whose state is SAMPLED already. */
void lm_sample_take_marked(lm_thread *t, const loam_site *site, uint32_t strategy, void *p,
                           size_t size);
/* Calls lm_sample_take if lm_sample_wants says so. */
LM_INLINE void lm_sample_maybe(lm_thread *t, const loam_site *site, uint32_t strategy, void *p,
                               size_t size) {
  if (lm_sample_is_on() && p && lm_sample_wants(t, size))
    lm_sample_take(t, site, strategy, p, size);
}

/* Returns whether a block may be a live sample; false is certain if the block is the caller's. The
 * caller has read a number above 0 in lm_sample_all.live. */
bool lm_sample_may_have(const void *p);
/* Takes a block that is about to be freed out of the table of live samples. */
void lm_sample_forget(const void *p);
/* Calls lm_sample_forget if the block may be a live sample. */
LM_INLINE void lm_sample_end(const void *p) {
  if (lm_unlikely(lm_load(uint64_t, &lm_sample_all.live) != 0) && lm_sample_may_have(p))
    lm_sample_forget(p);
}

/* Takes a block that is about to be resized out of the table, and copies its sample to *out: during
 * the resize another thread may get a block at its address. Returns false if the block is no
 * sample. If the block stays as it is, the caller calls lm_sample_put_back. */
bool lm_sample_take_out(const void *p, lm_sample_live *out);
/* Calls lm_sample_take_out if the block may be a live sample. */
LM_INLINE bool lm_sample_suspend(const void *p, lm_sample_live *out) {
  return lm_unlikely(lm_load(uint64_t, &lm_sample_all.live) != 0) && lm_sample_may_have(p) &&
         lm_sample_take_out(p, out);
}
void lm_sample_put_back(const lm_sample_live *sample);

/* Returns for how many blocks of `size` bytes a sample stands, times 2^LM_SAMPLE_SHIFT. */
uint64_t lm_sample_weight(size_t size, uint64_t interval);
/* Returns the bytes for which a sample stands. */
LM_INLINE uint64_t lm_sample_bytes(size_t size, uint64_t weight) {
  return (uint64_t)(((unsigned __int128)size * weight) >> LM_SAMPLE_SHIFT);
}

/* Returns the bytes at the ends of the tables that were never filled and so have no memory. The
 * caller holds the lock, or has a copy of the tables' head. */
size_t lm_samples_unfilled(const lm_samples *all);
/* Returns lm_samples_unfilled of this process. Takes the lock. */
size_t lm_sample_unfilled(void);

/* Lets the calling thread draw a sequence that depends on `seed` alone. For tests. */
void lm_sample_seed(lm_thread *t, uint64_t seed);

/* Returns whether the law above holds. Takes the lock of the tables, and time in proportion to the
 * live samples. */
bool lm_sample_is_valid(void);

/* Registers with forks, once. */
void lm_sample_start(void);

#endif
