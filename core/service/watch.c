/* watch.c - watches a file that other programs change, and reports when the file is at rest again.
 *
 * Programs save a file in a dozen ways: they write it in place in several pieces, rename another
 * file over it, rename it away and make a new one, or replace a symbolic link somewhere on the way
 * to the file. (A Kubernetes ConfigMap replaces the link `..data`, which is not the file's name at
 * all.) A watch on the file itself ends with the first rename. So each place on the way to the file
 * is watched, where a place is a name in a directory: the last name of the path, the name of each
 * link, and the name to which each link leads. Links may have changed when an event came, so the
 * way is followed again before each reading of the file.
 *
 * Events of names that are not on the way are ignored. Otherwise a busy directory would never be at
 * rest. */
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
  QUIET_MS = 100,     /* the file is at rest that long after the last event */
  PATIENCE_MS = 1000, /* it is read that long after the first event, even if events go on */
  POLL_MS = 2000,     /* between two polls */
  PLACES = 48,        /* more than the 40 links that the kernel follows */
};
#define EVENTS                                                                                    \
  (IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | \
   IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

/* A watched name in a directory. */
typedef struct place {
  int wd; /* inotify's number of the directory's watch */
  char name[NAME_MAX + 1];
} place;

/* Facts about a file that change when the file is changed or replaced. */
typedef struct signature {
  dev_t dev;
  ino_t ino;
  off_t size;
  struct timespec changed;
  int missing; /* the errno of stat(2); 0: the file exists */
} signature;

/* Law: 0 <= places <= PLACES. first_ns <= last_ns, and both are 0 or neither is. */
struct lm_watch {
  char path[PATH_MAX];
  lm_descriptor inotify; /* none: inotify is not available */
  int trouble;           /* the errno for which the file is only polled; 0: events come */
  place place[PLACES];
  int places;
  int64_t first_ns, last_ns; /* of the events after which the file was not read yet; 0 none */
  int64_t polled_ns;         /* time of the last poll */
  signature seen;            /* of the file when it was read last */
};

/* ---- the way to the file ---- */

bool lm_watch_is_valid(const lm_watch *w) {
  if (w->path[0] != '/' || w->places < 0 || w->places > PLACES) return false;
  return w->first_ns <= w->last_ns && !w->first_ns == !w->last_ns;
}

/* Watches a name in a directory. Returns 0 or an errno. */
static int watch_place(lm_watch *w, const char *directory, const char *name) {
  lm_assert(*directory && w->places >= 0);
  if (w->places == PLACES) return ELOOP;
  int wd = inotify_add_watch(w->inotify.fd, directory, EVENTS);
  if (wd < 0) return errno;
  place *p = &w->place[w->places++];
  p->wd = wd;
  snprintf(p->name, sizeof p->name, "%s", name);
  return 0;
}

/* Follows a symbolic link, whose path is `done`: puts the link's target before `rest`, and cuts
 * `done` to the directory from which the target is followed. The name of the link begins at
 * done[at]. Returns 0 or an errno. */
static int follow(char *done, size_t at, char *rest, size_t size) {
  char target[PATH_MAX], joined[PATH_MAX];
  lm_assert(done[at] == '/' && size <= PATH_MAX);
  ssize_t n = readlink(done, target, sizeof target - 1);
  if (n < 0) return errno;
  target[n] = 0;
  int length = snprintf(joined, sizeof joined, "%s%s%s", target, *rest ? "/" : "", rest);
  if (length < 0 || (size_t)length >= size) return ENAMETOOLONG;
  memcpy(rest, joined, (size_t)length + 1);
  done[*target == '/' ? 0 : at] = 0;
  return 0;
}

/* Moves the first name of `rest` to `name`. */
static void next_name(char *rest, char *name, size_t size) {
  size_t skip = strspn(rest, "/"), n = strcspn(rest + skip, "/");
  snprintf(name, size, "%.*s", (int)n, rest + skip);
  skip += n;
  skip += strspn(rest + skip, "/");
  memmove(rest, rest + skip, strlen(rest + skip) + 1);
}

/* Goes on by one name: watches the first name of `rest` in the directory `done`, if that name may
 * change. At the end of the way `rest` is "". Returns 0 or an errno. */
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

/* Watches all places on the way to the file. Returns 0 or an errno. */
static int walk(lm_watch *w) {
  char done[PATH_MAX], rest[PATH_MAX];
  size_t n = strlen(w->path);
  memcpy(rest, w->path, n + 1);
  lm_assert(n < sizeof rest && *w->path == '/');
  *done = 0;
  int error = 0;
  while (!error && *rest) error = step(w, done, rest);
  return error;
}

/* Ends the watches of `old` that are no longer on the way. */
static void drop_old(lm_watch *w, const int *old, int n) {
  for (int i = 0; i < n; i++) {
    bool is_wanted = false;
    for (int j = 0; j < w->places; j++) is_wanted |= w->place[j].wd == old[i];
    if (!is_wanted) inotify_rm_watch(w->inotify.fd, old[i]);
  }
}

/* Reports that inotify failed, or that it works again. */
static void report_trouble(const lm_watch *w, int trouble) {
  if (trouble)
    lm_error_event(LOAM_EVENT_WATCH, 0, NULL, "%s: polled every %d s, because inotify fails: %s",
                   w->path, POLL_MS / 1000, strerrordesc_np(trouble));
  else lm_error_event(LOAM_EVENT_WATCH, 0, NULL, "%s: watched by inotify again", w->path);
}

/* Watches the places that are on the way now. */
static void watch_way(lm_watch *w) {
  int old[PLACES], n = w->places, trouble = 0;
  for (int i = 0; i < n; i++) old[i] = w->place[i].wd;
  w->places = 0;
  if (w->inotify.fd < 0) w->inotify = lm_descriptor_keep(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  trouble = w->inotify.fd < 0 ? errno : walk(w);
  if (w->inotify.fd >= 0) drop_old(w, old, n);
  if (!trouble != !w->trouble) report_trouble(w, trouble);
  w->trouble = trouble;
}

/* ---- what happened ---- */

/* The file's signature now. */
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

/* Tells whether an event is about a place on the way. If events were lost, any may have been. */
static bool is_on_way(const lm_watch *w, const struct inotify_event *event) {
  if (event->mask & IN_Q_OVERFLOW) return true;
  for (int i = 0; i < w->places; i++)
    if (w->place[i].wd == event->wd && (!event->len || !strcmp(w->place[i].name, event->name)))
      return true;
  return false;
}

/* Notes that the file may have changed. */
static void note(lm_watch *w, int64_t now) {
  lm_assert(now > 0);
  if (!w->first_ns) w->first_ns = now;
  w->last_ns = now;
  lm_assert(lm_watch_is_valid(w));
}

/* Reads all events that have come. */
static void drain(lm_watch *w, int64_t now) {
  char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
  ssize_t n;
  while (w->inotify.fd >= 0 && (n = read(w->inotify.fd, buffer, sizeof buffer)) > 0) {
    for (char *p = buffer; p < buffer + n;) {
      const struct inotify_event *event = (const struct inotify_event *)p;
      if (is_on_way(w, event)) note(w, now);
      p += sizeof *event + event->len;
    }
  }
}

static int64_t ms_until(int64_t then, int64_t now) {
  return then <= now ? 0 : (then - now) / 1000000 + 1;
}

/* The time until the file is at rest, or until patience ends, in ms; 0: now. An event was noted. */
static int64_t ms_to_look(const lm_watch *w, int64_t now) {
  lm_assert(w->first_ns);
  int64_t quiet = ms_until(w->last_ns + QUIET_MS * 1000000ll, now);
  int64_t patience = ms_until(w->first_ns + PATIENCE_MS * 1000000ll, now);
  return quiet < patience ? quiet : patience;
}

/* Looks at the file itself every POLL_MS. A network file system reports no events for changes made
 * on another machine. If inotify fails, no events come at all, so every poll counts as a change. */
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
  watch_way(w); /* before look(): a change after this is a new event */
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
  if (strlen(path) >= PATH_MAX)
    return lm_error(LOAM_EINVAL, "%.40s...: a path of %zu bytes, at most %d are possible", path,
                    strlen(path), PATH_MAX - 1);
  lm_watch *w = lm_metadata_alloc(sizeof *w);
  if (!w) return lm_error(LOAM_ENOMEM, "%s: no memory to watch it", path);
  lm_assert(*path == '/');
  strcpy(w->path, path);
  w->inotify = LM_DESCRIPTOR_NONE;
  watch_way(w);
  w->seen = look(path);
  w->polled_ns = lm_sys_clock_ns();
  note(w, w->polled_ns); /* the file may have changed since it was loaded */
  *out = w;
  return LOAM_OK;
}

void lm_watch_close(lm_watch *w) {
  if (!w) return;
  lm_assert(lm_watch_is_valid(w));
  lm_descriptor_close(&w->inotify);
  lm_metadata_free(w);
}

/* Both watches have the same descriptor number only if the host has closed the older one's
 * descriptor. lm_descriptor_is_ours cannot tell two inotify descriptors of loam apart, so the older
 * watch forgets its own here, lest it close the new one. */
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
