/* control_client.h - asks a host over its control socket: loam_ask and loam_hosts.
 *
 * The socket of a host is DIR/PID.sock, for processes of the same user. A request is one line; the
 * answer is one JSON object, with a descriptor if a block is shared, and then the end of the stream
 * (control_reply.h has the requests). */
#ifndef LM_CONTROL_CLIENT_H
#define LM_CONTROL_CLIENT_H

#include <limits.h>

#include "loam.h"
#include "os/base.h"

enum {
  LM_CONTROL_PATH = 108,           /* bytes of a socket's path: sockaddr_un has no more */
  LM_CONTROL_LINE = PATH_MAX + 16, /* bytes of a request's line: "reload " and a path fit */
};

/* A request to a host. */
typedef struct lm_control_request {
  int pid;          /* the host's process id */
  const char *line; /* without the newline */
  unsigned timeout_ms;
} lm_control_request;

/* Sends the request and gives the answer to `write` in pieces. LOAM_EINVAL: the line is too long,
 * or contains a newline. LOAM_EIO: the host cannot be reached, or does not answer in time. */
loam_status lm_control_ask(const lm_control_request *request, loam_write_fn write, void *ctx);
/* Like lm_control_ask, for an answer that may come with a descriptor. *fd becomes this descriptor,
 * which the caller closes; -1: none came. The answer goes to the buffer of `size` bytes, ends with
 * a NUL, and is cut off if it does not fit. */
loam_status lm_control_fetch(const lm_control_request *request, char *answer, size_t size, int *fd);
/* The words of the error if the answer reports one, else NULL. The words lie in `answer`, which is
 * changed. */
const char *lm_control_error_words(char *answer);
/* Calls `callback` for each host of this user, and removes the sockets of processes that
 * are gone. */
loam_status lm_control_hosts(loam_pid_fn callback, void *ctx);

/* Writes the path of the folder of sockets and boards: `dir`; if that is NULL or "", then
 * $LOAM_CONTROL_DIR, $XDG_RUNTIME_DIR/loam or /tmp/loam-UID. */
loam_status lm_control_dir(const char *dir, char *buffer, size_t size);
/* Removes the sockets of processes that are gone from a folder. */
void lm_control_clean(const char *dir);
/* Locks the folder of sockets for a process that makes a socket there, or that removes one: a
 * socket that is bound looks left over until its process listens. Waits at most `wait_ms`. Returns
 * a descriptor for lm_control_unlock; -1: the folder cannot be opened, or is locked. */
int lm_control_lock(const char *dir, int wait_ms);
/* Ends a lock. -1 does nothing. */
void lm_control_unlock(int folder);
/* Tells whether the process at the other end of a socket runs as the effective user. */
bool lm_control_is_same_user(int fd);

#endif
