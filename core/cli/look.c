/* look.c - opens another process, and writes what its memory is used for. */
#include "cli/look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/resident.h"
#include "os/error.h"
#include "pages/metadata.h"
#include "service/stats_json.h"

enum {
  PATIENCE_MS = 10000, /* after that time no copy begins, if the caller names no other */
  FIGURES_MS = 2000    /* after that time no copy for a screen begins */
};

loam_status lm_look_fail(const lm_look *look, const char *what) {
  int pid = look->remote.pid;
  if (look->remote.is_late)
    return lm_error(LOAM_EIO, "process %d: its tables could not be read within %g s", pid,
                    look->patience_ms / 1000.0);
  return lm_error(LOAM_EINVAL, "process %d: its tables cannot be used: %s", pid, what);
}

/* ---- Opening ---- */

static loam_status fail_version(const lm_look *look) {
  const char *words = "process %d has loam %s; this command, %s, cannot read its tables: "
                      "start the program again";
  return lm_error(LOAM_ESTATE, words, look->remote.pid, look->root.version, loam_version());
}

/* Copies the structure that says where the tables are, and looks whether this build knows them. */
static loam_status copy_root(lm_look *look, uintptr_t at) {
  lm_outside *root = &look->root;
  if (!lm_remote_read(&look->remote, at, root, sizeof *root))
    return lm_look_fail(look, "they cannot be found");
  root->version[sizeof root->version - 1] = 0;
  if (strncmp(root->magic, LM_OUTSIDE_MAGIC, sizeof root->magic))
    return lm_look_fail(look, "they cannot be found");
  uint64_t layout = atomic_load_explicit(&root->layout, memory_order_relaxed);
  return layout == lm_outside_layout() ? LOAM_OK : fail_version(look);
}

/* Copies the head of the page map: lm_map_state has the law. */
static loam_status copy_map(lm_look *look) {
  lm_map_state *map = &look->map;
  if (!lm_remote_read(&look->remote, (uintptr_t)look->root.map, map, sizeof *map))
    return lm_look_fail(look, "the page map cannot be read");
  size_t top = atomic_load_explicit(&map->top, memory_order_relaxed);
  size_t entries = (top >> LM_SLOT_SHIFT) * sizeof(lm_span);
  if (!top) return LOAM_OK;
  bool is_valid = map->base % LM_SLOT == 0 && top % LM_SLOT == 0 && top <= map->size &&
                  map->size <= LM_RANGE && map->base > entries &&
                  map->base <= UINTPTR_MAX - map->size;
  return is_valid ? LOAM_OK : lm_look_fail(look, "the page map has no such size");
}

static void begin(lm_look *look, int pid, int patience_ms) {
  int64_t deadline_ns = lm_sys_clock_ns() + patience_ms * 1000000LL;
  *look = (lm_look){ .remote = { .pid = pid, .deadline_ns = deadline_ns },
                     .patience_ms = patience_ms };
}

static loam_status open_root(lm_look *look, uintptr_t root) {
  loam_status status = copy_root(look, root);
  if (status == LOAM_OK) status = copy_map(look);
  if (status == LOAM_OK) status = lm_look_strategies(look);
  if (status != LOAM_OK) lm_look_close(look);
  return status;
}

static uintptr_t pretended; /* see lm_look_pretend */

void lm_look_pretend(uintptr_t root) { pretended = root; }

static loam_status open_within(lm_look *look, int pid, int patience_ms) {
  uintptr_t root = pretended;
  begin(look, pid, patience_ms);
  loam_status status = root ? LOAM_OK : lm_remote_find(&look->remote, &root);
  if (status != LOAM_OK && look->remote.is_late) return lm_look_fail(look, NULL);
  return status == LOAM_OK ? open_root(look, root) : status;
}

loam_status lm_look_open(lm_look *look, int pid) { return open_within(look, pid, PATIENCE_MS); }

void lm_look_close(lm_look *look) {
  lm_metadata_free(look->strategy);
  lm_metadata_free(look->pool);
  lm_metadata_free(look->site);
  lm_metadata_free(look->limited);
  lm_sums_finish(&look->sums);
  lm_sums_finish(&look->classes);
  look->strategy = NULL;
  look->pool = NULL;
  look->site = NULL;
  look->limited = NULL;
  lm_metadata_free(look->quotas);
  look->quotas = NULL;
}

