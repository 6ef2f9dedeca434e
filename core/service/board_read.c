/* board_read.c - finds boards, copies their entries, and removes the files of ended trees. */
#include "service/board_read.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "os/error.h"
#include "os/hash.h"
#include "os/sys.h"
#include "os/sys_file.h"
#include "os/thread.h"
#include "pages/metadata.h"
#include "script/json.h"
#include "service/board_file.h"
#include "service/board_owner.h"
#include "service/control_client.h"
#include "service/status.h"

enum {
  TRIES = 64,       /* to copy an entry that its owner writes at the same time */
  KEPT_S = 600,     /* the last figures of a killed process stay that long */
  KEPT_BOARDS = 32, /* of trees that have ended, in one folder */
  HALF_MADE_S = 60, /* a file without a head is removed after that time */
  OPEN_TRIES = 20,  /* to open a board while another process has a lease on it: 20 ms in all */
  OPEN_NAP_NS = 1000000,
};

/* A board that is being read. Everything in it is a copy and may be any bytes. */
typedef struct view {
  int fd;
  bool is_own; /* of the effective user: it may be changed and removed */
  unsigned uid;
  const char *folder;
  const char *name; /* of the file in the folder */
  lm_board_head head;
  lm_board_news news;
  bool has_watcher; /* the process that watches the policy file of the tree lives */
  enum { USE_NOT_KNOWN, IS_USED, IS_UNUSED } by_kernel; /* what is_unused has found */
  lm_board_place place[LM_BOARD_PLACES];
  lm_board_entry entry;
  struct loam_policy_info info;
  uint64_t refused_hash; /* of lm_status */
} view;

/* What a visit does with each folder: write rows, or (`reader` is NULL) only clean. */
typedef struct visit {
  view *v;
  const lm_board_reader *reader;
  /* Of the present folder: boards of trees that ended earlier are not kept. 0: all are. */
  int64_t kept_from;
  int root;        /* the directory below which folders are looked for; -1: the own root */
  char prefix[32]; /* the path of that directory; "" for the own root */
} visit;

static bool read_at(int fd, void *to, size_t size, size_t offset) {
  return pread(fd, to, size, (off_t)offset) == (ssize_t)size;
}

static size_t offset_of_place(uint32_t place) {
  return offsetof(lm_board, place) + place * sizeof(lm_board_place);
}

static size_t offset_of_entry(uint32_t place, uint32_t seq) {
  return offsetof(lm_board, slot) + place * sizeof(lm_board_slot) +
         (seq & 1) * sizeof(lm_board_entry);
}

/* ---- one entry */

static void terminate_texts(lm_board_entry *e) {
  lm_board_figures *f = &e->figures;
  f->version[sizeof f->version - 1] = 0;
  f->program[sizeof f->program - 1] = 0;
  f->name[sizeof f->name - 1] = 0;
  f->path[sizeof f->path - 1] = 0;
  if (f->limits > LM_BOARD_LIMITS) f->limits = LM_BOARD_LIMITS;
  for (uint32_t i = 0; i < f->limits; i++) {
    f->limit[i].strategy[sizeof f->limit[i].strategy - 1] = 0;
    f->limit[i].shared[sizeof f->limit[i].shared - 1] = 0;
  }
  if (f->uses > LM_BOARD_USES) f->uses = LM_BOARD_USES;
  if (f->tags > LM_BOARD_USES) f->tags = LM_BOARD_USES;
  for (uint32_t i = 0; i < f->uses; i++) e->use[i].strategy[sizeof e->use[i].strategy - 1] = 0;
  for (uint32_t i = 0; i < f->tags; i++) e->tag[i].tag[sizeof e->tag[i].tag - 1] = 0;
  if (f->classes > LM_BOARD_CLASSES) f->classes = LM_BOARD_CLASSES;
  for (uint32_t i = 0; i < f->classes; i++)
    if (e->of_class[i].use >= f->uses) f->classes = 0;
  if (!f->error_bytes || f->error_bytes > sizeof e->last_error) f->error_bytes = 1;
  e->last_error[f->error_bytes - 1] = 0;
  lm_assert(lm_board_entry_is_valid(e));
}

/* Copies an entry. The pages of strategies, tags and classes are copied only if they have contents.
 */
static bool copy_entry(view *v, size_t at) {
  lm_board_entry *e = &v->entry;
  if (!read_at(v->fd, e, 2 * LM_BOARD_PAGE, at)) return false;
  bool has_more = e->figures.uses || e->figures.tags;
  return !has_more || read_at(v->fd, e->use_page, 3 * LM_BOARD_PAGE, at + 2 * LM_BOARD_PAGE);
}

/* Copies the current entry of a place. `seq` is read before and after: an entry whose `seq` has not
 * changed was not written in between. The fences pair with those of publish() in board.c. False:
 * the place has no entry, or its owner wrote at each of the tries. */
