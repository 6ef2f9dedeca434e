/* thread.c - the areas of threads: how they begin and end, grace periods, fork.
 *
 * An area ends with its thread, in the destructor of a pthread key. Destructors of other libraries
 * may still allocate and free, so ours asks for another round until few rounds are left. A thread
 * that uses loam after its destructor, even in the C library's own last steps, gets a late area.
 * Nothing tells loam when a late area is no longer needed. So late areas stand in a queue, and
 * every thread that makes an area takes back late areas whose threads are gone. The memory of an
 * area that ended in order may become vacant: thread.h.
 *
 * Order of locks: the locks of modules, then `hooks.lock`, then `list.lock`. `grace_lock` is taken
 * before `list.lock`. A module's exit hook runs while none of these locks is held.
 *
 * A fork takes no lock. fork_gate.h says why, and how a fork keeps memory in order. */
#define _GNU_SOURCE 1
#include "os/thread.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "os/decay.h"
#include "os/fork_gate.h"
#include "os/spare.h"

_Thread_local lm_thread *lm_thread_self __attribute__((tls_model("initial-exec"))) = NULL;
/* Initialised by the linker, not by start(): a free or malloc may come before any constructor. With
 * a `reach` of 0, a free of a low address would read memory that is not there; and with an `epoch`
 * of 0, a request could have the key 0 of an unused decision. */
static LM_APART lm_thread empty_area = { .reach = LM_REACH_NONE, .epoch = LM_EPOCH_FIRST };
_Thread_local lm_thread *lm_thread_self_or_empty
    __attribute__((tls_model("initial-exec"))) = &empty_area;

_Thread_local uint32_t lm_thread_bare_inside __attribute__((tls_model("initial-exec")));

/* The destructor of this thread has run: an area that it makes from now on is a late one. */
static _Thread_local bool has_ended __attribute__((tls_model("initial-exec")));

/* An area becomes writable in steps of this many bytes. */
enum { EXTEND_STEP = 256 << 10 };

/* Rounds of destructors that ours lets pass. */
enum { DELAYED_ENDS = PTHREAD_DESTRUCTOR_ITERATIONS - 2 };

/* All areas. Law: `previous` is NULL in the first area, and in every other area it is the area
 * whose `next` leads here. Every area in the queue of late areas is in the list too. A vacant area
 * is in neither; is_vacant_valid has the law of its content. `vacant_areas` counts them;
 * idle_vacant <= vacant_areas <= LM_VACANT_MAX. */
static struct {
  lm_lock lock;
  lm_thread *first;
  lm_thread *late, *last_late; /* the queue, oldest first; last_late counts only if late is set */
  _Atomic uint32_t areas;      /* how many are on the list. Relaxed: others read it as a hint */
  uint32_t graces;             /* how many grace periods have begun */
  uint32_t slow_reasons;       /* the reasons that every thread has, new ones too */
  int process;                 /* the id of the process when an area was last put on the list */
  lm_thread *vacant;           /* vacant areas, the latest first */
  uint32_t vacant_areas;
  uint32_t idle_vacant; /* the smallest number of vacant areas since the last tick of the decay */
} list;

lm_thread *const *const lm_thread_outside = &list.first;

/* The hooks and locks that modules registered. Law: n <= LM_HOOKS and fork_locks <= LM_FORK_LOCKS;
 * an entry below these numbers never changes. */
static struct {
  lm_lock lock;
  uint32_t n;
  lm_thread_hooks of[LM_HOOKS];
  uint32_t fork_locks;
  lm_lock *fork_lock[LM_FORK_LOCKS];
} hooks;

LM_INLINE bool hooks_is_valid(void) {
  return hooks.n <= LM_HOOKS && hooks.fork_locks <= LM_FORK_LOCKS;
}

static lm_lock grace_lock; /* one grace period at a time */

static lm_lock start_lock;
static _Atomic bool started; /* release once `key` is ready; pairs with the acquire in start() */
static bool has_key;
static pthread_key_t key;

/* ---- Hooks */

void lm_thread_add_hooks(const lm_thread_hooks *added) {
  lm_lock_take(&hooks.lock);
  lm_require(hooks.n < LM_HOOKS);
  hooks.of[hooks.n++] = *added;
  lm_assert(hooks_is_valid());
  lm_lock_drop(&hooks.lock);
}

static bool is_fork_lock_locked(const lm_lock *lock) {
  for (uint32_t i = 0; i < hooks.fork_locks; i++)
    if (hooks.fork_lock[i] == lock) return true;
  return false;
}

