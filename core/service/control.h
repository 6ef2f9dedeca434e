/* control.h - the socket that `loam status` talks to, and the one service thread that follows the
 * policy file and answers it. Its failure never harms the host: no socket, an event, that is all.
 *
 * The socket is DIR/PID.sock, for processes of the same user. A request is one line: `ping`,
 * `status`, `stats`, `reload`, `reload PATH`, `share KEY OFFSET` or `device BASE KEY ADDRESS`; the
 * answer is one JSON object, with a descriptor where a block is shared (share_export.h,
 * device_export.h), then the end. */
#ifndef LM_CONTROL_H
#define LM_CONTROL_H

#include <limits.h>
#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"
#include "script/json.h"

enum {
  LM_CONTROL_PATH = 108,           /* of sockaddr_un */
  LM_CONTROL_LINE = PATH_MAX + 16, /* of a request: "reload " and a path */
};

/* Opens the socket, if asked to, and starts the service thread if there is anything for it to do.
 * `dir` NULL: the usual one. What fails has been told as an event when it comes back. */
loam_status lm_control_start(const char *dir, bool socket);
/* Ends the service thread, the socket and the watching. */
void lm_control_stop(void);
/* Follow this file from now on; NULL: none. */
loam_status lm_control_watch(const char *path);
bool lm_control_watching(void);
/* The service thread brings live memory to where the policy wants it, soon; it is started for that
 * where it does not run. A failure is told as an event. Not `wanted`: the policy leaves what lives
 * where it is, and what one before it began of this ends. */
void lm_control_apply(bool wanted);
/* Whether others can reach this process. */
bool lm_control_is_open(void);

/* A forked child has no service thread. It is started again by a request of the child, but not by
 * its first: most children call exec soon, and pay next to nothing. Until then all of its threads
 * are wary (LM_SLOW_UNSERVED), so that whatever it asks for takes the long way, where this is
 * called with no lock held. Likewise where the host has closed what serves it, or put its own
 * there: it is opened anew by a request, or by the thread once there was none for a second. Cheap
 * to call when there is no need. */
extern _Atomic bool lm_control_asleep;
void lm_control_wake(void);
LM_INLINE void lm_control_wake_if_asleep(void) {
  if (lm_unlikely(atomic_load_explicit(&lm_control_asleep, memory_order_relaxed)))
    lm_control_wake();
}

/* The answer to a request (control_reply.c). *given: a descriptor that goes with it, to be closed;
 * else -1 stays there. */
void lm_control_reply(const char *request, lm_json *out, int *given);

/* Where the sockets are: `dir`, else $LOAM_CONTROL_DIR, $XDG_RUNTIME_DIR/loam, /tmp/loam-UID. */
loam_status lm_control_dir(const char *dir, char *buffer, size_t size);

/* The client's side (control_client.c): loam_ask and loam_hosts. */
loam_status lm_control_ask(int pid, const char *request, unsigned timeout_ms, loam_write_fn write,
                           void *ctx);
/* The same, with the descriptor that came with the answer; -1: none did. The answer is terminated,
 * and cut off where it is longer. */
loam_status lm_control_fetch(int pid, const char *request, unsigned timeout_ms, char *answer,
                             size_t size, int *fd);
/* The words in such an answer that is an error, which are cut out of it; NULL: there are none. */
const char *lm_control_error_words(char *answer);
loam_status lm_control_hosts(loam_pid_fn callback, void *ctx);
/* Removes from a directory the sockets of processes that are gone. */
void lm_control_clean(const char *dir);

#endif
