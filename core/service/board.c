/* board.c - takes a place on a board and writes it.
 *
 * Who writes what. The owner of a place writes its slot and its `seq`; any process of the tree may
 * take a free place, by one compare-and-swap of `owner`. A process can die between any two stores:
 * a place whose owner is dead is taken by a later process, when no free one is left below it.
 *
 * Fork. The parent counts the child in `expected` before the fork, and the child takes a place in
 * its fork hook, so no process of the tree takes the board for unused in between. The hook makes
 * four system calls: getpid, getppid, geteuid, and madvise for the page that it writes. With
 * CROWDED places taken, the hook also makes up to TRIES calls of kill(pid, 0); on a full board it
 * makes up to TRIES_FULL more. It opens no file. */
#include "service/board.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heap/strategy.h"
#include "os/error.h"
#include "os/sys.h"
#include "os/text.h"
#include "os/thread.h"
#include "os/version.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "service/board_file.h"
#include "service/board_owner.h"
#include "service/board_read.h"
#include "service/board_use.h"
#include "service/policy.h"
#include "service/quota_file.h"
#include "service/status.h"

enum {
  REFRESH_MS = 250,      /* between two writes of lm_board_refresh; in a young process less, */
  REFRESH_LEAST_MS = 4,  /* down to this: see is_refresh_due */
  CROWDED = 32,          /* with that many places taken, a search first looks for dead owners */
  TRIES = 4,             /* dead owners that such a search looks for */
  TRIES_FULL = 64,       /* dead owners that a search looks for on a full board */
  STRATEGIES_SEEN = 1024 /* the newest strategies are searched for limits */
};

/* Guards the variables below, except the two times. The order of locks: the load lock of policy.c,
 * this mutex, the other locks of policy.c, locks of memory.
 *
 * Law: has_place implies that `board` is mapped, `at` is one of its places, and `owner` is not the
 * word of a free place. `path` ends with a NUL, and `mine` obeys the law of an entry. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static lm_board *board;
static bool has_place;
static uint32_t at;            /* the place */
static uint64_t owner;         /* the owner word of this process */
static uint64_t *signed_by;    /* holds `owner` in the process that has the place; else 0 */
static uint64_t pid_namespace; /* 0: not known */
static bool is_counted;        /* this fork has counted its child in `expected` */
/* The halves of the images of `board`. Written under the mutex with release, which pairs with the
 * acquire of a thread that obeys an image. NULL: the process does not follow the board. */
static const char *_Atomic halves;
static uid_t uid;           /* the effective user when the place was taken */
static struct stat program; /* the program's file; zero where it is not known */
/* A copy of the entry that was written last, or that is about to be written. */
static LM_SPARSE lm_board_entry mine;
static LM_SPARSE char path[PATH_MAX]; /* of `board` */
static LM_SPARSE struct loam_policy_info info;

/* When this process wrote last, and first, by lm_sys_coarse_ns. 0: never. They order nothing. */
static _Atomic int64_t written_ns, first_ns;

static void note_write(void) {
  int64_t now = lm_sys_coarse_ns(), never = 0;
  atomic_store_explicit(&written_ns, now, memory_order_relaxed);
  atomic_compare_exchange_strong(&first_ns, &never, now);
}

static bool is_valid_locked(void) {
  bool has_good_place = board && at < LM_BOARD_PLACES && !lm_board_is_free(owner);
  return (!has_place || has_good_place) && memchr(path, 0, sizeof path) &&
         lm_board_entry_is_valid(&mine);
}

/* The holder counts as inside loam, so that nothing it does makes a new site. It is in a guarded
 * section (os/fork_gate.h): a fork waits until the mutex is free. */
static void lock(void) {
  (void)lm_thread_inside_begin();
  lm_lock_hold_cancel();
  pthread_mutex_lock(&mutex);
}

static void unlock(void) {
  lm_assert(is_valid_locked());
  pthread_mutex_unlock(&mutex);
  lm_lock_allow_cancel();
  lm_thread_inside_end(lm_thread_self);
}

/* ---- the entry ---- */

/* Tells whether an account is among the limits of the entry already. */
static bool is_listed(const lm_strategy *const *listed, uint32_t n, const lm_strategy *account) {
  for (uint32_t i = 0; i < n; i++)
    if (listed[i] == account) return true;
  return false;
}

