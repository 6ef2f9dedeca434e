/* rebalance.h - live memory is brought to where the policy wants it now, or demoted: one job at a
 * time, done in steps that are short, by whoever has the time: the service thread, or a caller of
 * loam_rebalance. */
#ifndef LM_REBALANCE_H
#define LM_REBALANCE_H

#include "loam.h"
#include "os/base.h"

typedef struct lm_job_order {
  bool demotes;
  char tag[256]; /* "": all */
  bool has_tag;
  uint64_t rate;
  loam_demote_to to;
  int node;
  unsigned older_s;
  bool applies; /* begun by a policy with apply = "live" */
} lm_job_order;

enum { LM_REBALANCE_RATE = 1 << 30 };

/* Whose steps they are: a job is stepped by who began it. */
typedef enum lm_job_owner { LM_JOB_NOBODY, LM_JOB_CALLER, LM_JOB_SERVICE } lm_job_owner;

/* LOAM_ESTATE if a job is under way; LOAM_EINVAL for a node that is not there. */
loam_status lm_rebalance_begin(const lm_job_order *order, lm_job_owner owner);
/* Does a little. Nanoseconds until the next step; -1: this owner has no job under way. */
int64_t lm_rebalance_step(lm_job_owner owner);
/* Ends the job soon: a few more steps bring back what is half moved. */
void lm_rebalance_cancel(void);
/* The same of one that a policy began, which is not live any more. */
void lm_rebalance_cancel_applied(void);
/* Whether the job under way or the last one is such. */
bool lm_rebalance_applies(void);
/* `begin`: from now on the job ends by itself if nobody attends for a while: for those who watch
 * it, and may be gone. */
void lm_rebalance_keep_alive(bool begin);
/* Of the job under way or the last one. `number` counts jobs. */
void lm_rebalance_get(loam_progress *out, uint64_t *number);
void lm_rebalance_rows(loam_placed_fn visit, void *ctx);

#endif