void lm_thread_add_fork_lock(lm_lock *lock) {
  lm_lock_take(&hooks.lock);
  if (!is_fork_lock_locked(lock)) {
    lm_require(hooks.fork_locks < LM_FORK_LOCKS);
    hooks.fork_lock[hooks.fork_locks++] = lock;
    lm_assert(hooks_is_valid());
  }
  lm_lock_drop(&hooks.lock);
}

static void call_exit_hooks(lm_thread *t, const lm_thread_hooks *of, uint32_t n) {
  while (n-- > 0)
    if (of[n].exit) of[n].exit(t);
}

/* Calls the exit hooks from a copy, without the lock: a hook may allocate, and a first allocation
 * may register another module. */
static void run_exit_hooks(lm_thread *t) {
  lm_thread_hooks copy[LM_HOOKS];
  lm_assert(t->dying);
  lm_lock_take(&hooks.lock);
  uint32_t n = hooks.n;
  for (uint32_t i = 0; i < n; i++) copy[i] = hooks.of[i];
  lm_lock_drop(&hooks.lock);
  call_exit_hooks(t, copy, n);
}

/* ---- The list of areas */

static bool is_listed_locked(const lm_thread *wanted) {
  const lm_thread *t = list.first;
  while (t && t != wanted) t = t->next;
  return t;
}

/* The law of a vacant area: its thread did not end in the middle of an operation, no tally and no
 * entry of the decision cache is in use, and the bins hold few enough bytes. */
static bool is_vacant_valid(const lm_thread *t) {
  if (atomic_load(&t->active) || atomic_load(&t->guarded) || t->interrupted) return false;
  if (t->inside) return false;
  if (atomic_load(&t->used_tallies) || atomic_load(&t->used_decisions)) return false;
  return !t->late && t->bins_end <= LM_THREAD_BINS + LM_VACANT_BINS;
}

static bool vacant_are_valid_locked(void) {
  uint32_t n = 0;
  for (const lm_thread *t = list.vacant; t; t = t->next, n++)
    if (n == LM_VACANT_MAX || !is_vacant_valid(t)) return false;
  return n == list.vacant_areas && list.idle_vacant <= n;
}

static bool list_is_valid_locked(void) {
  const lm_thread *previous = NULL;
  uint32_t n = 0;
  for (const lm_thread *t = list.first; t; previous = t, t = t->next, n++)
    if (t->previous != previous || t->tid <= 0) return false;
  if (n != atomic_load_explicit(&list.areas, memory_order_relaxed)) return false;
  for (const lm_thread *t = list.late; t; t = t->next_late) {
    if (!t->late || !is_listed_locked(t)) return false;
    if (!t->next_late && t != list.last_late) return false;
  }
  return vacant_are_valid_locked();
}

bool lm_thread_list_is_valid(void) {
  lm_lock_take(&list.lock);
  bool is_valid = list_is_valid_locked();
  lm_lock_drop(&list.lock);
  return is_valid;
}

/* A child of _Fork(3) or clone(2) runs no fork hook. Its parent had one thread (loam.h), and the
 * area of this thread still has the number that the thread had in the parent. The kernel would say
 * that the thread is gone. */
static void renumber_first_thread_locked(void) {
  int before = list.process;
  list.process = getpid();
  for (lm_thread *t = list.process == before ? NULL : list.first; t; t = t->next)
    if (t->tid == before) t->tid = list.process;
}

static void link_locked(lm_thread *t) {
  lm_assert(lm_lock_is_held(&list.lock) && !t->next && !t->previous);
  renumber_first_thread_locked();
  if (list.slow_reasons) lm_thread_set_slow(t, list.slow_reasons);
  /* No grace that has begun waits for t: its sections begin after the state that it published. */
  t->passed_grace = list.graces;
  t->next = list.first;
  if (list.first) list.first->previous = t;
  list.first = t;
  atomic_fetch_add_explicit(&list.areas, 1, memory_order_relaxed);
  lm_verify(list_is_valid_locked());
}

static void unlink_locked(lm_thread *t) {
  lm_assert(lm_lock_is_held(&list.lock));
  lm_assert(t->previous ? t->previous->next == t : list.first == t);
  if (t->next) t->next->previous = t->previous;
  if (t->previous) t->previous->next = t->next;
  else list.first = t->next;
  atomic_fetch_sub_explicit(&list.areas, 1, memory_order_relaxed);
}