static void put_limit(lm_board_limit *limit, const lm_strategy *s) {
  int64_t used = atomic_load_explicit(&s->account->used, memory_order_relaxed);
  lm_text_put(limit->strategy, sizeof limit->strategy, s->desc.name, NULL);
  limit->limit_bytes = s->desc.limit;
  limit->used_bytes = used > 0 ? (uint64_t)used : 0;
  lm_text_put(limit->shared, sizeof limit->shared, s->desc.shared, NULL);
  limit->shared_used_bytes = s->desc.shared[0] ? lm_strategy_limit_used(s) : 0;
  limit->peak_bytes = lm_strategy_limit_peak(s, lm_strategy_limit_used(s));
}

/* Lists limits of the live policy, beginning with the newest strategies. A strategy of an earlier
 * policy may still have memory, but its limit holds no longer. Without memory for `named`, such
 * limits are listed too. */
static void fill_limits(lm_board_figures *f) {
  const lm_strategy *listed[LM_BOARD_LIMITS];
  uint32_t count = lm_strategy_count(),
           least = count > STRATEGIES_SEEN ? count - STRATEGIES_SEEN : 0;
  uint8_t *named = NULL;
  f->limits = f->limits_left_out = 0;
  for (uint32_t id = count; id-- > least;) {
    const lm_strategy *s = lm_strategy_at(id);
    if (s->whole != s || !s->desc.limit || is_listed(listed, f->limits, s->account)) continue;
    if (!named) named = lm_policy_strategies_named(count);
    if (named && !named[id]) continue;
    if (f->limits == LM_BOARD_LIMITS) {
      f->limits_left_out++;
      continue;
    }
    listed[f->limits] = s->account;
    put_limit(&f->limit[f->limits++], s);
  }
  lm_metadata_free(named);
}

/* The page of the error is not touched in a process that never had one. */
static void fill_error(lm_board_figures *f) {
  uint32_t before = f->error_bytes;
  f->error_bytes = (uint32_t)strnlen(info.last_error, sizeof mine.last_error - 1) + 1;
  if (before <= 1 && f->error_bytes == 1) return;
  memcpy(mine.last_error, info.last_error, f->error_bytes);
  mine.last_error[f->error_bytes - 1] = 0;
}

static void fill_policy(lm_board_figures *f) {
  f->refused_hash = lm_policy_info_get(&info);
  f->generation = info.generation;
  f->hash = info.hash;
  f->loaded_at = info.loaded_at;
  f->loads = info.loads;
  f->refused = info.refused;
  f->last_at = info.last_at;
  f->tags_refused = info.tags_refused;
  f->last = info.last;
  f->plans = info.plans;
  f->sites = info.sites;
  f->watching = info.watching != 0;
  memcpy(f->name, info.name, sizeof f->name);
  memcpy(f->path, info.path, sizeof f->path);
  fill_error(f);
}

/* Fills `mine` with the present figures, except those of strategies and tags. A process that takes
 * a place writes these only, so that a fork writes one page. */
static void fill_briefly(void) {
  lm_board_figures *f = &mine.figures;
  f->exe_device = program.st_dev;
  f->exe_inode = program.st_ino;
  f->uid = uid;
  f->threads = lm_thread_count();
  f->follows = lm_board_halves() != NULL;
  f->published = atomic_load_explicit(&lm_published_obeyed.number, memory_order_relaxed);
  lm_text_put(f->version, sizeof f->version, LM_VERSION, NULL);
  lm_text_put(f->program, sizeof f->program, lm_status_program(), NULL);
  fill_policy(f);
  fill_limits(f);
}

/* Leaves strategies and tags out of `mine`. */
static void forget_uses(void) {
  lm_board_figures *f = &mine.figures;
  f->uses = f->uses_left_out = f->tags = f->tags_left_out = 0;
  f->classes = f->classes_left_out = 0;
}

/* Fills `mine` with all present figures. */
static void fill(void) {
  fill_briefly();
  lm_board_use_fill(&mine);
}

/* ---- writing ---- */

/* Gives a range of the board memory and room in its file, so that a store cannot end the process.
 * False: it has no room. */
static bool can_write(void *from, size_t size, uint32_t place) {
  int error = lm_sys_prefault(from, size);
  return !error || (error == EINVAL && place < board->head.prepared);
}

