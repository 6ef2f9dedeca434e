/* fork_gate.c - keeps memory in order while a thread forks: how the gate is closed and opened.
 *
 * If the gate were simply closed, two threads could wait for each other. Thread A waits at the
 * gate. Thread B is in a guarded section, and waits there for the end of A's active section, or for
 * a lock that A has held around foreign code. The forking thread waits for B, so all three would
 * wait. So the gate has two states while the forking thread waits. While it is CLOSING, threads
 * such as A still pass. When no section is left, the gate becomes CLOSED, and the marks are read
 * again. */
#include "os/fork_gate.h"

/* A forking thread gives up waiting after LONGEST_NS: that much time can only pass if the threads
 * wait for each other in the host's code. A forking thread that a signal handler has interrupted in
 * a section of its own gives up after INTERRUPTED_NS. After ASK_KERNEL_AFTER tries it asks the
 * kernel whether a thread in a section still exists.
 *
 * It waits for FOREIGN_NS for foreign code in the middle of sections: a callback of the host, a
 * handler, a driver. The thread that runs that code may hold a lock of the C library which fork
 * takes next, and could not drop the lock before the fork ends. Foreign code that lasts longer may
 * itself wait for the forking thread. */
enum { ASK_KERNEL_AFTER = 64 };
#define LONGEST_NS ((int64_t)10000000000)
#define INTERRUPTED_NS ((int64_t)100000000)
#define FOREIGN_NS ((int64_t)50000000)

/* The pause after which a store of one processor is seen by all others, where the kernel refuses
 * membarrier(2). A processor keeps a store to itself for microseconds at most. */
#define SETTLE_NS ((int64_t)10000000)

_Atomic uint32_t lm_fork_gate_phase;

/* Laws. A thread is marked (`guarded` in its area is set or, if it has no area, `bare` counts it)
 * if and only if it is in a guarded section, or has looked at the closed gate and not
 * yet taken its mark back. While the phase is CLOSING or CLOSED, `forker` is set. While `forker` is
 * 0, `nested` is 0. */
static struct {
  _Atomic uintptr_t forker; /* a thread-local address of the forking thread; 0: no thread forks */
  uint32_t nested;          /* forks that signal handlers began in the forking thread */
  _Atomic uint32_t bare;
  /* A thread has lost its patience with the fork that lasts. Relaxed: it is a hint. */
  _Atomic bool is_long;
  bool is_refused; /* membarrier(2) failed in this process; written by the forking thread */
} gate;

/* The thread is one of `gate.bare`. */
static _Thread_local bool is_bare __attribute__((tls_model("initial-exec")));

/* The last fork of this thread began before all other threads had left their guarded sections. */
static _Thread_local bool has_given_up __attribute__((tls_model("initial-exec")));

static uintptr_t own_name(void) { return (uintptr_t)&is_bare; }

bool lm_fork_gate_is_forker(void) {
  return atomic_load_explicit(&gate.forker, memory_order_relaxed) == own_name();
}

/* ---- Sections */

static void mark(void) {
  lm_thread *t = lm_thread_self;
  if (t) {
    atomic_store(&t->guarded, true);
  } else if (!is_bare) {
    is_bare = true;
    atomic_fetch_add(&gate.bare, 1);
  }
}

static void unmark(void) {
  lm_thread *t = lm_thread_self;
  if (t) {
    atomic_store_explicit(&t->guarded, false, memory_order_release);
  } else if (is_bare) {
    is_bare = false; /* first, because a signal handler may come here before the next line */
    atomic_fetch_sub(&gate.bare, 1);
  }
}

/* Like lm_fork_gate_pass, for any thread and any phase. The store of `mark` and the load are
 * sequentially consistent, which is the fence of LM_GATE_FENCED. */
static bool pass(bool while_closing) {
  mark();
  uint32_t phase = atomic_load(&lm_fork_gate_phase);
  if (phase <= LM_GATE_FENCED || (phase == LM_GATE_CLOSING && while_closing) ||
      lm_fork_gate_is_forker())
    return true;
  unmark();
  return false;
}

/* Says whether a section that the forking thread waits for may itself wait for the calling thread.
 * If so, the calling thread passes while the gate is closing. */
static bool is_awaited(void) {
  const lm_thread *t = lm_thread_self;
  return lm_thread_is_active() ||
         (t && atomic_load_explicit(&t->interrupted, memory_order_relaxed) > 0);
}

void lm_fork_gate_enter(void) {
  for (int tries = 0; !pass(is_awaited()); tries++) lm_sys_wait_a_little(tries);
}

static bool is_long(void) { return atomic_load_explicit(&gate.is_long, memory_order_relaxed); }

