/* trace.h - what a program asked of a device's memory, in the order in which it did: a text of a
 * line an event.
 *
 *   alloc ID SIZE STREAM    ID: a number that no live block has; STREAM: 0 is the default one
 *   free ID                 on the stream that it was allocated for
 *   mark WORDS              as "step 3": where in the program this is
 *   # WORDS                 of the trace itself: on its first line, where it is from
 *
 * Bytes are as they were asked for. A trace is *recorded* if a program ran and asked for this
 * (tests/gpu/record.py, recorder.c), *derived* if it follows from the arithmetic of one
 * (derive.lua); its first line says which. */
#ifndef TRACE_H
#define TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct trace_event {
  size_t size; /* 0: a free */
  uint32_t block, stream;
} trace_event;

/* Blocks are numbered anew from 0, and none is freed that is not live. */
typedef struct trace {
  char name[64], origin[160]; /* of the file; its first line */
  trace_event *event;
  size_t events, blocks, marks, peak; /* peak: bytes live at once, at most */
  uint32_t streams;
} trace;

/* False with a line on stderr. */
bool trace_read(trace *t, const char *path);
void trace_finish(trace *t);

/* An allocator as text describes it, which has no memory but counts it: models.c. */
typedef struct model model;
enum { MODELS = 3 };
const char *model_name(int which);
/* `most`: bytes of the device. */
model *model_new(int which, uint32_t streams, size_t blocks, size_t most);
/* False: out of memory. */
bool model_take(model *m, uint32_t block, size_t size, uint32_t stream);
void model_give(model *m, uint32_t block);
size_t model_reserved(const model *m);
void model_free(model *m);

#endif
