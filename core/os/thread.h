/* thread.h - what each thread has of loam, and how the engine knows that no thread still reads.
 *
 * One page-aligned area a thread, found by one initial-exec TLS pointer (a library opened with
 * dlopen gets little such TLS, so only the pointer lives there). The area ends in the bins of the
 * pools: fixed offsets, so that a decision table can hold "where in the thread" as one number.
 *
 * Grace. Readers of plans and pools store 1 to their own `active` on entry and 0 on exit, with
 * compiler ordering only. Whoever wants to reclaim publishes the new state, then calls
 * lm_thread_grace(): a membarrier makes each thread's stores visible, then every thread is waited
 * for until its `active` was seen 0 once. An operation that began later sees the new state.
 * `active` is never held across a call into foreign code (handlers, callbacks, Lua). */
#ifndef LM_THREAD_H
#define LM_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "loam.h"
#include "os/lock.h"

#define LM_SCOPES 64
#define LM_ERROR_SIZE 4096
#define LM_TALLIES 1024                    /* power of two */
#define LM_DECISIONS 2048                  /* power of two */
#define LM_FREED_ENTRIES 64                /* power of two */
#define LM_LIVE_PLACES 128                 /* power of two */
#define LM_EPOCH_FIRST ((uint64_t)1 << 56) /* one more, and up to bit 61, each time */
#define LM_SCOPED ((uint64_t)1 << 62)
#define LM_EPOCH_FAST ((uint64_t)1 << 63)

/* Blocks and bytes a thread allocated under one (site, strategy) since it last told the totals.
 * Written by the thread, read by whoever asks; the key changes under stats.c's lock of totals. */
typedef struct lm_tally {
  _Atomic uint64_t key; /* site index, strategy id << 32; 0: none yet */
  _Atomic uint64_t blocks, bytes;
} lm_tally;

/* An entry of the thread's decision cache: what the policy decided for one size class at one site,
 * or for one return address, so that the next such request need not be decided again. Its law is in
 * engine/decision.h. The thread also counts here the blocks that it served from the entry. */
typedef struct lm_decision {
  uint64_t key;   /* made of the site or the code address, the class, and the epoch; 0: unused */
  uint32_t bin;   /* offset of the bin in the thread's area */
  uint32_t token; /* plan/site.h */
  /* Site, strategy and class say what `blocks` counts. They change under the lock of totals. */
  _Atomic uint32_t site; /* index; 0: the entry counts nothing */
  uint16_t strategy;     /* id */
  uint8_t mark;          /* the mark that the token has in most spans: pages/state.h */
  uint8_t class_;
  uint64_t blocks; /* written by lm_add_relaxed */
} lm_decision;

/* Bytes that the thread added to what lives under a tag, or took from it, and has not told yet; and
 * LM_LIVE_UNTOLD more, so that one comparison shows that they are too many: live.h. */
typedef struct lm_live_pending {
  _Atomic int64_t *live; /* the tag's; NULL: nobody's */
  uint64_t bytes;
} lm_live_pending;

/* A large block that the thread freed: freed_log.h. */
typedef struct lm_freed_entry {
  _Atomic uintptr_t base; /* 0: none, or being written */
  _Atomic size_t size;
  _Atomic uint32_t token, strategy;
} lm_freed_entry;

/* Why the next operation of a thread takes the long way: bits of `wary`. Set by others; each says
 * who takes it back. While there is none, `epoch` has LM_EPOCH_FAST, which every lane's key has:
 * finding no lane is also how the fast path of malloc finds that it has to be wary. And while there
 * is one, `reach` is LM_REACH_NONE: so does that of free by finding nothing. */
enum {
  LM_SLOW_STALE = 1,     /* its lanes are of an older generation: it forgets them */
  LM_SLOW_CLAIMED = 2,   /* its idle bins are asked for: it takes the bit back and gives them up;
                           if it does nothing, what follows is: */
  LM_SLOW_TAKING = 4,    /* they are being taken: it waits until whoever takes them is done */
  LM_SLOW_COUNTING = 8,  /* frees take tokens by compare and exchange: lm_thread_clear_slow_all */
  LM_SLOW_HOOKED = 16,   /* the host hears of each block (memory_hook.c): likewise */
  LM_SLOW_LISTING = 32,  /* so do those who debug loam_blocks (ledger.c): likewise */
  LM_SLOW_UNSERVED = 64, /* nobody serves this process for now (control.h): likewise */
};

