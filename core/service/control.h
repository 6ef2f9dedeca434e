/* control.h - the service thread of a host: it follows the policy file, answers the control socket,
 * and does periodic work (chores.h).
 *
 * A failure of the service never harms the host: there is an event and no socket, that is all. */
#ifndef LM_CONTROL_H
#define LM_CONTROL_H

#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"

/* Opens the control socket in `dir` if `socket` is true, and starts the service thread if there is
 * work for it. A `dir` of NULL stands for the usual directory (lm_control_dir). A failure has been
 * reported as an event when the function returns. With no lock held. */
loam_status lm_control_start(const char *dir, bool socket);
/* Ends the service thread, the socket and the watching. With no lock held. The service thread
 * itself may call it, from an event callback; the thread then ends when the callback
 * has returned. */
void lm_control_stop(void);
/* Follows this policy file from now on; NULL: no file. With no lock held. */
loam_status lm_control_watch(const char *path);
/* Tells whether other processes can reach this process over a control socket. */
bool lm_control_is_open(void);
/* Says whether this process is a guest (loam_config.guest): a policy that wants live memory to be
 * moved then starts no service thread. Set before lm_control_start. */
void lm_control_set_guest(bool is_guest);

/* A forked child has no service thread. A request for memory in the child starts the thread again,
 * but not the first request: most children call exec soon and should pay almost nothing. Until then
 * the service is asleep: all threads have LM_SLOW_UNSERVED set, so each request takes the slow
 * path, which calls lm_control_wake_if_asleep with no lock held. The service is also asleep after
 * the host has closed a descriptor of the service, or has put one of its own in that place. The
 * descriptor is then opened again by a request, or by the service thread after a second without a
 * request. */
extern _Atomic bool lm_control_asleep;
/* Starts the service again if the process has been asleep for long enough. With no lock held. */
void lm_control_wake(void);
/* Cheap if the service is not asleep. The load is relaxed: a late wake does no harm. */
LM_INLINE void lm_control_wake_if_asleep(void) {
  if (lm_unlikely(atomic_load_explicit(&lm_control_asleep, memory_order_relaxed)))
    lm_control_wake();
}

/* Checks the law of the service (control.c). Takes its lock. */
bool lm_control_is_valid(void);

#endif
