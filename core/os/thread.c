/* thread.c - areas of threads: their birth and end, the grace period, fork.
 *
 * An area ends with its thread, by a pthread key's destructor. Other libraries' destructors still
 * allocate and free, so ours lets most rounds of destructors pass first. What comes after that,
 * even in the C library's own last steps, gets a late area: nothing will tell when that is no
 * longer needed, so late areas queue, and whoever needs an area takes back those of threads that
 * are gone.
 *
 * Locks: `fork`, then those of the modules' hooks, then leaves, then `hooks`, then `list`. `grace`
 * is above `list` and beside the others. A hook's exit runs with none of them held, a grace waits
 * with none but its own. */
#define _GNU_SOURCE 1
#include "os/thread.h"

#include <limits.h>
#include <signal.h>

_Thread_local lm_thread *lm_thread_self __attribute__((tls_model("initial-exec"))) = NULL;
static LM_SPARSE lm_thread nobody;
_Thread_local lm_thread *lm_thread_self_or_empty
    __attribute__((tls_model("initial-exec"))) = &nobody;

/* The destructor ran: any further area of this thread is a late one. */
static _Thread_local bool ended __attribute__((tls_model("initial-exec")));

enum { FAREWELLS = PTHREAD_DESTRUCTOR_ITERATIONS - 2 };

static struct {
  lm_lock lock;
  lm_thread *first;
  lm_thread *late, *last_late; /* oldest first */
  uint32_t graces;             /* begun so far */
  uint32_t wary;               /* of all threads, new ones too */
} list;

static struct {
  lm_lock lock;
  uint32_t n;
  lm_thread_hooks of[LM_HOOKS];
  uint32_t leaves;
  lm_lock *leaf[LM_FORK_LOCKS];
} hooks;

static lm_lock grace_lock;

static lm_lock start_lock;
static _Atomic bool started; /* release when the key is there; pairs with the acquire in start() */
static bool has_key;
static pthread_key_t key;

/* ---- Hooks */

void lm_thread_add_hooks(const lm_thread_hooks *added) {
  lm_lock_take(&hooks.lock);
  lm_require(hooks.n < LM_HOOKS);
  hooks.of[hooks.n++] = *added;
  lm_lock_drop(&hooks.lock);
}

static bool is_leaf_locked(const lm_lock *lock) {
  for (uint32_t i = 0; i < hooks.leaves; i++)
    if (hooks.leaf[i] == lock) return true;
  return false;
}

void lm_thread_add_fork_lock(lm_lock *lock) {
  lm_lock_take(&hooks.lock);
  if (!is_leaf_locked(lock)) {
    lm_require(hooks.leaves < LM_FORK_LOCKS);
    hooks.leaf[hooks.leaves++] = lock;
  }
  lm_lock_drop(&hooks.lock);
}

static void run_exits(lm_thread *t, const lm_thread_hooks *of, uint32_t n) {
  while (n-- > 0)
    if (of[n].exit) of[n].exit(t);
}

/* From a copy: a hook may allocate, and a first allocation may register another hook. */
static void say_farewell(lm_thread *t) {
  lm_thread_hooks copy[LM_HOOKS];
  lm_lock_take(&hooks.lock);
  uint32_t n = hooks.n;
  for (uint32_t i = 0; i < n; i++) copy[i] = hooks.of[i];
  lm_lock_drop(&hooks.lock);
  run_exits(t, copy, n);
}

/* ---- The list */

static void link_locked(lm_thread *t) {
  if (list.wary) lm_thread_set_slow(t, list.wary);
  t->passed = list.graces; /* its operations begin after the state that such a grace published */
  t->next = list.first;
  if (list.first) list.first->previous = t;
  list.first = t;
}

static void unlink_locked(lm_thread *t) {
  if (t->next) t->next->previous = t->previous;
  if (t->previous) t->previous->next = t->next;
  else list.first = t->next;
}

static void push_late_locked(lm_thread *t) {
  t->next_late = NULL;
  if (list.late) list.last_late->next_late = t;
  else list.late = t;
  list.last_late = t;
}

/* Acquire pairs with the release of lm_thread_leave: what the thread did last is seen. */
static bool is_gone(lm_thread *t) {
  if (lm_sys_thread_lives(t->number)) return false;
  (void)atomic_load_explicit(&t->active, memory_order_acquire);
  return true;
}