/* ---- Rows ---- */

/* Returns the site that stands for the tag of a site. `stands` has a site for each index of a tag
 * that was met. A site that the process does not have yet stands for itself. */
static uint32_t site_for_tag(const lm_look *look, uint32_t *stands, uint32_t site) {
  uint32_t tag = site < look->sites && look->site[site].tag ? look->site[site].tag_index : 0;
  if (!tag || tag >= look->sites) return site;
  if (!stands[tag]) stands[tag] = site;
  return stands[tag];
}

/* Joins the rows of sites that have one tag, first by class, then of all classes. */
static loam_status group_by_tag(lm_look *look) {
  lm_sums_table sites = look->sums;
  uint32_t *stands = lm_metadata_alloc((look->sites + 1) * sizeof *stands);
  if (!stands) return lm_error(LOAM_ENOMEM, "statistics: no memory for %u tags", look->sites);
  look->sums = (lm_sums_table){ 0 };
  look->classes.spill = sites.spill;
  bool ok = true;
  for (size_t i = 0; ok && i < sites.size; i++) {
    const lm_sums *row = &sites.row[i];
    if (!row->key) continue;
    ok = lm_look_key_family(row->key) < look->strategies; /* they were copied again since */
    uint32_t site = site_for_tag(look, stands, lm_look_key_site(row->key));
    uint64_t key = lm_look_key(site, lm_look_key_family(row->key), lm_sums_class(row->key));
    lm_sums_add(lm_sums_get(&look->classes, key), row);
  }
  lm_sums_fold(&look->classes, &look->sums);
  lm_sums_finish(&sites);
  lm_metadata_free(stands);
  return ok ? LOAM_OK : lm_look_fail(look, "the table of strategies became shorter");
}

static void put_row(lm_look *look, const lm_sums *row, lm_json *out) {
  char tag[LM_TAG_MAX + 1] = "";
  uint32_t site = lm_look_key_site(row->key);
  const lm_strategy *s = &look->strategy[lm_look_key_family(row->key)];
  lm_limit_use use = lm_look_limit(look, s);
  uintptr_t text = site < look->sites ? look->site[site].tag : 0;
  if (text) lm_remote_text(&look->remote, text, tag, sizeof tag);
  loam_stats_row shown = { .tag = tag,
                           .strategy = s->desc.name,
                           .kind = lm_strategy_kind_text(s->desc.kind),
                           .live_bytes = row->live_bytes,
                           .live_blocks = row->live_blocks,
                           .total_bytes = row->total_bytes,
                           .total_blocks = row->total_blocks,
                           .limit = use.limit,
                           .limit_used = use.used };
  lm_stats_json_row(out, &shown, &use, &look->classes, row->key);
}

static void put_rows(lm_look *look, lm_json *out) {
  size_t n = lm_sums_sort(&look->sums);
  lm_json_open(out, "rows", '[');
  for (size_t i = 0; i < n; i++) put_row(look, &look->sums.row[i], out);
  lm_json_close(out, ']');
}

/* ---- Sums ---- */

/* Returns the figure at an address of the process; 0 if it cannot be read. */
static uint64_t figure(lm_look *look, const void *at) {
  uint64_t value = 0;
  return lm_remote_read(&look->remote, (uintptr_t)at, &value, sizeof value) ? value : 0;
}

/* The slots of a module, and those of them that may have memory: pages/regions.h. */
static void read_regions(lm_look *look, const lm_regions *at, uint64_t *taken, uint64_t *memory) {
  lm_regions r;
  if (!lm_remote_read(&look->remote, (uintptr_t)at, &r, sizeof r)) return;
  *taken += (uint64_t)r.held << LM_SLOT_SHIFT;
  *memory += (uint64_t)(r.held - r.clean.slots) << LM_SLOT_SHIFT;
}

/* Returns the bytes of the tables of samples that have no memory: they were never filled. */
static uint64_t read_unfilled(lm_look *look) {
  lm_samples all;
  bool ok = lm_remote_read(&look->remote, (uintptr_t)look->root.samples, &all, sizeof all);
  return ok ? lm_samples_unfilled(&all) : 0;
}

