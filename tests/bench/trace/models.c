/* models.c - models of other allocators' algorithms, written from published descriptions. They show
 * how much those allocators would reserve, where the allocators cannot be run. They say nothing
 * about time, and only a run of the allocator itself gives its true figures.
 *
 * PyTorch's caching allocator (the notes on CUDA semantics, and the constants that its tests
 * state): Sizes are rounded up to 512 bytes. Sizes up to 1 MiB are cut from segments of 2 MiB,
 * sizes below 10 MiB from segments of 20 MiB. A larger size has a segment of its own, rounded up to
 * 2 MiB. Each stream has its own free blocks, those in segments for small sizes apart from the
 * others. The smallest block that is large enough is taken; of equal blocks, the one at the lowest
 * address. What remains becomes a free block if it has at least 512 bytes or, in segments for other
 * sizes, more than 1 MiB. Free neighbours are joined. When the device has no more memory, segments
 * that are free as a whole go back to it. With expandable_segments, a stream has one segment of
 * each of the two sorts, which grows at its end by pages of 2 MiB and of 20 MiB, and every
 * remainder of at least 512 bytes is cut off.
 *
 * CuPy's memory pool (its reference manual): Sizes are rounded up to 512 bytes, and each is
 * allocated with that size. Each stream has its own free chunks. The smallest chunk that is large
 * enough is taken, and its remainder is free. Free neighbours in one allocation are joined. When
 * the device has no more memory, allocations that are free as a whole go back to it. */
#include <stdlib.h>

#include "trace.h"

#define MIB ((size_t)1 << 20)

typedef struct rules {
  const char *name;
  bool has_small; /* sizes up to 1 MiB have segments of their own */
  bool expands;
  size_t (*segment)(size_t size);
  bool (*splits)(int zone, size_t rest);
} rules;

static size_t up(size_t size, size_t to) { return (size + to - 1) / to * to; }

static size_t torch_segment(size_t size) {
  if (size <= MIB) return 2 * MIB;
  return size < 10 * MIB ? 20 * MIB : up(size, 2 * MIB);
}

static size_t cupy_segment(size_t size) { return size; }
static bool torch_splits(int zone, size_t rest) { return zone == 0 ? rest >= 512 : rest > MIB; }
static bool always_splits(int zone, size_t rest) { return (void)zone, rest >= 512; }

static const rules all[MODELS] = {
  { "model of PyTorch's caching allocator", true, false, torch_segment, torch_splits },
  { "the same with expandable segments", true, true, NULL, always_splits },
  { "model of CuPy's pool", false, false, cupy_segment, always_splits },
};

typedef enum state { FREE, LIVE, UNMAPPED } state;

typedef struct chunk {
  state state;
  size_t size, at;             /* at: an address */
  struct chunk *before, *next; /* neighbours in the segment */
  struct chunk *left, *right;  /* neighbours in the list of free chunks */
} chunk;

/* The free chunks of one stream and one sort of segments, in no order. */
typedef struct heap {
  chunk *free;
  chunk *whole; /* the first chunk of a segment that grows */
} heap;

struct model {
  const rules *rules;
  heap *heap; /* two for each stream: for small sizes, for others */
  chunk **live;
  uint32_t *heap_of; /* the heap of each live block */
  size_t heaps, reserved, most, next_at;
};

const char *model_name(int which) { return all[which].name; }
size_t model_reserved(const model *m) { return m->reserved; }

static void *must(void *p) {
  if (!p) abort();
  return p;
}

model *model_new(int which, uint32_t streams, size_t blocks, size_t most) {
  model *m = must(calloc(1, sizeof *m));
  m->rules = &all[which];
  m->heaps = 2 * (size_t)streams;
  m->heap = must(calloc(m->heaps, sizeof *m->heap));
  m->live = must(calloc(blocks + 1, sizeof *m->live));
  m->heap_of = must(calloc(blocks + 1, sizeof *m->heap_of));
  m->most = most;
  return m;
}

/* ---- Parts of segments */

static void put(heap *h, chunk *p) {
  p->state = FREE;
  p->left = NULL;
  p->right = h->free;
  if (h->free) h->free->left = p;
  h->free = p;
}

static void take_out(heap *h, chunk *p) {
  if (p->left) p->left->right = p->right;
  else h->free = p->right;
  if (p->right) p->right->left = p->left;
}

static chunk *new_chunk(model *m, size_t size, state is) {
  chunk *p = must(calloc(1, sizeof *p));
  p->size = size;
  p->state = is;
  p->at = m->next_at;
  m->next_at += size;
  return p;
}

/* Cuts a chunk after `size` bytes. Returns the rest, which is in no list. */
static chunk *cut(chunk *p, size_t size) {
  chunk *rest = must(calloc(1, sizeof *rest));
  *rest = (chunk){ p->state, p->size - size, p->at + size, p, p->next, NULL, NULL };
  if (rest->next) rest->next->before = rest;
  p->next = rest;
  p->size = size;
  return rest;
}

static void absorb_next(chunk *p) {
  chunk *gone = p->next;
  p->size += gone->size;
  p->next = gone->next;
  if (p->next) p->next->before = p;
  free(gone);
}

