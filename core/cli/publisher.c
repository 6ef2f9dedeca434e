/* publisher.c - publishes policies on the board of a program tree.
 *
 * A publication is complete before it is announced: the image goes into the half that is not
 * current, its description into the news, then the number changes, then the word. A publisher that
 * is killed on the way leaves the last publication current, or leaves a new number with the old
 * word. Then kept decisions still match, and a process notices the image when it makes its next
 * slow request. */
#include "cli/publisher.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cli/namespaces.h"
#include "os/error.h"
#include "os/hash.h"
#include "os/numa.h"
#include "os/sys_file.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "script/policy_open.h"
#include "service/board_file.h"
#include "service/board_owner.h"
#include "service/policy.h"

loam_status lm_publisher_open(const char *path, lm_publisher *out) {
  void *news;
  *out = (lm_publisher){ .fd = lm_board_file_open(path) };
  if (out->fd < 0) return LOAM_EIO;
  int error = lm_sys_file_attach(out->fd, offsetof(lm_board, news), sizeof(lm_board_news), true,
                                 &news);
  if (error) {
    lm_sys_file_close(out->fd);
    return lm_error(LOAM_EIO, "board: %s: %s", path, strerrordesc_np(error));
  }
  /* Else the first touch reads far ahead into the file, most of which is holes: 5 ms on ext4. */
  (void)lm_sys_file_scattered(news, sizeof(lm_board_news));
  out->news = news;
  lm_assert(lm_publisher_is_valid(out));
  return LOAM_OK;
}

loam_status lm_publisher_reopen(lm_publisher *p) {
  lm_assert(lm_publisher_is_valid(p));
  int fd, error = lm_sys_file_reopen(p->fd, &fd);
  if (error)
    return lm_error(LOAM_EIO, "board: it cannot be opened again: %s", strerrordesc_np(error));
  lm_sys_file_close(p->fd);
  p->fd = fd;
  return LOAM_OK;
}

void lm_publisher_close(lm_publisher *p) {
  lm_assert(lm_publisher_is_valid(p));
  lm_sys_unmap(p->news, sizeof *p->news);
  lm_sys_file_close(p->fd);
}

/* ---- The lock */

enum {
  LOCK_MS = 10000, /* to wait for the lock; a publisher that works has it for far less than that */
  NAP_MS = 2,      /* between two tries */
};

/* Takes the lock if no other publisher has it. Returns 0 or an errno value. */
static int try_lock(const lm_publisher *p) {
  lm_assert(lm_publisher_is_valid(p));
  while (flock(p->fd, LOCK_EX | LOCK_NB))
    if (errno != EINTR) return errno;
  return 0;
}

/* Waits for the lock, at most LOCK_MS: a publisher that its user has stopped keeps it. Returns 0 or
 * an errno value. */
static int lock(const lm_publisher *p) {
  int error;
  int64_t end_ns = lm_sys_clock_ns() + LOCK_MS * 1000000ll;
  while ((error = try_lock(p)) == EWOULDBLOCK && lm_sys_clock_ns() < end_ns)
    lm_sys_sleep(NAP_MS * 1000000ll);
  return error;
}

/* Sets the words for a person after lock() has returned an errno value. */
static loam_status fail_lock(int error) {
  if (error != EWOULDBLOCK)
    return lm_error(LOAM_EIO, "board: it cannot be locked: %s", strerrordesc_np(error));
  return lm_error(LOAM_EIO,
                  "board: another publisher keeps it locked for %d s: is a `loam reload` stopped?",
                  LOCK_MS / 1000);
}

static void unlock(const lm_publisher *p) { (void)flock(p->fd, LOCK_UN); }

/* ---- Times

 * A reader shows the last refusal if it is later than the last publication. So these times must be
 * in order, also after the clock was set back. */

static int64_t time_after(int64_t earlier) {
  int64_t now = lm_sys_unix_ns();
  return now > earlier ? now : earlier + 1;
}

