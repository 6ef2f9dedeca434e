/* stats_json.c - the parts of the answer to `stats`. */
#include "service/stats_json.h"

#include "os/numa.h"

/* Writes the figures of a class, unless the class has none. */
static void put_class(lm_json *out, const lm_sums *row, unsigned class_) {
  if (!row || lm_sums_is_empty(row)) return;
  lm_json_open(out, NULL, '{');
  lm_json_uint(out, "from", lm_class_counted_from(class_));
  lm_json_uint(out, "to", lm_class_counted_to(class_));
  lm_json_uint(out, "live_bytes", row->live_bytes);
  lm_json_uint(out, "live_blocks", row->live_blocks);
  lm_json_uint(out, "total_bytes", row->total_bytes);
  lm_json_uint(out, "total_blocks", row->total_blocks);
  if (row->asleep_bytes) lm_json_uint(out, "asleep_bytes", row->asleep_bytes);
  lm_json_close(out, '}');
}

/* Returns the bytes of a row that are asleep: a loam_stats_row has no room for them. */
static uint64_t asleep_in(const lm_sums_table *classes, uint64_t key) {
  uint64_t bytes = 0;
  for (unsigned c = 0; c <= LM_CLASS_UNKNOWN; c++) {
    const lm_sums *row = lm_sums_find(classes, lm_sums_with_class(key, c));
    if (row) bytes += row->asleep_bytes;
  }
  return bytes;
}

static void put_classes(lm_json *out, const lm_sums_table *classes, uint64_t key) {
  lm_json_open(out, "classes", '[');
  for (unsigned c = 0; c < LM_CLASSES_COUNTED; c++)
    put_class(out, lm_sums_find(classes, lm_sums_with_class(key, c)), c);
  uint64_t unknown = lm_sums_with_class(key, LM_CLASS_UNKNOWN);
  put_class(out, lm_sums_find(classes, unknown), LM_CLASS_UNKNOWN);
  lm_json_close(out, ']');
}

void lm_stats_json_row(void *ctx, const loam_stats_row *row, const lm_limit_use *use,
                       const lm_sums_table *classes, uint64_t key) {
  lm_json *out = ctx;
  uint64_t asleep = asleep_in(classes, key);
  lm_json_open(out, NULL, '{');
  lm_json_text(out, "tag", row->tag);
  lm_json_text(out, "strategy", row->strategy);
  lm_json_text(out, "kind", row->kind);
  lm_json_uint(out, "live_bytes", row->live_bytes);
  lm_json_uint(out, "live_blocks", row->live_blocks);
  lm_json_uint(out, "total_bytes", row->total_bytes);
  lm_json_uint(out, "total_blocks", row->total_blocks);
  if (asleep) lm_json_uint(out, "asleep_bytes", asleep);
  if (row->limit) lm_json_uint(out, "limit", row->limit);
  if (row->limit) lm_json_uint(out, "limit_used", row->limit_used);
  if (row->limit) lm_json_uint(out, "limit_peak", use->peak);
  if (use->shared) lm_json_text(out, "limit_shared", use->shared);
  if (use->shared) lm_json_uint(out, "limit_own", use->own);
  put_classes(out, classes, key);
  lm_json_close(out, '}');
}

void lm_stats_json_sums(lm_json *out, const struct loam_stats *s) {
  lm_json_uint(out, "generation", s->generation);
  lm_json_uint(out, "live_bytes", s->live_bytes);
  lm_json_uint(out, "live_blocks", s->live_blocks);
  lm_json_uint(out, "total_bytes", s->total_bytes);
  lm_json_uint(out, "total_blocks", s->total_blocks);
  lm_json_uint(out, "reserved_bytes", s->reserved_bytes);
  lm_json_uint(out, "region_bytes", s->region_bytes);
  lm_json_uint(out, "metadata_bytes", s->metadata_bytes);
  lm_json_uint(out, "denied", s->denied);
  lm_json_uint(out, "fallbacks", s->fallbacks);
  lm_json_uint(out, "failed", s->failed);
  lm_json_uint(out, "bad_frees", s->bad_frees);
}

void lm_stats_json_resident(lm_json *out, lm_resident now) {
  if (!now.all) return;
  lm_json_uint(out, "resident_bytes", now.all);
  lm_json_uint(out, "resident_own_bytes", now.own);
  lm_json_uint(out, "resident_file_bytes", now.files);
  lm_json_uint(out, "resident_stack_bytes", now.stacks);
  lm_json_uint(out, "resident_code_bytes", now.code);
}

static void put_device(lm_json *out, int device, const lm_device_figures *has) {
  lm_json_open(out, NULL, '{');
  lm_json_int(out, "device", device);
  lm_json_uint(out, "reserved_bytes", has->reserved);
  lm_json_uint(out, "used_bytes", has->used);
  lm_json_uint(out, "pinned_reserved_bytes", has->pinned_reserved);
  lm_json_uint(out, "pinned_used_bytes", has->pinned_used);
  lm_json_close(out, '}');
}

void lm_stats_json_devices(lm_json *out, const lm_device_figures *of) {
  bool is_open = false;
  for (int device = 0; device < LM_DEVICES_MAX; device++) {
    if (!of[device].pools) continue;
    if (!is_open) lm_json_open(out, "devices", '[');
    is_open = true;
    put_device(out, device, &of[device]);
  }
  if (is_open) lm_json_close(out, ']');
}

void lm_stats_json_got(void *ctx, const loam_got *got) {
  lm_json *out = ctx;
  lm_json_open(out, NULL, '{');
  lm_json_text(out, "strategy", got->strategy);
  lm_json_uint(out, "failed", got->failed);
  lm_json_uint(out, "at_limit", got->at_limit);
  if (got->limit) lm_json_uint(out, "limit", got->limit);
  if (got->limit) lm_json_uint(out, "limit_used", got->limit_used);
  lm_json_uint(out, "served_late", got->served_late);
  lm_json_uint(out, "live_bytes", got->live_bytes);
  lm_json_uint(out, "checked_bytes", got->checked_bytes);
  lm_json_uint(out, "untouched_bytes", got->untouched_bytes);
  lm_json_uint(out, "elsewhere_bytes", got->elsewhere_bytes);
  lm_json_uint(out, "unknown_bytes", got->unknown_bytes);
  lm_json_open(out, "nodes", '[');
  for (unsigned node = 0; node < LM_NODES_MAX; node++) {
    if (!got->node_bytes[node]) continue;
    lm_json_open(out, NULL, '{');
    lm_json_uint(out, "node", node);
    lm_json_uint(out, "bytes", got->node_bytes[node]);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
  lm_json_uint(out, "huge_asked_bytes", got->huge_asked_bytes);
  lm_json_uint(out, "huge_bytes", got->huge_bytes);
  lm_json_close(out, '}');
}
