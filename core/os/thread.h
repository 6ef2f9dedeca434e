/* thread.h - what loam keeps for each thread, and how loam knows that no thread reads old data.
 *
 * Each thread has one area: an lm_thread, followed by the thread caches of the pools. The area is
 * aligned to a page. One initial-exec TLS pointer leads to it, because a library that was opened
 * with dlopen gets little TLS of that kind. The thread caches stand at fixed offsets in every area,
 * so a decision table can name a thread cache by one number.
 *
 * Vacant areas. When a thread ends, its area becomes vacant and waits for a new thread. So a short
 * thread pays no page faults for its area. What the exit hooks leave in an area needs no clearing:
 * the decision cache finds nothing, the tallies count nothing, and the bins are closed. A process
 * has at most LM_VACANT_MAX vacant areas, which hold at most LM_THREAD_BINS + LM_VACANT_BINS bytes
 * each. A tick of the decay (os/decay.h) unmaps the vacant areas that no thread needed since the
 * tick before.
 *
 * Active sections. A thread reads plans, the page map and pools inside an active section: it stores
 * 1 to its own `active` on entry and 0 on exit, with compiler ordering only. Sections do not nest:
 * the first exit ends the section. No foreign code (handlers, callbacks, Lua) runs inside one.
 *
 * Grace periods. Before loam reclaims something that threads may be reading, it publishes the new
 * state and then calls lm_thread_grace(). That function calls membarrier(2), which makes the stores
 * of every thread visible, and then waits until it has seen `active` == 0 once for each thread.
 * Every section that begins later sees the new state. This is the asymmetric barrier of user-space
 * RCU (liburcu's "memb" flavour): readers pay a store, and only the reclaimer pays for a barrier.
 *
 * Fast path and slow path. A reason for the slow path (LM_SLOW_*) sends every operation of a thread
 * to code that looks at the reason. The fast paths never test for reasons. A reason instead takes
 * LM_EPOCH_FAST out of `epoch`, so that malloc finds no entry in the decision cache, and sets
 * `reach` to LM_REACH_NONE, so that free finds no object. */
#ifndef LM_THREAD_H
#define LM_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "loam.h"
#include "os/lock.h"
#include "os/unwind.h"

#define LM_SCOPES 64        /* scopes that a thread remembers; deeper ones are only counted */
#define LM_ERROR_SIZE 4096  /* bytes of an error's text, with the terminator */
#define LM_TALLIES 1024     /* power of two */
#define LM_DECISIONS 2048   /* power of two */
#define LM_FREED_ENTRIES 64 /* power of two */
#define LM_LIVE_PLACES 128  /* power of two */
#define LM_VACANT_MAX 64    /* vacant areas that a process keeps at most */
#define LM_THREADS_FEW 8    /* see lm_thread_are_many */
#define LM_REACH_NONE ((uintptr_t)1 << 63) /* the `reach` of a range that contains no address */

/* Parts of lm_thread.epoch, which are also the highest bits of every key in the decision cache. */
#define LM_EPOCH_FIRST ((uint64_t)1 << 59) /* the number of the epoch is in bits 59 to 61 */
#define LM_SCOPED ((uint64_t)1 << 62)      /* in lm_thread.scoped only, never in an epoch */
#define LM_EPOCH_FAST ((uint64_t)1 << 63) /* set while the thread has no reason for the slow path */

/* Blocks and bytes that the thread allocated under one site, strategy and class, and that are not
 * in the common totals yet (engine/stats.c). The thread writes `blocks` and `bytes`; any thread may
 * read them. `key` changes only while the lock of the totals is held. */
typedef struct lm_tally {
  _Atomic uint64_t key; /* lm_stats_key (engine/stats.h); 0: unused */
  _Atomic uint64_t blocks, bytes;
} lm_tally;

/* An entry of the thread's decision cache: what the policy decided for one size class at one site,
 * or for one return address. The next such request need not evaluate the plan. The law of an entry
 * is in engine/decision.h. The thread counts here the blocks that it served from the entry. */
