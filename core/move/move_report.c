/* move_report.c - a report by tag: an open table, keyed by tag, what and why. */
#include "move/move_report.h"

#include <string.h>

#include "pages/metadata.h"

enum { ROWS_LEAST = 64 };

const char lm_move_report_moved[] = "moved", lm_move_report_right[] = "right",
           lm_move_report_refused[] = "refused";

static uint32_t tag_of(uint32_t site) {
  const loam_site *s = lm_site_at(site);
  return s ? s->tag_index : 0;
}

static bool is_of(const lm_move_report_row *row, uint32_t site, const char *what, const char *why) {
  return row->what == what && row->why == why && tag_of(row->site) == tag_of(site);
}

/* The row of a key, or the empty place for it. There is always an empty place. */
static lm_move_report_row *find(lm_move_report_row *row, uint32_t size, uint32_t site,
                                const char *what, const char *why) {
  uint64_t key = tag_of(site) ^ (uintptr_t)what * 31 ^ (uintptr_t)why * 17;
  uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (size - 1);
  while (row[at].site && !is_of(&row[at], site, what, why)) at = (at + 1) & (size - 1);
  return &row[at];
}

void lm_move_report_reserve(lm_move_report *p, uint32_t rows) {
  uint32_t size = p->size ? p->size : ROWS_LEAST;
  while (size / 4 * 3 < p->n + rows) size *= 2;
  if (size == p->size) return;
  lm_move_report_row *row = lm_metadata_alloc(size * sizeof *row);
  if (!row) return;
  for (uint32_t i = 0; i < p->size; i++) {
    const lm_move_report_row *old = &p->row[i];
    if (old->site) *find(row, size, old->site, old->what, old->why) = *old;
  }
  lm_metadata_free(p->row);
  p->row = row;
  p->size = size;
}

static lm_move_report_row *row_of(lm_move_report *p, uint32_t site, const char *what,
                                  const char *why) {
  if (p->size) {
    lm_move_report_row *row = find(p->row, p->size, site, what, why);
    if (row->site) return row;
  }
  if (!p->size || p->n + 1 > p->size / 4 * 3) lm_move_report_reserve(p, 1);
  if (!p->size || p->n + 1 > p->size / 4 * 3) return NULL;
  p->n++;
  lm_move_report_row *row = find(p->row, p->size, site, what, why);
  *row = (lm_move_report_row){ site, what, why, 0, 0 };
  return row;
}

static void add_to_sums(lm_move_report *p, const char *what, uint64_t bytes) {
  if (what == lm_move_report_moved) p->moved += bytes;
  else if (what == lm_move_report_right) p->right += bytes;
  else p->refused += bytes;
}

void lm_move_report_add(lm_move_report *p, lm_token token, const char *what, const char *why,
                        uint64_t bytes, uint64_t blocks) {
  lm_move_report_row *row = row_of(p, lm_site_token_index(token), what, why);
  add_to_sums(p, what, bytes);
  if (!row) return;
  row->bytes += bytes;
  row->blocks += blocks;
}

void lm_move_report_copy(lm_move_report *to, const lm_move_report *from) {
  *to = (lm_move_report){ 0 };
  if (!from->size) return;
  lm_move_report_row *row = lm_metadata_alloc(from->size * sizeof *row);
  if (!row) return;
  *to = *from;
  to->row = memcpy(row, from->row, from->size * sizeof *row);
}

void lm_move_report_each(const lm_move_report *p, loam_placed_fn visit, void *ctx) {
  for (uint32_t i = 0; i < p->size; i++) {
    const lm_move_report_row *row = &p->row[i];
    const loam_site *site = row->site ? lm_site_at(row->site) : NULL;
    if (!site) continue;
    visit(ctx, &(loam_placed){ site->where.tag, row->what, row->why, row->bytes, row->blocks });
  }
}

void lm_move_report_clear(lm_move_report *p) {
  lm_metadata_free(p->row);
  *p = (lm_move_report){ 0 };
}
