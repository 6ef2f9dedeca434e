/* publisher.h - publishes policies on the board of a program tree: `loam reload` and the watcher.
 *
 * A publisher holds a lock (flock) on the board while it writes an image, a refusal, a wish or the
 * word. The kernel keeps the lock for the descriptor and its copies in forked children. So each
 * process that publishes opens the board itself. The layout of a board says where an image and the
 * reason of a refusal are (service/board_layout.h). */
#ifndef LM_PUBLISHER_H
#define LM_PUBLISHER_H

#include "loam.h"
#include "plan/policy_image.h"
#include "script/script.h"
#include "service/board_layout.h"

/* A board that is open for publishing.
 * Law: fd >= 0, and `news` is the file's part of that name, mapped readable and writable. */
typedef struct lm_publisher {
  int fd;
  lm_board_news *news;
} lm_publisher;

/* Returns whether the law of a publisher holds, as far as the fields show it. */
LM_INLINE bool lm_publisher_is_valid(const lm_publisher *p) { return p->fd >= 0 && p->news; }

/* Opens the board at `path`, which must be one of the effective user. Fails with LOAM_EIO. */
loam_status lm_publisher_open(const char *path, lm_publisher *out);
/* Replaces the descriptor, which a forked child shares with its parent, by one with a lock of its
 * own. Unlike lm_publisher_open, it also works after the file has been removed. Needs /proc.
 * Fails with LOAM_EIO; then the publisher is as before. */
loam_status lm_publisher_reopen(lm_publisher *p);
/* Closes a board that lm_publisher_open has opened. */
void lm_publisher_close(lm_publisher *p);

/* Publishes the image of the policy with which a tree starts, on the board that lm_board_make has
 * made for the tree. `policy` is the absolute path of the policy file. Fails as lm_publisher_open
 * and lm_publisher_publish do. */
loam_status lm_publisher_first(const char *board, const lm_policy_image *image, const char *policy);
/* Compiles the policy in source->text, runs its tests, and publishes its image. source->name is the
 * absolute path of the policy file. Sets *number to the number of the publication. Fails as a load
 * does, with LOAM_EBUDGET if the image is above LM_BOARD_HALF bytes, and with LOAM_EIO if the
 * filesystem of the board has no room, or if another publisher keeps the lock for ten seconds, as a
 * stopped one does; the earlier publication stays then. */
loam_status lm_publisher_publish(lm_publisher *p, const lm_script_source *source, uint64_t *number);
/* Wishes that a process of the board samples one block in `interval` bytes on average; 0: that it
 * samples nothing (engine/sample.h). `pid` and `since_ms` are from its row (lm_board_each). The
 * process obeys with its next request for memory. LOAM_ESTATE: the process has no place there.
 * LOAM_EIO: the board cannot be opened or written, or another publisher keeps the lock for ten
 * seconds. */
loam_status lm_publisher_wish(const char *board, int pid, int64_t since_ms, uint64_t interval);
/* Makes each thread of the tree take a slow path with its next request, because the gauges of the
 * board have a new alarm (os/pressure.h). Does not wait: returns false, and does nothing, while
 * another publisher has the lock. The caller then tries again later. */
bool lm_publisher_alarm(lm_publisher *p);
/* Notes on the board that a policy was refused, for the reason in `words`. `text_hash` is the hash
 * of its text (lm_policy_open_hash); 0: the text could not be read. Notes nothing if another
 * publisher keeps the lock for ten seconds. */
void lm_publisher_refuse(lm_publisher *p, uint64_t text_hash, const char *words);
/* Returns whether the last thing that a publisher noted on the board is this refusal. */
bool lm_publisher_has_refused(const lm_publisher *p, uint64_t text_hash, const char *words);
/* Notes that the policy file has a text again that was not refused. Notes nothing if another
 * publisher keeps the lock for ten seconds. */
void lm_publisher_forget_refusal(lm_publisher *p);

/* Returns the description of the policy that was published last. Before the first, all of its
 * fields are 0. */
const lm_board_image *lm_publisher_latest(const lm_publisher *p);
/* Return whether a mask of LM_IN_* has the free memory of NUMA nodes, or memory pressure. */
bool lm_publisher_reads_nodes(uint64_t reads);
bool lm_publisher_reads_pressure(uint64_t reads);
/* Returns whether a policy that reads these inputs, or shares limits, needs a watcher. */
bool lm_publisher_needs_watcher(uint64_t reads, bool shares);
/* Notes on the board that this process keeps its figures from now on, until the process ends or
 * closes the board. */
void lm_publisher_keep(lm_publisher *p);
/* Returns whether the policy that was published last needs a watcher, and no process lives that
 * keeps the figures on the board. */
bool lm_publisher_lacks_keeper(const lm_publisher *p);

/* The words for a person if lm_publisher_lacks_report returns true; %d is the process. */
#define LM_PUBLISHER_UNREPORTED                                                              \
  "the policy guards blocks, and process %d was started under one that did not: a fault in " \
  "guarded memory ends it without a message of loam; start it again to get the message"
/* Returns whether the policy that was published last guards blocks, and a process does not handle
 * SIGSEGV. A thread that obeys a policy installs no handler: the program may have given up the
 * right to make that system call, and a filter would end it. False if /proc does not show the
 * process. */
bool lm_publisher_lacks_report(const lm_publisher *p, int pid);

/* The words for a person if lm_publisher_lacks_mover returns true. That function returns whether
 * the policy that was published last moves live memory. Only a service thread can do that. */
#define LM_PUBLISHER_UNMOVED                                                               \
  "the policy moves live memory, and these programs have no service for that: it decides " \
  "for new memory alone; start them with `loam run --service` to move live memory"
bool lm_publisher_lacks_mover(const lm_publisher *p);

/* Publishes the policy file `path` on the board `board`; a refusal of its text is noted there. Sets
 * *lacks_keeper to what lm_publisher_lacks_keeper returns; the caller then starts a watcher for the
 * figures and for shared limits. The failures are those of lm_publisher_open, of reading the file,
 * and of lm_publisher_publish. */
loam_status lm_publisher_reload(const char *board, const char *path, uint64_t *number,
                                bool *lacks_keeper);

#endif