static void push_late_locked(lm_thread *t) {
  lm_assert(lm_lock_is_held(&list.lock) && t->late);
  t->next_late = NULL;
  if (list.late) list.last_late->next_late = t;
  else list.late = t;
  list.last_late = t;
}

/* Asks the kernel whether the area's thread has ended. Acquire pairs with the release of
 * lm_thread_leave: the caller sees everything that the thread wrote. */
static bool is_gone(lm_thread *t) {
  if (lm_sys_thread_lives(t->tid)) return false;
  (void)atomic_load_explicit(&t->active, memory_order_acquire);
  return true;
}

/* Takes the oldest late area off the queue and returns it if its thread is gone. Otherwise moves it
 * to the end of the queue and returns NULL. */
static lm_thread *pop_gone_locked(void) {
  lm_thread *t = list.late;
  if (!t) return NULL;
  list.late = t->next_late;
  if (is_gone(t)) return t;
  push_late_locked(t);
  return NULL;
}

/* ---- Vacant areas */

/* This many vacant areas do not wake the decay: a program that runs short threads one by one
 * need not wake the service thread. A tick that has another reason unmaps them too. */
enum { QUIET_VACANT = 2 };

/* Makes the area of an ended thread vacant. Returns false if it cannot be. */
static bool vacate_locked(lm_thread *t) {
  lm_assert(lm_lock_is_held(&list.lock));
  if (list.vacant_areas == LM_VACANT_MAX || !is_vacant_valid(t)) return false;
  t->next = list.vacant;
  list.vacant = t;
  list.vacant_areas++;
  return true;
}

static lm_thread *take_vacant_locked(void) {
  lm_assert(lm_lock_is_held(&list.lock));
  lm_thread *t = list.vacant;
  if (!t) return NULL;
  list.vacant = t->next;
  list.vacant_areas--;
  if (list.idle_vacant > list.vacant_areas) list.idle_vacant = list.vacant_areas;
  return t;
}

/* Takes a vacant area for a new thread, and clears what belonged to the thread that ended. Returns
 * NULL if there is no vacant area. */
static lm_thread *take_vacant(void) {
  lm_lock_take(&list.lock);
  lm_thread *t = take_vacant_locked();
  lm_lock_drop(&list.lock);
  if (!t) return NULL;
  uint32_t bins_end = t->bins_end;
  memset(t, 0, offsetof(lm_thread, scope));
  t->bins_end = bins_end;
  t->error[0] = 0;
  return t;
}

/* Takes the idle vacant areas, and begins the next interval. Returns the chain of them. */
static lm_thread *take_idle_vacant(void) {
  lm_thread *idle = NULL;
  lm_lock_take(&list.lock);
  for (uint32_t n = list.idle_vacant; n > 0; n--) {
    lm_thread *t = take_vacant_locked();
    t->next = idle;
    idle = t;
  }
  list.idle_vacant = list.vacant_areas;
  lm_lock_drop(&list.lock);
  return idle;
}

/* In a guarded section, as in begin_area. */
bool lm_thread_decay_vacant(void) {
  lm_lock_hold_cancel();
  lm_thread *idle = take_idle_vacant();
  while (idle) {
    lm_thread *t = idle;
    idle = t->next;
    lm_sys_unmap(t, LM_THREAD_SIZE);
  }
  lm_lock_allow_cancel();
  return lm_thread_count_vacant() > 0;
}

void lm_thread_trim_vacant(void) {
  (void)lm_thread_decay_vacant(); /* from here on all vacant areas count as idle */
  (void)lm_thread_decay_vacant();
}

uint32_t lm_thread_count_vacant(void) {
  lm_lock_take(&list.lock);
  uint32_t n = list.vacant_areas;
  lm_lock_drop(&list.lock);
  return n;
}

/* Ends an area: it becomes vacant or is unmapped. In a guarded section, as in begin_area. */
static void destroy(lm_thread *t) {
  lm_assert(t->dying && t != lm_thread_self);
  lm_lock_hold_cancel();
  lm_lock_take(&list.lock);
  unlink_locked(t);
  bool is_kept = vacate_locked(t);
  bool is_quiet = list.vacant_areas <= QUIET_VACANT;
  lm_verify(list_is_valid_locked());
  lm_lock_drop(&list.lock);
  if (!is_kept) lm_sys_unmap(t, LM_THREAD_SIZE);
  lm_lock_allow_cancel();
  if (is_kept && !is_quiet) lm_decay_stir();
}

/* ---- Late areas and all areas */