static void put_sums(lm_look *look, lm_json *out) {
  const lm_outside *root = &look->root;
  lm_sums all = look->sums.spill;
  uint64_t taken = 0, memory = 0;
  uint64_t unfilled = read_unfilled(look); /* read first, so that `memory` has the tables */
  size_t top = atomic_load_explicit(&look->map.top, memory_order_relaxed);
  for (size_t i = 0; i < look->sums.size; i++) lm_sums_add(&all, &look->sums.row[i]);
  read_regions(look, root->metadata, &taken, &memory);
  read_regions(look, root->states, &taken, &memory);
  struct loam_stats s = {
    .generation = look->generation,
    .live_bytes = all.live_bytes,
    .live_blocks = all.live_blocks,
    .total_bytes = all.total_bytes,
    .total_blocks = all.total_blocks,
    .reserved_bytes = look->map.size,
    .region_bytes = (figure(look, root->taken) << LM_SLOT_SHIFT) - taken,
    .metadata_bytes = memory - unfilled + (top >> LM_SLOT_SHIFT) * sizeof(lm_span),
    .denied = figure(look, root->denied),
    .fallbacks = figure(look, root->fallbacks),
    .failed = figure(look, root->failed),
    .bad_frees = figure(look, root->bad_frees),
  };
  lm_stats_json_sums(out, &s);
}

static void put_devices(lm_look *look, lm_json *out) {
  lm_device_figures has[LM_DEVICES_MAX];
  lm_look_devices(look, has);
  lm_stats_json_devices(out, has);
}

/* ---- What strategies got ---- */

static const lm_strategy *strategy_of(void *ctx, uint32_t id) {
  const lm_look *look = ctx;
  return &look->strategy[id];
}

static void walk(void *ctx, lm_walk_visit *visit, lm_audit_wants *wants, void *to) {
  lm_look *look = ctx;
  if (lm_look_each(look, visit, wants, to) != LOAM_OK) look->is_inexact = true;
}

static lm_limit_use limit_of(void *ctx, const lm_strategy *s) { return lm_look_limit(ctx, s); }

static void put_got(lm_look *look, lm_json *out) {
  size_t top = atomic_load_explicit(&look->map.top, memory_order_relaxed);
  lm_audit_subject subject = {
    .pid = look->remote.pid,
    .from = look->map.base,
    .to = look->map.base + top,
    .strategies = look->strategies,
    .strategy = strategy_of,
    .walk = walk,
    .limit = limit_of,
    .ctx = look,
  };
  lm_json_open(out, "got", '[');
  (void)lm_placement_audit_of(&subject, lm_stats_json_got, out);
  lm_json_close(out, ']');
}

/* ---- The answer ---- */

/* Live memory is read before the totals: then each block that was seen alive is in them. Sites are
 * read last, so each site of a block is there. */
static loam_status read_all(lm_look *look) {
  loam_status status = lm_look_count(look);
  if (status == LOAM_OK) status = lm_look_provided(look);
  if (status == LOAM_OK) status = lm_look_totals(look);
  if (status == LOAM_OK) status = lm_look_sites(look);
  return status == LOAM_OK ? group_by_tag(look) : status;
}

static loam_status write_stats(lm_look *look, lm_json *out) {
  loam_status status = read_all(look);
  if (status != LOAM_OK) return status;
  size_t top = atomic_load_explicit(&look->map.top, memory_order_relaxed);
  lm_json_open(out, NULL, '{');
  lm_json_int(out, "pid", look->remote.pid);
  put_sums(look, out);
  lm_stats_json_resident(out,
                         lm_resident_of(look->remote.pid, look->map.base, look->map.base + top));
  put_devices(look, out);
  put_rows(look, out);
  put_got(look, out);
  if (look->is_inexact) lm_json_bool(out, "inexact", true);
  lm_json_close(out, '}');
  return look->remote.is_late ? lm_look_fail(look, NULL) : LOAM_OK;
}

loam_status lm_look_stats(int pid, lm_json *out) {
  return lm_look_stats_within(pid, PATIENCE_MS, out);
}

loam_status lm_look_stats_within(int pid, int patience_ms, lm_json *out) {
  lm_look look;
  loam_status status = open_within(&look, pid, patience_ms);
  if (status != LOAM_OK) return status;
  status = write_stats(&look, out);
  lm_look_close(&look);
  return status;
}

