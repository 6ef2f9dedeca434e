/* stacks.c - keeps a row for each different stack. */
#include "engine/stacks.h"

#include <string.h>

#include "pages/metadata.h"

/* Mixes a word into a hash: the finalizer of MurmurHash3 (Appleby, public domain). */
static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 33;
}

/* Adds a text object of Python. Returns false if there is no room. */
static bool add_text(lm_stacks *stacks, const void *object) {
  char text[LM_PYTHON_TEXT];
  size_t size = lm_python_text(object, text);
  if (size > LM_STACK_TEXTS - stacks->text_used) return false;
  memcpy(stacks->text + stacks->text_used, text, size);
  stacks->text_used += (uint32_t)size;
  return true;
}

/* Returns the place of a code object in the table of texts. A code object may have PROBES places.
 * Returns the place that has this code object, else an unused place. If other code objects have all
 * the places, it returns one of these places, and the caller replaces that code object. */
static lm_stack_code *place_of_code(const lm_stacks *stacks, const void *code) {
  enum { PROBES = 32 };
  uint64_t first = mix(0, (uintptr_t)code);
  for (unsigned i = 0; i < PROBES; i++) {
    lm_stack_code *at = &stacks->code[(first + i) % LM_STACK_CODES];
    if (at->code == code || !at->code) return at;
  }
  return &stacks->code[first % LM_STACK_CODES];
}

/* Returns where the name and the file of a code object are; 0: there is no room for them. */
static uint32_t text_of(lm_stacks *stacks, const void *code) {
  lm_stack_code new = { code, lm_python_code_name(code), lm_python_code_file(code),
                        stacks->text_used };
  lm_stack_code *known = place_of_code(stacks, code);
  if (known->code == code && known->name == new.name && known->file == new.file) return known->text;
  if (!add_text(stacks, new.name) || !add_text(stacks, new.file)) {
    stacks->text_used = new.text;
    return 0;
  }
  *known = new;
  return new.text;
}

void lm_stacks_describe(lm_stacks *stacks, lm_stack *stack, const lm_unwound *from,
                        const lm_python_frame *python, uint32_t n) {
  uint64_t hash = mix(mix(0, stack->site), stack->strategy);
  uint32_t frames = lm_unwound_frames(from);
  for (uint32_t i = 0; i < frames; i++) {
    stack->frame[i] = lm_unwound_frame(from, i);
    hash = mix(hash, stack->frame[i]);
  }
  for (uint32_t i = 0; i < n; i++) {
    lm_stack_python *to = &stack->python[i];
    to->text = text_of(stacks, python[i].code);
    to->line = python[i].line | (python[i].is_entry ? LM_STACK_ENTRY : 0);
    hash = mix(mix(hash, to->text), to->line);
  }
  stack->hash = hash;
  stack->frames = (uint8_t)frames;
  stack->python_frames = (uint8_t)n;
}

/* ---- Rows --------------------------------------------------------------------------------- */

void lm_stacks_free(lm_stacks *stacks) {
  lm_metadata_free(stacks->row);
  lm_metadata_free(stacks->index);
  lm_metadata_free(stacks->code);
  lm_metadata_free(stacks->text);
  *stacks = (lm_stacks){ 0 };
}

bool lm_stacks_make(lm_stacks *stacks) {
  if (stacks->row) return true;
  stacks->index = lm_metadata_alloc(LM_STACKS_PLACES * sizeof *stacks->index);
  stacks->code = lm_metadata_alloc(LM_STACK_CODES * sizeof *stacks->code);
  stacks->text = lm_metadata_alloc(LM_STACK_TEXTS);
  stacks->row = lm_metadata_alloc(LM_STACKS * sizeof *stacks->row);
  if (!stacks->index || !stacks->code || !stacks->text || !stacks->row) {
    lm_stacks_free(stacks);
    return false;
  }
  stacks->text_used = 1;
  atomic_store_explicit(&stacks->count, 1, memory_order_release);
  return true;
}

