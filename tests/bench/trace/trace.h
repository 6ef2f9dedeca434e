/* trace.h - a trace: the requests of a program for device memory, in their order. Its text has a
 * line for each event.
 *
 *   alloc ID SIZE STREAM    ID: a number that no live block has; STREAM: 0 is the default one
 *   free ID                 its stream is the stream of the allocation
 *   mark WORDS              a place in the program, such as "step 3"
 *   # WORDS                 a comment; on the first line, where the trace is from
 *
 * Sizes are the bytes that the program asked for. A trace is *recorded* if it comes from a program
 * that ran (tests/gpu/record.py, recorder.c), or *derived* if it follows from the arithmetic of a
 * program (derive.lua). Its first line says which. */
#ifndef TRACE_H
#define TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct trace_event {
  size_t size; /* 0: a free */
  uint32_t block, stream;
} trace_event;

/* A trace in memory. Its blocks have new numbers, from 0. Only live blocks are freed. */
typedef struct trace {
  char name[64], origin[160]; /* the name of its file; the first line */
  trace_event *event;
  size_t events, blocks, marks, peak; /* peak: the most live bytes */
  uint32_t streams;
} trace;

/* Reads a trace from a file. Returns false, with a line on stderr, if the file is no trace. */
bool trace_read(trace *t, const char *path);
void trace_finish(trace *t);

/* A model of an allocator, which has no memory but counts it: models.c. */
typedef struct model model;
enum { MODELS = 3 };
const char *model_name(int which);
/* `most` is the bytes of the device. */
model *model_new(int which, uint32_t streams, size_t blocks, size_t most);
/* Returns false if the device has no memory. */
bool model_take(model *m, uint32_t block, size_t size, uint32_t stream);
void model_give(model *m, uint32_t block);
size_t model_reserved(const model *m);
void model_free(model *m);

#endif