static void queue_late(lm_thread *t) {
  lm_lock_take(&list.lock);
  push_late_locked(t);
  lm_lock_drop(&list.lock);
}

/* Looks at two late areas for each area that is made, so the queue shrinks while threads end. */
static void collect_late(void) {
  for (int i = 0; i < 2; i++) {
    lm_lock_take(&list.lock);
    lm_thread *gone = pop_gone_locked();
    lm_lock_drop(&list.lock);
    if (!gone) continue;
    gone->dying = true;
    run_exit_hooks(gone);
    destroy(gone);
  }
}

void lm_thread_each(void (*visit)(lm_thread *t, void *ctx), void *ctx) {
  lm_lock_take(&list.lock);
  for (lm_thread *t = list.first; t; t = t->next) visit(t, ctx);
  lm_lock_drop(&list.lock);
}

static void note_stale(lm_thread *t, void *ctx) {
  /* Acquire pairs with the release of clear_reasons: the thread's earlier sections are over. */
  if (atomic_load_explicit(&t->slow_reasons, memory_order_acquire) & LM_SLOW_STALE)
    *(bool *)ctx = true;
}

bool lm_thread_is_none_stale(void) {
  bool is_any = false;
  lm_thread_each(note_stale, &is_any);
  return !is_any;
}

static void count_one(lm_thread *t, void *ctx) { *(uint32_t *)ctx += !t->dying; }

uint32_t lm_thread_count(void) {
  uint32_t n = 0;
  lm_thread_each(count_one, &n);
  return n;
}

bool lm_thread_are_many(void) {
  return atomic_load_explicit(&list.areas, memory_order_relaxed) > LM_THREADS_FEW;
}

static bool epoch_is_valid(uint64_t epoch, uint32_t reasons) {
  uint64_t number = epoch & ~LM_EPOCH_FAST;
  if (number < LM_EPOCH_FIRST || number >= LM_SCOPED || number % LM_EPOCH_FIRST) return false;
  return !(epoch & LM_EPOCH_FAST) == (reasons != 0);
}

bool lm_thread_is_valid(const lm_thread *t) {
  uint32_t reasons = atomic_load(&t->slow_reasons);
  if (reasons & ~(uint32_t)LM_SLOW_ANY) return false;
  if (!epoch_is_valid(atomic_load(&t->epoch), reasons)) return false;
  if (reasons && atomic_load(&t->reach) != LM_REACH_NONE) return false;
  if (t->scoped != (t->site ? LM_SCOPED : 0)) return false;
  return t->tid > 0 && memchr(t->error, 0, sizeof t->error) != NULL;
}

/* ---- Begin and end of an area */

/* The pthread key's destructor. Asks for another round while it can, so that destructors of other
 * libraries find a complete area. */
static void end_thread(void *area) {
  lm_thread *t = area;
  lm_assert(t == lm_thread_self && !t->late);
  if (t->delayed_ends++ < DELAYED_ENDS && pthread_setspecific(key, t) == 0) return;
  t->dying = true;
  run_exit_hooks(t);
  has_ended = true;
  lm_thread_self = NULL;
  lm_thread_self_or_empty = &empty_area;
  destroy(t);
}

static void before_fork(void);
static void after_fork_child(void);

/* Registers with the C library, once in a process. The two calls allocate only if the process has
 * very many fork handlers. The malloc of that allocation finds lm_thread_self set, so it does not
 * come back here. */
static void start(void) {
  if (atomic_load_explicit(&started, memory_order_acquire)) return;
  lm_lock_take(&start_lock);
  if (!atomic_load_explicit(&started, memory_order_relaxed)) {
    has_key = pthread_key_create(&key, end_thread) == 0;
    pthread_atfork(before_fork, lm_fork_gate_open, after_fork_child);
    atomic_store_explicit(&started, true, memory_order_release);
  }
  lm_lock_drop(&start_lock);
}

static void find_least_stack(void);

/* Runs when the library is loaded: usually before the process has threads that could fork. */
__attribute__((constructor)) static void begin(void) {
  start();
  find_least_stack();
}

/* Gives the area to the destructor, if there will be one. pthread_setspecific callocs for a key
 * beyond the first 32. */
static bool has_destructor(lm_thread *t) {
  return !t->dying && has_key && pthread_setspecific(key, t) == 0;
}

/* Returns up to which offset an area is writable whose bins are used up to `bins_end`. */
static size_t writable_end(size_t bins_end) {
  size_t first = LM_THREAD_BINS + LM_FIRST_BINS;
  if (bins_end <= first) return first;
  size_t end = lm_align_up(bins_end, EXTEND_STEP);
  return end < LM_THREAD_SIZE ? end : LM_THREAD_SIZE;
}

