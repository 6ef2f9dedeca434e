/* migrate.h - moves a live extent to another strategy while the program uses it; its address stays.
 *
 * An extent is a large block or a span of small objects. It goes through these steps, in order:
 *
 *   claim    frees of the extent take the slow path from now on, and no object of it is handed out
 *   wait     a grace period: every operation that began before the claims has ended
 *   confirm  the extent is still live, and no thread caches an object of it
 *   accept   the new strategy can have the extent: kind, alignment and limit fit
 *   prepare  the pages are brought to the preparation of the new strategy (region.h), piece by
 *            piece; if a piece fails, the pieces before it are brought back
 *   adopt    the extent belongs to the new strategy: description, limits, regions and tokens change
 *   finish   after another grace period, frees take the fast path again
 *
 * Before it is adopted, an extent can be released instead: then it stays with its strategy. An
 * extent that keeps its strategy, but has pages that spilled over to other NUMA nodes, is claimed,
 * waited for, confirmed, fetched and released.
 *
 * The program uses and frees the memory all the while. One thread at a time calls these functions,
 * under one lock (rebalance.c); a fork waits until that lock is free. Some functions are called in
 * an active section of the calling thread (lm_thread_enter), so that no pool can be destroyed at
 * that time.
 *
 * Law: between claim and finish (or release), a freed large block or a freed object of a claimed
 *      span is neither handed out again nor returned to the system while its pages are moved. */
#ifndef LM_MIGRATE_H
#define LM_MIGRATE_H

#include "heap/central.h"
#include "heap/pool.h"

/* An extent that is being moved.
 *
 * Law: done <= slots * LM_SLOT.
 *      accepted == (to is not NULL); adopted implies accepted.
 *      keeps_strategy implies that it is not accepted.
 *      is_span implies class_ < LM_CLASSES. */
typedef struct lm_migration {
  uint32_t slot, slots; /* the extent: its first slot and its length */
  bool is_span;         /* a span of small objects; else a large block */
  bool accepted, adopted;
  bool keeps_strategy; /* only its spilled pages are fetched */
  bool is_undone;      /* prepared pieces are brought back */
  bool is_unprepared;  /* a piece could not be brought back: its pages fit neither strategy */
  unsigned class_;     /* size class, for a span */
  lm_strategy *from;   /* NULL: an extent without a claim (rebalance.c, advice) */
  lm_strategy *to;     /* NULL until accepted */
  size_t bytes;        /* live bytes in the extent; accepted: bytes taken from the limit of `to` */
  size_t done;         /* bytes from the start of the extent that are prepared, or fetched */
  int error;           /* the errno that made it undone; 0: none */
  size_t fetched;      /* bytes of spilled pages that came back */
  size_t resident;     /* of an extent that is paged out: bytes that were in memory before */
  size_t misplaced;    /* bytes that stayed on other nodes, where the strategy prefers its nodes */
  int misplaced_error; /* the errno that says why they stayed */
} lm_migration;

/* Returns the bytes of the extent. */
LM_INLINE size_t lm_migration_bytes(const lm_migration *m) {
  return (size_t)m->slots << LM_SLOT_SHIFT;
}
/* Returns whether the fields obey the law above. */
bool lm_migration_is_valid(const lm_migration *m);

/* Claims the extent that begins at `slot` and fills in *out. Returns false if there is no live
 * extent of host memory at `slot` that can be claimed; then nothing was done. Call in an active
 * section. */
bool lm_migrate_claim(uint32_t slot, lm_migration *out);

/* Waits until every operation that began before the n claims has ended, and makes threads give back
 * their cached objects of these spans. Returns false if the kernel has no membarrier(2): then the
 * caller must release all claims. Call outside an active section. */
bool lm_migrate_wait(const lm_migration *claim, uint32_t n);

/* Returns whether the claimed extent is still live and no thread caches an object of it; sets
 * m->bytes. If it returns false, the claim has ended. Call in an active section, after
 * lm_migrate_wait. */
bool lm_migrate_confirm(lm_migration *m);

/* Takes the bytes of the extent from the limit of `to`, its new strategy. Returns NULL on success;
 * otherwise the reason, in static words, why the strategy cannot have the extent. */
const char *lm_migrate_accept(lm_migration *m, lm_strategy *to);

/* Returns whether pages of the extent at `slot`, of strategy `s`, are on NUMA nodes that `s` does
 * not name. False also if `s` names no nodes, or if its pages cannot be moved one by one. */
bool lm_migrate_has_spilled(uint32_t slot, const lm_strategy *s);

/* Moves spilled pages in the next piece, of about `most` bytes, back to the nodes of the strategy.
 * Returns false after the last piece. */
bool lm_migrate_fetch(lm_migration *m, size_t most);

/* How far lm_migrate_prepare came. */
typedef enum lm_migrate_progress {
  LM_MIGRATE_MORE,  /* there are more pieces to prepare, or to bring back */
  LM_MIGRATE_DONE,  /* the whole extent is prepared for the new strategy */
  LM_MIGRATE_UNDONE /* all pieces are brought back; m->error says why; the caller must release */
} lm_migrate_progress;

/* Prepares the next piece, of about `most` bytes, for the new strategy; after lm_migrate_undo, or
 * after a failure, brings the last prepared piece back instead. */
lm_migrate_progress lm_migrate_prepare(lm_migration *m, size_t most);

/* Makes lm_migrate_prepare bring prepared pieces back from now on. `error` is the errno that says
 * why. */
void lm_migrate_undo(lm_migration *m, int error);

/* Gives the prepared extent to its new strategy. `renew` returns the new token for the token of
 * each live object. Returns false if there is no memory for the pool of the new strategy: then
 * nothing was done, and the caller must undo the pieces and release. Call in an active section. */
bool lm_migrate_adopt(lm_migration *m, lm_retoken_fn *renew);

/* Ends the claim of an adopted extent. Call in an active section, one grace period after
 * lm_migrate_adopt. */
void lm_migrate_finish(lm_migration *m);

/* Ends the claim of an extent that was not adopted: it stays with its strategy. If its pages are
 * unprepared, its slots go back to the range when it is freed, instead of being reused. Call in an
 * active section, or in a forked child. */
void lm_migrate_release(lm_migration *m);

#endif
