/* progress.c - a line on the terminal while the command compiles a policy for long. */
#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "os/sys.h"
#include "script/vm.h"

enum { COLUMNS = 80 };
#define SECOND INT64_C(1000000000)
#define FIRST_NS (2 * SECOND)
#define EVERY_NS (SECOND / 4)

static const char *shown_name; /* NULL: no line is to be shown */
static int64_t began_ns, written_ns;
static bool is_shown;

bool lm_progress_line(char *line, size_t size, const char *name, const char *step,
                      int64_t elapsed_ns) {
  if (elapsed_ns < FIRST_NS) return false;
  snprintf(line, size, "%s: %d s so far, %s", name, (int)(elapsed_ns / SECOND), step);
  for (char *c = line; *c; c++)
    if (*c < ' ' || *c > '~') *c = '?';
  return true;
}

static void begin_step(const char *step) {
  char line[COLUMNS];
  int64_t now = lm_sys_clock_ns();
  if (now - written_ns < EVERY_NS) return;
  if (!lm_progress_line(line, sizeof line, shown_name, step, now - began_ns)) return;
  dprintf(STDERR_FILENO, "\r%s\033[K", line);
  written_ns = now;
  is_shown = true;
}

void lm_progress_begin(const char *name) {
  lm_assert(!shown_name);
  if (!isatty(STDERR_FILENO)) return;
  shown_name = name;
  began_ns = lm_sys_clock_ns();
  lm_vm_on_step = begin_step;
}

void lm_progress_end(void) {
  lm_vm_on_step = NULL;
  shown_name = NULL;
  if (is_shown) dprintf(STDERR_FILENO, "\r\033[K");
  is_shown = false;
}
