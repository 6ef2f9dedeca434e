/* fork_gate.c - keeps memory in order while a thread forks: the counters and the gate.
 *
 * A thread that begins a section counts itself first and looks at the gate afterwards. The forking
 * thread closes the gate first and reads the counters afterwards. All four are sequentially
 * consistent, so at least one of the two threads sees the other (Dekker). The counters stand in
 * stripes, so threads seldom write to one cache line.
 *
 * A closed gate could keep a thread from ending something that another section waits for: an active
 * section (a grace waits for it), or the use of a lock that stayed held around foreign code. So the
 * gate has two states. While it is CLOSING, such threads still pass. When no section is left, the
 * gate becomes CLOSED and the counters are read again. */
#include "os/fork_gate.h"

#include "os/thread.h"

/* STRIPES is a power of two. A forking thread gives up waiting after LONGEST_NS: that much time can
 * only pass if the threads wait for each other in the host's code. An interrupted one gives up
 * after SHORTEST_NS. */
enum { STRIPES = 64, YIELDS = 16, NAP_NS = 50000 };
#define LONGEST_NS ((int64_t)10000000000)
#define SHORTEST_NS ((int64_t)100000000)

typedef enum phase { OPEN, CLOSING, CLOSED } phase;

static struct {
  _Atomic phase phase;
  _Atomic uintptr_t forker; /* the address of the forking thread's `mine`; 0: no thread forks */
  uint32_t nested;          /* forks that signal handlers began in the forking thread */
  /* A thread has lost its patience with the fork that lasts. Relaxed: it is a hint. */
  _Atomic bool is_long;
  _Atomic uint32_t next_stripe;
} gate;

static struct { _Atomic uint32_t threads; } __attribute__((aligned(LM_CACHE_LINE))) stripe[STRIPES];

/* Each thread has one: the stripe in which it counts itself, and whether it is counted. is_counted
 * is set before the thread counts itself and cleared after it has taken itself out, so a signal
 * handler never waits for its own thread. */
static _Thread_local struct {
  uint32_t stripe; /* the index plus 1; 0: none yet */
  volatile bool is_counted;
} mine __attribute__((tls_model("initial-exec")));

static bool is_forker(void) {
  return atomic_load_explicit(&gate.forker, memory_order_relaxed) == (uintptr_t)&mine;
}

static void wait_a_little(int tries) {
  if (tries < YIELDS) lm_sys_yield();
  else lm_sys_sleep(NAP_NS);
}

/* ---- Sections */

static _Atomic uint32_t *own_counter(void) {
  if (lm_unlikely(!mine.stripe))
    mine.stripe = atomic_fetch_add_explicit(&gate.next_stripe, 1, memory_order_relaxed) % STRIPES +
                  1;
  return &stripe[mine.stripe - 1].threads;
}

void lm_fork_gate_leave(void) {
  atomic_fetch_sub(own_counter(), 1);
  mine.is_counted = false;
}

/* Begins a section if the gate lets the thread pass. */
static bool pass(bool while_closing) {
  mine.is_counted = true;
  atomic_fetch_add(own_counter(), 1);
  phase now = atomic_load(&gate.phase);
  if (lm_likely(now == OPEN) || (now == CLOSING && while_closing) || is_forker()) return true;
  lm_fork_gate_leave();
  return false;
}

static bool is_active(void) {
  const lm_thread *t = lm_thread_self;
  return t && atomic_load_explicit(&t->active, memory_order_relaxed);
}

void lm_fork_gate_enter(void) {
  if (lm_likely(pass(false))) return;
  for (int tries = 0; !pass(is_active()); tries++) wait_a_little(tries);
}

void lm_fork_gate_return(void) {
  for (int tries = 0; !pass(true); tries++) wait_a_little(tries);
}

static bool is_long(void) { return atomic_load_explicit(&gate.is_long, memory_order_relaxed); }

bool lm_fork_gate_try(int64_t patience_ns) {
  if (lm_likely(pass(false))) return true;
  int64_t until = lm_sys_clock_ns() + patience_ns;
  for (int tries = 0; !is_long() && lm_sys_clock_ns() < until; tries++) {
    if (pass(is_active())) return true;
    wait_a_little(tries);
  }
  if (patience_ns) atomic_store_explicit(&gate.is_long, true, memory_order_relaxed);
  return false;
}

/* ---- Fork */

static bool are_others_out(void) {
  for (uint32_t i = 0; i < STRIPES; i++) {
    uint32_t own = mine.is_counted && mine.stripe == i + 1;
    if (atomic_load(&stripe[i].threads) > own) return false;
  }
  return true;
}

static bool become_forker(int64_t until) {
  uintptr_t nobody = 0;
  for (int tries = 0; !atomic_compare_exchange_strong(&gate.forker, &nobody, (uintptr_t)&mine);
       tries++, nobody = 0) {
    if (lm_sys_clock_ns() > until) return false;
    wait_a_little(tries);
  }
  return true;
}

void lm_fork_gate_close(bool is_interrupted) {
  if (is_forker()) {
    gate.nested++;
    return;
  }
  int64_t until = lm_sys_clock_ns() + (is_interrupted ? SHORTEST_NS : LONGEST_NS);
  if (!become_forker(until)) return;
  atomic_store_explicit(&gate.is_long, false, memory_order_relaxed);
  atomic_store(&gate.phase, CLOSED);
  for (int tries = 0; !are_others_out() && lm_sys_clock_ns() < until; tries++) {
    atomic_store(&gate.phase, CLOSING);
    wait_a_little(tries);
    atomic_store(&gate.phase, CLOSED);
  }
}

void lm_fork_gate_open(void) {
  if (!is_forker()) return; /* it gave up before it could close the gate */
  if (gate.nested) {
    gate.nested--;
    return;
  }
  atomic_store(&gate.phase, OPEN);
  atomic_store(&gate.forker, 0);
}

void lm_fork_gate_open_in_child(void) {
  for (uint32_t i = 0; i < STRIPES; i++)
    atomic_store(&stripe[i].threads, mine.is_counted && mine.stripe == i + 1);
  gate.nested = 0;
  atomic_store(&gate.phase, OPEN);
  atomic_store(&gate.forker, 0);
}
