/* stacks.h - the table of the stacks of samples (engine/sample.h): a row for each stack that
 * differs in a frame of C or Python, in the site or in the strategy.
 *
 * A row is never removed, so a stack keeps its index. When all rows are taken, further stacks share
 * row 0. os/unwind.h says how a thread reads its stack. */
#ifndef LM_STACKS_H
#define LM_STACKS_H

#include <stdatomic.h>

#include "engine/python_frames.h"
#include "os/unwind.h"

enum {
  LM_STACKS = 16384,                /* rows, with row 0 */
  LM_STACKS_PLACES = 2 * LM_STACKS, /* of the index */
  LM_STACK_FRAMES = LM_UNWIND_FRAMES,
  LM_STACK_CODES = 8192,    /* code objects whose texts can be found again */
  LM_STACK_TEXTS = 1 << 20, /* bytes of all texts */
};

/* Sums of the samples of a session. Live samples of earlier sessions are counted in `samples` too,
 * but stand for nothing. Each field is read and written relaxed; writers hold the lock of the
 * samples. */
typedef struct lm_stack_sums {
  _Atomic uint64_t samples;
  _Atomic uint64_t blocks; /* blocks that they stand for, times 2^LM_SAMPLE_SHIFT */
  _Atomic uint64_t bytes;  /* bytes that they stand for */
} lm_stack_sums;

/* A frame of Python code. */
typedef struct lm_stack_python {
  uint32_t text; /* where lm_stacks.text has its name, and behind that its file; 0: no room */
  uint32_t line; /* with LM_STACK_ENTRY, if the frame was entered from C (python_frames.h) */
} lm_stack_python;
#define LM_STACK_ENTRY ((uint32_t)1 << 31)

/* A stack with the site and the strategy of the block. The fields above `total` do not change once
 * lm_stacks.count includes the row. */
typedef struct lm_stack {
  uint64_t hash;
  uint32_t site;     /* index; 0: row 0 */
  uint16_t strategy; /* id */
  uint8_t frames, python_frames;
  lm_stack_sums total, live;
  /* Addresses of code, the innermost first. Of a caller: an address inside its call instruction. */
  uint64_t frame[LM_STACK_FRAMES];
  lm_stack_python python[LM_PYTHON_FRAMES]; /* the innermost first */
} lm_stack;

/* A code object of Python, and the place of its texts. */
typedef struct lm_stack_code {
  const void *code;
  const void *name, *file; /* tell most later code objects at that address from it */
  uint32_t text;
} lm_stack_code;

/* The table. Law: row[0 .. count - 1] are used, and each of them but row 0 is in `index` once. */
typedef struct lm_stacks {
  lm_stack *row;          /* LM_STACKS of them; NULL: no table was made yet */
  uint32_t *index;        /* LM_STACKS_PLACES numbers of rows, by hash; 0: unused */
  _Atomic uint32_t count; /* release, which pairs with the reader's order: the rows are written */
  _Atomic uint64_t unfit; /* samples in row 0, since all rows were taken */
  lm_stack_code *code;    /* LM_STACK_CODES, by hash */
  char *text;             /* LM_STACK_TEXTS bytes */
  uint32_t text_used;     /* at least 1: place 0 is an empty text */
} lm_stacks;

/* Makes the tables, if there are none. Returns false if there is no memory. */
bool lm_stacks_make(lm_stacks *stacks);
/* Frees the tables. For tests: a process keeps its own. */
void lm_stacks_free(lm_stacks *stacks);
/* Returns the index of the row for a stack. Makes the row if there is none; 0: all rows are taken.
 * The caller holds the lock of the samples. */
uint32_t lm_stacks_get(lm_stacks *stacks, const lm_stack *like);
/* Begins the sums anew, except for the number of live samples. The caller holds the lock of the
 * samples. */
void lm_stacks_begin_session(lm_stacks *stacks);
/* Adds a sample to sums, or takes it away (`by` is 1 or -1). */
void lm_stack_add(lm_stack_sums *sums, uint64_t blocks, uint64_t bytes, int by);

/* Copies the frames of a stack that was read, and fills in the hash, which depends on `site` and
 * `strategy` too. The caller holds the lock of the samples, and runs the n frames of Python. */
void lm_stacks_describe(lm_stacks *stacks, lm_stack *stack, const lm_unwound *from,
                        const lm_python_frame *python, uint32_t n);

/* Returns the bytes at the ends of the tables that were never filled. The caller holds the lock of
 * the samples, or has a copy of `stacks`. */
size_t lm_stacks_unfilled(const lm_stacks *stacks);

/* Returns whether the law of the table holds. The caller holds the lock of the samples. */
bool lm_stacks_is_valid(const lm_stacks *stacks);

#endif