/* Maps an area for a process that may not lock as much memory, and that has future mappings locked.
 * The last page of an area is written to only if its bins fill it. */
static void *map_like_another(void) {
  void *area = NULL;
  lm_lock_take(&list.lock);
  lm_thread *t = list.first;
  while (t && writable_end(t->bins_end) == LM_THREAD_SIZE) t = t->next;
  if (!t || lm_sys_map_like((char *)t + LM_THREAD_SIZE - LM_PAGE, LM_THREAD_SIZE, &area))
    area = NULL;
  lm_lock_drop(&list.lock);
  return area;
}

/* The writable part of a new area is too small for a transparent huge page. */
static lm_thread *map_area(void) {
  void *area = NULL;
  if (lm_sys_map_readable(LM_THREAD_SIZE, &area) && !(area = map_like_another())) return NULL;
  if (!lm_sys_commit(area, writable_end(0))) return area;
  lm_sys_unmap(area, LM_THREAD_SIZE);
  return NULL;
}

bool lm_thread_extend(lm_thread *t, uint32_t end) {
  lm_assert(t == lm_thread_self && end <= LM_THREAD_SIZE);
  if (end <= t->bins_end) return true;
  size_t now = writable_end(t->bins_end), next = writable_end(end);
  if (next > now) {
    (void)lm_sys_advise_huge(t, LM_THREAD_SIZE, 0); /* few of its pages are used */
    if (lm_sys_commit((char *)t + now, next - now)) return false;
  }
  t->bins_end = end;
  return true;
}

/* Takes a vacant area or maps one, and puts it on the list as the area of the calling thread. NULL:
 * there is no memory. In a guarded section: a child of a fork inherits no area that is in neither
 * list. */
static lm_thread *begin_area(void) {
  lm_thread *t = take_vacant();
  if (!t && !(t = map_area())) return NULL;
  t->tid = lm_sys_thread_id();
  t->dying = has_ended;
  t->inside = lm_thread_bare_inside;
  lm_thread_bare_inside = 0;
  t->epoch = LM_EPOCH_FIRST | LM_EPOCH_FAST;
  t->reach = LM_REACH_NONE;
  lm_lock_take(&list.lock);
  link_locked(t);
  lm_fork_gate_adopt(t);
  lm_thread_self = lm_thread_self_or_empty = t;
  lm_lock_drop(&list.lock);
  return t;
}

/* lm_thread_self is set and the area is on the list before any call that may allocate: such a call
 * comes back here through malloc. */
LM_NOINLINE lm_thread *lm_thread_make(void) {
  if (lm_thread_self) return lm_thread_self;
  lm_lock_hold_cancel();
  lm_thread *t = begin_area();
  lm_lock_allow_cancel();
  if (!t) return NULL;
  start();
  t->late = !has_destructor(t);
  if (t->late) queue_late(t);
  collect_late();
  return t;
}

/* ---- Threads of loam's own */

enum { STACK = 1 << 20 }; /* bytes of address space; Lua's parser recurses */

/* The function of glibc that says how many bytes of a stack the C library needs for itself: the
 * thread-local data of the program and its libraries, and the smallest stack. The function has no
 * public name. It is looked up when loam is loaded, because dlsym(3) may wait for a thread that
 * loads a library. NULL: the C library has no such function. */
static size_t (*least_stack)(const pthread_attr_t *);

static void find_least_stack(void) {
  void *found = dlsym(RTLD_DEFAULT, "__pthread_get_minstack");
  memcpy(&least_stack, &found, sizeof found);
}

static size_t stack_size(const pthread_attr_t *attributes) {
  return lm_align_up(STACK + (least_stack ? least_stack(attributes) : 0), LM_PAGE);
}

/* The thread names itself. Naming another thread goes through /proc, and what that leaves in the
 * kernel's tables makes waiting for the process take milliseconds longer. */
static void *begin_named(void *run) {
  pthread_setname_np(pthread_self(), "loam");
  lm_sys_end_real_time();
  return ((void *(*)(void *))run)(NULL);
}

int lm_thread_start(pthread_t *out, void *(*run)(void *)) {
  pthread_attr_t attributes;
  sigset_t all, before;
  lm_assert(out && run);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_size(&attributes));
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(out, &attributes, begin_named, (void *)run);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

/* ---- Reasons for the slow path */

