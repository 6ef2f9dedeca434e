/* rebalance_fixture.h - helpers of tests that move live memory: policies, reports, blocks with
 * contents. */
#ifndef REBALANCE_FIXTURE_H
#define REBALANCE_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "filled.h"
#include "loam.h"
#include "move/rebalance.h"
#include "test.h"

#define MiB ((size_t)1 << 20)

static inline void load_text(const char *text) {
  if (loam_policy_load_text("now.lua", text) != LOAM_OK) fail_msg("%s", loam_error());
}

/* Loads a policy that gives `strategy`, an expression in Lua, to all tags but those under `stays`;
 * these get the strategy `plain`. */
static inline void load(const char *strategy) {
  char text[1024];
  snprintf(text, sizeof text,
           "local plain = loam.host { name = 'plain', huge = false }\n"
           "local now = %s\n"
           "return loam.policy { name = 'now', pick = function(req)\n"
           "  if req.tag:under('stays') then return plain end\n"
           "  return now\nend }\n",
           strategy);
  load_text(text);
}

#define PLAIN "plain"

static inline const char *strategy_of(const void *p) {
  loam_owner_info owner;
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  return owner.strategy;
}

/* ---- the report ---- */

/* The sums of the last report, over all its rows. */
static struct report {
  uint64_t moved, right, refused;
  char why[128]; /* the reason of the last refusal */
} report;

static inline void note(void *ctx, const loam_placed *row) {
  (void)ctx;
  if (!strcmp(row->what, "moved")) report.moved += row->bytes;
  else if (!strcmp(row->what, "right")) report.right += row->bytes;
  else {
    report.refused += row->bytes;
    snprintf(report.why, sizeof report.why, "%s", row->why);
  }
}

/* Rebalances one tag, so that the report has no blocks that other tests left. */
static inline void rebalance_tag(const char *tag) {
  loam_rebalance_options options = { .size = sizeof options, .tag = tag, .rate = UINT64_MAX };
  report = (struct report){ 0 };
  if (loam_rebalance(&options, NULL, note, NULL) != LOAM_OK) fail_msg("%s", loam_error());
  assert_true(lm_rebalance_is_valid());
}

static inline void rebalance(void) { rebalance_tag(NULL); }

/* Checks that the reason of the last refusal contains `words`. */
static inline void refused_as(const char *words) {
  if (!strstr(report.why, words)) fail_msg("\"%s\" is not in \"%s\"", words, report.why);
}

/* The set-up of a test program. Starts loam without a service thread, so that no other job moves
 * memory. */
static inline int start_without_service(void **state) {
  (void)state;
  loam_config config = { .size = sizeof config, .control = -1 };
  return loam_start(&config);
}

#endif
