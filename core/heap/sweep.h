/* sweep.h - idle memory goes back: threads give up idle bins, and central lists, regions and
 * metadata give free memory back to the system. */
#ifndef LM_SWEEP_H
#define LM_SWEEP_H

#include "os/thread.h"

/* Makes threads give back the objects that they cache of central lists with detached spans, and of
 * pools that are recalled. Threads that do not come to rest may keep theirs. Not while active. */
void lm_sweep_recall(void);
/* Gives back to the system the memory that holds no live object: bins of all threads, central
 * lists, regions, metadata. Returns the bytes of the slots that went back during the call, also
 * those that other threads gave back. Not while active. */
size_t lm_sweep_trim(void);
/* Gives back to the system the memory that holds no live object, and takes its access away, because
 * the kernel counts accessible memory against RLIMIT_DATA. Also cuts the tails of large blocks
 * (tails.h). Serves a request for which the system has refused memory. Returns whether anything was
 * tried: a thread that runs out of memory over and over spends at most a tenth of its time here,
 * except for calls that find free slots to give back. Not while active. */
bool lm_sweep_reclaim(void);
/* A tick of decay.h, by the service thread: gives back memory that was idle since the last tick, up
 * to a bound. */
void lm_sweep_decay(void);

/* Returns whether an alarm of memory pressure (os/pressure.h) lasts for which the calling thread
 * `t` has not given up its bins, or the process has not given back its free memory. Constant
 * time. */
bool lm_sweep_is_alarmed(lm_thread *t);
/* Obeys such an alarm: the calling thread gives up all its bins once, and then gives back the free
 * memory of all pools to the system, unless another thread does so or has done so since the alarm.
 * A call takes about 20 ms for that, and as long as the system needs for slots that are free as
 * wholes; the next slow calls go on. If the locks for that are taken, a later slow call tries
 * again. The thread is in an active section and in a guarded section, and holds no lock. */
void lm_sweep_obey_alarm(lm_thread *t);

/* Called by the slow paths of malloc and free, by a thread `t` that is in an active section and in
 * a guarded section. Obeys an alarm of memory pressure. Every LM_DECAY_CALLS calls, unless a
 * service thread ticks: gives up the bins that the thread did not use during the last tick; and if
 * a step of a tick is due, does the step, which takes about half a millisecond. The steps also
 * empty the idle bins of threads that make no slow calls. The call does not wait for another
 * thread's tick. The caller holds no lock. The call may close the caller's bins. */
void lm_sweep_poll(lm_thread *t);

/* Called by a thread in its next operation, when it was claimed (sweep.c): it gives up its bins. */
void lm_sweep_claimed_thread(lm_thread *t);
/* Called in a forked child. */
void lm_sweep_fork_child(void);

#endif
