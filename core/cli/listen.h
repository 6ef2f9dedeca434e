/* listen.h - sockets on which `loam metrics` serves its page. */
#ifndef LM_LISTEN_H
#define LM_LISTEN_H

#include <signal.h>

#include "loam.h"
#include "os/base.h"

/* Opens a socket that listens on a TCP address, and sets *descriptor and *port_out. `host` is a
 * name or a numeric address; "" means all addresses of the machine. `port` is a decimal number; "0"
 * means that the kernel chooses a free port, which *port_out then tells. The caller closes the
 * descriptor. LOAM_EIO: the address cannot be used; the error words name it and the reason. */
loam_status lm_listen_tcp(const char *host, const char *port, int *descriptor, int *port_out);

/* Opens a socket that listens on a path, and sets *descriptor. A socket file on which no program
 * listens any more is replaced. The caller closes the descriptor and removes the file. LOAM_EINVAL:
 * the path is too long. LOAM_EIO: another program listens there, the path is no socket, or the
 * kernel refuses; the error words name the path and the reason. */
loam_status lm_listen_unix(const char *path, int *descriptor);

/* Sets *set to the signals that ask a command to end: SIGINT, SIGTERM, and SIGHUP, which comes when
 * its terminal is closed. SIGHUP is left out if the command ignores it, as after nohup(1). */
void lm_listen_ending_signals(sigset_t *set);

/* Waits until the descriptor has something to read, `ms` milliseconds have passed, or a signal of
 * lm_listen_ending_signals has arrived. Returns true for a signal. The first call blocks these
 * signals: they end only the waiting, no longer the process. Only the main thread may call it. */
bool lm_listen_wait(int descriptor, int ms);

#endif