static int64_t last_refused_at(const lm_publisher *p) {
  return p->news->refusal[atomic_load(&p->news->refusals) & 1].refused_at;
}

const lm_board_image *lm_publisher_latest(const lm_publisher *p) {
  return &p->news->image[atomic_load(&p->news->published.now.number) & 1];
}

/* ---- Publishing */

bool lm_publisher_reads_nodes(uint64_t reads) { return reads & 1u << LM_IN_NODE_FREE; }
bool lm_publisher_reads_pressure(uint64_t reads) { return reads & 1u << LM_IN_PRESSURE; }

bool lm_publisher_needs_watcher(uint64_t reads, bool shares) {
  return lm_publisher_reads_nodes(reads) || lm_publisher_reads_pressure(reads) || shares;
}

/* Writes an image into the half of publication `number`, and its description into the news. If the
 * image reads the free memory of nodes, the figures stand on the board before the image is
 * announced, so that no process of the tree has to read them itself. */
static loam_status write_image_locked(lm_publisher *p, const lm_policy_image *image,
                                      const char *path, uint64_t number) {
  size_t size;
  const void *bytes = lm_policy_image_bytes(image, &size);
  if (size > LM_BOARD_HALF)
    return lm_error(LOAM_EBUDGET, "%s: its image has %zu bytes, and a board has room for %zu", path,
                    size, LM_BOARD_HALF);
  /* A full filesystem is an error here, and would be SIGBUS with a mapping. */
  int error = lm_sys_file_write(p->fd, LM_BOARD_HALVES_AT + (number & 1) * LM_BOARD_HALF, bytes,
                                size);
  if (error)
    return lm_error(LOAM_EIO, "%s: its image cannot be written on the board: %s", path,
                    strerrordesc_np(error));
  lm_board_image *to = &p->news->image[number & 1];
  *to = (lm_board_image){ .number = number,
                          .size = size,
                          .hash = lm_hash_words(LM_HASH_NONE, bytes, size),
                          .text_hash = lm_policy_image_hash(image),
                          .reads = lm_policy_image_reads(image),
                          .guards = lm_policy_image_guards(image),
                          .moves = lm_policy_image_applies_live(image),
                          .shares = lm_policy_image_shares(image),
                          .published_at = time_after(last_refused_at(p)) };
  snprintf(to->path, sizeof to->path, "%s", path);
  if (lm_publisher_reads_nodes(to->reads)) lm_numa_free_publish(&p->news->published.gauges);
  return LOAM_OK;
}

/* Gives the word its value after a publication, a wish or an alarm was added. The release orders
 * the stores of these before the word. */
static void change_word_locked(lm_publisher *p) {
  lm_published_words *now = &p->news->published.now;
  uint64_t changes = atomic_load_explicit(&now->number, memory_order_relaxed) +
                     atomic_load_explicit(&p->news->wishes, memory_order_relaxed);
  changes += atomic_load_explicit(&p->news->published.gauges.alarm, memory_order_relaxed) / 2;
  atomic_store_explicit(&now->word, lm_published_word(changes), memory_order_release);
}

/* Release of the number pairs with the acquire of a process that obeys the image
 * (service/publish.c). Release of the word orders the number before it. */
static loam_status publish_image(lm_publisher *p, const lm_policy_image *image, const char *path,
                                 uint64_t *number) {
  lm_published_words *now = &p->news->published.now;
  int error = lock(p);
  if (error) return fail_lock(error);
  uint64_t next = atomic_load_explicit(&now->number, memory_order_relaxed) + 1;
  loam_status status = write_image_locked(p, image, path, next);
  if (status == LOAM_OK) {
    atomic_store_explicit(&now->number, next, memory_order_release);
    change_word_locked(p);
    *number = next;
  }
  unlock(p);
  return status;
}