/* ---- Figures, often ---- */

/* Writes the strategies that could not serve requests, or served those that others could not. */
static void put_failures(const lm_look *look, lm_json *out) {
  lm_json_open(out, "strategies", '[');
  for (uint32_t id = 0; id < look->strategies; id++) {
    const lm_strategy *s = &look->strategy[id];
    uint64_t failed = atomic_load_explicit(&s->failed, memory_order_relaxed);
    uint64_t late = atomic_load_explicit(&s->served_late, memory_order_relaxed);
    if (s->whole != s || (!failed && !late)) continue;
    lm_json_open(out, NULL, '{');
    lm_json_text(out, "strategy", s->desc.name);
    lm_json_text(out, "kind", lm_strategy_kind_text(s->desc.kind));
    lm_json_uint(out, "failed", failed);
    lm_json_uint(out, "served_late", late);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
}

/* The memory of loam on each node, as numa_maps has it. */
typedef struct node_bytes {
  uintptr_t from, to; /* loam's address range */
  uint64_t bytes[LM_NODES_MAX];
} node_bytes;

/* A line of numa_maps: the start of a mapping, and words such as "N0=512" and "kernelpagesize_kB=4"
 * for 512 pages of 4 KiB on node 0. The size of pages comes last. */
static void read_nodes(void *ctx, const char *line) {
  node_bytes *n = ctx;
  uintptr_t from = strtoull(line, NULL, 16);
  const char *size = strstr(line, " kernelpagesize_kB=");
  if (from < n->from || from >= n->to || !size) return;
  uint64_t page = strtoull(strchr(size, '=') + 1, NULL, 10) * LM_KIB;
  for (const char *at = line; (at = strstr(at, " N")); at++) {
    char *end;
    unsigned long node = strtoul(at + 2, &end, 10);
    if (*end == '=' && node < LM_NODES_MAX) n->bytes[node] += strtoull(end + 1, NULL, 10) * page;
  }
}

/* Writes how much memory of loam is on each node; nothing if the kernel does not tell. */
static void put_nodes(const lm_look *look, lm_json *out) {
  char path[32];
  size_t top = atomic_load_explicit(&look->map.top, memory_order_relaxed);
  node_bytes n = { .from = look->map.base, .to = look->map.base + top };
  snprintf(path, sizeof path, "/proc/%d/numa_maps", look->remote.pid);
  if (lm_sys_each_line(path, read_nodes, &n)) return;
  lm_json_open(out, "nodes", '[');
  for (unsigned node = 0; node < LM_NODES_MAX; node++) {
    if (!n.bytes[node]) continue;
    lm_json_open(out, NULL, '{');
    lm_json_uint(out, "node", node);
    lm_json_uint(out, "bytes", n.bytes[node]);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
}

static loam_status write_figures(lm_look *look, bool has_got, lm_json *out) {
  loam_status status = read_all(look);
  if (status != LOAM_OK) return status;
  lm_json_open(out, NULL, '{');
  lm_json_int(out, "pid", look->remote.pid);
  put_sums(look, out);
  put_devices(look, out);
  put_rows(look, out);
  put_failures(look, out);
  if (has_got) put_got(look, out);
  if (has_got) put_nodes(look, out);
  if (look->is_inexact) lm_json_bool(out, "inexact", true);
  lm_json_close(out, '}');
  return look->remote.is_late ? lm_look_fail(look, NULL) : LOAM_OK;
}

/* Opens a process by the address that was found before, if there is one. */
static loam_status open_known(lm_look *look, int pid, uintptr_t *root) {
  begin(look, pid, FIGURES_MS);
  if (*root && open_root(look, *root) == LOAM_OK) return LOAM_OK;
  begin(look, pid, FIGURES_MS);
  loam_status status = lm_remote_find(&look->remote, root);
  return status == LOAM_OK ? open_root(look, *root) : status;
}

loam_status lm_look_figures(int pid, uintptr_t *root, bool has_got, lm_json *out) {
  lm_look look;
  loam_status status = open_known(&look, pid, root);
  if (status != LOAM_OK) return status;
  status = write_figures(&look, has_got, out);
  lm_look_close(&look);
  return status;
}
