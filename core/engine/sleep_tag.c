/* sleep_tag.c - which blocks of device memory sleep and wake: those under a tag. */
#include "engine/sleep_tag.h"

#include <string.h>

#include "device/defer.h"
#include "device/provider.h"
#include "device/sleep.h"
#include "os/error.h"
#include "plan/site.h"

/* Returns whether a block's tag is `group` or under it; every tag is under NULL and "". */
static bool is_under(const lm_provided *block, const char *group) {
  size_t length = group ? strlen(group) : 0;
  const char *tag = lm_site_of(block->token)->where.tag;
  return !length || (!strncmp(tag, group, length) && (!tag[length] || tag[length] == '.'));
}

static bool wants(const void *ctx, const lm_provided *block) { return is_under(block, ctx); }

/* The sums of the device memory that lives under a tag. */
typedef struct count {
  const char *group;
  uint64_t asleep;   /* bytes */
  uint32_t sleepers; /* blocks that can sleep, asleep or awake */
  uint32_t others;   /* blocks of device memory that cannot */
  uint32_t strategy; /* of one of these others */
} count;

static void count_block(void *ctx, lm_provided *block) {
  count *c = ctx;
  if (block->device < 0 || !is_under(block, c->group)) return;
  if (block->is_asleep) c->asleep += block->size;
  if (block->sleeper) {
    c->sleepers++;
  } else if (lm_strategy_at(block->strategy)->desc.kind == LM_KIND_DEVICE) {
    c->others++;
    c->strategy = block->strategy;
  }
}

static count count_under(const char *tag) {
  count c = { .group = tag };
  lm_provider_each(count_block, &c);
  return c;
}

/* Called when no block was put to sleep. Fails if device memory lives under the tag, but none of it
 * can ever sleep: then the policy probably lacks `pool = "sleep"`. */
static loam_status check_none(const char *tag) {
  count c = count_under(tag);
  if (c.sleepers || !c.others) return LOAM_OK;
  return lm_error(LOAM_EUNSUPPORTED,
                  "tag '%.100s': no device memory there can sleep: strategy '%s' is not "
                  "loam.device { pool = \"sleep\" }",
                  tag ? tag : "", lm_strategy_at(c.strategy)->desc.name);
}

static loam_status find_place(const char *where, lm_sleep_to *to) {
  char quoted[200];
  *to = where && *where == '/' ? LM_SLEEP_FILE : LM_SLEEP_PINNED;
  if (!where || *where == '/' || !strcmp(where, "pinned")) return LOAM_OK;
  *to = LM_SLEEP_DISCARD;
  if (!strcmp(where, "discard")) return LOAM_OK;
  return lm_error(
      LOAM_EINVAL,
      "unknown place %s: write \"pinned\", \"discard\" or the path of a folder, from / on",
      lm_error_quote(quoted, sizeof quoted, where));
}

/* ---- Both functions call sleep.c again if there is no memory, but frees without a stream were
 * collected (device/defer.h), which can end now. */

static loam_status put(const char *tag, lm_sleep_to to, const char *where, size_t *bytes) {
  lm_thread *self = lm_thread_inside_begin();
  loam_status status = lm_sleep_put(&(lm_sleep_choice){ wants, tag }, to, where, bytes);
  lm_thread_inside_end(self);
  return status;
}

static loam_status wake(const char *tag, size_t *bytes) {
  lm_thread *self = lm_thread_inside_begin();
  loam_status status = lm_sleep_wake(&(lm_sleep_choice){ wants, tag }, bytes);
  lm_thread_inside_end(self);
  return status;
}

loam_status lm_sleep_tag_put(const char *tag, const char *where, size_t *bytes) {
  lm_sleep_to to;
  size_t given = 0;
  loam_status status = find_place(where, &to);
  if (status != LOAM_OK) return status;
  do status = put(tag, to, where, &given);
  while (status == LOAM_ENOMEM && lm_defer_flush_in_use(-1) > 0);
  if (status == LOAM_OK && !given) status = check_none(tag);
  if (status == LOAM_OK) *bytes = given;
  return status;
}

loam_status lm_sleep_tag_wake(const char *tag, size_t *bytes) {
  loam_status status;
  do status = wake(tag, bytes);
  while (status == LOAM_ENOMEM && lm_defer_flush_in_use(-1) > 0);
  return status;
}

size_t lm_sleep_tag_asleep(const char *tag) { return count_under(tag).asleep; }
