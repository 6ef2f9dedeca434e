/* watch.h - watches a file that other programs change, and reports when the file is at rest again.
 *
 * inotify watches the directory of the path and, link by link, the directories of what the path
 * leads to. An event of a name on that way means "read the file again", after about 100 ms without
 * another event. A slow poll finds changes on file systems that report no events. A watch does not
 * know whether the text has changed: its user compares the hash of the text. One thread at a time
 * may use a watch. */
#ifndef LM_WATCH_H
#define LM_WATCH_H

#include "loam.h"
#include "os/base.h"

typedef struct lm_watch lm_watch;

/* Watches an absolute path: the process may change its working directory. The file need not exist.
 * If inotify is not available, the file is only polled, and an event says so. On failure *out is
 * NULL. */
loam_status lm_watch_open(const char *path, lm_watch **out);
/* Frees a watch; NULL: nothing. */
void lm_watch_close(lm_watch *watch);
/* Closes *watch and stores `by` there, which was opened after it. Each may be NULL. */
void lm_watch_replace(lm_watch **watch, lm_watch *by);
/* The descriptor that becomes readable when lm_watch_ready has to be called; -1: there is none, and
 * only the timeout counts. */
int lm_watch_fd(const lm_watch *watch);
/* The longest time in ms to wait before the next call of lm_watch_ready. */
int lm_watch_timeout_ms(const lm_watch *watch);
/* Takes all events that have come. True: the file should be read now. */
bool lm_watch_ready(lm_watch *watch);
/* Tells whether the host has closed the watch's descriptor, or has put its own in that place. Such
 * a watch is never ready any more. */
bool lm_watch_is_lost(const lm_watch *watch);
const char *lm_watch_path(const lm_watch *watch);

/* Checks the law of lm_watch (watch.c). */
bool lm_watch_is_valid(const lm_watch *watch);

#endif