typedef struct lm_decision {
  uint64_t key;   /* from the site or return address, the class and the epoch; 0: unused */
  uint32_t bin;   /* offset of the bin in the thread's area */
  uint32_t token; /* the token of the objects that the entry serves (plan/site.h) */
  /* `site`, `strategy` and `class_` say which blocks the entry counts. They change only while the
   * lock of the totals is held (engine/stats.c). */
  _Atomic uint32_t site; /* index of the site; 0: the entry counts nothing */
  uint16_t strategy;     /* id of the strategy */
  uint8_t state;         /* the state byte that most spans have for this token: heap/tcache.h */
  uint8_t class_;        /* the size class of the objects */
  /* How many blocks the entry may serve, and how many of them are left. When none is left, the next
   * request takes a slow path, which may sample the block (engine/sample.h). The entry counts
   * start - left blocks. The thread alone writes `left`, with lm_count_down. `both` is `left` in
   * the low half and `start` in the high half: one access reads or writes the two together. */
  union {
    struct {
      int32_t left;
      int32_t start;
    };
    uint64_t both;
  };
} lm_decision;

/* Returns how many blocks an entry counts. The calling thread is the entry's own, or it reads a
 * copy, or the count may be old by some blocks. */
LM_INLINE uint32_t lm_thread_served(const lm_decision *d) {
  uint64_t both = lm_load(uint64_t, &d->both);
  return (uint32_t)(both >> 32) - (uint32_t)both;
}

/* Bytes that the thread added to the live bytes of a tag, or took from them, and that are not in
 * the tag's counter yet: engine/live_bytes.h. */
typedef struct lm_live_pending {
  _Atomic int64_t *live; /* the tag's counter; NULL: the entry is unused */
  uint64_t bytes;        /* the sum plus LM_LIVE_PENDING_MAX: one comparison tests both limits */
} lm_live_pending;

/* A large block that the thread freed: heap/freed_log.h. */
typedef struct lm_freed_entry {
  _Atomic uintptr_t base; /* 0: the entry is empty or is being written */
  _Atomic size_t size;
  _Atomic uint32_t token, strategy;
} lm_freed_entry;

/* Reasons why the next operations of a thread take the slow path: bits of `slow_reasons`. Any
 * thread may set a reason for another thread. The comment says who clears it. */
enum {
  /* The decisions in the thread's cache belong to an older generation. The thread clears the bit
   * and forgets its decisions. */
  LM_SLOW_STALE = 1,
  /* Another thread wants the idle bins of this thread. The thread clears the bit and gives the bins
   * up, or keeps them while a fork lasts, until the next claim. If the thread is in no operation,
   * the other thread replaces the bit by LM_SLOW_TAKING. */
  LM_SLOW_CLAIMED = 2,
  /* Another thread takes the idle bins at this moment. This thread waits until the other thread has
   * cleared the bit. */
  LM_SLOW_TAKING = 4,
  /* Device memory or pinned memory became free in a process without a service thread. The thread
   * clears the bit and gives idle memory back to the driver (device/device_idle.h). */
  LM_SLOW_DEVICES = 128,
  /* The four reasons below hold for all threads: lm_thread_set_slow_all sets them, and
   * lm_thread_clear_slow_all clears them. */
  LM_SLOW_COUNTING = 8, /* a free takes an object's token with compare and exchange: live_bytes.c */
  LM_SLOW_HOOKED = 16,  /* the host's callback hears of each block: memory_hook.c */
  LM_SLOW_LISTING = 32, /* memory blocks are reported or kept in a list: block_watch.h */
  LM_SLOW_UNSERVED = 64, /* this process has no service thread at the moment: control.h */
};
/* The reasons that lm_thread_handle_slow deals with. */
#define LM_SLOW_OWN (LM_SLOW_STALE | LM_SLOW_CLAIMED | LM_SLOW_TAKING)
#define LM_SLOW_ANY (2 * LM_SLOW_DEVICES - 1) /* all of them */