static bool read_entry(view *v, uint32_t place) {
  lm_board_place *p = &v->place[place];
  for (int i = 0; i < TRIES; i++) {
    if (!read_at(v->fd, p, sizeof *p, offset_of_place(place))) return false;
    uint32_t before = atomic_load_explicit(&p->seq, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (!before || !copy_entry(v, offset_of_entry(place, before))) return false;
    atomic_thread_fence(memory_order_acquire);
    if (!read_at(v->fd, p, sizeof *p, offset_of_place(place))) return false;
    if (atomic_load_explicit(&p->seq, memory_order_relaxed) != before) continue;
    terminate_texts(&v->entry);
    return true;
  }
  return false;
}

/* ---- rows */

/* The part of a row that the entry does not have. */
typedef struct row {
  uint64_t owner;
  const char *state;
  bool announced; /* the process has said itself that it ends */
  int64_t ended_at;
  unsigned uid;
} row;

static void put_limits(lm_json *out, const lm_board_figures *f) {
  lm_json_open(out, "limits", '[');
  for (uint32_t i = 0; i < f->limits; i++) {
    lm_json_open(out, NULL, '{');
    lm_json_text(out, "strategy", f->limit[i].strategy);
    lm_json_uint(out, "limit_bytes", f->limit[i].limit_bytes);
    lm_json_uint(out, "used_bytes", f->limit[i].used_bytes);
    lm_json_uint(out, "peak_bytes", f->limit[i].peak_bytes);
    if (f->limit[i].shared[0]) lm_json_text(out, "shared", f->limit[i].shared);
    if (f->limit[i].shared[0])
      lm_json_uint(out, "shared_used_bytes", f->limit[i].shared_used_bytes);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
  lm_json_uint(out, "limits_left_out", f->limits_left_out);
}

/* The size classes of the strategy that is number `use` in the entry. */
static void put_classes(lm_json *out, const lm_board_entry *e, uint32_t use) {
  lm_json_open(out, "classes", '[');
  for (uint32_t i = 0; i < e->figures.classes; i++) {
    if (e->of_class[i].use != use) continue;
    lm_json_open(out, NULL, '{');
    lm_json_uint(out, "to", e->of_class[i].most);
    lm_json_uint(out, "blocks", e->of_class[i].blocks);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
}

/* The memory of strategies and tags. A figure that is not known is left out. */
static void put_uses(lm_json *out, const lm_board_entry *e) {
  lm_json_open(out, "strategies", '[');
  for (uint32_t i = 0; i < e->figures.uses; i++) {
    const lm_board_use *u = &e->use[i];
    lm_json_open(out, NULL, '{');
    lm_json_text(out, "strategy", u->strategy);
    if (u->live_bytes != LM_BOARD_NO_FIGURE) lm_json_uint(out, "live_bytes", u->live_bytes);
    lm_json_uint(out, "held_bytes", u->held_bytes);
    lm_json_uint(out, "small_blocks", u->small_blocks);
    lm_json_uint(out, "failed", u->failed);
    put_classes(out, e, i);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
  lm_json_uint(out, "strategies_left_out", e->figures.uses_left_out);
  lm_json_uint(out, "classes_left_out", e->figures.classes_left_out);
  lm_json_open(out, "tags", '[');
  for (uint32_t i = 0; i < e->figures.tags; i++) {
    lm_json_open(out, NULL, '{');
    lm_json_text(out, "tag", e->tag[i].tag);
    lm_json_uint(out, "live_bytes", e->tag[i].live_bytes);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
  lm_json_uint(out, "tags_left_out", e->figures.tags_left_out);
}

static void put_state(lm_json *out, const row *r) {
  lm_json_text(out, "state", r->state);
  lm_json_int(out, "ended_at", r->ended_at);
  lm_json_bool(out, "announced", r->announced);
  lm_json_uint(out, "uid", r->uid);
  lm_json_int(out, "since_ms", lm_board_since_ms(r->owner));
}

/* Copies the figures to where lm_status_put reads them. */
static void take_info(struct loam_policy_info *info, const lm_board_entry *e) {
  const lm_board_figures *f = &e->figures;
  *info = (struct loam_policy_info){
    .generation = f->generation,
    .hash = f->hash,
    .loaded_at = f->loaded_at,
    .loads = f->loads,
    .refused = f->refused,
    .last_at = f->last_at,
    .last = (loam_status)f->last,
    .tags_refused = f->tags_refused,
    .plans = f->plans,
    .sites = f->sites,
    .watching = f->watching != 0,
  };
  memcpy(info->name, f->name, sizeof info->name);
  memcpy(info->path, f->path, sizeof info->path);
  memcpy(info->last_error, e->last_error, f->error_bytes);
}

/* Returns the number of the image that was published last; 0: none was. */
static uint64_t latest_number(const view *v) {
  return atomic_load_explicit(&v->news.published.now.number, memory_order_relaxed);
}

/* Adds what publishers have refused for the whole tree to what a process says that follows the
 * board. The reason is shown until something else is published: a process that obeys an older
 * publication later has not seen the refused policy either. */
static void add_news(view *v) {
  struct loam_policy_info *info = &v->info;
  uint64_t refusals = atomic_load_explicit(&v->news.refusals, memory_order_relaxed);
  lm_board_refusal *last = &v->news.refusal[refusals & 1];
  last->words[sizeof last->words - 1] = 0;
  info->watching |= v->has_watcher;
  info->loads += refusals;
  info->refused += refusals;
  int64_t published_at = v->news.image[latest_number(v) & 1].published_at;
  if (!refusals || !last->refused_at || last->refused_at <= published_at) return;
  info->last = LOAM_EPOLICY;
  info->last_at = last->refused_at;
  snprintf(info->last_error, sizeof info->last_error, "%s", last->words);
  v->refused_hash = last->text_hash;
}

/* An image that was published on the board that a process follows: the last one, or the one before
 * it. A reader may copy the news while a publisher writes them: then the description has another
 * number, and nothing is shown. */
static void put_publication(lm_json *out, const char *key, const view *v, uint64_t number) {
  const lm_board_image *image = &v->news.image[number & 1];
  if (!number || image->number != number) return;
  lm_json_open(out, key, '{');
  lm_json_uint(out, "number", number);
  lm_status_put_hash(out, "hash", image->text_hash);
  lm_json_int(out, "at", image->published_at);
  lm_json_close(out, '}');
}

static void put_publications(lm_json *out, const view *v) {
  uint64_t number = latest_number(v);
  put_publication(out, "latest", v, number);
  if (number) put_publication(out, "before", v, number - 1);
}

/* The watcher's latest figures of memory pressure; nothing if no watcher has looked. */
static void put_pressure(lm_json *out, const view *v) {
  const lm_published_gauges *g = &v->news.published.gauges;
  uint32_t stalled = atomic_load_explicit(&g->stalled, memory_order_relaxed);
  uint32_t alarm = atomic_load_explicit(&g->alarm, memory_order_relaxed);
  if (!stalled || stalled > 101) return;
  lm_json_open(out, "pressure", '{');
  lm_json_uint(out, "stalled", stalled - 1);
  lm_json_bool(out, "short", alarm & 1);
  lm_json_uint(out, "alarms", alarm / 2);
  lm_json_close(out, '}');
}

/* Writes the path of the board that a process follows, and the number of the publication that it
 * has obeyed: `loam reload` and `wait` need them. */
static void put_board(lm_json *out, const view *v) {
  char path[PATH_MAX];
  if (!v->entry.figures.follows) return;
  snprintf(path, sizeof path, "%s/%s", v->folder, v->name);
  lm_json_text(out, "board", path);
  lm_json_uint(out, "published", v->entry.figures.published);
  put_publications(out, v);
  put_pressure(out, v);
}

static void write_row(const visit *t, const row *r) {
  lm_json out = { 0 };
  view *v = t->v;
  const lm_board_figures *f = &v->entry.figures;
  take_info(&v->info, &v->entry);
  v->refused_hash = f->refused_hash;
  if (f->follows) add_news(v);
  lm_json_open(&out, NULL, '{');
  lm_status_put(&out, &(lm_status){ lm_board_pid(r->owner), f->program, f->version, f->threads,
                                    &v->info, v->refused_hash });
  put_state(&out, r);
  lm_json_int(&out, "updated_at", f->updated_at);
  put_limits(&out, f);
  put_uses(&out, &v->entry);
  lm_json_text(&out, "folder", v->folder);
  put_board(&out, v);
  lm_json_close(&out, '}');
  if (!out.failed) t->reader->write(t->reader->ctx, out.text, out.length);
  lm_json_finish(&out);
}

/* Notes when a process was first seen to be dead, which only its user may write down. */
static int64_t note_end(const view *v, uint32_t place) {
  int64_t noted = atomic_load_explicit(&v->place[place].ended_at, memory_order_relaxed);
  if (noted >= v->entry.figures.updated_at && noted <= lm_sys_unix_ns()) return noted;
  if (!v->is_own) return 0;
  noted = lm_sys_unix_ns();
  size_t offset = offset_of_place(place) + offsetof(lm_board_place, ended_at);
  return lm_sys_file_write(v->fd, offset, &noted, sizeof noted) ? 0 : noted;
}

/* Tells whether the last figures of a process that ended then are still kept. */
static bool is_recent(int64_t ended_at) {
  return ended_at > lm_sys_unix_ns() - KEPT_S * 1000000000ll;
}

/* Says whether a living process is one that this board can speak of: an ordinary user can write any
 * process id on a board of their own. A board of root may have processes of any user. */
static bool is_believed(const view *v, const lm_board_life *life) {
  return !v->uid || !life->has_uid || life->real_uid == v->uid;
}

/* Looks at the owner of a place, or at the watcher, for which `f` is NULL. An owner in another PID
 * namespace is looked at under the process id that the caller sees; *owner has that id then. */
static lm_board_life look_at(const visit *t, uint64_t *owner, uint64_t pid_namespace,
                             const lm_board_figures *f) {
  lm_board_life life = lm_board_look(*owner, pid_namespace, f);
  if (life.state != LM_BOARD_UNKNOWN || !t->reader || !t->reader->find_pid) return life;
  int pid = t->reader->find_pid(pid_namespace, lm_board_pid(*owner));
  if (pid < 0) life.state = LM_BOARD_GONE;
  if (pid <= 0) return life;
  *owner = (*owner & ~LM_BOARD_PID) | (uint64_t)pid;
  return lm_board_look(*owner, lm_board_own_namespace(), f);
}

/* Tells whether the kernel gives this process a lease for writing to the file. The process gives
 * the lease up immediately. A process that opens the file in between tries again
 * (service/board_file.c), and the kernel sends this process the signal SIGURG, which does nothing
 * unless the process handles it. */
static bool can_lease(int fd) {
  (void)fcntl(fd, F_SETSIG, SIGURG);
  if (fcntl(fd, F_SETLEASE, F_WRLCK)) return false;
  (void)fcntl(fd, F_SETLEASE, F_UNLCK);
  return true;
}

/* Tells whether surely no other process has the board open or mapped: only then the kernel gives a
 * lease. Overlayfs also gives one while the file is mapped, because the process has mapped the file
 * of the filesystem below. */
static bool is_unused(view *v) {
  struct statfs fs;
  int before = errno;
  if (v->by_kernel == USE_NOT_KNOWN) {
    bool is_known = !fstatfs(v->fd, &fs) && fs.f_type != OVERLAYFS_SUPER_MAGIC;
    v->by_kernel = is_known && can_lease(v->fd) ? IS_UNUSED : IS_USED;
  }
  errno = before;
  return v->by_kernel == IS_UNUSED;
}

/* Tells whether the process that watches the policy file of the tree lives. */
static bool find_watcher(const visit *t) {
  const view *v = t->v;
  uint64_t watcher = atomic_load_explicit(&v->news.watcher, memory_order_relaxed);
  return watcher && look_at(t, &watcher, v->head.pid_namespace, NULL).state == LM_BOARD_RUNNING;
}

static const char *const state_names[] = { "running", "stopped", "ended", "unknown" };

/* Writes the row of a place. */
static void visit_place(const visit *t, uint32_t place) {
  view *v = t->v;
  if (!read_entry(v, place)) return;
  const lm_board_figures *f = &v->entry.figures;
  uint64_t owner = atomic_load_explicit(&v->place[place].owner, memory_order_relaxed);
  if (!owner || f->owner != (owner & ~LM_BOARD_ENDED)) return; /* its first entry is to come */
  lm_board_life life = look_at(t, &owner, f->pid_namespace, f);
  bool is_unseen = life.state == LM_BOARD_UNKNOWN && is_unused(v);
  if (is_unseen) life.state = LM_BOARD_GONE;
  row r = { .owner = owner, .uid = f->uid, .announced = owner & LM_BOARD_ENDED };
  if (r.announced && (life.state == LM_BOARD_RUNNING || life.state == LM_BOARD_STOPPED)) return;
  if (!is_believed(v, &life)) return;
  if (life.has_uid) r.uid = life.uid;
  r.state = state_names[r.announced ? LM_BOARD_GONE : life.state];
  if (r.announced)
    r.ended_at = atomic_load_explicit(&v->place[place].ended_at, memory_order_relaxed);
  else if (life.state == LM_BOARD_GONE) r.ended_at = note_end(v, place);
  /* clean_board cannot tell that the process has ended, and keeps the board. */
  if (is_unseen && !is_recent(r.ended_at ? r.ended_at : f->updated_at)) return;
  write_row(t, &r);
}

/* ---- ended trees */

/* Reasons to keep a board, for the sake of one of its places; the weakest first. */
typedef enum use {
  USE_NONE,  /* no process has it, or its owner said that it ends */
  USE_OLD,   /* the owner was killed, and its last figures were kept long enough */
  USE_WORDS, /* the owner was killed a short time ago */
  USE_LIVES, /* the owner lives, or is where this process cannot see it */
} use;

/* Returns the figures of the owner of a place. NULL: it has written none. The entry may still be
 * from an earlier owner of the place. */
static const lm_board_figures *figures_of(view *v, uint32_t place, uint64_t owner) {
  return read_entry(v, place) && v->entry.figures.owner == owner ? &v->entry.figures : NULL;
}

static use use_of(const visit *t, uint32_t place) {
  view *v = t->v;
  uint64_t owner = atomic_load_explicit(&v->place[place].owner, memory_order_relaxed);
  if (lm_board_is_free(owner)) return USE_NONE;
  const lm_board_figures *f = figures_of(v, place, owner);
  uint64_t pid_namespace = f ? f->pid_namespace : v->head.pid_namespace;
  if (look_at(t, &owner, pid_namespace, f).state != LM_BOARD_GONE) return USE_LIVES;
  if (!f) return USE_NONE;
  return is_recent(note_end(v, place)) ? USE_WORDS : USE_OLD;
}

/* The greatest use of all places and of the maker, which may be about to start its program. */
static use use_of_board(const visit *t) {
  uint64_t maker = t->v->head.maker;
  if (look_at(t, &maker, t->v->head.pid_namespace, NULL).state != LM_BOARD_GONE) return USE_LIVES;
  use most = USE_NONE;
  for (uint32_t i = 0; i < LM_BOARD_PLACES && most < USE_LIVES; i++) {
    use found = use_of(t, i);
    if (found > most) most = found;
  }
  return most;
}

/* Returns what lm_board_find_living returns, of one place. */
static int living_at(view *v, uint32_t place) {
  uint64_t owner = atomic_load_explicit(&v->place[place].owner, memory_order_relaxed);
  if (lm_board_is_free(owner)) return 0;
  const lm_board_figures *f = figures_of(v, place, owner);
  uint64_t pid_namespace = f ? f->pid_namespace : v->head.pid_namespace;
  lm_board_state state = lm_board_look(owner, pid_namespace, f).state;
  if (state == LM_BOARD_UNKNOWN) return -1;
  return state == LM_BOARD_GONE ? 0 : lm_board_pid(owner);
}

static int find_living(view *v) {
  int found = 0;
  if (!read_at(v->fd, &v->head, sizeof v->head, 0) ||
      !read_at(v->fd, v->place, sizeof v->place, offsetof(lm_board, place)))
    return 0;
  lm_board_state maker = lm_board_look(v->head.maker, v->head.pid_namespace, NULL).state;
  if (maker == LM_BOARD_UNKNOWN) found = -1; /* its id means another process here */
  else if (maker != LM_BOARD_GONE) return lm_board_pid(v->head.maker);
  for (uint32_t i = 0; i < LM_BOARD_PLACES && found <= 0; i++) {
    int living = living_at(v, i);
    if (living) found = living;
  }
  return found;
}

int lm_board_find_living(int fd) {
  view *v = lm_metadata_alloc(sizeof *v);
  if (!v) return -1;
  v->fd = fd;
  v->is_own = true;
  int found = find_living(v);
  lm_metadata_free(v);
  return found;
}

/* Closes the board for programs that might join it, looks again, and removes the file. A program
 * that joins takes its place before it looks whether the board is closed. */
static void remove_board(const visit *t, int dir, const char *name) {
  view *v = t->v;
  const uint32_t closed = 1, open = 0;
  const size_t offset = offsetof(lm_board_head, is_closed);
  if (lm_sys_file_write(v->fd, offset, &closed, sizeof closed)) return;
  atomic_thread_fence(memory_order_seq_cst);
  if (!read_at(v->fd, v->place, sizeof v->place, offsetof(lm_board, place))) return;
  if (use_of_board(t) == USE_LIVES) (void)lm_sys_file_write(v->fd, offset, &open, sizeof open);
  else unlinkat(dir, name, 0);
}

static bool is_since_boot(const struct stat *st) {
  int64_t booted_ns = lm_sys_unix_ns() - lm_sys_boot_ns();
  return st->st_mtim.tv_sec >= booted_ns / 1000000000;
}

/* Tells whether the file is a board of another version of loam, written since the machine's boot.
 * The magic and the version are the beginning of a board in every version. Only the version that
 * made the board knows whether processes live on it, so no other version may remove it. */
static bool is_of_other_version(const view *v, const struct stat *st) {
  lm_board_head head;
  return read_at(v->fd, &head, offsetof(lm_board_head, places), 0) &&
         !memcmp(head.magic, LM_BOARD_MAGIC, sizeof LM_BOARD_MAGIC) &&
         head.version != LM_BOARD_VERSION && is_since_boot(st);
}

/* Tells whether this process and the maker of a board both know the boot id. A process without
 * /proc does not, nor does a service of systemd with ProcSubset=pid. */
static bool knows_boot(const lm_board_head *head) {
  char own[sizeof head->boot_id];
  lm_board_boot_id(own, sizeof own);
  return own[0] && head->boot_id[0];
}

/* Tells whether the file is a board that may be of this boot, although its boot id does not say
 * so. */
static bool is_of_unknown_boot(const lm_board_head *head, const struct stat *st) {
  return !memcmp(head->magic, LM_BOARD_MAGIC, sizeof LM_BOARD_MAGIC) && !knows_boot(head) &&
         is_since_boot(st);
}

/* Writes the row of a board of another version, which is about the board alone. */
static void write_other_version(const visit *t) {
  lm_json out = { 0 };
  lm_json_open(&out, NULL, '{');
  lm_json_text(&out, "other_version", t->v->name);
  lm_json_text(&out, "folder", t->v->folder);
  lm_json_close(&out, '}');
  if (!out.failed) t->reader->write(t->reader->ctx, out.text, out.length);
  lm_json_finish(&out);
}

/* Removes a file that is no whole board, unless it is being made. */
static void remove_half_made(const view *v, int dir, const char *name, const struct stat *st) {
  int64_t age_ns = lm_sys_unix_ns() - (int64_t)st->st_mtim.tv_sec * 1000000000;
  if (v->is_own && age_ns > HALF_MADE_S * 1000000000ll) unlinkat(dir, name, 0);
}

/* Tells whether the board was seen to have ended a short time ago, so that there is no need to look
 * at each of its places. */
static bool has_just_ended(const view *v) {
  int64_t ended_at = atomic_load_explicit(&v->head.ended_at, memory_order_relaxed);
  return ended_at && ended_at <= lm_sys_unix_ns() && is_recent(ended_at);
}

/* Tells whether a board is one of the KEPT_BOARDS whose trees ended last, or a board whose end had
 * not been noted when it was read. */
static bool is_kept(const visit *t) {
  int64_t noted = atomic_load_explicit(&t->v->head.ended_at, memory_order_relaxed);
  return !noted || noted >= t->kept_from;
}

/* Notes in the head whether processes of the tree live. */
static void note_tree(const view *v, bool lives) {
  int64_t noted = atomic_load_explicit(&v->head.ended_at, memory_order_relaxed);
  int64_t ended_at = lives ? 0 : lm_sys_unix_ns();
  if (!noted == lives) return;
  (void)lm_sys_file_write(v->fd, offsetof(lm_board_head, ended_at), &ended_at, sizeof ended_at);
}

/* Removes a board that is of no use any more. */
static void clean_board(visit *t, int dir, const char *name) {
  use found = use_of_board(t);
  if (found == USE_LIVES || found == USE_WORDS) note_tree(t->v, found == USE_LIVES);
  if (found == USE_LIVES || (found == USE_WORDS && is_kept(t))) return;
  remove_board(t, dir, name);
}

static void visit_board(visit *t, int dir, const char *name, const struct stat *st) {
  view *v = t->v;
  v->name = name;
  v->by_kernel = USE_NOT_KNOWN;
  if (is_of_other_version(v, st)) {
    if (t->reader && !is_unused(v)) write_other_version(t);
    return;
  }
  bool has_head = st->st_size == (off_t)LM_BOARD_FILE &&
                  read_at(v->fd, &v->head, sizeof v->head, 0);
  if (has_head && !t->reader && has_just_ended(v) && is_kept(t)) return;
  bool is_ours = has_head && lm_board_file_is_ours(&v->head) &&
                 (knows_boot(&v->head) || is_since_boot(st));
  if (!is_ours || !read_at(v->fd, v->place, sizeof v->place, offsetof(lm_board, place))) {
    if (!has_head || !is_of_unknown_boot(&v->head, st)) remove_half_made(v, dir, name, st);
    return;
  }
  bool has_news = t->reader && read_at(v->fd, &v->news, sizeof v->news, offsetof(lm_board, news));
  v->has_watcher = has_news && find_watcher(t);
  for (uint32_t i = 0; has_news && i < LM_BOARD_PLACES; i++)
    if (atomic_load_explicit(&v->place[i].owner, memory_order_relaxed)) visit_place(t, i);
  if (v->is_own) clean_board(t, dir, name);
}

/* ---- files and folders */

static bool is_board_name(const char *name) {
  size_t n = strlen(name);
  return n > 6 && !strcmp(name + n - 6, ".board") && isdigit((unsigned char)*name);
}

/* Opens a file below the folder `dir`. O_NONBLOCK: it may be a pipe. With it, openat fails with
 * EWOULDBLOCK while another process has a lease on the file, which it gives up after a moment
 * (can_lease). */
static int open_file(int dir, const char *name, int access) {
  int fd = -1;
  for (int i = 0; i < OPEN_TRIES; i++) {
    fd = openat(dir, name, access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 || errno != EWOULDBLOCK) break;
    lm_sys_sleep(OPEN_NAP_NS);
  }
  return fd;
}

/* Opens and visits a file of a folder of user `uid`. A file that another user owns, or that has a
 * second name, is none of that user's boards. */
static void visit_file(visit *t, int dir, const char *name) {
  view *v = t->v;
  struct stat st;
  v->fd = open_file(dir, name, v->is_own ? O_RDWR : O_RDONLY);
  if (v->fd < 0) return;
  if (!fstat(v->fd, &st) && S_ISREG(st.st_mode) && st.st_uid == v->uid && st.st_nlink == 1)
    visit_board(t, dir, name, &st);
  close(v->fd);
}

/* Returns when the tree of a board was noted to have ended; 0: it was not, or the file is none. */
static int64_t noted_end(int dir, const char *name) {
  int64_t noted = 0;
  int fd = open_file(dir, name, O_RDONLY);
  if (fd < 0) return 0;
  if (!read_at(fd, &noted, sizeof noted, offsetof(lm_board, head.ended_at))) noted = 0;
  close(fd);
  return noted;
}

/* Returns the KEPT_BOARDS-th latest of the ends that are noted in a folder, or 0. */
static int64_t find_kept_from(DIR *dir) {
  int64_t latest[KEPT_BOARDS] = { 0 };
  for (struct dirent *entry; (entry = readdir(dir));) {
    int64_t end = is_board_name(entry->d_name) ? noted_end(dirfd(dir), entry->d_name) : 0;
    for (unsigned i = 0; i < KEPT_BOARDS; i++) {
      int64_t other = latest[i];
      if (end <= other) continue;
      latest[i] = end;
      end = other;
    }
  }
  rewinddir(dir);
  return latest[KEPT_BOARDS - 1];
}

static void visit_files(visit *t, int fd) {
  DIR *dir = fdopendir(fd);
  if (!dir) {
    close(fd);
    return;
  }
  t->kept_from = t->v->is_own ? find_kept_from(dir) : 0;
  for (struct dirent *entry; (entry = readdir(dir));)
    if (is_board_name(entry->d_name)) visit_file(t, fd, entry->d_name);
  closedir(dir);
}

/* Opens a directory below the root of the visit; -1: that is not possible. */
static int open_folder(const visit *t, const char *path) {
  if (t->root >= 0) return lm_sys_open_below(t->root, path);
  return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Tells whether the reader has visited a folder before; if not, it has from now on. */
static bool was_visited(const lm_board_reader *reader, const struct stat *st) {
  lm_board_visited *visited = reader ? reader->visited : NULL;
  if (!visited) return false;
  for (unsigned i = 0; i < visited->count; i++)
    if (visited->folder[i].inode == st->st_ino && visited->folder[i].device == st->st_dev)
      return true;
  if (visited->count == LM_BOARD_VISITED) return false;
  visited->folder[visited->count].device = st->st_dev;
  visited->folder[visited->count++].inode = st->st_ino;
  return false;
}

/* Visits the boards of a folder. `owner` is the user that must own the folder; -1: the effective
 * user, or for root any user. Folders that other users can write are left alone. */
static void visit_folder(visit *t, const char *path, int64_t owner) {
  struct stat st;
  char whole[PATH_MAX];
  int fd = open_folder(t, path);
  if (fd < 0) return;
  snprintf(whole, sizeof whole, "%s%s", t->prefix, path);
  bool is_sound = !fstat(fd, &st) && !(st.st_mode & 022);
  bool is_right = owner >= 0 ? st.st_uid == owner : !geteuid() || st.st_uid == geteuid();
  if (!is_sound || !is_right || was_visited(t->reader, &st)) {
    close(fd);
    return;
  }
  t->v->folder = whole;
  t->v->uid = st.st_uid;
  t->v->is_own = t->root < 0 && st.st_uid == geteuid();
  visit_files(t, fd);
}

/* Visits the folders that processes of user `uid` use if LOAM_CONTROL_DIR is not set. */
static void visit_user(visit *t, unsigned uid) {
  char path[64];
  snprintf(path, sizeof path, "/run/user/%u/loam", uid);
  visit_folder(t, path, uid);
  snprintf(path, sizeof path, "/tmp/loam-%u", uid);
  visit_folder(t, path, uid);
}

/* The number after `prefix` in a name; -1: the name is another one. */
static int64_t number_after(const char *name, const char *prefix) {
  size_t n = strlen(prefix);
  char *end;
  if (strncmp(name, prefix, n) || !isdigit((unsigned char)name[n])) return -1;
  long long number = strtoll(name + n, &end, 10);
  return *end || number > UINT32_MAX ? -1 : number;
}

/* Visits the folders DIR/PREFIX<uid>/REST of all users. Below the own root such a folder must
 * belong to its user; in a container the users may have other numbers. */
static void visit_users(visit *t, const char *dir, const char *prefix, const char *rest) {
  char path[PATH_MAX];
  int fd = open_folder(t, dir);
  DIR *found = fd < 0 ? NULL : fdopendir(fd);
  if (fd >= 0 && !found) close(fd);
  for (struct dirent *entry; found && (entry = readdir(found));) {
    int64_t uid = number_after(entry->d_name, prefix);
    if (uid < 0 || (!uid && t->root < 0)) continue; /* visit_user has visited the own folder */
    snprintf(path, sizeof path, "%s/%s%s", dir, entry->d_name, rest);
    visit_folder(t, path, t->root < 0 ? uid : -1);
  }
  if (found) closedir(found);
}

static void visit_all_users(visit *t) {
  visit_users(t, "/run/user", "", "/loam");
  visit_users(t, "/tmp", "loam-", "");
}

/* Visits each folder that a process of the user may have used. */
static void visit_all(visit *t) {
  char path[LM_CONTROL_PATH], runtime[PATH_MAX];
  const char *own = lm_sys_getenv("XDG_RUNTIME_DIR");
  if (lm_control_dir(NULL, path, sizeof path) == LOAM_OK) visit_folder(t, path, -1);
  if (own && snprintf(runtime, sizeof runtime, "%s/loam", own) < (int)sizeof runtime)
    visit_folder(t, runtime, -1);
  visit_user(t, geteuid());
  if (!geteuid()) visit_all_users(t);
}

static void visit_further(visit *t) {
  for (unsigned i = 0; i < t->reader->folder_count; i++) visit_folder(t, t->reader->folders[i], -1);
}

/* Returns 0 if a visit can have a root, a folder, a board and a file of /proc open together. Else
 * returns an errno value: without files of /proc, it would take each board for an old one. */
static int find_descriptors(void) {
  enum { NEEDED = 4 };
  int fd[NEEDED], n = 0, error = 0;
  while (n < NEEDED && !error) {
    fd[n] = open("/", O_PATH | O_CLOEXEC);
    if (fd[n] < 0) error = errno;
    else n++;
  }
  while (n) close(fd[--n]);
  return error;
}

void lm_board_each(const lm_board_reader *reader) {
  visit t = { .v = lm_metadata_alloc(sizeof(view)), .reader = reader, .root = -1 };
  lm_assert(reader->write && reader->error);
  *reader->error = t.v ? find_descriptors() : ENOMEM;
  if (*reader->error) return lm_metadata_free(t.v);
  visit_all(&t);
  visit_further(&t);
  lm_metadata_free(t.v);
}

void lm_board_each_below(const lm_board_reader *reader, int pid) {
  visit t = { .v = lm_metadata_alloc(sizeof(view)), .reader = reader };
  lm_assert(reader->write && reader->error);
  if (!t.v) *reader->error = ENOMEM;
  if (!t.v) return;
  snprintf(t.prefix, sizeof t.prefix, "/proc/%d/root", pid);
  t.root = open(t.prefix, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (t.root >= 0) {
    visit_all_users(&t);
    visit_further(&t);
    close(t.root);
  }
  lm_metadata_free(t.v);
}

/* The thread counts as inside loam, because opendir allocates memory. */
void lm_board_clean(const char *dir) {
  visit t = { .v = lm_metadata_alloc(sizeof(view)), .root = -1 };
  if (!t.v) return;
  lm_thread *self = lm_thread_inside_begin();
  visit_folder(&t, dir, geteuid());
  lm_thread_inside_end(self);
  lm_metadata_free(t.v);
}

/* ---- images */

/* Opens a board for reading. Returns a descriptor, or -1. */
static int open_board(const char *path) {
  struct stat st;
  lm_board_head head;
  int fd = open_file(AT_FDCWD, path, O_RDONLY);
  if (fd < 0) return -1;
  bool is_board = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size == (off_t)LM_BOARD_FILE &&
                  (!geteuid() || st.st_uid == geteuid()) && read_at(fd, &head, sizeof head, 0) &&
                  lm_board_file_is_ours(&head);
  if (is_board) return fd;
  close(fd);
  return -1;
}

/* Copies the image in half `half`, if it was made from the text with this hash. A publisher may
 * write the half during the copy: then the hash of the bytes differs. */
static void *copy_image(int fd, unsigned half, uint64_t text_hash, size_t *size) {
  lm_board_image said;
  size_t at = offsetof(lm_board, news) + offsetof(lm_board_news, image) + half * sizeof said;
  if (!read_at(fd, &said, sizeof said, at) || said.text_hash != text_hash) return NULL;
  if (!said.number || !said.size || said.size > LM_BOARD_HALF) return NULL;
  void *bytes = lm_metadata_alloc(said.size);
  *size = said.size;
  if (bytes && read_at(fd, bytes, said.size, LM_BOARD_HALVES_AT + half * LM_BOARD_HALF) &&
      lm_hash_words(LM_HASH_NONE, bytes, said.size) == said.hash)
    return bytes;
  lm_metadata_free(bytes);
  return NULL;
}

loam_status lm_board_read_image(const char *path, uint64_t text_hash, void **bytes, size_t *size) {
  int fd = open_board(path);
  *bytes = NULL;
  if (fd < 0) return lm_error(LOAM_EIO, "%s: it is no board that can be read", path);
  for (unsigned half = 0; !*bytes && half < 2; half++)
    *bytes = copy_image(fd, half, text_hash, size);
  close(fd);
  if (*bytes) return LOAM_OK;
  return lm_error(LOAM_EIO, "%s: the board has no image of the text with hash %016llx", path,
                  (unsigned long long)text_hash);
}