/* Blocks made and ended by a thread, by loam_block_kind; by lm_add_relaxed. */
enum { LM_BLOCK_KINDS = LOAM_BLOCK_POOLED + 1 };
typedef struct lm_block_tally {
  uint64_t made[LM_BLOCK_KINDS], ended[LM_BLOCK_KINDS];
} lm_block_tally;

#define LM_REACH_NONE ((uintptr_t)1 << 63) /* that of a range where no address is */

typedef struct lm_thread {
  _Atomic uint32_t active; /* 1 inside an operation; pairs with lm_thread_grace's barrier */
  _Atomic uint32_t wary;   /* LM_WARY_* */
  _Atomic uint64_t epoch;  /* of its lanes, never 0: bits of their keys; and LM_EPOCH_FAST */
  /* By which its frees find objects without a second thought: lm_map.reach; LM_REACH_NONE while it
   * is wary, and before it has seen the range. Set to the former by the thread alone. */
  _Atomic uintptr_t reach;
  uint64_t scoped; /* LM_SCOPED, which no lane's key has, if there is a scope; else 0 */
  loam_site *site; /* the scope's; NULL: none */
  uint32_t inside; /* > 0: loam itself is at work in this thread; see lm_thread_inside_begin */
  const loam_handler *handler;
  uint32_t depth;     /* scopes entered, may exceed LM_SCOPES */
  _Atomic bool dying; /* its destructor ran: use the central lists, keep no caches */
  bool late;          /* no destructor will run: it is taken back once its thread is gone */
  uint8_t farewells;  /* times that its destructor put the end off */
  int number;         /* the kernel's, of the thread */
  const void *caller; /* where its latest free that took the long way, or realloc, returns to */
  uint32_t passed;    /* last grace that need not wait for it; under the list lock */
  struct lm_thread *next, *previous; /* list of all threads, under the list lock */
  struct lm_thread *next_late;       /* queue of late ones, under the list lock */
  lm_block_tally blocks;             /* of ledger.c */
  _Atomic uint32_t deaths;           /* of large blocks, so far: written by the thread alone */
  lm_freed_entry dead[LM_FREED_ENTRIES];
  loam_site *scope[LM_SCOPES];
  char error[LM_ERROR_SIZE];
  lm_live_pending untold[LM_LIVE_PLACES];
  /* Of each 32nd of them, from bit 0 on: whether any was ever somebody's. The others are not
   * touched by who asks. Written by the thread alone, before what it says, under stats.c's lock. */
  _Atomic uint32_t used_tallies, used_decisions;
  lm_tally tally[LM_TALLIES];
  lm_decision decision[LM_DECISIONS] __attribute__((aligned(LM_CACHE_LINE)));
} lm_thread;

/* Bins of the pools start here and go on to LM_THREAD_SIZE, touched as they are used: most of an
 * area is address space and no more. */
#define LM_THREAD_BINS ((size_t)1 << 17)
#define LM_THREAD_SIZE (4 * LM_MIB)

_Static_assert(sizeof(lm_thread) <= LM_THREAD_BINS, "the bins begin after the thread's own fields");

extern _Thread_local lm_thread *lm_thread_self
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* The same for the fast paths, which need not ask then whether there is one: a thread that has no
 * area has nobody's, all zeros but for `active` and `reach`, in which nothing is ever met. */
extern _Thread_local lm_thread *lm_thread_self_or_empty
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The calling thread's area, made on first use; NULL only when the system has no memory left. */
lm_thread *lm_thread_make(void);
LM_INLINE lm_thread *lm_thread_get(void) {
  return lm_likely(lm_thread_self != NULL) ? lm_thread_self : lm_thread_make();
}

/* Loam itself is at work in the thread, or foreign code that it calls, until lm_thread_inside_end
 * with what this gave: what is asked of loam then is served under the default plan, no site is
 * made, and nobody cancels the thread. */
LM_INLINE lm_thread *lm_thread_inside_begin(void) {
  lm_thread *self = lm_thread_get();
  lm_sys_cancel_off();
  if (self) self->inside++;
  return self;
}
LM_INLINE void lm_thread_inside_end(lm_thread *self) {
  if (self) self->inside--;
  lm_sys_cancel_restore();
}