/* Memory blocks (block/) that a thread made and ended, by loam_block_kind. The thread writes with
 * lm_add_relaxed; any thread may read. */
enum { LM_BLOCK_KINDS = LOAM_BLOCK_POOLED + 1 };
typedef struct lm_block_tally {
  uint64_t made[LM_BLOCK_KINDS], ended[LM_BLOCK_KINDS];
} lm_block_tally;

/* The fixed part of a thread's area. Only the thread itself writes to it, except where a comment
 * says otherwise. The area of a new thread has zeros up to `scope`, except for the fields that
 * lm_thread_make sets, and no error text. The later fields are all zeros too, or they are what the
 * exit hooks left of the thread that had the area before.
 *
 * Laws, when no other thread is changing `slow_reasons` (lm_thread_is_valid):
 *   (epoch & LM_EPOCH_FAST) != 0   if and only if   slow_reasons == 0
 *   slow_reasons != 0              implies          reach == LM_REACH_NONE
 *   1 <= number of the epoch <= 7, and epoch has no other bit than those and LM_EPOCH_FAST
 *   scoped == (site ? LM_SCOPED : 0) */
typedef struct lm_thread {
  /* 1 inside an active section, else 0. Relaxed on entry, which pairs with the membarrier of
   * lm_thread_grace; release on exit, which pairs with the acquire that finds the 0. */
  _Atomic uint32_t active;
  /* LM_SLOW_* bits. Any thread may set a bit, with sequentially consistent operations. */
  _Atomic uint32_t slow_reasons;
  /* The number of the epoch (bits 59 to 61) and LM_EPOCH_FAST. The number is part of the key of
   * each decision, so a new number forgets all decisions. */
  _Atomic uint64_t epoch;
  /* A copy of lm_map.reach (pages/map.h), with which free finds objects. LM_REACH_NONE while the
   * thread has a reason for the slow path, and before the thread has seen the range. Other threads
   * may set LM_REACH_NONE, but only the thread itself sets another value. */
  _Atomic uintptr_t reach;
  /* LM_SCOPED while `site` is set, so that the key of a code address matches no decision. */
  uint64_t scoped;
  loam_site *site; /* site of the innermost scope; NULL: none */
  /* Above 0 while loam, or code that loam calls, runs in this thread: lm_thread_inside_begin. */
  uint32_t inside;
  /* The thread is in a guarded section. Only fork_gate.h and fork_gate.c write it; they name the
   * accesses that it pairs with. */
  _Atomic bool guarded;
  /* How many guarded sections of the thread are interrupted for foreign code that runs now. Only
   * fork_gate.c writes it; a store pairs with that of `guarded` which follows. */
  _Atomic uint16_t interrupted;
  const loam_handler *handler; /* what loam_handler_set chose; NULL: the default */
  uint32_t depth;              /* scopes entered; may exceed LM_SCOPES */
  uint32_t is_sampling;        /* 1 while engine/sample.c notes a sample in this thread */
  uint64_t sample_random;      /* the state of the thread's random numbers; 0: not begun */
  /* Mean bytes between samples by which the thread draws in this epoch; 0: it has not drawn yet. */
  uint64_t sample_interval;
  int64_t sample_left; /* bytes before the thread's next sample: lm_sample_wants */
  /* The stack of the thread's last sample, and its row in the table of stacks (engine/stacks.h). */
  lm_unwound sample_stack;
  uint32_t sample_row;
  uint64_t sample_python; /* a hash of the frames of Python at that sample */
  /* The thread's destructor has run: the thread uses the central lists and caches nothing. */
  _Atomic bool dying;
  bool late;            /* no destructor will run: the area is taken back when the thread is gone */
  uint8_t delayed_ends; /* how often the destructor has asked for another round */
  bool is_at_limit;     /* a limit refused the latest request for a part of it: heap/strategy.h */
  int tid;              /* the kernel's number of the thread */
  const void *caller;   /* return address of the latest realloc or free that took the slow path */
  uint32_t passed_grace; /* the latest grace that need not wait for this thread; under list.lock */
  uint32_t bins_end; /* where the bins that threads have used in this area end: an offset. The area
                      * is writable up to there, and as far as lm_thread_extend says. */
  struct lm_thread *next, *previous; /* the list of all areas, or of vacant ones; under list.lock */
  struct lm_thread *next_late;       /* the queue of late areas; under list.lock */
  lm_block_tally blocks;             /* block/ledger.c */
  /* Bit i is set once an entry of part i of `tally` (or `decision`) has been used; a part is a 32nd
   * of the entries. Readers skip parts without the bit, so they do not touch pages that were never
   * used. Written by the thread before the entry, under the lock of the totals (engine/stats.c).
   * The exit hook of the totals empties the entries and clears the bits. */
  _Atomic uint32_t used_tallies, used_decisions;
  _Atomic uint32_t freed_count; /* large blocks that the thread has freed: heap/freed_log.h */
  /* The latest of those blocks: number n is at n % LM_FREED_ENTRIES. */
  lm_freed_entry freed[LM_FREED_ENTRIES];
  loam_site *scope[LM_SCOPES]; /* sites of the scopes, outermost first */
  char error[LM_ERROR_SIZE];   /* what loam_error() returns */
  lm_live_pending live_pending[LM_LIVE_PLACES];
  lm_tally tally[LM_TALLIES];
  lm_decision decision[LM_DECISIONS] __attribute__((aligned(LM_CACHE_LINE)));
} lm_thread;

