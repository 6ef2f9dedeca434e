/* last_words.h - last words: where the memory is when a request gets none.
 *
 * A program whose request fails often ends soon after. Then it is too late to ask it which tags
 * and strategies have the memory. So the first request of a generation that gets no memory tells
 * it, as an event, and in the file that LOAM_LAST_WORDS names. All that this needs was reserved
 * before. */
#ifndef LM_LAST_WORDS_H
#define LM_LAST_WORDS_H

#include "device/request.h"
#include "heap/strategy.h"

/* Makes last words go to a file too: `path` is the value of LOAM_LAST_WORDS, or NULL. A path that
 * is not absolute, or too long, is reported as an event. Called by the start. */
void lm_last_words_start(const char *path);

/* Why a request got no memory. */
typedef struct lm_last_refusal {
  const lm_strategy *strategy; /* the one that was tried last */
  const char *why;             /* in words that name this strategy */
  bool is_at_limit;            /* a limit of the policy is the reason */
} lm_last_refusal;

/* Tells the last words, because the request *r got no memory. Does nothing if they were told in
 * this generation, if another thread of the process tells them now, if the request comes from
 * foreign code that loam calls, or if memory did not run out. If the strategy of the refusal has
 * memory of a device, the words are about the memory of this device alone, and else about all other
 * memory. Memory did not run out if no limit of the policy was the reason and the request alone is
 * larger than the device, or than all that the pools have taken from the system, or if the device
 * has enough. Reserved huge pages have run out with a request of any size. The calling thread is
 * not active. */
void lm_last_words_tell(const lm_request *r, const lm_last_refusal *refusal);

#endif
