/* base.c - ends a process in which an assertion failed. */
#include "os/base.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line of text in one buffer. The message must not depend on memory that may be corrupt, so this
 * file uses no stdio. */
typedef struct line {
  char text[512];
  size_t used;
} line;

static void add(line *l, const char *text) {
  size_t n = strlen(text);
  size_t room = sizeof l->text - 1 - l->used; /* one byte stays for the newline */
  if (n > room) n = room;
  memcpy(l->text + l->used, text, n);
  l->used += n;
}

static void add_number(line *l, int number) {
  char digits[12];
  char *at = digits + sizeof digits - 1;
  *at = 0;
  do *--at = (char)('0' + number % 10);
  while ((number /= 10) > 0);
  add(l, at);
}

_Noreturn void lm_abort(const char *file, int line_number, const char *expression) {
  line l = { .used = 0 };
  add(&l, "loam: ");
  add(&l, file);
  add(&l, ":");
  add_number(&l, line_number);
  add(&l, ": not true: ");
  add(&l, expression);
  l.text[l.used++] = '\n';
  ssize_t written = write(STDERR_FILENO, l.text, l.used);
  (void)written; /* a failed write cannot be reported to anything */
  abort();
}
