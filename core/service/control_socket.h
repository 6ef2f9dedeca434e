/* control_socket.h - the listening socket of a host: DIR/PID.sock. */
#ifndef LM_CONTROL_SOCKET_H
#define LM_CONTROL_SOCKET_H

#include "os/descriptor.h"
#include "service/control_client.h"

/* The socket of this process, or of its parent after a fork.
 *
 * Law: while listener.fd >= 0, `path` is the socket's path and process `owner` has bound it. */
typedef struct lm_control_socket {
  lm_descriptor listener; /* .fd is -1: no socket */
  pid_t owner;            /* the process that bound the socket */
  char path[LM_CONTROL_PATH];
} lm_control_socket;

/* Makes the folder of sockets and boards if it is missing. LOAM_EIO if it cannot be made, if it is
 * not a folder of the effective user that other users cannot write, if it is a symbolic link, or if
 * a symbolic link of another user leads to it. */
loam_status lm_control_socket_folder(const char *dir);

/* Makes the folder if it is missing, and a socket in it that listens. Refuses a folder that other
 * users can write, because they could put their sockets in place of ours. Replaces a socket on
 * which no process listens any more. */
loam_status lm_control_socket_open(lm_control_socket *s, const char *dir);
/* Closes the socket and removes its path, if this process has bound it. */
void lm_control_socket_close(lm_control_socket *s);
/* Closes the socket in a forked child: the path belongs to the parent. */
void lm_control_socket_fork_child(lm_control_socket *s);
/* Forgets a listener that the host has closed or replaced. Removes the path, so that clients do not
 * wait there. Returns whether there was such a listener. */
bool lm_control_socket_forget_lost(lm_control_socket *s);
/* Removes the path without closing the socket, when the process ends. */
void lm_control_socket_unlink(const lm_control_socket *s);

/* Accepts a client that waits, and returns its descriptor. -1, with errno: there is none, or no
 * descriptor is left. */
int lm_control_socket_accept(const lm_control_socket *s);

/* Returns whether the law of lm_control_socket holds. */
bool lm_control_socket_is_valid(const lm_control_socket *s);

#endif
