/* rehome.h - live memory that becomes another strategy's, at its address.
 *
 * An extent (a large block, or a span of small objects) goes through these, in order:
 *
 *   claim    frees of it begin to take the long way; nothing is drawn from it
 *   settle   a grace: every operation that began before the claims has ended
 *   confirm  it lives, and no thread caches any of it
 *   accept   a strategy could have it: kind, alignment, limit
 *   fit      its pages are brought to the new preparation, piece by piece; if that fails, back
 *   adopt    it is the new strategy's: description, limits, regions, tokens
 *   finish   another grace later; frees are as fast as before
 *
 * or, until it is adopted, release; what stays its strategy's, but has pages that spilled over to
 * other nodes, is claimed, settled, confirmed, fetched and released. The program uses and frees the
 * memory all the while. One thread at a time does all this, under a lock of its own that fork takes
 * too (rebalance.c). The steps that say so are done inside an operation, so that no pool ends
 * meanwhile.
 *
 * Law: between claim and finish or release, a freed large block and a freed object of a span are
 *      neither handed out again nor given back while pages of theirs are moved. */
#ifndef LM_REHOME_H
#define LM_REHOME_H

#include "heap/pool.h"
#include "heap/span.h"

typedef struct lm_home {
  uint32_t slot, slots;
  bool small, accepted, adopted;
  bool stays;          /* its strategy's */
  bool reverse, stray; /* being brought back; could not be */
  unsigned class_;     /* of a span */
  lm_strategy *from, *to;
  size_t bytes;   /* of what lives in it; once accepted, taken of the limit of `to` */
  size_t done;    /* bytes of its range that are prepared anew */
  int error;      /* why it is brought back; an errno */
  size_t fetched; /* of what is done: bytes that came back */
  size_t astray;  /* where its nodes are preferred: bytes that stayed elsewhere */
  int why;        /* they did; an errno */
} lm_home;

/* Inside an operation. False: there is nothing at `slot` that could be claimed. */
bool lm_rehome_claim(uint32_t slot, lm_home *out);
/* Not inside an operation. False where the kernel knows no grace: all claims are to be released. */
bool lm_rehome_settle(const lm_home *home, uint32_t n);
/* Inside an operation. False: the claim is gone, or has been released. */
bool lm_rehome_confirm(lm_home *home);
/* Why a strategy cannot have it, in words; NULL: it has room in its limit for it. */
const char *lm_rehome_accept(lm_home *home, lm_strategy *to);

/* Whether pages of a range of a strategy's memory are on nodes that it did not ask for. */
bool lm_rehome_has_spilled(uint32_t slot, const lm_strategy *s);
/* Brings a piece of about `most` bytes of those back; false: that was the last. */
bool lm_rehome_fetch(lm_home *home, size_t most);

typedef enum lm_fitted { LM_FIT_MORE, LM_FIT_DONE, LM_FIT_UNDONE } lm_fitted;
/* Prepares a piece of about `most` bytes. UNDONE: home->error says why; release it. */
lm_fitted lm_rehome_fit(lm_home *home, size_t most);
/* From now on pieces are brought back. */
void lm_rehome_turn(lm_home *home, int error);

/* Inside an operation. False: there is no memory for the pool; bring it back. */
bool lm_rehome_adopt(lm_home *home, lm_renew_fn *renew, void *ctx);
/* Both inside an operation. */
void lm_rehome_finish(lm_home *home);
void lm_rehome_release(lm_home *home);

#endif