loam_status lm_publisher_publish(lm_publisher *p, const lm_script_source *source,
                                 uint64_t *number) {
  lm_policy_opened opened;
  lm_assert(!source->is_host);
  loam_status status = lm_policy_open(source, false, &opened);
  if (status != LOAM_OK) return status;
  status = publish_image(p, opened.image, source->name, number);
  lm_policy_image_close(opened.image);
  return status;
}

loam_status lm_publisher_first(const char *board, const lm_policy_image *image,
                               const char *policy) {
  lm_publisher p;
  uint64_t number;
  loam_status status = lm_publisher_open(board, &p);
  if (status != LOAM_OK) return status;
  status = publish_image(&p, image, policy, &number);
  lm_publisher_close(&p);
  return status;
}

/* ---- Wishes */

/* Returns the owner word of a process that took its place `since_ms` after boot. The word has the
 * process id of the process's own PID namespace, while `pid` is the id that the caller sees. */
static uint64_t owner_of(int pid, int64_t since_ms) {
  int inner = lm_namespaces_inner_pid(pid);
  return (uint64_t)since_ms << LM_BOARD_MS_SHIFT | (uint64_t)(inner ? inner : pid);
}

/* Returns the place that has this owner word; -1: none has. The process id alone does not tell: a
 * process that was killed keeps its place, and its id may have gone to a younger one. */
static int place_of(const lm_publisher *p, uint64_t owner) {
  lm_board_place place[LM_BOARD_PLACES];
  size_t size = sizeof place, from = offsetof(lm_board, place);
  if (pread(p->fd, place, size, (off_t)from) != (ssize_t)size) return -1;
  for (int i = 0; i < LM_BOARD_PLACES; i++)
    if (atomic_load_explicit(&place[i].owner, memory_order_relaxed) == owner) return i;
  return -1;
}

static loam_status wish_locked(lm_publisher *p, int place, uint64_t wish) {
  size_t at = offsetof(lm_board, place) + (size_t)place * sizeof(lm_board_place) +
              offsetof(lm_board_place, sample_wish);
  int error = lm_sys_file_write(p->fd, at, &wish, sizeof wish);
  if (error) return lm_error(LOAM_EIO, "board: %s", strerrordesc_np(error));
  atomic_fetch_add_explicit(&p->news->wishes, 1, memory_order_relaxed);
  change_word_locked(p);
  return LOAM_OK;
}

/* Looks for the place and writes the wish, under the lock. */
static loam_status wish(lm_publisher *p, int pid, int64_t since_ms, uint64_t wished) {
  int error = lock(p);
  if (error) return fail_lock(error);
  int place = place_of(p, owner_of(pid, since_ms));
  loam_status status = place >= 0
                           ? wish_locked(p, place, wished)
                           : lm_error(LOAM_ESTATE, "process %d: it has no place on its board", pid);
  unlock(p);
  return status;
}

loam_status lm_publisher_wish(const char *board, int pid, int64_t since_ms, uint64_t interval) {
  lm_publisher p;
  loam_status status = lm_publisher_open(board, &p);
  if (status != LOAM_OK) return status;
  status = wish(&p, pid, since_ms, interval + 1);
  lm_publisher_close(&p);
  return status;
}

/* ---- Alarms */

bool lm_publisher_alarm(lm_publisher *p) {
  if (try_lock(p)) return false;
  change_word_locked(p);
  unlock(p);
  return true;
}

/* ---- Refusals */

void lm_publisher_refuse(lm_publisher *p, uint64_t text_hash, const char *words) {
  if (lock(p)) return;
  uint64_t next = atomic_load_explicit(&p->news->refusals, memory_order_relaxed) + 1;
  lm_board_refusal *to = &p->news->refusal[next & 1];
  snprintf(to->words, sizeof to->words, "%s", words);
  to->text_hash = text_hash;
  to->refused_at = time_after(lm_publisher_latest(p)->published_at);
  atomic_store_explicit(&p->news->refusals, next, memory_order_release);
  unlock(p);
}

