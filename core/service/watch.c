/* watch.c - a file that changes under us, told once it is quiet.
 *
 * A save is not one event but any of a dozen patterns: written in place in pieces, renamed over,
 * renamed away and made anew, or a symbolic link replaced somewhere on the way (a Kubernetes
 * ConfigMap swaps `..data`, which is not the file's name at all). A watch on the file itself dies
 * with the first rename. So each place of the way is watched, a place being a name in a directory:
 * the path's own last name, that of every link, and of what each link leads to. Links may have
 * changed when something happened, so the way is walked anew before each look.
 *
 * Names that are not on the way are ignored, or a busy directory would never be quiet. */
#include "service/watch.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heap/pool.h"
#include "os/descriptor.h"
#include "os/error.h"
#include "os/sys.h"

enum {
  QUIET_MS = 100,     /* after the last event */
  PATIENCE_MS = 1000, /* after the first, if it never gets quiet */
  POLL_MS = 2000,
  PLACES = 48, /* more than the 40 links that the kernel follows */
};
#define EVENTS                                                                                    \
  (IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | \
   IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

typedef struct place {
  int wd;
  char name[NAME_MAX + 1];
} place;

/* What tells that a file became another, without reading it. */
typedef struct signature {
  dev_t dev;
  ino_t ino;
  off_t size;
  struct timespec changed;
  int missing; /* the errno */
} signature;

struct lm_watch {
  char path[PATH_MAX];
  lm_descriptor inotify; /* none: not to be had */
  int trouble;           /* errno that made it poll only; 0: it hears of everything */
  place place[PLACES];
  int places;
  int64_t first_ns, last_ns; /* events not looked at yet; 0 none */
  int64_t polled_ns;
  signature seen;
};

/* ---- the way to the file ---- */

static int watch_place(lm_watch *w, const char *directory, const char *name) {
  if (w->places == PLACES) return ELOOP;
  int wd = inotify_add_watch(w->inotify.fd, directory, EVENTS);
  if (wd < 0) return errno;
  place *p = &w->place[w->places++];
  p->wd = wd;
  snprintf(p->name, sizeof p->name, "%s", name);
  return 0;
}

/* Puts what the link `at` (directory + name) says before `rest`; `done` becomes where to go on. */
static int follow(char *done, size_t at, char *rest, size_t size) {
  char target[PATH_MAX], joined[PATH_MAX];
  ssize_t n = readlink(done, target, sizeof target - 1);
  if (n < 0) return errno;
  target[n] = 0;
  int length = snprintf(joined, sizeof joined, "%s%s%s", target, *rest ? "/" : "", rest);
  if (length < 0 || (size_t)length >= size) return ENAMETOOLONG;
  memcpy(rest, joined, (size_t)length + 1);
  done[*target == '/' ? 0 : at] = 0;
  return 0;
}

/* Takes the first name off `rest`. */
static void next_name(char *rest, char *name, size_t size) {
  size_t skip = strspn(rest, "/"), n = strcspn(rest + skip, "/");
  snprintf(name, size, "%.*s", (int)n, rest + skip);
  skip += n;
  skip += strspn(rest + skip, "/");
  memmove(rest, rest + skip, strlen(rest + skip) + 1);
}

/* One step of the way: the next name of `rest`, in the directory `done`. */
static int step(lm_watch *w, char *done, char *rest) {
  char name[NAME_MAX + 1];
  struct stat st;
  size_t at = strlen(done);
  next_name(rest, name, sizeof name);
  if (at + 1 + strlen(name) >= PATH_MAX) return ENAMETOOLONG;
  snprintf(done + at, PATH_MAX - at, "/%s", name);
  bool is_there = !lstat(done, &st);
  if (is_there && S_ISDIR(st.st_mode) && *rest) return 0;
  done[at] = 0;
  int error = watch_place(w, *done ? done : "/", name);
  done[at] = '/';
  if (error) return error;
  if (is_there && S_ISLNK(st.st_mode)) return follow(done, at, rest, PATH_MAX);
  *rest = 0; /* the file, or the first name that is missing */
  return 0;
}

static int walk(lm_watch *w) {
  char done[PATH_MAX], rest[PATH_MAX];
  size_t n = strlen(w->path);
  memcpy(rest, w->path, n + 1);
  *done = 0;
  int error = 0;
  while (!error && *rest) error = step(w, done, rest);
  return error;
}

/* Places of before that are on the way no more. */
static void drop_old(lm_watch *w, const int *old, int n) {
  for (int i = 0; i < n; i++) {
    bool is_wanted = false;
    for (int j = 0; j < w->places; j++) is_wanted |= w->place[j].wd == old[i];
    if (!is_wanted) inotify_rm_watch(w->inotify.fd, old[i]);
  }
}

static void tell(const lm_watch *w, int trouble) {
  if (trouble)
    lm_error_event(LOAM_EVENT_WATCH, 0, NULL, "%s: looked at every %d s, for inotify fails: %s",
                   w->path, POLL_MS / 1000, strerrordesc_np(trouble));
  else lm_error_event(LOAM_EVENT_WATCH, 0, NULL, "%s: watched by inotify again", w->path);
}

static void arm(lm_watch *w) {
  int old[PLACES], n = w->places, trouble = 0;
  for (int i = 0; i < n; i++) old[i] = w->place[i].wd;
  w->places = 0;
  if (w->inotify.fd < 0) w->inotify = lm_descriptor_keep(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  trouble = w->inotify.fd < 0 ? errno : walk(w);
  if (w->inotify.fd >= 0) drop_old(w, old, n);
  if (!trouble != !w->trouble) tell(w, trouble);
  w->trouble = trouble;
}

/* ---- what happened ---- */

static signature look(const char *path) {
  struct stat st;
  signature s = { 0 };
  if (stat(path, &st)) {
    s.missing = errno;
  } else {
    s.dev = st.st_dev;
    s.ino = st.st_ino;
    s.size = st.st_size;
    s.changed = st.st_ctim;
  }
  return s;
}

static bool is_same(const signature *a, const signature *b) {
  return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->missing == b->missing &&
         a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static bool is_ours(const lm_watch *w, const struct inotify_event *event) {
  if (event->mask & IN_Q_OVERFLOW) return true;
  for (int i = 0; i < w->places; i++)
    if (w->place[i].wd == event->wd && (!event->len || !strcmp(w->place[i].name, event->name)))
      return true;
  return false;
}

static void note(lm_watch *w, int64_t now) {
  if (!w->first_ns) w->first_ns = now;
  w->last_ns = now;
}

static void drain(lm_watch *w, int64_t now) {
  char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
  ssize_t n;
  while (w->inotify.fd >= 0 && (n = read(w->inotify.fd, buffer, sizeof buffer)) > 0) {
    for (char *p = buffer; p < buffer + n;) {
      const struct inotify_event *event = (const struct inotify_event *)p;
      if (is_ours(w, event)) note(w, now);
      p += sizeof *event + event->len;
    }
  }
}

static int64_t ms_until(int64_t then, int64_t now) {
  return then <= now ? 0 : (then - now) / 1000000 + 1;
}

static int64_t ms_to_look(const lm_watch *w, int64_t now) {
  int64_t quiet = ms_until(w->last_ns + QUIET_MS * 1000000ll, now);
  int64_t patience = ms_until(w->first_ns + PATIENCE_MS * 1000000ll, now);
  return quiet < patience ? quiet : patience;
}

/* Filesystems that are changed from elsewhere tell nothing; and in trouble nobody does. */
static void poll_file(lm_watch *w, int64_t now) {
  if (ms_until(w->polled_ns + POLL_MS * 1000000ll, now)) return;
  w->polled_ns = now;
  signature s = look(w->path);
  if (w->trouble || !is_same(&s, &w->seen)) note(w, now);
}

bool lm_watch_is_lost(const lm_watch *w) {
  return w->inotify.fd >= 0 && !lm_descriptor_is_ours(&w->inotify);
}

bool lm_watch_ready(lm_watch *w) {
  int64_t now = lm_sys_clock_ns();
  if (lm_watch_is_lost(w)) return false;
  drain(w, now);
  poll_file(w, now);
  if (!w->first_ns || ms_to_look(w, now)) return false;
  w->first_ns = w->last_ns = 0;
  arm(w); /* before the look: what changes after it is an event again */
  w->seen = look(w->path);
  return true;
}

int lm_watch_timeout_ms(const lm_watch *w) {
  int64_t now = lm_sys_clock_ns();
  int64_t ms = ms_until(w->polled_ns + POLL_MS * 1000000ll, now);
  if (w->first_ns && ms_to_look(w, now) < ms) ms = ms_to_look(w, now);
  return (int)ms;
}

/* ---- life ---- */

loam_status lm_watch_open(const char *path, lm_watch **out) {
  *out = NULL;
  if (strlen(path) >= PATH_MAX) return lm_error(LOAM_EINVAL, "a path of %zu bytes", strlen(path));
  lm_watch *w = lm_metadata_alloc(sizeof *w);
  if (!w) return lm_error(LOAM_ENOMEM, "%s: no memory to watch it", path);
  strcpy(w->path, path);
  w->inotify = LM_DESCRIPTOR_NONE;
  arm(w);
  w->seen = look(path);
  w->polled_ns = lm_sys_clock_ns();
  note(w, w->polled_ns); /* it may have changed between its load and now */
  *out = w;
  return LOAM_OK;
}

void lm_watch_close(lm_watch *w) {
  if (!w) return;
  lm_descriptor_close(&w->inotify);
  lm_metadata_free(w);
}

/* Both have one number only if the host has closed the older one's: all of inotify look alike. */
void lm_watch_replace(lm_watch **watch, lm_watch *by) {
  lm_watch *old = *watch;
  if (old && by && old->inotify.fd == by->inotify.fd) old->inotify = LM_DESCRIPTOR_NONE;
  lm_watch_close(old);
  *watch = by;
}

int lm_watch_fd(const lm_watch *w) {
  return lm_descriptor_is_ours(&w->inotify) ? w->inotify.fd : -1;
}
const char *lm_watch_path(const lm_watch *w) { return w->path; }
