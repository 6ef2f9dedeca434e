/* control.h - the socket that `loam status` talks to, and the one service thread that follows the
 * policy file and answers it. Its failure never harms the host: no socket, an event, that is all. */
#ifndef LM_CONTROL_H
#define LM_CONTROL_H

#include "base.h"
#include "loam.h"

/* Starts the service thread if there is anything for it to do. */
loam_status lm_control_start(const char *dir, bool socket);
void lm_control_stop(void);
/* Follow this file from now on; NULL: none. */
loam_status lm_control_watch(const char *path);
bool lm_control_watching(void);
/* A forked child has no service thread: starts it again, later, from a thread that allocates. */
void lm_control_after_fork(void);
/* The client's side: loam_ask and loam_hosts. */
loam_status lm_control_ask(int pid, const char *request, unsigned timeout_ms, loam_write_fn write, void *ctx);
loam_status lm_control_hosts(loam_pid_fn callback, void *ctx);

#endif
