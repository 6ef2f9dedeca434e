/* rebalance_api.c - loam_rebalance and loam_demote: jobs (move/rebalance.h) whose steps the calling
 * thread makes. */
#include <string.h>

#include "loam.h"
#include "move/rebalance.h"
#include "os/error.h"
#include "os/sys.h"
#include "os/thread.h"

/* The longest sleep between two steps, so that `progress` is called often and can end the job. */
enum { NAP_NS = 50000000 };

/* Makes all steps of the job. After each step it calls `progress`, until that ends the job. */
static void run(loam_progress_fn progress, void *ctx) {
  loam_progress now;
  uint64_t number;
  int64_t wait;
  bool cancelled = false;
  while ((wait = lm_rebalance_step(LM_JOB_CALLER)) >= 0) {
    lm_rebalance_get(&now, &number);
    if (progress && !cancelled && progress(ctx, &now)) {
      cancelled = true;
      lm_rebalance_cancel();
    } else if (wait) {
      lm_sys_sleep(wait < NAP_NS ? wait : NAP_NS);
    }
  }
  lm_rebalance_get(&now, &number);
  lm_assert(number);
  if (progress && !cancelled) (void)progress(ctx, &now);
}

/* Runs a whole job, and calls `placed` for each row of its report. A thread that is cancelled in a
 * callback of the host ends afterwards: a job without its thread would never end. */
static loam_status begin_and_run(const lm_job_order *order, loam_progress_fn progress,
                                 loam_placed_fn placed, void *ctx) {
  lm_assert(!order->demotes || order->has_tag);
  /* The steps of a job need the area. A job that has begun and makes no step would never end. */
  if (!lm_thread_get()) return lm_error(LOAM_ENOMEM, "no memory for what a thread has of loam");
  loam_status status = lm_rebalance_begin(order, LM_JOB_CALLER);
  if (status != LOAM_OK) return status;
  lm_sys_cancel_off();
  run(progress, ctx);
  if (placed) lm_rebalance_rows(placed, ctx);
  lm_sys_cancel_restore();
  return LOAM_OK;
}

/* Sets the tag of an order; NULL means all blocks. */
static loam_status set_tag(lm_job_order *order, const char *tag) {
  order->has_tag = tag;
  if (!tag) return LOAM_OK;
  if (strlen(tag) >= sizeof order->tag)
    return lm_error(LOAM_EINVAL, "options.tag: it has %zu bytes; at most 255 are possible",
                    strlen(tag));
  strcpy(order->tag, tag);
  return LOAM_OK;
}

loam_status loam_rebalance(const loam_rebalance_options *options, loam_progress_fn progress,
                           loam_placed_fn placed, void *ctx) {
  /* The options of a caller that passes NULL. */
  static const loam_rebalance_options none = { .size = sizeof none };
  lm_job_order order = { 0 };
  if (!options) options = &none;
  if (options->size != sizeof *options)
    return lm_error(LOAM_EINVAL, "loam_rebalance_options.size %zu: this loam has %zu",
                    options->size, sizeof *options);
  order.rate = options->rate;
  loam_status status = set_tag(&order, options->tag);
  return status == LOAM_OK ? begin_and_run(&order, progress, placed, ctx) : status;
}

loam_status loam_demote(const loam_demote_options *options, loam_progress_fn progress,
                        loam_placed_fn placed, void *ctx) {
  lm_job_order order = { .demotes = true };
  if (!options || options->size != sizeof *options)
    return lm_error(LOAM_EINVAL, "loam_demote_options.size %zu: this loam has %zu",
                    options ? options->size : 0, sizeof *options);
  if (!options->tag) return lm_error(LOAM_EINVAL, "loam_demote: options.tag is NULL");
  if ((unsigned)options->to > LOAM_TO_PAGEOUT)
    return lm_error(LOAM_EINVAL, "loam_demote: options.to is %d; 0, 1 and 2 are possible",
                    (int)options->to);
  order.rate = options->rate;
  order.to = options->to;
  order.node = options->node;
  order.older_s = options->older_s;
  loam_status status = set_tag(&order, options->tag);
  return status == LOAM_OK ? begin_and_run(&order, progress, placed, ctx) : status;
}