/* The bins (heap/tcache.h) fill an area from LM_THREAD_BINS to LM_THREAD_SIZE. A page of them gets
 * memory when it is first used. The first LM_FIRST_BINS bytes of the bins can be written from the
 * beginning. The other bins can be read, where they are zeros, and lm_thread_extend makes them
 * writable: the kernel counts writable memory alone against RLIMIT_DATA and, in a system that does
 * not overcommit, against what is left of the system's memory. */
#define LM_THREAD_BINS ((size_t)1 << 17)
#define LM_THREAD_SIZE (4 * LM_MIB)
#define LM_FIRST_BINS ((size_t)64 << 10)
/* An area becomes vacant only if its bins have used no more bytes than these. */
#define LM_VACANT_BINS LM_FIRST_BINS

_Static_assert(sizeof(lm_thread) <= LM_THREAD_BINS, "the bins begin after the thread's own fields");

/* The calling thread's area; NULL before lm_thread_make has made one. */
extern _Thread_local lm_thread *lm_thread_self
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* The calling thread's area, or the empty area if the thread has none; never NULL. The fast paths
 * use it, so they need not test for NULL. All threads without an area share the empty area. Its
 * fields are zeros, except three: `active`, which these threads write; `reach`, which is
 * LM_REACH_NONE, so that no free finds an object; and `epoch`, which is LM_EPOCH_FIRST. With that
 * epoch no request has the key 0, so a request does not match the empty area's unused decisions. */
extern _Thread_local lm_thread *lm_thread_self_or_empty
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The `inside` of a thread that has no area. Its area gets the number when it is made. */
extern _Thread_local uint32_t lm_thread_bare_inside
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Makes the calling thread's area if it has none, and returns the area. Returns NULL when the
 * system has no memory left. */
lm_thread *lm_thread_make(void);

/* Makes the area of the calling thread writable up to the offset `end`, and notes that its bins are
 * used up to there. Returns false if the system refuses; then the bins up to `end` stay zeros. */
bool lm_thread_extend(lm_thread *t, uint32_t end);

/* Returns the calling thread's area, which the first call makes. Returns NULL when the system has
 * no memory left. */
LM_INLINE lm_thread *lm_thread_get(void) {
  return lm_likely(lm_thread_self != NULL) ? lm_thread_self : lm_thread_make();
}

/* Says that loam itself, or foreign code that loam calls, runs in this thread until the matching
 * lm_thread_inside_end. Until then loam serves the thread's requests by the decisions that the
 * thread has kept (they name pools of loam alone), any other request under the default plan; it
 * makes no site for them, and the thread is not cancelled. Returns the thread's area, or NULL where
 * there is no memory for one. lm_thread_inside_end takes that result or lm_thread_self, which may
 * differ: a later request may have made the area. Pairs nest. */
