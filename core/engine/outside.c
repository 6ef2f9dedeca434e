/* outside.c - fills the structure that says where this process has its tables, and hashes the
 * layout of the tables. */
#include "engine/outside.h"

#include "heap/pools.h"
#include "heap/quota.h"
#include "os/hash.h"
#include "os/version.h"
#include "pages/metadata.h"
#include "pages/range.h"
#include "pages/states.h"

lm_outside lm_outside_root
    __attribute__((used)) = { .magic = LM_OUTSIDE_MAGIC, .version = LM_VERSION };

/* The note. Its last word is an offset, so it needs no relocation when the program is loaded. */
__asm__(".pushsection .note.loam, \"a\", %note\n"
        ".balign 4\n"
        ".long 5, 8, 1\n" /* bytes of the name, bytes of the offset, LM_OUTSIDE_NOTE */
        ".asciz \"loam\"\n"
        ".balign 4\n"
        ".quad lm_outside_root - .\n"
        ".popsection\n");
_Static_assert(LM_OUTSIDE_NOTE == 1, "the note has this number");

/* A field, and what a reader must know of it. */
#define AT(type, field) offsetof(type, field), sizeof(((type *)0)->field)

static const uint32_t layout[] = {
  /* the page map and states */
  sizeof(lm_outside),
  sizeof(lm_span),
  sizeof(lm_map_state),
  sizeof(lm_palette),
  LM_MAP_FIRST,
  LM_SLOT_SHIFT,
  LM_CLASSES,
  LM_CLASSES_ALL,
  LM_CLASSES_COUNTED,
  LM_COMMON_TOKENS,
  LM_PALETTE_TOKENS,
  LM_SITE_BITS,
  LM_USE_SMALL,
  LM_USE_LARGE,
  LM_USE_GUARDED,
  LM_USE_METADATA,
  LM_USE_MOVING,
  LM_USE_UNPREPARED,
  LM_USE_RUNS,
  LM_STATE_CACHED,
  LM_STATE_COUNTED,
  LM_STATE_SAMPLED,
  AT(lm_map_state, base),
  AT(lm_map_state, top),
  AT(lm_map_state, size),
  AT(lm_span, key),
  AT(lm_span, cells),
  AT(lm_span, start),
  AT(lm_span, strategy),
  AT(lm_span, cell),
  AT(lm_span, size),
  AT(lm_span, version),
  AT(lm_span, use),
  AT(lm_span, slots),
  AT(lm_span, token),
  AT(lm_palette, owner),
  AT(lm_palette, wide),
  AT(lm_palette, class_),
  AT(lm_palette, count),
  /* strategies, sites and plans */
  sizeof(lm_strategy),
  LM_STRATEGIES_MAX,
  LM_KINDS,
  LM_NODES_MAX,
  AT(lm_strategy, desc),
  AT(lm_desc, name),
  AT(lm_desc, kind),
  AT(lm_desc, limit),
  AT(lm_desc, shared),
  AT(lm_desc, placement),
  AT(lm_desc, huge),
  AT(lm_strategy, whole),
  AT(lm_strategy, account),
  AT(lm_strategy, pool),
  AT(lm_pool, regions),
  AT(lm_strategy, family),
  AT(lm_strategy, used),
  AT(lm_strategy, quota),
  AT(lm_strategy, failed),
  AT(lm_strategy, at_limit),
  AT(lm_strategy, served_late),
  sizeof(lm_quota_table),
  AT(lm_quota_table, holder),
  AT(lm_quota_table, drawn),
  sizeof(lm_quota_holder),
  LM_QUOTAS,
  LM_QUOTA_HOLDERS,
  sizeof(loam_site),
  LM_SITE_CHUNK,
  LM_SITE_FIRST,
  AT(loam_site, now),
  AT(loam_site, index),
  AT(loam_site, tag_index),
  AT(loam_site, where),
  AT(loam_where, tag),
  AT(loam_where, file),
  AT(loam_where, func),
  AT(loam_where, module),
  AT(loam_where, line),
  sizeof(lm_site_plan),
  AT(lm_site_plan, plan),
  sizeof(lm_plan),
  AT(lm_plan, chains),
  AT(lm_plan, chain),
  /* totals */
  sizeof(lm_stats_stripe),
  sizeof(lm_sums),
  LM_STATS_STRIPES,
  LM_SUMS_CLASS,
  AT(lm_stats_stripe, changes),
  AT(lm_stats_stripe, table),
  AT(lm_sums_table, row),
  AT(lm_sums_table, size),
  AT(lm_sums_table, spill),
  AT(lm_sums, key),
  AT(lm_sums, total_blocks),
  AT(lm_sums, total_bytes),
  AT(lm_thread, next),
  AT(lm_thread, used_tallies),
  AT(lm_thread, used_decisions),
  AT(lm_thread, tally),
  AT(lm_thread, decision),
  AT(lm_tally, key),
  AT(lm_tally, blocks),
  AT(lm_tally, bytes),
  AT(lm_decision, site),
  AT(lm_decision, strategy),
  AT(lm_decision, class_),
  AT(lm_decision, left),
  AT(lm_decision, start),
  /* provided blocks and device memory */
  sizeof(lm_provided_node),
  AT(lm_provided_tree, changes),
  AT(lm_provided_tree, root),
  AT(lm_provided_node, block),
  AT(lm_provided_node, left),
  AT(lm_provided_node, right),
  AT(lm_provided, base),
  AT(lm_provided, size),
  AT(lm_provided, token),
  AT(lm_provided, strategy),
  AT(lm_provided, is_asleep),
  AT(lm_device_pool, pinned.is_pinned),
  AT(lm_device_pool, device),
  AT(lm_device_pool, gone),
  AT(lm_device_pool, mapped),
  AT(lm_device_pool, live),
  AT(lm_device_pool, older),
  AT(lm_device_pool, ranges),
  AT(lm_extent_range, base),
  AT(lm_extent_range, size),
  AT(lm_extent_range, first),
  AT(lm_extent_range, next),
  AT(lm_extent, at),
  AT(lm_extent, size),
  AT(lm_extent, after),
  AT(lm_extent, token),
  AT(lm_extent, strategy),
  AT(lm_extent, state),
  LM_EXTENT_LIVE,
  /* samples */
  sizeof(lm_samples),
  sizeof(lm_stack),
  LM_STACKS,
  LM_SAMPLE_SHIFT,
  AT(lm_samples, interval),
  AT(lm_samples, started_at),
  AT(lm_samples, live),
  AT(lm_samples, live_lost),
  AT(lm_samples, skipped),
  AT(lm_samples, stacks),
  AT(lm_stacks, row),
  AT(lm_stacks, count),
  AT(lm_stacks, unfit),
  AT(lm_stack, site),
  AT(lm_stack, strategy),
  AT(lm_stack, frames),
  AT(lm_stack, python_frames),
  AT(lm_stack, python),
  AT(lm_stacks, text),
  LM_STACK_TEXTS,
  AT(lm_stack, total),
  AT(lm_stack, live),
  AT(lm_stack, frame),
  /* figures */
  AT(lm_regions, held),
  AT(lm_regions, clean),
  AT(lm_regions, dirty),
  AT(lm_runs, id),
  AT(lm_runs, slots),
};

uint64_t lm_outside_layout(void) { return lm_hash_bytes(layout, sizeof layout); }

void lm_outside_start(void) {
  lm_outside *o = &lm_outside_root;
  o->map = &lm_map;
  o->common = lm_state_common;
  o->strategies = lm_strategy_table;
  o->builtin = &lm_strategy_builtin;
  o->site_chunks = lm_site_chunk;
  o->site_empty = &lm_site_empty;
  o->generation = &lm_site_generation;
  o->totals = lm_stats_outside;
  o->threads = lm_thread_outside;
  o->provided = lm_provided_outside;
  o->device_pools = lm_device_pool_outside;
  o->taken = lm_range_outside;
  o->metadata = lm_metadata_outside;
  o->states = lm_states_outside;
  o->samples = &lm_sample_all;
  o->quotas = &lm_quota_mapped;
  o->denied = &lm_stats_denied;
  o->fallbacks = &lm_stats_fallbacks;
  o->failed = &lm_stats_failed;
  o->bad_frees = &lm_stats_bad_frees;
  /* Release: the reader, which loads `layout` first, then finds the other fields. */
  atomic_store_explicit(&o->layout, lm_outside_layout(), memory_order_release);
}