bool lm_publisher_has_refused(const lm_publisher *p, uint64_t text_hash, const char *words) {
  const lm_board_refusal *last = &p->news->refusal[atomic_load(&p->news->refusals) & 1];
  return last->refused_at > lm_publisher_latest(p)->published_at && last->text_hash == text_hash &&
         !strncmp(last->words, words, sizeof last->words - 1);
}

void lm_publisher_forget_refusal(lm_publisher *p) {
  if (lock(p)) return;
  uint64_t last = atomic_load_explicit(&p->news->refusals, memory_order_relaxed);
  p->news->refusal[last & 1].refused_at = 0;
  unlock(p);
}

/* ---- Gauges */

#define KEEPER_AT (offsetof(lm_board, news) + offsetof(lm_board_news, keeper))

/* The lock says that the keeper lives also to a process of another PID namespace, to which the id
 * of the keeper means nothing. */
void lm_publisher_keep(lm_publisher *p) {
  (void)lm_sys_file_lock(p->fd, KEEPER_AT, sizeof p->news->keeper);
  atomic_store(&p->news->keeper, lm_board_owner_now(getpid()));
}

/* Tells whether the process that keeps the figures has ended. */
static bool is_keeper_gone(const lm_publisher *p, uint64_t keeper) {
  lm_board_head head;
  bool is_locked = false;
  if (pread(p->fd, &head, sizeof head, 0) != (ssize_t)sizeof head) return false;
  if (lm_board_look(keeper, head.pid_namespace, NULL).state != LM_BOARD_GONE) return false;
  return !lm_sys_file_is_locked(p->fd, KEEPER_AT, sizeof keeper, &is_locked) && !is_locked;
}

bool lm_publisher_lacks_keeper(const lm_publisher *p) {
  uint64_t keeper = atomic_load_explicit(&p->news->keeper, memory_order_relaxed);
  const lm_board_image *image = lm_publisher_latest(p);
  return lm_publisher_needs_watcher(image->reads, image->shares) &&
         (!keeper || is_keeper_gone(p, keeper));
}

/* ---- Faults in guarded memory */

bool lm_publisher_lacks_report(const lm_publisher *p, int pid) {
  char text[LM_SYS_STATUS];
  if (!lm_publisher_latest(p)->guards) return false;
  const char *caught = lm_sys_process_field(pid, "\nSigCgt:", text);
  return caught && !(strtoull(caught, NULL, 16) >> (SIGSEGV - 1) & 1);
}

/* A process that follows a board has no service thread. */
bool lm_publisher_lacks_mover(const lm_publisher *p) { return lm_publisher_latest(p)->moves; }

/* ---- loam reload */

/* Publishes a policy file, or notes its refusal. A file that cannot be read is a mistake of the
 * caller, such as a wrong path: the programs show no refusal for it. */
static loam_status publish_file(lm_publisher *p, const char *path, uint64_t *number) {
  char *text = NULL;
  size_t length;
  loam_status status = lm_policy_file_read(path, LM_READ_TO_LOAD, &text, &length);
  if (status != LOAM_OK) return status;
  uint64_t hash = lm_policy_open_hash(text, length);
  lm_script_source source = { path, text, length, lm_policy_limits(), .is_host = false };
  status = lm_publisher_publish(p, &source, number);
  if (status != LOAM_OK) lm_publisher_refuse(p, hash, loam_error());
  lm_metadata_free(text);
  return status;
}

loam_status lm_publisher_reload(const char *board, const char *path, uint64_t *number,
                                bool *lacks_keeper) {
  *lacks_keeper = false;
  lm_publisher p;
  loam_status status = lm_publisher_open(board, &p);
  if (status != LOAM_OK) return status;
  status = publish_file(&p, path, number);
  *lacks_keeper = lm_publisher_lacks_keeper(&p);
  lm_publisher_close(&p);
  return status;
}
