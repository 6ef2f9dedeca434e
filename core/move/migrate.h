/* migrate.h - live memory that becomes another strategy's, at its address.
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
#ifndef LM_MIGRATE_H
#define LM_MIGRATE_H

#include "heap/central.h"
#include "heap/pool.h"

typedef struct lm_migration {
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
} lm_migration;

/* Inside an operation. False: there is nothing at `slot` that could be claimed. */
bool lm_migrate_claim(uint32_t slot, lm_migration *out);
/* Not inside an operation. False where the kernel knows no grace: all claims are to be released. */
bool lm_migrate_wait(const lm_migration *home, uint32_t n);
/* Inside an operation. False: the claim is gone, or has been released. */
bool lm_migrate_confirm(lm_migration *home);
/* Why a strategy cannot have it, in words; NULL: it has room in its limit for it. */
const char *lm_migrate_accept(lm_migration *home, lm_strategy *to);

/* Whether pages of a range of a strategy's memory are on nodes that it did not ask for. */
bool lm_migrate_has_spilled(uint32_t slot, const lm_strategy *s);
/* Brings a piece of about `most` bytes of those back; false: that was the last. */
bool lm_migrate_fetch(lm_migration *home, size_t most);

typedef enum lm_migrate_progress {
  LM_MIGRATE_MORE,
  LM_MIGRATE_DONE,
  LM_MIGRATE_UNDONE
} lm_migrate_progress;
/* Prepares a piece of about `most` bytes. UNDONE: home->error says why; release it. */
lm_migrate_progress lm_migrate_fit(lm_migration *home, size_t most);
/* From now on pieces are brought back. */
void lm_migrate_reverse(lm_migration *home, int error);

/* Inside an operation. False: there is no memory for the pool; bring it back. */
bool lm_migrate_adopt(lm_migration *home, lm_retoken_fn *renew, void *ctx);
/* Both inside an operation. */
void lm_migrate_finish(lm_migration *home);
void lm_migrate_release(lm_migration *home);

#endif
