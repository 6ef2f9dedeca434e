/* fork_gate.h - keeps memory in order while a thread forks, without a lock that a thread could wait
 * for.
 *
 * A guarded section is the time in which a thread may change what locks guard. It begins with the
 * first lock that the thread takes, or before that with a slow call of malloc's family, and ends
 * with the last (lm_lock_hold_cancel and lm_lock_allow_cancel in lock.h). Before a fork the gate is
 * closed: the forking thread waits until no other thread is in a guarded section, and no other
 * thread begins one until the gate is open again. So a child inherits no change that is half done,
 * and no lock that a thread holds which the child does not have.
 *
 * The forking thread holds no lock of loam. It passes the gate, so handlers of pthread_atfork may
 * allocate.
 *
 * Law: the counter of a stripe is the number of its threads that are in a guarded section, or have
 * looked at the closed gate and not yet gone. */
#ifndef LM_FORK_GATE_H
#define LM_FORK_GATE_H

#include "os/base.h"

/* Begins a guarded section of the calling thread, which is in none. Waits while the gate is closed.
 * Only lock.c calls these functions. */
void lm_fork_gate_enter(void);
/* Like lm_fork_gate_enter, but returns false if the gate stays closed for `patience_ns`, and then
 * no section has begun. Once a thread has waited that long for a fork, others
 * do not wait for that fork. */
bool lm_fork_gate_try(int64_t patience_ns);
/* Goes on with a section that lm_fork_gate_leave interrupted. Other threads may wait for locks that
 * the caller still holds, so the caller also passes while a forking thread waits for sections. */
void lm_fork_gate_return(void);
/* Ends the calling thread's section. */
void lm_fork_gate_leave(void);

/* Closes the gate for the calling thread, which is about to fork. It waits for other forks and for
 * the guarded sections of other threads. `is_interrupted` says that the caller itself is in a
 * guarded or an active section, because a signal handler forks: then it waits for a short time
 * only, since other threads may wait for its locks, or a grace for its active section. */
void lm_fork_gate_close(bool is_interrupted);
/* Opens the gate, in the parent after the fork. */
void lm_fork_gate_open(void);
/* Opens the gate in the child, which has only the calling thread. */
void lm_fork_gate_open_in_child(void);

#endif