/* lm_thread_on_claim stores it before any thread can be claimed, so relaxed is enough. */
static void (*_Atomic on_claim)(lm_thread *t);

/* Closes or opens the fast path, after a change of the thread's reasons. Two threads may change
 * them at one time: the thread itself, and a thread that holds list.lock. So each looks at the
 * reasons again after it has written the epoch, and the last writer leaves the right epoch.
 * The atomic operations release, which pairs with the acquire of lm_thread_try_enter's caller
 * (lm_load_fence). */
static void settle_epoch(lm_thread *t) {
  bool is_slow;
  do {
    is_slow = atomic_load(&t->slow_reasons) != 0;
    if (is_slow) atomic_fetch_and(&t->epoch, ~LM_EPOCH_FAST);
    else atomic_fetch_or(&t->epoch, LM_EPOCH_FAST);
  } while (is_slow != (atomic_load(&t->slow_reasons) != 0));
}

/* The reason is there before the fast path is closed: a thread that finds the fast path closed also
 * finds the reason. */
void lm_thread_set_slow(lm_thread *t, uint32_t reasons) {
  lm_assert(!(reasons & ~(uint32_t)LM_SLOW_ANY));
  atomic_fetch_or(&t->slow_reasons, reasons);
  settle_epoch(t);
  atomic_store(&t->reach, LM_REACH_NONE);
}

/* Another thread may add a reason during this call. Either the load sees that reason, or that
 * thread's store of LM_REACH_NONE comes after the first store here. The operations are sequentially
 * consistent, and so are those of lm_thread_set_slow. */
void lm_thread_set_reach(lm_thread *t, uintptr_t reach) {
  lm_assert(t == lm_thread_self);
  atomic_store(&t->reach, reach);
  if (atomic_load(&t->slow_reasons)) atomic_store(&t->reach, LM_REACH_NONE);
}

/* Clears reasons and returns which reasons there were before. */
static uint32_t clear_reasons(lm_thread *t, uint32_t reasons) {
  uint32_t before = atomic_fetch_and(&t->slow_reasons, ~reasons);
  settle_epoch(t);
  return before;
}

void lm_thread_clear_slow(lm_thread *t, uint32_t reasons) { (void)clear_reasons(t, reasons); }

void lm_thread_set_slow_all(uint32_t reasons) {
  lm_lock_take(&list.lock);
  list.slow_reasons |= reasons & ~(uint32_t)LM_SLOW_STALE;
  for (lm_thread *t = list.first; t; t = t->next) lm_thread_set_slow(t, reasons);
  lm_lock_drop(&list.lock);
}

void lm_thread_clear_slow_all(uint32_t reasons) {
  lm_lock_take(&list.lock);
  list.slow_reasons &= ~reasons;
  for (lm_thread *t = list.first; t; t = t->next) lm_thread_clear_slow(t, reasons);
  lm_lock_drop(&list.lock);
}

/* Erases the decisions in all parts of the cache that have been used, so that no page of the others
 * gets memory. */
static void erase_decisions(lm_thread *t) {
  enum { PARTS = 32 };
  uint32_t used = atomic_load_explicit(&t->used_decisions, memory_order_relaxed);
  for (uint32_t i = 0; i < LM_DECISIONS; i++)
    if (used >> i / (LM_DECISIONS / PARTS) & 1) t->decision[i].key = 0;
}

/* Gives the thread the next epoch, so no key of an older decision matches any more. When the
 * numbers start again at 1, old keys could match: then all decisions are erased. The counts that
 * the thread drew for samples end with the epoch too. */
static void forget_decisions(lm_thread *t) {
  uint64_t now = atomic_load(&t->epoch), next;
  do {
    next = (now + LM_EPOCH_FIRST) & (LM_SCOPED - 1);
    if (!next) next = LM_EPOCH_FIRST;
  } while (!atomic_compare_exchange_weak(&t->epoch, &now, next | (now & LM_EPOCH_FAST)));
  if (next == LM_EPOCH_FIRST) erase_decisions(t);
  t->sample_interval = 0;
}

/* Acquire pairs with the release with which lm_thread_clear_slow clears LM_SLOW_TAKING: the thread
 * sees its bins as the other thread left them. */
static bool is_being_taken(const lm_thread *t) {
  return atomic_load_explicit(&t->slow_reasons, memory_order_acquire) & LM_SLOW_TAKING;
}

