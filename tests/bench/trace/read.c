/* read.c - reads a trace from its text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"

/* The numbers of live blocks: `id` in the text, `block` in the trace. */
typedef struct names {
  struct {
    uint64_t id;
    uint32_t block;
    bool used;
  } * at;
  size_t room, used; /* room: a power of two */
} names;

static size_t place_of(const names *n, uint64_t id) {
  size_t i = (size_t)(id * 0x9e3779b97f4a7c15u >> 20) & (n->room - 1);
  while (n->at[i].used && n->at[i].id != id) i = (i + 1) & (n->room - 1);
  return i;
}

static void grow(names *n) {
  names old = *n;
  n->room = old.room ? old.room * 2 : 1024;
  n->at = calloc(n->room, sizeof *n->at);
  if (!n->at) abort();
  for (size_t i = 0; i < old.room; i++)
    if (old.at[i].used) n->at[place_of(n, old.at[i].id)] = old.at[i];
  free(old.at);
}

static bool note(names *n, uint64_t id, uint32_t block) {
  if (n->used * 2 >= n->room) grow(n);
  size_t i = place_of(n, id);
  bool is_new = !n->at[i].used;
  if (!is_new && n->at[i].block != UINT32_MAX) return false;
  n->used += is_new;
  n->at[i].used = true;
  n->at[i].id = id;
  n->at[i].block = block;
  return true;
}

static uint32_t forget(names *n, uint64_t id) {
  if (!n->room) return UINT32_MAX;
  size_t i = place_of(n, id);
  uint32_t block = n->at[i].used ? n->at[i].block : UINT32_MAX;
  if (n->at[i].used) n->at[i].block = UINT32_MAX;
  return block;
}

static void add(trace *t, trace_event event) {
  if (!(t->events & (t->events - 1))) {
    t->event = realloc(t->event, (t->events ? t->events * 2 : 1) * sizeof event);
    if (!t->event) abort();
  }
  t->event[t->events++] = event;
}

static const char *read_line(trace *t, names *n, const char *line) {
  unsigned long long id, size;
  unsigned stream;
  if (sscanf(line, "alloc %llu %llu %u", &id, &size, &stream) == 3) {
    if (!size) return "an allocation of no bytes";
    if (!note(n, id, (uint32_t)t->blocks)) return "a block that is live already";
    add(t, (trace_event){ (size_t)size, (uint32_t)t->blocks++, stream });
    if (stream >= t->streams) t->streams = stream + 1;
  } else if (sscanf(line, "free %llu", &id) == 1) {
    uint32_t block = forget(n, id);
    if (block == UINT32_MAX) return "a free of what is not live";
    add(t, (trace_event){ 0, block, 0 });
  } else if (!strncmp(line, "mark ", 5)) {
    t->marks++;
  } else if (line[0] != '#' && line[0] != '\n') {
    return "neither alloc, free, mark nor #";
  }
  return NULL;
}

/* Finds the peak. Gives each free the stream of its allocation, since PyTorch frees a block on the
 * stream that it was allocated for. */
static void complete(trace *t) {
  size_t live = 0;
  const trace_event **made = calloc(t->blocks + 1, sizeof *made); /* for each block */
  if (!made) abort();
  for (size_t i = 0; i < t->events; i++) {
    trace_event *e = &t->event[i];
    live = e->size ? live + e->size : live - made[e->block]->size;
    if (e->size) made[e->block] = e;
    else e->stream = made[e->block]->stream;
    if (live > t->peak) t->peak = live;
  }
  free(made);
}

bool trace_read(trace *t, const char *path) {
  char line[512];
  names n = { 0 };
  const char *why = NULL, *name = strrchr(path, '/');
  unsigned number = 0;
  *t = (trace){ .streams = 1 };
  FILE *file = fopen(path, "r");
  if (!file) {
    perror(path);
    return false;
  }
  snprintf(t->name, sizeof t->name, "%s", name ? name + 1 : path);
  while (!why && fgets(line, sizeof line, file)) {
    if (!number++) snprintf(t->origin, sizeof t->origin, "%.*s", (int)strcspn(line, "\n"), line);
    why = read_line(t, &n, line);
  }
  fclose(file);
  free(n.at);
  if (why) fprintf(stderr, "%s:%u: %s: %s", path, number, why, line);
  else complete(t);
  return !why;
}

void trace_finish(trace *t) {
  free(t->event);
  *t = (trace){ 0 };
}
