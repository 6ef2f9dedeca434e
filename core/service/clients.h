/* clients.h - the clients of the control socket: accepts them, reads one line of each, sends the
 * answer and hangs up.
 *
 * A client has a few seconds to send its line and to take its answer. Only the service thread calls
 * these functions, with no lock held. lm_clients_fork_child is called in a forked child. */
#ifndef LM_CLIENTS_H
#define LM_CLIENTS_H

#include <poll.h>

#include "service/control_reply.h"
#include "service/control_socket.h"

enum { LM_CLIENTS = 16 }; /* that may be connected at the same time */

/* Tells whether one more client may be connected. */
bool lm_clients_have_room(void);
/* Accepts a client. One for which there is no room, or that is another user's, is closed. */
void lm_clients_accept(const lm_control_socket *socket);
/* Fills LM_CLIENTS entries of `fds` for poll(2). Makes *timeout_ms earlier if a client's time ends
 * before it. */
void lm_clients_gather(struct pollfd *fds, int *timeout_ms);
/* Serves the clients after poll(2): `fds` as lm_clients_gather has filled them. `follow` is for
 * lm_control_reply. */
void lm_clients_serve(const struct pollfd *fds, lm_control_follow_fn *follow);
/* Hangs up all clients. */
void lm_clients_end(void);
/* Forgets all clients and closes their descriptors, in a forked child. */
void lm_clients_fork_child(void);

#endif