LM_NOINLINE void lm_thread_handle_slow(lm_thread *t) {
  lm_assert(t != lm_thread_self || !atomic_load_explicit(&t->active, memory_order_relaxed));
  for (int tries = 0; is_being_taken(t); tries++) lm_sys_wait_a_little(tries);
  uint32_t reasons = clear_reasons(t, LM_SLOW_STALE | LM_SLOW_CLAIMED);
  if (reasons & LM_SLOW_STALE) forget_decisions(t);
  void (*give_up)(lm_thread *) = atomic_load_explicit(&on_claim, memory_order_relaxed);
  if (reasons & LM_SLOW_CLAIMED && give_up && lm_lock_try_hold()) {
    give_up(t);
    lm_lock_allow_cancel();
  }
}

void lm_thread_on_claim(void (*give_up)(lm_thread *t)) {
  atomic_store_explicit(&on_claim, give_up, memory_order_relaxed);
}

/* ---- Grace periods */

/* After so many tries a grace asks the kernel whether the thread still exists. */
enum { PATIENCE = 128 };

/* Returns whether the grace with this number need not wait for t: t was outside of sections during
 * this grace or a later one. Numbers may wrap around. */
static bool has_passed(const lm_thread *t, uint32_t number) {
  return (int32_t)(t->passed_grace - number) >= 0 || t == lm_thread_self;
}

/* Returns whether t is in no active section. A thread can disappear inside one: it was cancelled
 * there, or a fork that ran no handlers lost it. Only a system call can tell that, so it is the
 * last resort. */
static bool is_outside(lm_thread *t, int tries) {
  /* Acquire pairs with the release of lm_thread_leave: the section's reads are over. */
  if (atomic_load_explicit(&t->active, memory_order_acquire) == 0) return true;
  return tries > PATIENCE && is_gone(t);
}

/* A calm grace may begin during this grace. It has a number of its own, which is not noted here:
 * this grace has made the stores of threads visible before the calm grace began. */
static bool have_all_passed(uint32_t number, int tries) {
  bool all = true;
  lm_lock_take(&list.lock);
  for (lm_thread *t = list.first; t; t = t->next) {
    if (has_passed(t, number)) continue;
    if (is_outside(t, tries)) t->passed_grace = number;
    else all = false;
  }
  lm_lock_drop(&list.lock);
  return all;
}

/* Graces are refused in this thread: lm_thread_refuse_graces. */
static _Thread_local bool is_graceless __attribute__((tls_model("initial-exec")));

void lm_thread_refuse_graces(void) { is_graceless = true; }
void lm_thread_allow_graces(void) { is_graceless = false; }

static bool grace_locked(void) {
  lm_assert(lm_lock_is_held(&grace_lock));
  lm_lock_take(&list.lock);
  uint32_t number = ++list.graces;
  lm_lock_drop(&list.lock);
  if (lm_sys_membarrier()) return false; /* pairs with the fence of lm_thread_begin */
  for (int tries = 0; !have_all_passed(number, tries); tries += tries < INT_MAX)
    lm_sys_wait_a_little(tries);
  return true;
}

bool lm_thread_grace(void) {
  lm_assert(!lm_thread_self ||
            !atomic_load_explicit(&lm_thread_self->active, memory_order_relaxed));
  if (is_graceless || lm_fork_gate_is_forker()) return false;
  lm_lock_take(&grace_lock);
  bool done = grace_locked();
  lm_lock_drop(&grace_lock);
  return done;
}

/* A thread begins an active section by a plain store. Another processor sees that store late, but
 * surely within CALM_NS: a processor keeps a store for microseconds at most, and for no longer than
 * the thread runs. So after CALM_NS each section that was open at the beginning can be seen. */
#define CALM_NS 10000000
static uint32_t calm_number; /* the number of the calm grace among list.graces */
static int64_t calm_begun_ns;

void lm_thread_calm_begin(void) {
  lm_lock_take(&list.lock);
  calm_number = ++list.graces;
  calm_begun_ns = lm_sys_clock_ns();
  lm_lock_drop(&list.lock);
}

/* Returns whether the calm grace need not wait for t any more. */
static bool has_passed_calmly(lm_thread *t) {
  if (has_passed(t, calm_number)) return true;
  /* Acquire pairs with the release of lm_thread_leave: the section's reads are over. */
  if (atomic_load_explicit(&t->active, memory_order_acquire)) return false;
  t->passed_grace = calm_number;
  return true;
}

