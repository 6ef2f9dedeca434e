/* rebalance.h - the job that moves live memory to where the policy wants it now, or demotes it.
 *
 * There is one job at a time. It is done in short steps, by the thread that began it: the service
 * thread, or a caller of loam_rebalance or loam_demote. All functions take a lock of their own and
 * may be called by any thread outside an active section, unless their comment says more. */
#ifndef LM_REBALANCE_H
#define LM_REBALANCE_H

#include "loam.h"
#include "os/base.h"

/* The task of a job. Zeroed, it is loam_rebalance of all blocks. */
typedef struct lm_job_order {
  bool demotes;      /* loam_demote; else loam_rebalance */
  char tag[256];     /* has_tag: only blocks of this tag and of the tags under it */
  bool has_tag;      /* else all blocks */
  uint64_t rate;     /* the most bytes a second; 0: LM_REBALANCE_RATE; UINT64_MAX: no limit */
  loam_demote_to to; /* this and the next two are of a demotion */
  int node;          /* LOAM_TO_NODE: the node; -1: the nearest node without CPUs */
  unsigned older_s;  /* only blocks that have lived this many seconds; 0: all */
  bool applies;      /* a policy with apply = "live" began the job */
} lm_job_order;

enum { LM_REBALANCE_RATE = 1 << 30 };

/* Who began a job, and so makes its steps. */
typedef enum lm_job_owner { LM_JOB_NONE, LM_JOB_CALLER, LM_JOB_SERVICE } lm_job_owner;

/* Begins a job. Fails with LOAM_ESTATE if a job is in progress, LOAM_EINVAL if order->node does not
 * exist, and LOAM_EUNSUPPORTED if the machine has no node without CPUs and order->node is -1. */
loam_status lm_rebalance_begin(const lm_job_order *order, lm_job_owner owner);

/* Makes one step of the job, of some milliseconds at most. Returns the nanoseconds until the next
 * step is due; -1 if this owner has no job in progress. */
int64_t lm_rebalance_step(lm_job_owner owner);

/* Makes the job in progress, if any, end early. Its owner still makes some steps, which bring half
 * moved blocks back. */
void lm_rebalance_cancel(void);

/* Like lm_rebalance_cancel, but only for a job that a policy with apply = "live" began. */
void lm_rebalance_cancel_applied(void);

/* Returns whether a policy with apply = "live" began the job in progress, or else the last job. */
bool lm_rebalance_applies(void);

/* Says that the client that watches the job in progress is still there. With `begin`, from now on
 * the job ends by itself when no such call has come for three seconds. */
void lm_rebalance_keep_alive(bool begin);

/* Fills in the progress of the job in progress, or else of the last job, and its number: jobs are
 * counted from 1. */
void lm_rebalance_get(loam_progress *out, uint64_t *number);

/* Calls `visit` for each row of the report of that job, without a lock held. */
void lm_rebalance_rows(loam_placed_fn visit, void *ctx);

/* Returns whether the job obeys the law in rebalance.c. */
bool lm_rebalance_is_valid(void);

#endif