LM_INLINE lm_thread *lm_thread_inside_begin(void) {
  lm_thread *self = lm_thread_get();
  lm_sys_cancel_off();
  if (lm_likely(self != NULL)) self->inside++;
  else lm_thread_bare_inside++;
  return self;
}
LM_INLINE void lm_thread_inside_end(lm_thread *self) {
  if (lm_unlikely(!self)) self = lm_thread_self;
  lm_assert(self ? self->inside > 0 : lm_thread_bare_inside > 0);
  if (lm_likely(self != NULL)) self->inside--;
  else lm_thread_bare_inside--;
  lm_sys_cancel_restore();
}

/* Says that foreign code (a handler, a driver, the system's allocator) runs in this thread `t`
 * until the matching lm_thread_foreign_end: raises `inside`, and leaves the guarded section, since
 * such code may fork, or wait for a thread that forks. The thread is not cancelled in between: it
 * is in the middle of an allocation or a free. */
LM_INLINE lm_lock_suspended lm_thread_foreign_begin(lm_thread *t) {
  t->inside++;
  lm_sys_cancel_off();
  return lm_lock_suspend();
}
LM_INLINE void lm_thread_foreign_end(lm_thread *t, lm_lock_suspended section) {
  lm_assert(t->inside > 0);
  lm_lock_resume(section);
  lm_sys_cancel_restore();
  t->inside--;
}

/* Starts a thread of loam's own that calls `run`, with all signals blocked: signals are for the
 * host's threads. The thread has no real-time priority, also where the calling thread has one. Sets
 * *out and returns 0, or returns an errno value. */
int lm_thread_start(pthread_t *out, void *(*run)(void *));

/* ---- Active sections */

/* Deals with the reasons LM_SLOW_STALE, LM_SLOW_CLAIMED and LM_SLOW_TAKING of the calling thread's
 * area `t`. May wait for another thread. The caller is not in an active section. */
void lm_thread_handle_slow(lm_thread *t);

/* Sets the function that LM_SLOW_CLAIMED makes a thread call, outside an active section, to give up
 * its idle bins. It is set once, by heap/pools.c. */
void lm_thread_on_claim(void (*give_up)(lm_thread *t));

/* Begins an active section of the calling thread `t`, whatever reasons the thread has for the slow
 * path. The caller then looks at `reach` or `epoch`, and leaves with lm_thread_leave. */
LM_INLINE void lm_thread_begin(lm_thread *t) {
  lm_assert(t == lm_thread_self_or_empty);
  atomic_store_explicit(&t->active, 1, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst); /* pairs with the membarrier of lm_thread_grace */
}

/* Begins an active section and returns the thread's epoch. If the epoch lacks LM_EPOCH_FAST, the
 * thread has a reason for the slow path: the caller leaves the section without using anything. If
 * it has the bit, the caller calls lm_load_fence before it uses anything. lm_load_first (os/base.h)
 * is a plain load; with the fence it is an acquire load. It pairs with the release of the thread
 * that set or cleared a reason: the caller sees what that thread had written. */
LM_INLINE uint64_t lm_thread_try_enter(lm_thread *t) {
  lm_thread_begin(t);
  return lm_load_first(uint64_t, &t->epoch);
}

/* Ends the calling thread's active section. Release pairs with the acquire of lm_thread_grace: what
 * the section read, it has read before the grace ends. */
LM_INLINE void lm_thread_leave(lm_thread *t) {
  lm_assert(t == lm_thread_self_or_empty);
  atomic_signal_fence(memory_order_seq_cst);
  atomic_store_explicit(&t->active, 0, memory_order_release);
}

/* Returns whether the calling thread is in an active section; false if it has no area. Assertions
 * use it, and fork_gate.c. */
LM_INLINE bool lm_thread_is_active(void) {
  return lm_thread_self && lm_load(uint32_t, &lm_thread_self->active);
}