bool lm_thread_calm_is_over(void) {
  bool is_over = lm_sys_clock_ns() - calm_begun_ns >= CALM_NS;
  if (!is_over) return false;
  lm_lock_take(&list.lock);
  for (lm_thread *t = list.first; t; t = t->next) is_over = has_passed_calmly(t) && is_over;
  lm_lock_drop(&list.lock);
  return is_over;
}

/* Acquire pairs with the release of lm_thread_leave: the section's writes are visible. */
bool lm_thread_has_calmed(lm_thread *t, int64_t since_ns) {
  return lm_sys_clock_ns() - since_ns >= CALM_NS &&
         !atomic_load_explicit(&t->active, memory_order_acquire);
}

/* ---- Fork */

_Atomic bool lm_thread_owes_child;
uint32_t lm_thread_forks;

bool lm_thread_has_others(void) {
  if (!lm_lock_try(&list.lock)) return true;
  bool has_others = list.first != lm_thread_self || (list.first && list.first->next);
  lm_lock_drop(&list.lock);
  return has_others;
}

/* `guarded` is read first: a thread sets `interrupted` before it clears `guarded`. */
static bool is_guarded(lm_thread *t, bool asks_kernel, bool or_interrupted) {
  if (t == lm_thread_self) return false;
  bool is_in = atomic_load_explicit(&t->guarded, memory_order_acquire) ||
               (or_interrupted && atomic_load_explicit(&t->interrupted, memory_order_relaxed));
  return is_in && !(asks_kernel && is_gone(t));
}

bool lm_thread_are_others_guarded(bool asks_kernel, bool or_interrupted) {
  if (!lm_lock_try(&list.lock)) return true;
  lm_thread *found = list.first;
  while (found && !is_guarded(found, asks_kernel, or_interrupted)) found = found->next;
  lm_lock_drop(&list.lock);
  return found;
}

static void before_fork(void) {
  const lm_thread *t = lm_thread_self;
  bool is_active = t && atomic_load_explicit(&t->active, memory_order_relaxed);
  lm_fork_gate_close(lm_lock_cancel_holds > 0 || is_active);
  for (uint32_t i = 0; i < hooks.n; i++)
    if (hooks.of[i].fork_prepare) hooks.of[i].fork_prepare();
}

/* The gate leaves no lock held by a thread that the child does not have, except where
 * lm_fork_gate_close gave up, and locks that are held around foreign code. */
static void renew_locks(void) {
  lm_lock_renew(&grace_lock);
  lm_lock_renew(&start_lock);
  lm_lock_renew(&list.lock);
  lm_lock_renew(&hooks.lock);
  for (uint32_t i = 0; i < hooks.fork_locks; i++) lm_lock_renew(hooks.fork_lock[i]);
}

static void call_child_hooks(void) {
  for (uint32_t i = 0; i < hooks.n; i++)
    if (hooks.of[i].fork_child) hooks.of[i].fork_child();
}

/* Leaves only the caller's area on the list and returns the chain of all other areas. */
static lm_thread *keep_only_self(void) {
  lm_thread *self = lm_thread_self;
  if (self) unlink_locked(self);
  lm_thread *lost = list.first;
  list.first = list.late = NULL;
  atomic_store_explicit(&list.areas, 0, memory_order_relaxed);
  if (!self) return lost;
  self->tid = lm_sys_thread_id();
  self->next = self->previous = NULL;
  link_locked(self);
  if (self->late) push_late_locked(self);
  return lost;
}

static void end_lost(lm_thread *lost) {
  while (lost) {
    lm_thread *t = lost;
    lost = t->next;
    t->dying = true;
    run_exit_hooks(t);
    lm_sys_unmap(t, LM_THREAD_SIZE);
  }
}

void lm_thread_begin_child(void) {
  lm_assert(!lm_lock_cancel_holds);
  atomic_store_explicit(&lm_thread_owes_child, false, memory_order_relaxed);
  renew_locks();
  lm_spare_fork_child();
  lm_lock_take(&list.lock);
  lm_thread *lost = keep_only_self();
  lm_lock_drop(&list.lock);
  call_child_hooks();
  end_lost(lost);
}

/* Where a signal handler forks in the middle of a guarded section, the section goes on in the child
 * when the handler returns. Until the section has ended its change is half done, so the work of the
 * child waits for its end. */
static void after_fork_child(void) {
  lm_thread_forks++;
  lm_fork_gate_open_in_child();
  bool owes = lm_lock_cancel_holds > 0;
  atomic_store_explicit(&lm_thread_owes_child, owes, memory_order_relaxed);
  if (!owes) lm_thread_begin_child();
}
