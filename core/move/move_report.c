/* move_report.c - the report of a job that moves memory: an open-addressed hash table with linear
 * probing, keyed by tag, `what` and `why`. */
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

static bool has_key(const lm_move_report_row *row, uint32_t site, const char *what,
                    const char *why) {
  return row->what == what && row->why == why && tag_of(row->site) == tag_of(site);
}

/* Returns the row of a key, or the empty entry where it belongs. There is always an empty entry,
 * since at most three quarters of a table are used. */
static lm_move_report_row *find(lm_move_report_row *row, uint32_t size, uint32_t site,
                                const char *what, const char *why) {
  lm_assert(lm_is_pow2(size));
  uint64_t key = tag_of(site) ^ (uintptr_t)what * 31 ^ (uintptr_t)why * 17;
  uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (size - 1);
  while (row[at].site && !has_key(&row[at], site, what, why)) at = (at + 1) & (size - 1);
  return &row[at];
}

void lm_move_report_reserve(lm_move_report *p, uint32_t rows) {
  uint32_t size = p->size ? p->size : ROWS_LEAST;
  lm_assert(rows <= UINT32_MAX / 4 - p->n);
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
  lm_verify(lm_move_report_is_valid(p));
}

static bool has_room(const lm_move_report *p) { return p->n < p->size / 4 * 3; }

/* Returns the row of a key, made if it is new; NULL if the site is not known (0), or if there is no
 * memory for the row. */
static lm_move_report_row *row_of(lm_move_report *p, uint32_t site, const char *what,
                                  const char *why) {
  if (!site) return NULL;
  if (p->size) {
    lm_move_report_row *row = find(p->row, p->size, site, what, why);
    if (row->site) return row;
  }
  if (!has_room(p)) lm_move_report_reserve(p, 1);
  if (!has_room(p)) return NULL;
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
                        uint64_t bytes) {
  lm_assert(what && why);
  lm_move_report_row *row = row_of(p, lm_site_token_index(token), what, why);
  add_to_sums(p, what, bytes);
  lm_assert(p->n <= p->size);
  if (!row) return;
  row->bytes += bytes;
  row->blocks++;
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
  lm_verify(lm_move_report_is_valid(p));
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

bool lm_move_report_is_valid(const lm_move_report *p) {
  uint32_t n = 0;
  uint64_t bytes = 0;
  if (!p->size) return !p->row && !p->n;
  if (!p->row || !lm_is_pow2(p->size) || p->n > p->size / 4 * 3) return false;
  for (uint32_t i = 0; i < p->size; i++) {
    const lm_move_report_row *row = &p->row[i];
    if (!row->site) continue;
    if (!row->what || !row->why || !row->blocks) return false;
    if (find(p->row, p->size, row->site, row->what, row->why) != row) return false;
    bytes += row->bytes;
    n++;
  }
  return n == p->n && bytes <= p->moved + p->right + p->refused;
}