/* Copies whole words. The stores are relaxed: publish() orders them. */
static void copy(uint64_t *to, const uint64_t *from, size_t bytes) {
  for (size_t i = 0; i < (bytes + 7) / 8; i++) __atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
}

/* Gives the pages of an entry room. Strategies or tags whose pages get no room are left out and
 * counted. False: the file has no room for the other pages. */
static bool can_write_entry(lm_board_entry *entry) {
  lm_board_figures *f = &mine.figures;
  bool has_error = f->error_bytes > 1;
  if (!can_write(entry, has_error ? 2 * LM_BOARD_PAGE : LM_BOARD_PAGE, at)) return false;
  if (f->uses && !can_write(entry->use_page, LM_BOARD_PAGE, at)) {
    f->uses_left_out += f->uses;
    f->uses = f->classes = 0;
  }
  if (f->classes && !can_write(entry->class_page, LM_BOARD_PAGE, at)) {
    f->classes_left_out += f->classes;
    f->classes = 0;
  }
  if (f->tags && !can_write(entry->tag_page, LM_BOARD_PAGE, at)) {
    f->tags_left_out += f->tags;
    f->tags = 0;
  }
  return true;
}

/* Writes `mine` into the entry that is not current, and makes it current. False: the file has no
 * room for it. The release fence orders the store of `seq` of the last call before the stores to
 * the entry; it pairs with the acquire fence of a reader, which then sees that `seq` has changed.
 * The release of `seq` pairs with the acquire of a reader: the entry is whole. */
static bool publish(void) {
  lm_board_place *place = &board->place[at];
  uint32_t seq = atomic_load_explicit(&place->seq, memory_order_relaxed) + 1;
  lm_board_entry *entry = &board->slot[at].entry[seq & 1];
  const lm_board_figures *f = &mine.figures;
  mine.figures.owner = owner;
  mine.figures.pid_namespace = pid_namespace;
  mine.figures.updated_at = lm_sys_unix_ns();
  if (!can_write_entry(entry)) return false;
  atomic_thread_fence(memory_order_release);
  copy(entry->figures_page, mine.figures_page, sizeof mine.figures);
  if (f->error_bytes > 1) copy(entry->error_page, mine.error_page, f->error_bytes);
  copy(entry->use_page, mine.use_page, f->uses * sizeof *mine.use);
  copy(entry->tag_page, mine.tag_page, f->tags * sizeof *mine.tag);
  copy(entry->class_page, mine.class_page, f->classes * sizeof *mine.of_class);
  atomic_store_explicit(&place->seq, seq, memory_order_release);
  return true;
}

/* ---- taking a place ---- */

/* The PID namespace that the current entry of a place names; 0: it has no entry. */
static uint64_t namespace_of(uint32_t place) {
  uint32_t seq = atomic_load_explicit(&board->place[place].seq, memory_order_acquire);
  return seq ? board->slot[place].entry[seq & 1].figures.pid_namespace : 0;
}

/* Tells whether the place was taken by this process before it replaced its program, or by an
 * earlier process with its id. An owner that has not written its namespace yet may be a process of
 * another namespace with the same id. */
static bool is_earlier_self(uint32_t place, uint64_t was) {
  if (lm_board_is_free(was) || lm_board_pid(was) != lm_board_pid(owner)) return false;
  return namespace_of(place) == pid_namespace;
}

/* Tells whether the owner of a place is dead. */
static bool is_dead(uint32_t place, uint64_t was) {
  int before = errno;
  bool dead = pid_namespace && namespace_of(place) == pid_namespace && kill(lm_board_pid(was), 0) &&
              errno == ESRCH;
  errno = before;
  return dead;
}

/* Takes a place whose owner word is `was`. False: another process was faster, or the file has no
 * room. Then readers find the entry of the earlier process: `ended_at` changes only when the entry
 * of this process is in the place. The wish is cleared before that, because a new wish may come as
 * soon as the entry is there. */
static bool take(uint32_t place, uint64_t was) {
  lm_board_place *p = &board->place[place];
  uint64_t found = was;
  if (!atomic_compare_exchange_strong(&p->owner, &found, owner)) return false;
  atomic_store_explicit(&p->sample_wish, 0, memory_order_relaxed); /* it was for another process */
  at = place;
  has_place = publish();
  if (has_place) atomic_store_explicit(&p->ended_at, 0, memory_order_relaxed);
  else atomic_store(&p->owner, was);
  return has_place;
}

