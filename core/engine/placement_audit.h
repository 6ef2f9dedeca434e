/* placement_audit.h - where the kernel put the live memory of each strategy. The kernel may
 * silently take another node than the strategy names, or small pages in place of huge ones. loam
 * can see that only afterwards, so it looks when the host calls loam_got_each. */
#ifndef LM_PLACEMENT_AUDIT_H
#define LM_PLACEMENT_AUDIT_H

#include "engine/live_limits.h"
#include "heap/walk.h"
#include "loam.h"

/* loam_got_each. */
loam_status lm_placement_audit_each(loam_got_fn callback, void *ctx);

/* Tells whether objects of a strategy are examined; `to` is what goes to the visitor. */
typedef bool lm_audit_wants(const void *to, uint32_t strategy);

/* A process whose memory is examined, with the functions that read its tables. */
typedef struct lm_audit_subject {
  int pid;            /* 0: the calling process */
  uintptr_t from, to; /* the range that its pools are in */
  uint32_t strategies;
  const lm_strategy *(*strategy)(void *ctx, uint32_t id); /* the strategy with an id */
  /* Calls `visit` with `to` for each live object. Objects of a strategy that is not wanted may be
   * left out. */
  void (*walk)(void *ctx, lm_walk_visit *visit, lm_audit_wants *wants, void *to);
  lm_limit_use (*limit)(void *ctx, const lm_strategy *s); /* the live limit of its family */
  void *ctx;
} lm_audit_subject;

/* Does what loam_got_each does for the memory of a process. Sends no events. */
loam_status lm_placement_audit_of(const lm_audit_subject *subject, loam_got_fn callback, void *ctx);

#endif