/* A thread of loam's own, with every signal blocked: they are for the host's. 0 or an errno. */
int lm_thread_start(pthread_t *out, void *(*run)(void *));

/* Does what `wary` asks of the thread. Not while active. */
void lm_thread_handle_slow(lm_thread *t);
/* What a thread does that is asked for its idle bins; set once. */
void lm_thread_on_claim(void (*give_up)(lm_thread *t));

/* Enters, to look at `reach` or `epoch`. */
LM_INLINE void lm_thread_begin(lm_thread *t) {
  atomic_store_explicit(&t->active, 1, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst); /* pairs with the membarrier of lm_thread_grace */
}
/* The same, and the epoch: without LM_EPOCH_FAST the long way is to be taken, and this one left at
 * once. Once that is known, lm_load_fence, which pairs with whoever set or took back a reason: his
 * doings are seen. */
LM_INLINE uint64_t lm_thread_try_enter(lm_thread *t) {
  lm_thread_begin(t);
  return lm_load_first(uint64_t, &t->epoch);
}
LM_INLINE void lm_thread_leave(lm_thread *t) {
  atomic_signal_fence(memory_order_seq_cst);
  atomic_store_explicit(&t->active, 0, memory_order_release);
}

LM_INLINE void lm_thread_enter(lm_thread *t) {
  while (lm_unlikely(!(lm_thread_try_enter(t) & LM_EPOCH_FAST)) &&
         atomic_load_explicit(&t->wary, memory_order_acquire) &
             (LM_SLOW_STALE | LM_SLOW_CLAIMED | LM_SLOW_TAKING)) {
    lm_thread_leave(t);
    lm_thread_handle_slow(t);
  }
  lm_load_fence();
}

/* Sets the calling thread's `reach`, unless it is wary. */
void lm_thread_set_reach(lm_thread *t, uintptr_t reach);
/* A reason more for a thread, or less. */
void lm_thread_set_slow(lm_thread *t, uint32_t wary);
void lm_thread_clear_slow(lm_thread *t, uint32_t wary);
/* Makes every thread wary, those to come as well; and takes back what only we may (LM_SLOW_STALE is
 * taken back by each thread, and means nothing to new ones). Who sets one and then waits for a
 * grace, or knows that he need not, has every later operation see it. */
void lm_thread_set_slow_all(uint32_t wary);
void lm_thread_clear_slow_all(uint32_t wary);

/* Waits until every operation that was under way has ended. The caller is not inside one. False
 * where the machine has no membarrier: then nothing may be reclaimed. */
bool lm_thread_grace(void);

/* Calls `visit` for every area, the list locked; `visit` takes no lock that a hook takes. */
void lm_thread_each(void (*visit)(lm_thread *t, void *ctx), void *ctx);
/* Areas of threads that have not ended. */
uint32_t lm_thread_count(void);

/* Hooks of the modules, at most LM_HOOKS: when a thread ends; around fork. fork_parent and
 * fork_child run in order of registration; exit and fork_prepare in reverse, so that what
 * registered first (memory) is locked last and outlives the rest. Register after your first
 * lm_metadata_alloc, and before another thread can want your locks. Any of the four may be NULL. */
enum { LM_HOOKS = 16 };
typedef struct lm_thread_hooks {
  /* Give back what the thread caches. Not always called by the thread: also for those that a forked
   * child lost, perhaps in the middle of an operation, and for late ones. */
  void (*exit)(lm_thread *t);
  void (*fork_prepare)(void); /* take your locks */
  void (*fork_parent)(void);  /* release them */
  void (*fork_child)(void);   /* release or renew them */
} lm_thread_hooks;
void lm_thread_add_hooks(const lm_thread_hooks *hooks);

/* No thread of the process forks in between: for what registers hooks, and is to be whole in a
 * child. Before any lock that a hook takes. */
void lm_thread_hold_forks(void);
void lm_thread_allow_forks(void);

/* All that fork asks of a lock under which no other is taken: nobody holds it meanwhile. At most
 * LM_FORK_LOCKS; again for the same lock: nothing. */
enum { LM_FORK_LOCKS = 16 };
void lm_thread_add_fork_lock(lm_lock *lock);

#endif
