/* move_report.h - a report by tag: bytes and blocks that were moved, right, or refused and why. */
#ifndef LM_MOVE_REPORT_H
#define LM_MOVE_REPORT_H

#include "plan/site.h"

/* What, and why, are static words; rows are told apart by them and by the tag. */
typedef struct lm_move_report_row {
  uint32_t site; /* of the tag; 0: no row */
  const char *what, *why;
  uint64_t bytes, blocks;
} lm_move_report_row;

/* Zeroed, it is empty. Under the lock of its owner. */
typedef struct lm_move_report {
  lm_move_report_row *row;
  uint32_t size, n;
  uint64_t moved, right, refused; /* bytes of all rows, and of those there was no memory for */
} lm_move_report;

extern const char lm_move_report_moved[], lm_move_report_right[], lm_move_report_refused[];

/* Room for so many rows more, so that the next ones take no memory; as far as there is some. */
void lm_move_report_reserve(lm_move_report *p, uint32_t rows);
void lm_move_report_add(lm_move_report *p, lm_token token, const char *what, const char *why,
                        uint64_t bytes, uint64_t blocks);
/* As far as there is memory. */
void lm_move_report_copy(lm_move_report *to, const lm_move_report *from);
void lm_move_report_each(const lm_move_report *p, loam_placed_fn visit, void *ctx);
void lm_move_report_clear(lm_move_report *p);

#endif
