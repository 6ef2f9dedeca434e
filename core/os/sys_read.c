/* sys_read.c - small files and text files, for Linux. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "os/descriptor.h"
#include "os/outcome.h"
#include "os/sys.h"

/* Uses pread: if the host has replaced the number by a pipe of its own, pread fails, but read would
 * take bytes out of that pipe. */
static ssize_t read_some(int fd, char *buffer, size_t size, size_t offset) {
  ssize_t n;
  do n = pread(fd, buffer, size, (off_t)offset);
  while (n < 0 && errno == EINTR);
  return n;
}

static int read_all(int fd, char *buffer, size_t size, size_t offset, size_t *out) {
  size_t used = 0;
  ssize_t n = 1;
  while (used < size && n > 0) {
    n = read_some(fd, buffer + used, size - used, offset + used);
    if (n < 0) return errno;
    used += (size_t)n;
  }
  *out = used;
  return 0;
}

static int read_file(const char *path, char *buffer, size_t size, size_t *out) {
  int before = errno;
  lm_descriptor file = lm_descriptor_keep_here(open(path, O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return outcome(-1, before);
  int error = read_all(file.fd, buffer, size - 1, 0, out);
  buffer[error ? 0 : *out] = 0;
  lm_descriptor_close(&file);
  errno = before;
  return error;
}

int lm_sys_read_file(const char *path, char *buffer, size_t size, size_t *out) {
  lm_assert(path && buffer && size && out);
  if (is_refused()) return ENOMEM;
  lm_sys_cancel_off();
  int error = read_file(path, buffer, size, out);
  lm_sys_cancel_restore();
  return error;
}

int lm_sys_read_part(const char *path, size_t offset, void *buffer, size_t size, size_t *out) {
  lm_assert(path && buffer && out);
  if (is_refused()) return ENOMEM;
  lm_sys_cancel_off();
  int before = errno;
  lm_descriptor file = lm_descriptor_keep_here(open(path, O_RDONLY | O_CLOEXEC));
  int error = file.fd < 0 ? errno : read_all(file.fd, buffer, size, offset, out);
  lm_descriptor_close(&file);
  errno = before;
  lm_sys_cancel_restore();
  return error;
}

/* getrlimit fails only for a limit that the kernel does not know. */
static size_t limit_of(int resource) {
  struct rlimit most = { RLIM_INFINITY, RLIM_INFINITY };
  int before = errno;
  (void)getrlimit(resource, &most);
  errno = before;
  return most.rlim_cur == RLIM_INFINITY ? SIZE_MAX : most.rlim_cur;
}

size_t lm_sys_address_limit(void) { return limit_of(RLIMIT_AS); }

int lm_sys_address_space(size_t *used) {
  char text[64];
  size_t length;
  lm_assert(used);
  int error = lm_sys_read_file("/proc/self/statm", text, sizeof text, &length);
  if (!error) *used = strtoull(text, NULL, 10) * LM_PAGE; /* the first word: pages of it */
  return error;
}

bool lm_sys_is_commit_limited(void) {
  char text[16];
  size_t length;
  if (lm_sys_read_file("/proc/sys/vm/overcommit_memory", text, sizeof text, &length)) return false;
  return text[0] == '2';
}

bool lm_sys_counts_data(void) {
  return limit_of(RLIMIT_DATA) != SIZE_MAX || lm_sys_is_commit_limited();
}

/* The lines of a file while they are read.
 * Law: length < sizeof text. No byte of the first `length` bytes is a newline between two calls of
 * visit_lines. */
typedef struct lines {
  char text[4096];
  size_t length;
  bool is_rest; /* `text` continues a line whose beginning was given out */
} lines;

LM_INLINE bool lines_is_valid(const lines *l) {
  return l->length < sizeof l->text && !memchr(l->text, '\n', l->length);
}

/* Calls `visit` for each whole line of the text, which then keeps the line that has no end yet. A
 * line that fills the text is given out cut, and its rest is dropped: the end of a long path could
 * look like a line about something else. */
static void visit_lines(lines *l, void (*visit)(void *ctx, const char *line), void *ctx) {
  size_t from = 0;
  for (size_t at = 0; at < l->length; at++) {
    if (l->text[at] != '\n') continue;
    l->text[at] = 0;
    if (!l->is_rest) visit(ctx, l->text + from);
    l->is_rest = false;
    from = at + 1;
  }
  l->length -= from;
  memmove(l->text, l->text + from, l->length);
  if (l->length < sizeof l->text - 1) return;
  l->text[l->length] = 0;
  if (!l->is_rest) visit(ctx, l->text);
  l->is_rest = true;
  l->length = 0;
}

static int each_line(const char *path, void (*visit)(void *ctx, const char *line), void *ctx) {
  lines l = { .length = 0 };
  int before = errno;
  lm_descriptor file = lm_descriptor_keep(open(path, O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return outcome(-1, before);
  size_t done = 0;
  ssize_t n;
  while ((n = read_some(file.fd, l.text + l.length, sizeof l.text - 1 - l.length, done)) > 0) {
    done += (size_t)n;
    l.length += (size_t)n;
    visit_lines(&l, visit, ctx);
    lm_assert(lines_is_valid(&l));
  }
  int error = n < 0 ? errno : 0;
  lm_descriptor_close(&file);
  errno = before;
  return error;
}

int lm_sys_each_line(const char *path, void (*visit)(void *ctx, const char *line), void *ctx) {
  lm_assert(path && visit);
  if (is_refused()) return ENOMEM;
  lm_sys_cancel_off();
  int error = each_line(path, visit, ctx);
  lm_sys_cancel_restore();
  return error;
}

char *lm_sys_process_field(int pid, const char *field, char text[LM_SYS_STATUS]) {
  char path[32] = "/proc/self/status";
  size_t length;
  if (pid) snprintf(path, sizeof path, "/proc/%d/status", pid);
  if (lm_sys_read_file(path, text, LM_SYS_STATUS, &length)) return NULL;
  char *line = strstr(text, field);
  return line ? line + strlen(field) : NULL;
}

/* The addresses are in lower-case digits; the name of a figure in smaps begins with a capital
 * letter. */
bool lm_sys_read_mapping(const char *line, lm_sys_mapping *out) {
  int name = 0;
  if (*line >= 'A' && *line <= 'Z') return false;
  int fields = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %*s %" SCNu64 " %n",
                      &out->from, &out->to, out->access, &out->offset, &out->inode, &name);
  out->name = line + name;
  return fields == 5;
}
