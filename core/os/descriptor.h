/* descriptor.h - a descriptor of ours in the host's table.
 *
 * The numbers are the host's: a shell puts its own at 3 and 4, a daemon closes whatever it did not
 * open, a program counts on the next number. So ours stand high, where few look, and before each
 * use they are asked whether they still are what they were. What is not is the host's by now: it
 * is neither read nor closed.
 *
 * What is opened has the lowest number for a moment, and between the question and the use there is
 * one too. A host with one thread meets neither where loam opens amid a call of that thread's: so
 * what can wait for such a call does (control.c). The service thread opens by itself only what it
 * reads, and whoever calls. */
#ifndef LM_DESCRIPTOR_H
#define LM_DESCRIPTOR_H

#include <sys/types.h>

#include "os/base.h"

/* Initialised with LM_DESCRIPTOR_NONE, since 0 is a number. */
typedef struct lm_descriptor {
  int fd; /* -1: none */
  dev_t device;
  ino_t inode;
} lm_descriptor;

#define LM_DESCRIPTOR_NONE ((lm_descriptor){ .fd = -1 })

/* Moves a descriptor just opened to its place; -1, with errno set by its opening, gives none. So
 * does one that the host has taken meanwhile, with EBADF. */
lm_descriptor lm_descriptor_keep(int fd);
/* The same where it is: what is closed at once is not worth a longer table. */
lm_descriptor lm_descriptor_keep_here(int fd);
/* A socket or a pipe has an inode of its own and is known for certain; all inotify's and eventfd's
 * share one, so that of those another of its like at our number is taken for ours. */
bool lm_descriptor_is_ours(const lm_descriptor *descriptor);
/* Closes it if it still is ours; in any case there is none afterwards. */
void lm_descriptor_close(lm_descriptor *descriptor);

#endif