/* Begins an active section in which the thread may use its bins and its decisions: the decisions
 * are of the live generation, and no other thread takes the bins. Handles the reasons in
 * LM_SLOW_OWN first, which may wait for another thread. */
LM_INLINE void lm_thread_enter(lm_thread *t) {
  while (lm_unlikely(!(lm_thread_try_enter(t) & LM_EPOCH_FAST)) &&
         atomic_load_explicit(&t->slow_reasons, memory_order_acquire) & LM_SLOW_OWN) {
    lm_thread_leave(t);
    lm_thread_handle_slow(t);
  }
  lm_load_fence();
}

/* ---- Reasons for the slow path */

/* Sets the calling thread's `reach`, or LM_REACH_NONE if the thread has a reason for the slow
 * path. */
void lm_thread_set_reach(lm_thread *t, uintptr_t reach);

/* Adds reasons for thread `t`, or removes them. Any thread may call these for an area that is on
 * the list of areas and stays there: its own, or one that lm_thread_each visits. */
void lm_thread_set_slow(lm_thread *t, uint32_t reasons);
void lm_thread_clear_slow(lm_thread *t, uint32_t reasons);

/* Adds reasons for all threads, also for threads that start later, or removes them. LM_SLOW_STALE
 * is not given to new threads, which have no decisions yet; each thread clears it by itself. Once
 * lm_thread_grace has returned true after lm_thread_set_slow_all, every operation sees the reasons.
 * Both take list.lock. */
void lm_thread_set_slow_all(uint32_t reasons);
void lm_thread_clear_slow_all(uint32_t reasons);

/* ---- Grace periods and all threads */

/* Waits until every active section that had begun before the call has ended. Returns false, without
 * having waited, where the machine has no membarrier(2), and while the calling thread forks, since
 * a thread in an active section may wait for the end of the fork. Then the caller must not reclaim.
 * The caller is not in an active section, and holds no lock that a thread takes inside one. */
bool lm_thread_grace(void);

/* From lm_thread_refuse_graces to lm_thread_allow_graces, lm_thread_grace returns false in the
 * calling thread, as on a machine without membarrier(2): for work inside a request of a program
 * that has given up the right to make system calls. */
void lm_thread_refuse_graces(void);
void lm_thread_allow_graces(void);

/* A calm grace is for a thread that may neither wait nor call membarrier(2). lm_thread_calm_begin
 * notes its beginning. lm_thread_calm_is_over looks at each thread, once in a call, and returns
 * whether each active section that was open at the beginning has ended: the caller asks again later
 * until that is so. A thread that disappeared inside an active section (it was cancelled there)
 * keeps the answer false. There is one calm grace at a time: the caller orders the calls, and is in
 * no active section. Both take list.lock. */
void lm_thread_calm_begin(void);
bool lm_thread_calm_is_over(void);

/* Returns whether `t`, for which the caller set a reason for the slow path at the time `since_ns`
 * (lm_sys_clock_ns), is in no active section that began before: what a calm grace tells of all
 * threads, for one thread. It is false for the first 10 ms. If it is true and the thread has not
 * handled the reason, what the thread wrote in its earlier sections is visible to the caller. `t`
 * is on the list of areas, and stays there during the call. */
bool lm_thread_has_calmed(lm_thread *t, int64_t since_ns);

/* Returns whether every thread has handled the last LM_SLOW_STALE. Then no thread is in an active
 * section that had begun before lm_thread_set_slow_all(LM_SLOW_STALE), because a thread clears the
 * bit outside of sections. Every section that begins later sees all stores that were made before
 * that call. So this answers without a system call, and without waiting, what lm_thread_grace waits
 * for; but a thread that makes no request keeps the answer false. */
bool lm_thread_is_none_stale(void);

/* The place of the pointer to the first area, for a process that reads the list from outside
 * (engine/outside.h). */
extern lm_thread *const *const lm_thread_outside __attribute__((visibility("hidden")));

