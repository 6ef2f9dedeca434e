/* move_report.h - the report of a job that moves memory: for each tag, the bytes and blocks that
 * were moved, that were right, and that were refused and why. */
#ifndef LM_MOVE_REPORT_H
#define LM_MOVE_REPORT_H

#include "plan/site.h"

/* One row. Its key is the tag, `what` and `why`. The two texts are static, and are compared by
 * their addresses. */
typedef struct lm_move_report_row {
  uint32_t site;    /* index of a site of the tag; 0: the entry has no row */
  const char *what; /* one of the lm_move_report_* texts below */
  const char *why;  /* the reason of a refusal, or "" */
  uint64_t bytes, blocks;
} lm_move_report_row;

/* A report. Zeroed, it is empty. Its functions are called under the lock of its owner.
 *
 * Law: `size` is 0 or a power of two, and n <= size * 3 / 4 entries have a row.
 *      moved + right + refused >= the sum of the bytes of all rows; the difference is the
 *      bytes of blocks that no row counts. */
typedef struct lm_move_report {
  lm_move_report_row *row; /* an open table of `size` entries; NULL if size is 0 */
  uint32_t size, n;
  uint64_t moved, right, refused; /* bytes of all blocks that were added */
} lm_move_report;

/* The values of `what`. */
extern const char lm_move_report_moved[], lm_move_report_right[], lm_move_report_refused[];

/* Makes room for `rows` more rows, so that the next lm_move_report_add calls allocate nothing. Does
 * nothing if there is no memory. */
void lm_move_report_reserve(lm_move_report *p, uint32_t rows);

/* Adds one block of `bytes` bytes to the row of the token's tag, `what` and `why`. If the token
 * names no site, or without memory for a new row, only the sums count the block. */
void lm_move_report_add(lm_move_report *p, lm_token token, const char *what, const char *why,
                        uint64_t bytes);

/* Makes *to a copy of *from, to be ended by lm_move_report_clear. Without memory, *to is empty. */
void lm_move_report_copy(lm_move_report *to, const lm_move_report *from);

/* Calls `visit` for each row. */
void lm_move_report_each(const lm_move_report *p, loam_placed_fn visit, void *ctx);

/* Makes the report empty and frees its memory. */
void lm_move_report_clear(lm_move_report *p);

/* Returns whether the report obeys the law above. */
bool lm_move_report_is_valid(const lm_move_report *p);

#endif
