/* publish.c - a process obeys the policy images that are published on the board of its tree, and
 * the wishes there for samples.
 *
 * The thread that does this was about to allocate memory. Its stack may be small, so the functions
 * here have small frames. Large variables are static, and the load lock guards them. */
#include "service/publish.h"

#include <errno.h>
#include <string.h>

#include "engine/sample.h"
#include "os/error.h"
#include "os/hash.h"
#include "os/thread.h"
#include "pages/metadata.h"
#include "service/board.h"
#include "service/policy.h"

enum { COPIES = 4 }; /* tries to copy an image while publishers write */

/* The description of the image, copied from the news; under the load lock. */
static LM_SPARSE lm_board_image said;

/* Copies the description of publication `number`. False: the news have no such image. The fence
 * orders the copy before a later load of the number. */
static bool read_image(const lm_board_news *news, uint64_t number) {
  memcpy(&said, &news->image[number & 1], sizeof said);
  atomic_thread_fence(memory_order_acquire);
  said.path[sizeof said.path - 1] = 0;
  return said.number == number && said.size && said.size <= LM_BOARD_HALF;
}

/* Copies the bytes of the image that `said` describes into lm_metadata memory. */
static loam_status copy_bytes(const char *halves, void **out) {
  const char *half = halves + (said.number & 1) * LM_BOARD_HALF;
  int error = lm_sys_preread((void *)(uintptr_t)half, lm_align_up(said.size, LM_PAGE));
  if (error == EFAULT || error == ENOMEM)
    return lm_error(LOAM_EIO, "%s: the board cannot be read", said.path);
  void *bytes = lm_metadata_alloc(said.size);
  if (!bytes) return lm_error(LOAM_ENOMEM, "%s: no memory to load it", said.path);
  memcpy(bytes, half, said.size);
  *out = bytes;
  return LOAM_OK;
}

/* Loads the image that `said` describes from its copy. */
static loam_status load(void *bytes) {
  if (lm_hash_words(LM_HASH_NONE, bytes, said.size) == said.hash)
    return lm_policy_load_image_locked(said.path, bytes, said.size);
  lm_metadata_free(bytes);
  return lm_error(LOAM_EIO, "%s: the image on the board is damaged", said.path);
}

/* Copies the latest image and makes it live. Sets *number to the publication that was read; 0: none
 * was, because publishers wrote all the time, or nothing was published. Acquire pairs with the
 * release of a publisher: the image of that number is whole. If the number has not changed after
 * the copy, the copy is whole as well, because a publisher writes the half that is not current. */
static loam_status load_latest(const lm_board_news *news, const char *halves, uint64_t *number) {
  void *bytes = NULL;
  for (int i = 0; i < COPIES; i++) {
    *number = atomic_load_explicit(&news->published.now.number, memory_order_acquire);
    if (!*number) return LOAM_OK;
    bool is_there = read_image(news, *number);
    loam_status status = is_there ? copy_bytes(halves, &bytes) : LOAM_EIO;
    atomic_thread_fence(memory_order_acquire);
    bool is_same = atomic_load_explicit(&news->published.now.number, memory_order_relaxed) ==
                   *number;
    if (is_same && !is_there) return lm_error(LOAM_EIO, "the news of the board are damaged");
    if (is_same) return status == LOAM_OK ? load(bytes) : status;
    if (is_there && status == LOAM_OK) lm_metadata_free(bytes);
  }
  *number = 0;
  return LOAM_OK;
}

/* Notes the publication that the process obeys, or has refused. The next entry on the board shows
 * its number. Called after every thread has been told to forget its decisions (LM_SLOW_STALE): a
 * decision that a thread keeps later is of this policy. */
static void note_obeyed(uint64_t word, uint64_t number) {
  atomic_store_explicit(&lm_published_obeyed.number, number, memory_order_relaxed);
  atomic_store_explicit(&lm_published_obeyed.word, word, memory_order_relaxed);
}

/* Obeys the latest publication, under the load lock. `*is_loaded` becomes whether an image was
 * loaded or refused. The word is read before the number (os/published.h), so a publication that
 * comes during this call makes the word differ again. */
static loam_status obey_locked(bool *is_loaded) {
  uint64_t number = atomic_load_explicit(&lm_published_obeyed.number, memory_order_relaxed);
  uint64_t word = atomic_load_explicit(&lm_published.now.word, memory_order_acquire), latest;
  const lm_board_news *news = lm_board_news_now();
  *is_loaded = false;
  if (!news) return LOAM_OK;
  latest = atomic_load_explicit(&news->published.now.number, memory_order_acquire);
  loam_status status = LOAM_OK;
  if (latest != number) {
    status = load_latest(news, lm_board_halves(), &latest);
    if (!latest) return LOAM_OK;
    *is_loaded = true;
  }
  note_obeyed(word, latest);
  if (*is_loaded) lm_policy_note_published_locked(status, said.path, said.text_hash);
  return status;
}

/* Samples as `loam profile` wishes. A process without memory for the tables samples nothing; the
 * command sees that it does not. */
static void obey_wish_locked(void) {
  uint64_t wish = lm_board_sample_wish();
  bool is_new = wish && wish - 1 != atomic_load(&lm_sample_all.interval);
  if (is_new && wish - 1 <= LM_SAMPLE_INTERVAL_MAX) (void)lm_sample_set(wish - 1);
}

void lm_publish_obey(void) {
  const lm_thread *self = lm_thread_get();
  bool is_loaded;
  if (!self || self->inside || self->dying || !lm_board_news_now()) return;
  int before = errno;
  if (lm_policy_try_begin()) {
    lm_thread_refuse_graces();
    loam_status status = obey_locked(&is_loaded);
    obey_wish_locked();
    lm_thread_allow_graces();
    lm_policy_end();
    if (is_loaded) lm_policy_announce_published(status);
  }
  errno = before;
}
