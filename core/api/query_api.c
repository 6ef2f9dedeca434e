/* query_api.c - the public functions that answer questions: about blocks, figures, the machine and
 * other processes. */
#include "device/provider.h"
#include "engine/owner.h"
#include "engine/placement_audit.h"
#include "engine/record.h"
#include "engine/stats.h"
#include "loam.h"
#include "os/error.h"
#include "os/spare.h"
#include "os/version.h"
#include "pages/range.h"
#include "service/control_client.h"
#include "service/machine.h"

const char *loam_version(void) { return LM_VERSION; }

/* ---- Blocks ------------------------------------------------------------------------------- */

int loam_owns(const void *ptr) {
  lm_provided block;
  return lm_pool_owns(ptr) || lm_spare_usable(ptr) || lm_provider_find(ptr, &block) ||
         lm_range_reserves(ptr);
}

int loam_forbids_huge(const void *ptr) {
  lm_record b;
  return lm_record_find(ptr, &b) && lm_strategy_at(b.strategy)->desc.huge == LM_HUGE_NEVER;
}

loam_status loam_owner(const void *ptr, loam_owner_info *out) {
  if (!out) return lm_error_missing("out");
  if (lm_owner_find(ptr, out)) return LOAM_OK;
  return lm_error(LOAM_EBADPTR, "%p: it is in no live block", ptr);
}

/* ---- Figures and other processes ---------------------------------------------------------- */

loam_status loam_got_each(loam_got_fn callback, void *ctx) {
  return callback ? lm_placement_audit_each(callback, ctx) : lm_error_missing("callback");
}

loam_status loam_stats(struct loam_stats *out) {
  return out ? lm_stats_get(out) : lm_error_missing("out");
}

loam_status loam_stats_by(int keys, loam_row_fn callback, void *ctx) {
  if (!callback) return lm_error_missing("callback");
  if (keys & ~(LOAM_BY_TAG | LOAM_BY_STRATEGY | LOAM_BY_GENERATION))
    return lm_error(LOAM_EINVAL, "keys %#x: they are a sum of LOAM_BY_*", (unsigned)keys);
  return lm_stats_by(keys, callback, ctx);
}

loam_status loam_stats_each(loam_row_fn callback, void *ctx) {
  return loam_stats_by(LOAM_BY_TAG | LOAM_BY_STRATEGY, callback, ctx);
}

loam_status loam_ask(int pid, const char *request, unsigned timeout_ms, loam_write_fn write,
                     void *ctx) {
  if (!request || !write) return lm_error_missing("request or write");
  return lm_control_ask(&(lm_control_request){ pid, request, timeout_ms }, write, ctx);
}

loam_status loam_hosts(loam_pid_fn callback, void *ctx) {
  return callback ? lm_control_hosts(callback, ctx) : lm_error_missing("callback");
}

loam_status loam_machine(loam_write_fn write, void *ctx) {
  return write ? lm_machine_write(write, ctx) : lm_error_missing("write");
}