size_t lm_stacks_unfilled(const lm_stacks *stacks) {
  uint32_t count = atomic_load_explicit(&stacks->count, memory_order_relaxed);
  if (!stacks->row) return 0;
  return (LM_STACKS - count) * sizeof *stacks->row + (LM_STACK_TEXTS - stacks->text_used);
}

static bool is_alike(const lm_stack *a, const lm_stack *b) {
  return a->hash == b->hash && a->site == b->site && a->strategy == b->strategy &&
         a->frames == b->frames && a->python_frames == b->python_frames &&
         !memcmp(a->frame, b->frame, a->frames * sizeof *a->frame) &&
         !memcmp(a->python, b->python, a->python_frames * sizeof *a->python);
}

/* Returns the place of the index where the row of a stack is, or where it would be put. */
static uint32_t *place_of(const lm_stacks *stacks, const lm_stack *like) {
  uint32_t at = (uint32_t)like->hash % LM_STACKS_PLACES;
  while (stacks->index[at] && !is_alike(&stacks->row[stacks->index[at]], like))
    at = (at + 1) % LM_STACKS_PLACES;
  return &stacks->index[at];
}

uint32_t lm_stacks_get(lm_stacks *stacks, const lm_stack *like) {
  uint32_t *place = place_of(stacks, like);
  uint32_t count = atomic_load_explicit(&stacks->count, memory_order_relaxed);
  lm_assert(like->frames <= LM_STACK_FRAMES);
  if (*place) return *place;
  if (count == LM_STACKS) {
    atomic_fetch_add_explicit(&stacks->unfit, 1, memory_order_relaxed);
    return 0;
  }
  lm_stack *row = &stacks->row[count];
  row->hash = like->hash;
  row->site = like->site;
  row->strategy = like->strategy;
  row->frames = like->frames;
  row->python_frames = like->python_frames;
  memcpy(row->python, like->python, like->python_frames * sizeof *like->python);
  memcpy(row->frame, like->frame, like->frames * sizeof *like->frame);
  *place = count;
  atomic_store_explicit(&stacks->count, count + 1, memory_order_release);
  return count;
}

static void add(_Atomic uint64_t *sum, uint64_t more) {
  uint64_t now = atomic_load_explicit(sum, memory_order_relaxed);
  atomic_store_explicit(sum, now + more, memory_order_relaxed);
}

void lm_stack_add(lm_stack_sums *sums, uint64_t blocks, uint64_t bytes, int by) {
  add(&sums->samples, by < 0 ? -UINT64_C(1) : 1);
  add(&sums->blocks, by < 0 ? -blocks : blocks);
  add(&sums->bytes, by < 0 ? -bytes : bytes);
}

void lm_stacks_begin_session(lm_stacks *stacks) {
  uint32_t count = atomic_load_explicit(&stacks->count, memory_order_relaxed);
  for (uint32_t i = 0; i < count; i++) {
    lm_stack_sums *total = &stacks->row[i].total, *live = &stacks->row[i].live;
    atomic_store_explicit(&total->samples, 0, memory_order_relaxed);
    atomic_store_explicit(&total->blocks, 0, memory_order_relaxed);
    atomic_store_explicit(&total->bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&live->blocks, 0, memory_order_relaxed);
    atomic_store_explicit(&live->bytes, 0, memory_order_relaxed);
  }
  atomic_store_explicit(&stacks->unfit, 0, memory_order_relaxed);
}

bool lm_stacks_is_valid(const lm_stacks *stacks) {
  uint32_t count = atomic_load_explicit(&stacks->count, memory_order_relaxed), found = 1;
  if (!stacks->row) return !stacks->index && !count;
  for (uint32_t i = 0; i < LM_STACKS_PLACES; i++) {
    if (stacks->index[i] >= count) return false;
    found += stacks->index[i] != 0;
  }
  for (uint32_t i = 1; i < count; i++)
    if (*place_of(stacks, &stacks->row[i]) != i) return false;
  return found == count;
}