/* Takes the place of a dead process, among the next `tries` places from the hand. */
static bool take_from_dead(uint32_t tries) {
  for (uint32_t i = 0; i < tries; i++) {
    uint32_t place = atomic_fetch_add_explicit(&board->head.hand, 1, memory_order_relaxed) %
                     LM_BOARD_PLACES;
    uint64_t was = atomic_load(&board->place[place].owner);
    if (!was) atomic_store_explicit(&board->head.hand, 0, memory_order_relaxed);
    else if (!lm_board_is_free(was) && is_dead(place, was) && take(place, was)) return true;
  }
  return false;
}

/* Takes the first free place. Where many places are taken, those of dead processes come before
 * places that were never used, so that the file stays small. */
static bool take_any(void) {
  for (uint32_t place = 0; place < LM_BOARD_PLACES; place++) {
    uint64_t was = atomic_load(&board->place[place].owner);
    if (!lm_board_is_free(was)) continue;
    if (!was && place >= CROWDED && take_from_dead(TRIES)) return true;
    if (take(place, was)) return true;
    if (!was && !atomic_load(&board->place[place].owner)) break; /* the file has no room */
  }
  return take_from_dead(TRIES_FULL);
}

/* Takes the place that this process had before it replaced its program. */
static bool take_again(void) {
  for (uint32_t place = 0; place < LM_BOARD_PLACES; place++) {
    uint64_t was = atomic_load(&board->place[place].owner);
    if (!was) break;
    if (is_earlier_self(place, was) && take(place, was)) return true;
  }
  return false;
}

/* Notes that this process has the place, in a page that reads as zeros in a forked child. With that
 * page, is_signed needs no system call. */
static void sign(void) {
  void *page = NULL;
  if (!signed_by && !lm_sys_map_wiped(LM_PAGE, &page)) signed_by = page;
  if (signed_by) *signed_by = owner;
}

/* Takes a place for this process and writes `mine` there. `is_program`: this program may be the
 * successor of another one in the process. A child that is in another PID namespace than its parent
 * sees 0 as its parent's id. Its own id means nothing to readers outside, so the place names the
 * namespace. Such a child may come from a bare clone(2), without fork_child. */
static void settle(bool is_program) {
  if (!is_program && getppid() != lm_board_pid(owner)) pid_namespace = lm_board_own_namespace();
  owner = lm_board_owner_now(getpid());
  has_place = false;
  mine.figures.uid = uid = geteuid();
  sign();
  if ((is_program && take_again()) || take_any()) return;
  atomic_fetch_add_explicit(&board->head.left_out, 1, memory_order_relaxed);
}

/* Tells whether this process, and no parent of it, has taken the place. */
static bool is_signed(void) {
  return signed_by ? *signed_by == owner : lm_board_pid(owner) == getpid();
}

/* Tells whether the place is this process's own. A child that was made without the fork hooks has
 * no place yet. Another process may have taken the place because it found the owner dead. */
static bool is_own_place(void) {
  return has_place && is_signed() && atomic_load(&board->place[at].owner) == owner;
}

/* ---- fork ---- */

/* In a guarded section a signal handler forks, perhaps in the middle of a change. */
static void fork_prepare(void) {
  lm_assert(lm_lock_cancel_holds || is_valid_locked());
  is_counted = board && has_place;
  if (is_counted) atomic_fetch_add(&board->head.expected, 1);
}

/* If a fork fails, its child stays expected, and the next reader removes the board's file in place
 * of the last process. */
static void fork_child(void) {
  atomic_store_explicit(&first_ns, 0, memory_order_relaxed);
  pthread_mutex_init(&mutex, NULL);
  if (!is_counted) return;
  forget_uses();
  settle(false);
  atomic_fetch_sub(&board->head.expected, 1);
}

/* The hooks of policy.c are registered first: the child's hook here reads the policy. */
static void register_hooks(void) {
  static const lm_thread_hooks hooks = { .fork_prepare = fork_prepare, .fork_child = fork_child };
  lm_policy_start();
  lm_thread_add_hooks(&hooks);
  lm_policy_on_attempt(lm_board_write);
}

/* ---- start and end ---- */

/* Gives up the mappings; the place was given up before. A thread that obeys an image reads them
 * under the load lock of policy.c, so the caller holds that lock too, if the process follows the
 * board. */