bool lm_fork_gate_try(int64_t patience_ns) {
  if (lm_likely(pass(false))) return true;
  int64_t until = patience_ns ? lm_sys_clock_ns() + patience_ns : 0;
  for (int tries = 0; patience_ns && !is_long() && lm_sys_clock_ns() < until; tries++) {
    lm_sys_wait_a_little(tries);
    if (pass(is_awaited())) return true;
  }
  if (patience_ns) atomic_store_explicit(&gate.is_long, true, memory_order_relaxed);
  return false;
}

void lm_fork_gate_leave_slowly(void) {
  unmark();
  if (atomic_load_explicit(&lm_thread_owes_child, memory_order_relaxed)) lm_thread_begin_child();
}

/* Only the thread itself writes `interrupted`, so a load and a store are enough. */
bool lm_fork_gate_interrupt(void) {
  lm_thread *t = lm_thread_self;
  if (t) atomic_store_explicit(&t->interrupted, t->interrupted + 1, memory_order_relaxed);
  lm_fork_gate_leave();
  return t;
}

void lm_fork_gate_return(bool is_counted) {
  lm_thread *t = lm_thread_self;
  for (int tries = 0; !pass(true); tries++) lm_sys_wait_a_little(tries);
  lm_assert(!is_counted || t->interrupted > 0);
  if (is_counted) atomic_store_explicit(&t->interrupted, t->interrupted - 1, memory_order_relaxed);
}

/* The forking thread reads `bare` before it takes the lock of the list. So it either finds the
 * thread in `bare`, or the mark in the area. */
void lm_fork_gate_adopt(lm_thread *t) {
  if (!is_bare) return;
  atomic_store(&t->guarded, true);
  atomic_fetch_sub(&gate.bare, 1);
  is_bare = false;
}

bool lm_fork_gate_is_valid(void) {
  const lm_thread *t = lm_thread_self;
  bool is_marked = t ? atomic_load_explicit(&t->guarded, memory_order_relaxed) : is_bare;
  if (is_marked != (lm_lock_cancel_holds > 0) || (t && is_bare)) return false;
  return !is_bare || atomic_load(&gate.bare) > 0;
}

/* ---- Fork */

/* After this call each other thread has seen that the gate is closed, or this thread sees its mark.
 * A thread without an area needs no barrier: it counts itself with atomic operations. */
static void meet_others(void) {
  if (gate.is_refused || !lm_thread_has_others() || !lm_sys_membarrier()) return;
  gate.is_refused = true;
  lm_sys_sleep(SETTLE_NS);
}

/* Acquire pairs with the release that ends a section. */
static bool are_others_out(int tries, bool awaits_foreign) {
  if (atomic_load(&gate.bare) > is_bare) return false;
  return !lm_thread_are_others_guarded(tries > ASK_KERNEL_AFTER, awaits_foreign);
}

static bool become_forker(int64_t until) {
  uintptr_t none = 0;
  for (int tries = 0; !atomic_compare_exchange_strong(&gate.forker, &none, own_name());
       tries++, none = 0) {
    if (lm_sys_clock_ns() > until) return false;
    lm_sys_wait_a_little(tries);
  }
  return true;
}

void lm_fork_gate_close(bool is_interrupted) {
  if (lm_fork_gate_is_forker()) {
    gate.nested++;
    return;
  }
  int64_t begun = lm_sys_clock_ns(), until = begun + (is_interrupted ? INTERRUPTED_NS : LONGEST_NS);
  has_given_up = true;
  if (!become_forker(until)) return;
  atomic_store_explicit(&gate.is_long, false, memory_order_relaxed);
  for (int tries = 0;; tries++) {
    atomic_store(&lm_fork_gate_phase, LM_GATE_CLOSED);
    meet_others();
    has_given_up = !are_others_out(tries, lm_sys_clock_ns() < begun + FOREIGN_NS);
    if (!has_given_up || lm_sys_clock_ns() > until) return;
    atomic_store(&lm_fork_gate_phase, LM_GATE_CLOSING);
    lm_sys_wait_a_little(tries);
  }
}

static void open_gate(void) {
  gate.nested = 0;
  atomic_store(&lm_fork_gate_phase, gate.is_refused ? LM_GATE_FENCED : LM_GATE_OPEN);
  atomic_store(&gate.forker, 0);
}

bool lm_fork_gate_has_given_up(void) { return has_given_up; }

void lm_fork_gate_open(void) {
  if (!lm_fork_gate_is_forker()) return; /* it gave up before it could close the gate */
  lm_assert(atomic_load(&lm_fork_gate_phase) == LM_GATE_CLOSED);
  if (gate.nested) gate.nested--;
  else open_gate();
}

void lm_fork_gate_open_in_child(void) {
  atomic_store(&gate.bare, is_bare);
  open_gate();
}