/* The oldest late area if its thread is gone; else that one goes to the end of the queue. */
static lm_thread *pop_gone_locked(void) {
  lm_thread *t = list.late;
  if (!t) return NULL;
  list.late = t->next_late;
  if (is_gone(t)) return t;
  push_late_locked(t);
  return NULL;
}

static void destroy(lm_thread *t) {
  lm_lock_take(&list.lock);
  unlink_locked(t);
  lm_lock_drop(&list.lock);
  lm_sys_unmap(t, LM_THREAD_SIZE);
}

static void queue_late(lm_thread *t) {
  lm_lock_take(&list.lock);
  push_late_locked(t);
  lm_lock_drop(&list.lock);
}

/* Two for each that comes, so that the queue shrinks while threads end. */
static void collect_late(void) {
  for (int i = 0; i < 2; i++) {
    lm_lock_take(&list.lock);
    lm_thread *gone = pop_gone_locked();
    lm_lock_drop(&list.lock);
    if (!gone) continue;
    gone->dying = true;
    say_farewell(gone);
    destroy(gone);
  }
}

void lm_thread_each(void (*visit)(lm_thread *t, void *ctx), void *ctx) {
  lm_lock_take(&list.lock);
  for (lm_thread *t = list.first; t; t = t->next) visit(t, ctx);
  lm_lock_drop(&list.lock);
}

static void count_one(lm_thread *t, void *ctx) { *(uint32_t *)ctx += !t->dying; }

uint32_t lm_thread_count(void) {
  uint32_t n = 0;
  lm_thread_each(count_one, &n);
  return n;
}

/* ---- Birth and end */

/* Puts the end off while it can, so that other libraries' destructors find a whole thread. */
static void end_thread(void *area) {
  lm_thread *t = area;
  if (t->farewells++ < FAREWELLS && pthread_setspecific(key, t) == 0) return;
  t->dying = true;
  say_farewell(t);
  ended = true;
  lm_thread_self = NULL;
  lm_thread_self_or_empty = &nobody;
  destroy(t);
}

static void before_fork(void);
static void after_fork_parent(void);
static void after_fork_child(void);

/* Neither call allocates, unless the process has very many fork handlers: then malloc comes back
 * here, finds lm_thread_self set, and does not get as far as this. */
static void start(void) {
  if (atomic_load_explicit(&started, memory_order_acquire)) return;
  lm_lock_take(&start_lock);
  if (!atomic_load_explicit(&started, memory_order_relaxed)) {
    nobody.reach = LM_REACH_NONE;
    has_key = pthread_key_create(&key, end_thread) == 0;
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    atomic_store_explicit(&started, true, memory_order_release);
  }
  lm_lock_drop(&start_lock);
}

/* When the library is loaded: as a rule, before there are threads to fork. */
__attribute__((constructor)) static void begin(void) { start(); }

/* For a key beyond the first 32 the C library callocs. */
static bool has_destructor(lm_thread *t) {
  return !t->dying && has_key && pthread_setspecific(key, t) == 0;
}

/* The area is found and listed before anything that may come back here by way of malloc. */
LM_NOINLINE lm_thread *lm_thread_make(void) {
  if (lm_thread_self) return lm_thread_self;
  void *area = NULL;
  if (lm_sys_map(LM_THREAD_SIZE, &area)) return NULL;
  (void)lm_sys_advise_huge(area, LM_THREAD_SIZE, 0); /* it is touched here and there */
  lm_thread *t = area;
  t->number = lm_sys_thread_id();
  t->dying = ended;
  t->epoch = LM_EPOCH_FIRST | LM_EPOCH_FAST;
  t->reach = LM_REACH_NONE;
  lm_thread_self = lm_thread_self_or_empty = t;
  lm_lock_take(&list.lock);
  link_locked(t);
  lm_lock_drop(&list.lock);
  start();
  t->late = !has_destructor(t);
  if (t->late) queue_late(t);
  collect_late();
  return t;
}

/* ---- Threads of loam's own */

enum { STACK = 1 << 20 }; /* address space; Lua's parser recurses */

/* By itself: another's name is written by way of /proc, and what that leaves in the kernel's tables
 * costs whoever waits for the process milliseconds. */
static void *begin_named(void *run) {
  pthread_setname_np(pthread_self(), "loam");
  return ((void *(*)(void *))run)(NULL);
}