static void leave_board(void) {
  const char *followed = atomic_exchange(&halves, NULL);
  lm_board *left = board;
  /* Before the board is unmapped: a signal handler may fork, and fork_prepare uses the board. */
  has_place = false;
  board = NULL;
  lm_published_unmap();
  if (followed) lm_sys_unmap((void *)(uintptr_t)followed, 2 * LM_BOARD_HALF);
  lm_board_file_unmap(left);
}

/* Maps the board that the environment names. A reader may remove the file at that time; then the
 * board is closed, and the place there is given up. Sequentially consistent: either this process
 * sees that the board is closed, or the reader sees the place. */
static bool join(void) {
  if (!board) board = lm_board_file_inherited(path);
  if (!board) return false;
  fill_briefly();
  settle(true);
  if (!atomic_load(&board->head.is_closed)) return true;
  if (has_place) atomic_store(&board->place[at].owner, owner | LM_BOARD_ENDED);
  leave_board();
  return false;
}

loam_status lm_board_make(const char *dir, const char *policy, char *made) {
  lm_board *mapped = NULL;
  if (strlen(policy) >= sizeof mapped->news.policy)
    return lm_error(LOAM_EINVAL, "board: the path of the policy has more than %zu bytes",
                    sizeof mapped->news.policy - 1);
  lm_board_clean(dir);
  loam_status status = lm_board_file_make(dir, made, &mapped);
  if (status != LOAM_OK) return status;
  (void)lm_quota_file_make(dir); /* a process that needs it tries again, and tells why it fails */
  snprintf(mapped->news.policy, sizeof mapped->news.policy, "%s", policy);
  lm_board_file_unmap(mapped);
  return LOAM_OK;
}

/* Makes a board for this process and the children that it will have. */
static loam_status make(const char *dir) {
  lm_board_clean(dir);
  loam_status status = lm_board_file_make(dir, path, &board);
  if (status != LOAM_OK) return status;
  fill_briefly();
  settle(false);
  return LOAM_OK;
}

/* Notes the file of the program and the PID namespace, which an entry names. */
static void find_self(void) {
  pid_namespace = lm_board_own_namespace();
  if (stat("/proc/self/exe", &program)) program = (struct stat){ 0 };
}

static loam_status start_locked(const char *dir) {
  if (board && atomic_load(&board->head.is_closed)) leave_board();
  if (!board) {
    find_self();
    return join() ? LOAM_OK : make(dir);
  }
  fill();
  if (!is_own_place()) settle(false);
  else (void)publish();
  return LOAM_OK;
}

static void register_hooks_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_hooks);
}

/* Returns the absolute path of the policy that the environment names; NULL: it names none. The path
 * stays until the next call. */
static const char *policy_wanted(void) {
  static LM_SPARSE char buffer[PATH_MAX];
  const char *policy = lm_sys_getenv("LOAM_POLICY");
  return policy && *policy ? lm_policy_file_absolute(policy, buffer, sizeof buffer) : NULL;
}

/* Tells whether the images of the board are for the policy that the environment names: a program of
 * the tree may have started another one with a policy of its own. */
static bool is_for_us(void) {
  const char *policy = policy_wanted(), *theirs = board->news.policy;
  size_t room = sizeof board->news.policy;
  return policy && strnlen(theirs, room) < room && !strcmp(policy, theirs);
}

static void follow_locked(void) {
  if (!board || lm_board_halves() || !is_for_us()) return;
  atomic_store_explicit(&halves, lm_board_file_follow(path), memory_order_release);
  lm_quota_file_follow(path, board->head.boot_id);
}

void lm_board_follow(void) {
  int before = errno;
  if (!lm_sys_getenv(LM_BOARD_VARIABLE)) return;
  register_hooks_once();
  lm_policy_begin(); /* for lm_quota_file_follow */
  lock();
  if (!board) board = lm_board_file_inherited(path);
  follow_locked();
  unlock();
  lm_policy_end();
  errno = before;
}

/* Makes a board for this process and the programs that it will start, and follows it, unless the
 * process follows one or has no policy. */