/* Calls `visit` for every area while list.lock is held. `visit` takes no lock that a fork hook
 * takes, and makes no area. */
void lm_thread_each(void (*visit)(lm_thread *t, void *ctx), void *ctx);

/* Returns how many areas belong to threads whose destructor has not run. */
uint32_t lm_thread_count(void);

/* Returns whether there are more than LM_THREADS_FEW areas on the list: so many threads may cache
 * about a MiB together. Takes no lock, and may miss the latest areas. */
bool lm_thread_are_many(void);

/* Returns whether the laws of lm_thread hold for an area whose thread, and whose reasons, do not
 * change during the call. */
bool lm_thread_is_valid(const lm_thread *t);

/* Returns whether the list of areas is linked both ways, the queue of late areas holds late areas
 * only, and the law of vacant areas holds. Takes list.lock. */
bool lm_thread_list_is_valid(void);

/* ---- Vacant areas */

/* Unmaps the vacant areas that no thread has needed since the last call. Returns whether there are
 * vacant areas left, which a later call may unmap. */
bool lm_thread_decay_vacant(void);
/* Unmaps all vacant areas. */
void lm_thread_trim_vacant(void);

/* Returns how many vacant areas there are. For tests. */
uint32_t lm_thread_count_vacant(void);

/* Return whether there are areas of other threads, and whether another thread may be in a guarded
 * section; with `or_interrupted`, also in one that foreign code interrupts. A thread that has ended
 * in a section is in none if `asks_kernel` is set. If the list is in use, the answers are yes. Only
 * fork_gate.c calls them. */
bool lm_thread_has_others(void);
bool lm_thread_are_others_guarded(bool asks_kernel, bool or_interrupted);

/* ---- Hooks for the end of a thread and for fork */

/* The hooks of one module; any of them may be NULL. At most LM_HOOKS modules register: 14 do in a
 * process that uses all parts of loam.
 *
 * fork_prepare and fork_child run in the order of registration, and exit in the reverse order, so a
 * module that registered early (memory) outlives the others. A module registers after its first
 * lm_metadata_alloc. */
enum { LM_HOOKS = 24 };
typedef struct lm_thread_hooks {
  /* Gives back what the thread `t` caches. Runs with no lock held. The caller is the thread itself,
   * or another thread: for a late area, and in a forked child for the threads that the child lost,
   * perhaps in the middle of an operation. */
  void (*exit)(lm_thread *t);
  /* In the child after fork: renews the module's locks, and gives up what belongs to threads that
   * the child does not have. It runs when no guarded section of the forking thread is open. */
  void (*fork_child)(void);
  /* In the parent before a fork, while the gate is closed. Takes no lock. */
  void (*fork_prepare)(void);
} lm_thread_hooks;

/* Registers a module's hooks, which are copied. The caller may hold its own locks. A module that
 * makes something and registers hooks for it does both in one guarded section (lm_lock_hold_cancel
 * to lm_lock_allow_cancel), so that a forked child has all of it or nothing. */
void lm_thread_add_hooks(const lm_thread_hooks *hooks);

/* Makes a forked child renew the lock. At most LM_FORK_LOCKS locks; a lock that is already known is
 * not added again. A process that uses all parts of loam adds 25. */
enum { LM_FORK_LOCKS = 32 };
void lm_thread_add_fork_lock(lm_lock *lock);

/* True in a forked child whose work (fork_child, exit) was put off, because a signal handler forked
 * in the middle of a guarded section. lock.c then calls lm_thread_begin_child at the section's
 * end. Relaxed: it is written only in a child that has one thread. */
extern _Atomic bool lm_thread_owes_child __attribute__((visibility("hidden")));
/* How many calls of fork(3) lie between the process that loaded loam and this process: a child has
 * one more than its parent. A child that _Fork(3) or clone(2) made has the number of its parent. A
 * process id is no such mark: in PID namespaces, parent and child can have equal ids. Written only
 * in a child that has one thread. */
extern uint32_t lm_thread_forks __attribute__((visibility("hidden")));
void lm_thread_begin_child(void);

#endif
