/* fork_gate.h - keeps memory in order while a thread forks, without a lock that a thread could wait
 * for.
 *
 * A guarded section is the time in which a thread may change what locks guard. It begins when the
 * thread takes its first lock, or earlier, when the thread begins a slow call of malloc's family.
 * It ends when the thread has dropped its last lock and has ended that call (lm_lock_hold_cancel
 * and lm_lock_allow_cancel in lock.h). Before a fork the gate is closed: the forking thread waits
 * until no other thread is in a guarded section, and no other thread begins one until the gate is
 * open again. So a child inherits no change that is half done, and each lock that it inherits is
 * free or held by its own thread.
 *
 * The forking thread holds no lock of loam. It passes the gate, so handlers of pthread_atfork may
 * allocate.
 *
 * A thread says in its area (`guarded` in thread.h) that it is in a section, then looks at the
 * gate: two plain instructions. The forking thread closes the gate, calls membarrier(2), and then
 * looks at the areas. So at least one of the two sees the other: Dekker's algorithm, with the fence
 * of the frequent side moved to the rare side. A thread without an area counts itself in a counter,
 * with atomic operations. Where the kernel refuses membarrier(2), the phase LM_GATE_FENCED takes
 * the place of LM_GATE_OPEN, and every section begins with a fence. */
#ifndef LM_FORK_GATE_H
#define LM_FORK_GATE_H

#include "os/thread.h"

/* CLOSING and CLOSED take turns while the forking thread waits for sections: fork_gate.c. */
enum { LM_GATE_OPEN, LM_GATE_FENCED, LM_GATE_CLOSING, LM_GATE_CLOSED };
extern _Atomic uint32_t lm_fork_gate_phase __attribute__((visibility("hidden")));

/* Begins a guarded section of the calling thread, which is in none, and returns true. Returns false
 * if the gate is not open or the thread has no area. After false the thread may still be marked:
 * lm_fork_gate_enter or lm_fork_gate_try, which the caller then calls, mends that. The order of the
 * two accesses pairs with the membarrier of lm_fork_gate_close; the acquire pairs with the release
 * that opens the gate. Only lock.c calls the functions that begin and end sections. */
LM_INLINE bool lm_fork_gate_pass(void) {
  lm_thread *t = lm_thread_self;
  if (lm_unlikely(!t)) return false;
  atomic_store_explicit(&t->guarded, true, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  return atomic_load_explicit(&lm_fork_gate_phase, memory_order_acquire) == LM_GATE_OPEN;
}

/* Begins the section if lm_fork_gate_pass returned false. Waits while another thread forks. A
 * thread in an active section may wait here too, but only once no other thread is in a guarded
 * section. */
void lm_fork_gate_enter(void);
/* Like lm_fork_gate_enter, but waits for `patience_ns` at most. Returns false if the gate was not
 * open in that time; then no section has begun. Once a thread has waited that long for a fork,
 * others do not wait for that fork. */
bool lm_fork_gate_try(int64_t patience_ns);

/* Ends the section of a thread that has no area, or whose section a fork interrupted. */
void lm_fork_gate_leave_slowly(void);
/* Ends the section. The release pairs with the acquire of the forking thread, which then sees all
 * that the section changed. */
LM_INLINE void lm_fork_gate_leave(void) {
  lm_thread *t = lm_thread_self;
  bool owes = atomic_load_explicit(&lm_thread_owes_child, memory_order_relaxed);
  if (lm_unlikely(!t || owes)) lm_fork_gate_leave_slowly();
  else atomic_store_explicit(&t->guarded, false, memory_order_release);
}

/* lm_fork_gate_interrupt interrupts the calling thread's section for foreign code. It returns
 * whether the thread has an area, which counts the interruption. lm_fork_gate_return goes on with
 * the section; it takes that answer. Other threads may wait for locks that the caller still holds,
 * so lm_fork_gate_return also passes while a forking thread waits for sections. */
bool lm_fork_gate_interrupt(void);
void lm_fork_gate_return(bool is_counted);

/* Moves the mark of the calling thread's section, if the thread is in one, from the counter to its
 * new area. The area is on the list of areas, and the caller holds the lock of that list. */
void lm_fork_gate_adopt(lm_thread *t);

/* Closes the gate for the calling thread, which is about to fork. It waits for other forks, for the
 * guarded sections of other threads, and for a moment for sections that foreign code interrupts.
 * `is_interrupted` says that the caller itself is in a guarded or an active section, because a
 * signal handler forks: then it waits for a short time only, since other threads may wait for its
 * locks, or a grace for its active section. */
void lm_fork_gate_close(bool is_interrupted);
/* Returns whether the calling thread's last lm_fork_gate_close has stopped waiting while other
 * threads were in guarded sections. Then a child may inherit locks that those threads hold. */
bool lm_fork_gate_has_given_up(void);
/* Opens the gate, in the parent after the fork. */
void lm_fork_gate_open(void);
/* Opens the gate in the child, which has only the calling thread. */
void lm_fork_gate_open_in_child(void);

/* Returns whether the calling thread has closed the gate for a fork. */
bool lm_fork_gate_is_forker(void);
/* Returns whether the law of the gate (fork_gate.c) holds for the calling thread. */
bool lm_fork_gate_is_valid(void);

#endif