static chunk *join(heap *h, chunk *p) {
  if (p->next && p->next->state == FREE) {
    take_out(h, p->next);
    absorb_next(p);
  }
  if (p->before && p->before->state == FREE) {
    p = p->before;
    take_out(h, p);
    absorb_next(p);
  }
  return p;
}

static chunk *best(const heap *h, size_t size) {
  chunk *found = NULL;
  for (chunk *p = h->free; p; p = p->right) {
    if (p->size < size) continue;
    if (!found || p->size < found->size || (p->size == found->size && p->at < found->at)) found = p;
  }
  return found;
}

/* ---- Segments */

static chunk *new_segment(model *m, size_t size) {
  size = m->rules->segment(size);
  if (m->reserved + size > m->most) return NULL;
  m->reserved += size;
  return new_chunk(m, size, FREE);
}

/* Maps pages at the beginning of an unmapped chunk. Returns false if the device has no memory. */
static bool map(model *m, chunk *p, size_t size, size_t page) {
  size = up(size, page);
  if (size > p->size) size = p->size;
  if (m->reserved + size > m->most) return false;
  if (size < p->size) (void)cut(p, size);
  m->reserved += size;
  p->state = FREE;
  return true;
}

/* Finds a place where `size` bytes are free or not mapped yet. It begins at the lowest unmapped
 * chunk that is large enough, or at the free chunk before that one. Returns NULL if there is no
 * place. */
static chunk *find_room(const heap *h, size_t size) {
  for (chunk *p = h->whole; p; p = p->next) {
    if (p->state != UNMAPPED) continue;
    chunk *first = p->before && p->before->state == FREE ? p->before : p;
    size_t has = 0;
    for (const chunk *q = first; q && q->state != LIVE; q = q->next) has += q->size;
    if (has >= size) return first;
  }
  return NULL;
}

static chunk *expand(model *m, heap *h, int zone, size_t size) {
  size_t page = zone == 0 ? 2 * MIB : 20 * MIB;
  if (!h->whole) h->whole = new_chunk(m, up(m->most + m->most / 8, page), UNMAPPED);
  chunk *p = find_room(h, size);
  if (!p) return NULL;
  if (p->state == FREE) take_out(h, p);
  else if (!map(m, p, size, page)) return NULL;
  while (p->size < size) {
    chunk *next = p->next;
    if (next->state == FREE) {
      take_out(h, next);
    } else if (!map(m, next, size - p->size, page)) {
      put(h, p);
      return NULL;
    }
    absorb_next(p);
  }
  return p;
}

/* Gives a free chunk back to the device if it is a whole segment. */
static void release_segment(model *m, heap *h, chunk *p) {
  if (p->before || p->next) return;
  take_out(h, p);
  m->reserved -= p->size;
  free(p);
}

static void release_pages(model *m, heap *h, chunk *p, size_t page) {
  size_t base = h->whole->at, from = base + up(p->at - base, page);
  size_t to = base + (p->at + p->size - base) / page * page;
  if (from >= to) return;
  if (from > p->at) {
    chunk *rest = cut(p, from - p->at);
    put(h, rest);
    p = rest;
  }
  if (to < p->at + p->size) put(h, cut(p, to - p->at));
  take_out(h, p);
  p->state = UNMAPPED;
  m->reserved -= p->size;
  if (p->next && p->next->state == UNMAPPED) absorb_next(p);
  if (p->before && p->before->state == UNMAPPED) absorb_next(p->before);
}

static void release_all(model *m) {
  for (size_t i = 0; i < m->heaps; i++) {
    chunk *next;
    for (chunk *p = m->heap[i].free; p; p = next) {
      next = p->right;
      if (m->rules->expands) release_pages(m, &m->heap[i], p, i % 2 ? 20 * MIB : 2 * MIB);
      else release_segment(m, &m->heap[i], p);
    }
  }
}

static chunk *find_or_grow(model *m, heap *h, int zone, size_t size) {
  chunk *p = best(h, size);
  if (p) take_out(h, p);
  else p = m->rules->expands ? expand(m, h, zone, size) : new_segment(m, size);
  return p;
}

bool model_take(model *m, uint32_t block, size_t size, uint32_t stream) {
  size = up(size, 512);
  int zone = m->rules->has_small && size <= MIB ? 0 : 1;
  uint32_t number = 2 * stream + (uint32_t)zone;
  heap *h = &m->heap[number];
  chunk *p = find_or_grow(m, h, zone, size);
  if (!p) release_all(m);
  if (!p) p = find_or_grow(m, h, zone, size);
  if (!p) return false;
  p->state = LIVE;
  if (p->size > size && m->rules->splits(zone, p->size - size)) put(h, cut(p, size));
  m->live[block] = p;
  m->heap_of[block] = number;
  return true;
}

void model_give(model *m, uint32_t block) {
  heap *h = &m->heap[m->heap_of[block]];
  put(h, join(h, m->live[block]));
  m->live[block] = NULL;
}

/* Frees a model at the end of its process. Live chunks are not freed. */
void model_free(model *m) {
  m->rules->expands ? (void)0 : release_all(m);
  free(m->heap);
  free(m->live);
  free(m->heap_of);
  free(m);
}
