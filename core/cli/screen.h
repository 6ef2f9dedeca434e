/* screen.h - the terminal of `loam top`: the whole screen for the command, keys one by one, and
 * signals as events.
 *
 * The terminal of standard input and output is used. While the screen is open, the terminal sends
 * Ctrl-C as a key, and the signals that would end or stop the command come as events. The terminal
 * is restored when the screen is closed, when the command exits, and when it crashes. One thread
 * alone uses these functions. */
#ifndef LM_SCREEN_H
#define LM_SCREEN_H

#include "os/base.h"

/* Takes the terminal over. False: standard input or output is no terminal. */
bool lm_screen_open(void);
/* Restores the terminal. Does nothing if the screen is not open. */
void lm_screen_close(void);
/* Reads the size of the terminal in characters; 80 times 24 if the terminal does not tell. */
void lm_screen_size(int *columns, int *rows);

typedef enum lm_screen_event {
  LM_SCREEN_TIME,    /* the time is over */
  LM_SCREEN_KEYS,    /* keys were pressed */
  LM_SCREEN_RESIZED, /* the terminal has another size, or was used by another program */
  LM_SCREEN_STOP,    /* the command is to be suspended: lm_screen_suspend */
  LM_SCREEN_END      /* the terminal is gone, or a signal ends the command */
} lm_screen_event;

/* Waits for an event, `ms` milliseconds at most. LM_SCREEN_KEYS: keys[] has *n bytes, at most
 * `room`. LM_SCREEN_END: *signal is the number of the signal; 0: the terminal is gone. */
lm_screen_event lm_screen_wait(int ms, char *keys, size_t room, size_t *n, int *signal);
/* Restores the terminal, stops the command until it is continued, and takes the terminal over
 * again. */
void lm_screen_suspend(void);

#endif
