/* descriptor.h - file descriptors of loam in the host's table.
 *
 * The numbers belong to the host: a shell puts its own descriptors at 3 and 4, a daemon closes
 * every descriptor that it did not open, a program expects the next free number. So loam keeps its
 * descriptors at high numbers, where few programs look. Before each use it checks that the number
 * still leads to the file that it opened. If not, the host has taken the number, and loam neither
 * reads nor closes the host's descriptor.
 *
 * Two short races remain: a new descriptor has the lowest free number until it is moved, and the
 * host may act between the check and the use. A host with one thread meets neither if loam opens
 * files during calls of that thread, so control.c postpones the opening of files to such calls
 * where it can. The service thread by itself opens only files that it reads and connections that it
 * accepts. */
#ifndef LM_DESCRIPTOR_H
#define LM_DESCRIPTOR_H

#include <sys/types.h>

#include "os/base.h"

/* A descriptor and the identity of its file. Initialise with LM_DESCRIPTOR_NONE, since 0 is a valid
 * number. Law: fd >= -1. */
typedef struct lm_descriptor {
  int fd; /* -1: none */
  dev_t device;
  ino_t inode;
  int mark; /* loam's mark on a file without an inode of its own; 0: not marked */
} lm_descriptor;

#define LM_DESCRIPTOR_NONE ((lm_descriptor){ .fd = -1 })

/* Returns whether the law of a descriptor holds. */
LM_INLINE bool lm_descriptor_is_valid(const lm_descriptor *descriptor) {
  return descriptor->fd >= -1;
}

/* Takes a descriptor that was just opened, moves it to a high number and returns it. Returns none
 * if `fd` is -1; errno then is the error of the open. Returns none and sets errno to EBADF if the
 * host has taken the number in the meantime. */
lm_descriptor lm_descriptor_keep(int fd);

/* Like lm_descriptor_keep, but leaves the descriptor at its number: for one that is closed soon,
 * which is not worth a longer table. */
lm_descriptor lm_descriptor_keep_here(int fd);

/* Returns whether the number still leads to the file that loam opened. A socket, a pipe and a file
 * have an inode of their own. All descriptors of inotify, eventfd, timerfd, signalfd and epoll
 * share one inode, so loam marks its own: by a signal number (F_SETSIG), which has no effect
 * without O_ASYNC. Two descriptors of inotify that loam opened are not told apart.
 * Keeps errno. */
bool lm_descriptor_is_ours(const lm_descriptor *descriptor);

/* Closes the descriptor if it still is loam's. Afterwards *descriptor is none in either case. */
void lm_descriptor_close(lm_descriptor *descriptor);

#endif