int lm_thread_start(pthread_t *out, void *(*run)(void *)) {
  pthread_attr_t attributes;
  sigset_t all, before;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(out, &attributes, begin_named, (void *)run);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

/* ---- Wary threads */

static void (*_Atomic on_claim)(lm_thread *t);

/* The reason before the bit in `epoch`, which is what is looked at. Release pairs with the acquire
 * of lm_thread_try_enter. */
void lm_thread_set_slow(lm_thread *t, uint32_t wary) {
  atomic_fetch_or(&t->wary, wary);
  atomic_fetch_and(&t->epoch, ~LM_EPOCH_FAST);
  atomic_store(&t->reach, LM_REACH_NONE);
}

/* If a reason came meanwhile, either it is seen here, or whoever brought it comes after the first
 * store. */
void lm_thread_set_reach(lm_thread *t, uintptr_t reach) {
  atomic_store(&t->reach, reach);
  if (atomic_load(&t->wary)) atomic_store(&t->reach, LM_REACH_NONE);
}

/* The bit comes first: whoever adds a reason meanwhile clears it again. What is taken back is
 * told. */
static uint32_t take_back(lm_thread *t, uint32_t wary) {
  atomic_fetch_or(&t->epoch, LM_EPOCH_FAST);
  uint32_t before = atomic_fetch_and(&t->wary, ~wary);
  if (before & ~wary) atomic_fetch_and(&t->epoch, ~LM_EPOCH_FAST);
  return before;
}

void lm_thread_clear_slow(lm_thread *t, uint32_t wary) { (void)take_back(t, wary); }

void lm_thread_set_slow_all(uint32_t wary) {
  lm_lock_take(&list.lock);
  list.wary |= wary & ~(uint32_t)LM_SLOW_STALE;
  for (lm_thread *t = list.first; t; t = t->next) lm_thread_set_slow(t, wary);
  lm_lock_drop(&list.lock);
}

void lm_thread_clear_slow_all(uint32_t wary) {
  lm_lock_take(&list.lock);
  list.wary &= ~wary;
  for (lm_thread *t = list.first; t; t = t->next) lm_thread_clear_slow(t, wary);
  lm_lock_drop(&list.lock);
}

/* No key of an older epoch is met any more; once they come round, none is left. */
static void forget_lanes(lm_thread *t) {
  uint64_t now = atomic_load(&t->epoch), next;
  do {
    next = (now + LM_EPOCH_FIRST) & (LM_SCOPED - 1);
    if (!next) next = LM_EPOCH_FIRST;
  } while (!atomic_compare_exchange_weak(&t->epoch, &now, next | (now & LM_EPOCH_FAST)));
  if (next != LM_EPOCH_FIRST) return;
  for (int i = 0; i < LM_DECISIONS; i++) t->decision[i].key = 0;
}

LM_NOINLINE void lm_thread_handle_slow(lm_thread *t) {
  while (atomic_load_explicit(&t->wary, memory_order_acquire) & LM_SLOW_TAKING) lm_sys_yield();
  uint32_t wary = take_back(t, LM_SLOW_STALE | LM_SLOW_CLAIMED);
  if (wary & LM_SLOW_STALE) forget_lanes(t);
  void (*give_up)(lm_thread *) = atomic_load_explicit(&on_claim, memory_order_relaxed);
  if (wary & LM_SLOW_CLAIMED && give_up) give_up(t);
}

void lm_thread_on_claim(void (*give_up)(lm_thread *t)) {
  atomic_store_explicit(&on_claim, give_up, memory_order_relaxed);
}

/* ---- Grace */

enum { YIELDS = 32, PATIENCE = 128, NAP_MIN_NS = 20000, NAP_MAX_NS = 1000000 };

static void wait_a_little(int tries) {
  if (tries < YIELDS) {
    lm_sys_yield();
    return;
  }
  int64_t ns = (int64_t)NAP_MIN_NS * (tries - YIELDS + 1);
  lm_sys_sleep(ns < NAP_MAX_NS ? ns : NAP_MAX_NS);
}

/* A thread can be gone without a word: cancelled amid an operation, or lost by a fork that ran no
 * handlers. That costs a system call to find out, so only once patience has run out. */
static bool has_passed(lm_thread *t, int tries) {
  if (t->passed == list.graces || t == lm_thread_self) return true;
  /* Acquire pairs with the release of lm_thread_leave: what it read, it has read. */
  if (atomic_load_explicit(&t->active, memory_order_acquire) == 0) return true;
  return tries > PATIENCE && is_gone(t);
}

static bool have_all_passed(int tries) {
  bool all = true;
  lm_lock_take(&list.lock);
  for (lm_thread *t = list.first; t; t = t->next) {
    if (has_passed(t, tries)) t->passed = list.graces;
    else all = false;
  }
  lm_lock_drop(&list.lock);
  return all;
}

static bool grace_locked(void) {
  lm_lock_take(&list.lock);
  list.graces++;
  lm_lock_drop(&list.lock);
  if (lm_sys_membarrier()) return false; /* pairs with the fence of lm_thread_enter */
  for (int tries = 0; !have_all_passed(tries); tries += tries < INT_MAX) wait_a_little(tries);
  return true;
}

bool lm_thread_grace(void) {
  lm_assert(!lm_thread_self ||
            !atomic_load_explicit(&lm_thread_self->active, memory_order_relaxed));
  lm_lock_take(&grace_lock);
  bool done = grace_locked();
  lm_lock_drop(&grace_lock);
  return done;
}

/* ---- Fork */

static lm_lock fork_lock; /* guards the two numbers below: what this fork has locked */
static uint32_t forking_hooks, forking_leaves;

void lm_thread_hold_forks(void) { lm_lock_take(&fork_lock); }
void lm_thread_allow_forks(void) { lm_lock_drop(&fork_lock); }

static void lock_modules(void) {
  lm_lock_take(&hooks.lock);
  forking_hooks = hooks.n;
  forking_leaves = hooks.leaves;
  lm_lock_drop(&hooks.lock);
  for (uint32_t n = forking_hooks; n-- > 0;)
    if (hooks.of[n].fork_prepare) hooks.of[n].fork_prepare();
  for (uint32_t i = 0; i < forking_leaves; i++) lm_lock_take(hooks.leaf[i]);
}

static void unlock_modules(void) {
  for (uint32_t i = 0; i < forking_leaves; i++) lm_lock_drop(hooks.leaf[i]);
  for (uint32_t i = 0; i < forking_hooks; i++)
    if (hooks.of[i].fork_parent) hooks.of[i].fork_parent();
}

static void renew_modules(void) {
  for (uint32_t i = 0; i < forking_leaves; i++) lm_lock_renew(hooks.leaf[i]);
  for (uint32_t i = 0; i < forking_hooks; i++)
    if (hooks.of[i].fork_child) hooks.of[i].fork_child();
}

/* Whoever registers may hold its own locks, so `hooks` is taken after them all; and again, if
 * somebody registered meanwhile. */
static void before_fork(void) {
  lm_lock_take(&fork_lock);
  lock_modules();
  lm_lock_take(&hooks.lock);
  while (forking_hooks != hooks.n || forking_leaves != hooks.leaves) {
    lm_lock_drop(&hooks.lock);
    unlock_modules();
    lock_modules();
    lm_lock_take(&hooks.lock);
  }
  lm_lock_take(&list.lock);
}

static void after_fork_parent(void) {
  lm_lock_drop(&list.lock);
  lm_lock_drop(&hooks.lock);
  unlock_modules();
  lm_lock_drop(&fork_lock);
}

/* Leaves only the caller on the list and gives back the chain of the others. */
static lm_thread *keep_only_self(void) {
  lm_thread *self = lm_thread_self;
  if (self) unlink_locked(self);
  lm_thread *lost = list.first;
  list.first = list.late = NULL;
  if (!self) return lost;
  self->number = lm_sys_thread_id();
  self->next = self->previous = NULL;
  link_locked(self);
  if (self->late) push_late_locked(self);
  return lost;
}

/* A grace, or a start, that was under way in another thread is not any more. */
static void after_fork_child(void) {
  lm_lock_renew(&grace_lock);
  lm_lock_renew(&start_lock);
  lm_thread *lost = keep_only_self();
  lm_lock_renew(&list.lock);
  lm_lock_renew(&hooks.lock);
  renew_modules();
  lm_lock_renew(&fork_lock);
  lm_lock_cancel_reset();
  while (lost) {
    lm_thread *t = lost;
    lost = t->next;
    t->dying = true;
    say_farewell(t);
    lm_sys_unmap(t, LM_THREAD_SIZE);
  }
}
