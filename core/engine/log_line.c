/* log_line.c - lines of a file to which many processes append. */
#include "engine/log_line.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/sys.h"
#include "os/text.h"

/* The name by which the program was started: a copy, because a program may write over its
 * arguments, as nginx does to change its title. */
static LM_SPARSE char program[64];

bool lm_log_line_start(const char *path) {
  if (path[0] != '/' || strlen(path) >= LM_LOG_LINE_PATH) return false;
  (void)lm_text_put(program, sizeof program, program_invocation_short_name, NULL);
  return true;
}

/* Writes a time as 2026-11-29T12:00:00Z. gmtime(3) may read a file and take a lock. The algorithm
 * is Howard Hinnant's (chrono-Compatible Low-Level Date Algorithms, civil_from_days): eras of 400
 * years begin on a first of March, so that a leap day is the last day of its year. */
static void write_time(char *out, size_t size, int64_t unix_s) {
  enum { DAY = 86400, ERA = 146097, TO_ERA_0 = 719468 }; /* days from March 1st of year 0 to 1970 */
  unsigned second = (unsigned)(unix_s % DAY), days = (unsigned)(unix_s / DAY) + TO_ERA_0;
  unsigned in_era = days % ERA;
  unsigned year_in_era = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
  unsigned in_year = in_era - (365 * year_in_era + year_in_era / 4 - year_in_era / 100);
  unsigned from_march = (5 * in_year + 2) / 153, day = in_year - (153 * from_march + 2) / 5 + 1;
  unsigned month = from_march < 10 ? from_march + 3 : from_march - 9;
  unsigned year = days / ERA * 400 + year_in_era + (month <= 2);
  snprintf(out, size, "%04u-%02u-%02uT%02u:%02u:%02uZ", year, month, day, second / 3600,
           second / 60 % 60, second % 60);
}

size_t lm_log_line_write(char *line, size_t size, const char *words) {
  char time[48]; /* more than six numbers of any size need, so that the compiler does not warn */
  write_time(time, sizeof time, lm_sys_unix_ns() / 1000000000);
  int n = snprintf(line, size, "%s %s (%ld): %s", time, program, (long)getpid(), words);
  size_t length = n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
  lm_text_make_line(line);
  if (length == size - 1) length--; /* room for the end of the line */
  line[length] = '\n';
  return length + 1;
}
