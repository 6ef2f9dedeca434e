/* screen.c - the terminal of `loam top`, by termios(3) and by escape sequences that all common
 * terminals understand (ECMA-48, xterm). */
#include "cli/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "cli/write_file.h"

/* Switches to the terminal's alternate screen, hides the cursor and cuts long lines. */
static const char begin_text[] = "\33[?1049h\33[?25l\33[?7l";
/* Undoes what begin_text did, and ends colors. */
static const char end_text[] = "\33[0m\33[?7h\33[?25h\33[?1049l";

/* Signals that are read from `signals`, as events. */
static const int awaited[] = {
  SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH, SIGCONT, SIGPIPE
};
/* Signals at which the terminal is restored before they end the command. */
static const int crashes[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL };

static volatile sig_atomic_t is_open; /* the screen is open; a signal handler reads it */
static struct termios saved;          /* the terminal's modes before it was taken over */
static sigset_t saved_mask;           /* the signals that were blocked before */
static int signals = -1;              /* a descriptor of signalfd(2); -1: there is none */

/* ---- Opening and closing ---- */

/* Gives the terminal back. Calls functions alone that signal handlers may call. */
static void restore(void) {
  (void)lm_write_all(STDOUT_FILENO, end_text, sizeof end_text - 1);
  (void)tcsetattr(STDIN_FILENO, TCSANOW, &saved);
}

/* Restores the terminal, and then lets the signal end the command as it would have done. */
static void crash(int number) {
  if (is_open) restore();
  is_open = 0;
  signal(number, SIG_DFL);
  raise(number);
}

/* Reads each key immediately and without an echo, and switches to the screen of `loam top`. */
static void take_over(void) {
  struct termios raw = saved;
  raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
  raw.c_iflag &= ~(tcflag_t)(IXON | ICRNL);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  (void)lm_write_all(STDOUT_FILENO, begin_text, sizeof begin_text - 1);
}

/* Blocks the awaited signals and opens `signals`, and restores the terminal at crashes. */
static void await_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < LM_COUNT(awaited); i++) sigaddset(&set, awaited[i]);
  sigprocmask(SIG_BLOCK, &set, &saved_mask);
  signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) sigprocmask(SIG_SETMASK, &saved_mask, NULL); /* so that a signal ends it */
  for (size_t i = 0; i < LM_COUNT(crashes); i++) signal(crashes[i], crash);
}

bool lm_screen_open(void) {
  static bool is_registered;
  lm_assert(!is_open);
  if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &saved)) return false;
  if (!is_registered) is_registered = !atexit(lm_screen_close);
  await_signals();
  is_open = 1;
  take_over();
  return true;
}

void lm_screen_close(void) {
  if (!is_open) return;
  restore();
  is_open = 0;
  close(signals);
  for (size_t i = 0; i < LM_COUNT(crashes); i++) signal(crashes[i], SIG_DFL);
  sigprocmask(SIG_SETMASK, &saved_mask, NULL);
}

void lm_screen_suspend(void) {
  restore();
  raise(SIGSTOP);
  take_over();
}

/* ---- Events ---- */

void lm_screen_size(int *columns, int *rows) {
  struct winsize size = { 0 };
  (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  *columns = size.ws_col ? size.ws_col : 80;
  *rows = size.ws_row ? size.ws_row : 24;
}

/* Reads a signal from `signals` and returns its event. */
static lm_screen_event read_signal(int *number) {
  struct signalfd_siginfo info;
  if (read(signals, &info, sizeof info) != sizeof info) return LM_SCREEN_TIME;
  *number = (int)info.ssi_signo;
  if (*number == SIGTSTP) return LM_SCREEN_STOP;
  if (*number == SIGWINCH) return LM_SCREEN_RESIZED;
  if (*number != SIGCONT) return LM_SCREEN_END;
  take_over(); /* a shell may have changed the terminal while the command was stopped */
  return LM_SCREEN_RESIZED;
}

lm_screen_event lm_screen_wait(int ms, char *keys, size_t room, size_t *n, int *signal) {
  struct pollfd files[] = { { signals, POLLIN, 0 }, { STDIN_FILENO, POLLIN, 0 } };
  lm_assert(is_open && room > 0);
  *n = 0;
  *signal = 0;
  if (poll(files, LM_COUNT(files), ms) <= 0) return LM_SCREEN_TIME;
  if (files[0].revents) return read_signal(signal);
  ssize_t length = read(STDIN_FILENO, keys, room);
  if (length < 0 && (errno == EINTR || errno == EAGAIN)) return LM_SCREEN_TIME;
  if (length <= 0) return LM_SCREEN_END;
  *n = (size_t)length;
  return LM_SCREEN_KEYS;
}
