/* watch.h - a file that changes under us, told once it is quiet.
 *
 * Watches the directory of the path and of what it resolves to, link by link; any event of a name
 * on that way means "look again" after ~100 ms of quiet; a slow poll stands beneath for filesystems
 * that tell nothing. It only says "look": whether anything changed is the content hash's to say.
 * One thread uses a watch. */
#ifndef LM_WATCH_H
#define LM_WATCH_H

#include "loam.h"
#include "os/base.h"

typedef struct lm_watch lm_watch;

/* `path` is absolute: the working directory may change. */
loam_status lm_watch_open(const char *path, lm_watch **out);
void lm_watch_close(lm_watch *watch);
/* Closes *watch, and puts there another, which was opened later. NULL: none. */
void lm_watch_replace(lm_watch **watch, lm_watch *by);
int lm_watch_fd(const lm_watch *watch);         /* readable: call lm_watch_ready; -1: poll only */
int lm_watch_timeout_ms(const lm_watch *watch); /* how long to wait at most before calling it */
/* Takes what has happened; true when the file should be looked at now. */
bool lm_watch_ready(lm_watch *watch);
/* The host has closed its descriptor, or put its own there: it is never ready any more. */
bool lm_watch_is_lost(const lm_watch *watch);
const char *lm_watch_path(const lm_watch *watch);

#endif