static loam_status make_own(const char *dir) {
  const char *policy = policy_wanted();
  if (lm_board_halves() || !policy) return LOAM_OK;
  leave_board();
  loam_status status = lm_board_make(dir, policy, path);
  if (status != LOAM_OK) return status;
  board = lm_board_file_map(path);
  follow_locked();
  if (board) lm_board_file_bequeath(path, policy);
  return LOAM_OK;
}

/* The load lock is taken first, because join may give up a board that has been closed, while
 * another thread reads an image of that board. */
loam_status lm_board_join(const char *dir) {
  int before = errno;
  register_hooks_once();
  lm_policy_begin();
  lock();
  loam_status status = dir ? make_own(dir) : LOAM_OK;
  if (board && !is_own_place()) {
    find_self();
    lm_quota_file_describe(pid_namespace, program.st_dev, program.st_ino);
    (void)join();
  }
  unlock();
  lm_policy_end();
  errno = before;
  return status;
}

const char *lm_board_halves(void) { return atomic_load_explicit(&halves, memory_order_acquire); }

const lm_board_news *lm_board_news_now(void) { return lm_board_halves() ? &board->news : NULL; }

/* Under the load lock the mapping stays, and only a fork gives the process another place. */
uint64_t lm_board_sample_wish(void) {
  if (!lm_board_halves() || !has_place) return 0;
  return atomic_load_explicit(&board->place[at].sample_wish, memory_order_relaxed);
}

loam_status lm_board_start(const char *dir) {
  int before = errno;
  register_hooks_once();
  lock();
  loam_status status = start_locked(dir);
  unlock();
  note_write();
  errno = before;
  return status;
}

void lm_board_write(void) {
  lock();
  if (board && has_place) {
    fill();
    if (is_own_place()) (void)publish();
    else settle(false);
  }
  unlock();
  note_write();
}

/* A young process writes when it is twice as old as at its last write, so that its last figures are
 * not the ones of its start if it is killed early or soon needs no more memory. */
static bool is_refresh_due(void) {
  const int64_t least = REFRESH_LEAST_MS * 1000000ll, most = REFRESH_MS * 1000000ll;
  int64_t written = atomic_load_explicit(&written_ns, memory_order_relaxed);
  int64_t wait = written - atomic_load_explicit(&first_ns, memory_order_relaxed);
  return lm_sys_coarse_ns() - written >= (wait < least ? least : wait > most ? most : wait);
}

/* With no lock held, so a thread inside loam does nothing here. */
void lm_board_refresh_calmly(void) {
  const lm_thread *self = lm_thread_self;
  if (!lm_board_halves() || !self || self->inside || self->dying || !is_refresh_due()) return;
  lm_policy_tidy();
  lm_board_write();
}

void lm_board_refresh(void) {
  if (is_refresh_due()) lm_board_write();
}

/* Tells whether the tree has no other process. A process that died without a word counts as one:
 * its last figures stay for the next reader. */
static bool is_last(void) {
  if (atomic_load(&board->head.expected)) return false;
  for (uint32_t i = 0; i < LM_BOARD_PLACES; i++) {
    uint64_t word = atomic_load(&board->place[i].owner);
    if (!word) break;
    if (!lm_board_is_free(word)) return false;
  }
  return true;
}

/* Says that the process ends, in its place. */
static void announce_end(void) {
  fill();
  (void)publish();
  atomic_store(&board->place[at].ended_at, lm_sys_unix_ns());
  atomic_store(&board->place[at].owner, owner | LM_BOARD_ENDED);
  has_place = false;
}

/* Removes the file of a tree that has no other process. A program may join it at the same time, so
 * the board is closed first, as in join(). */
static void remove_if_last(void) {
  if (!is_last()) return;
  atomic_store(&board->head.is_closed, 1);
  if (is_last()) unlink(path);
  else atomic_store(&board->head.is_closed, 0);
}

static void end_locked(void) {
  if (!board || !is_own_place()) return;
  announce_end();
  remove_if_last();
}

/* The load lock is taken first, because the thread that has it may be reading an image of the
 * board. */
void lm_board_end(void) {
  lm_policy_begin();
  lock();
  end_locked();
  leave_board();
  unlock();
  lm_policy_end();
}

bool lm_board_is_valid(void) {
  lock();
  bool is_valid = is_valid_locked();
  unlock();
  return is_valid;
}

/* Runs when the process ends by exit or by the return of main. */
__attribute__((destructor)) static void end(void) {
  lock();
  end_locked();
  unlock();
}
