/* unwind.c - a thread reads the stack of its callers, by the unwinder of libgcc. */
#include "os/unwind.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <unwind.h>

enum { BASE_POINTER = 6 }; /* the number of rbp in the tables of the unwinder */

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)

typedef struct reader {
  lm_unwound *u;
  uintptr_t base;             /* rbp of the frame that was noted last */
  uintptr_t own_from, own_to; /* the code of this library; both 0: it is part of the program */
  bool is_first;
  bool is_known; /* the size of the frame that was noted last was known before */
  bool is_done;  /* walk_the_rest has read the outer frames */
} reader;

/* ---- Frames whose size is known ----------------------------------------------------------- */

/* A frame has one size at each of its calls, unless its function makes room on the stack at run
 * time. So the address of a call tells how many words above its return address the return address
 * of the caller stands. An entry has the return address, and that distance from bit 48 on. Each
 * entry is read and written as a whole; relaxed, as it publishes no other data. */
enum { KNOWN_FRAMES = 8192, KNOWN_SHIFT = 48 };
static LM_SPARSE _Atomic uint64_t known_frame[KNOWN_FRAMES];

/* A frame of a function that has a frame pointer may vary in its size. Its distance is used only if
 * it is small. So a wrong one does not lead out of the stack. */
enum { MOST_WORDS = 4096, MOST_WORDS_BY_POINTER = 64, VARIES = 0xfffe, LAST = 0xffff };

static _Atomic uint64_t *known_of(uintptr_t at) {
  return &known_frame[at * 0x9e3779b97f4a7c15u >> 51];
}
_Static_assert(KNOWN_FRAMES == 1 << (64 - 51), "the hash is a place");

/* Returns the distance from the return address `at` to the next one, VARIES, or LAST, where the
 * stack ends. 0: not known. */
static uint32_t words_above(uintptr_t at) {
  uint64_t known = atomic_load_explicit(known_of(at), memory_order_relaxed);
  return known << 16 >> 16 == at ? (uint32_t)(known >> KNOWN_SHIFT) : 0;
}

static void learn(uintptr_t at, uint64_t words) {
  uint32_t before = words_above(at);
  if (at >> KNOWN_SHIFT || before == words) return;
  if (before) words = VARIES;
  atomic_store_explicit(known_of(at), at | words << KNOWN_SHIFT, memory_order_relaxed);
}

/* Learns the distance between the last two words. `base` is rbp of the inner frame: a function with
 * a frame pointer keeps it two words below the end of its frame. */
static void learn_last(const lm_unwound *u, uintptr_t base) {
  if (u->words < 2) return;
  const lm_unwound_word *to = &u->word[u->words - 1];
  uint64_t words = (uint64_t)(to->place - to[-1].place);
  bool has_pointer = base == (uintptr_t)(to->place - 1);
  uint64_t most = has_pointer ? MOST_WORDS_BY_POINTER : MOST_WORDS;
  learn(to[-1].value, words && words <= most ? words : VARIES);
}

/* ---- Unwinding ---------------------------------------------------------------------------- */

static void find_own_code(reader *r) {
  struct dl_find_object own;
  void *here = (void *)(uintptr_t)find_own_code;
  if (_dl_find_object(here, &own) || !own.dlfo_link_map->l_name[0]) return;
  r->own_from = (uintptr_t)own.dlfo_map_start;
  r->own_to = (uintptr_t)own.dlfo_map_end;
}

/* Notes where the return address `at` stands. On x86-64 that is below the canonical frame address
 * that the callee has. If it is not there, the stack is not recognised later. */
__attribute__((no_sanitize("address"))) static void note_word(lm_unwound *u, uintptr_t cfa,
                                                              uintptr_t at) {
  const uintptr_t *place = (const uintptr_t *)cfa - 1;
  if (u->words == LM_COUNT(u->word) || cfa % sizeof cfa || *place != at) {
    u->at = 0;
    return;
  }
  u->word[u->words].place = place;
  u->word[u->words++].value = at;
}

/* Notes a return address as a frame, unless it is one of loam's own innermost. */
static void note_caller(reader *r, uintptr_t at) {
  lm_unwound *u = r->u;
  bool is_own = at - 1 >= r->own_from && at - 1 < r->own_to;
  if (!is_own || u->frames) u->frame[u->frames++] = at - 1;
}

/* Reads the stack from `place` on, where a return address stands, from the known sizes of frames.
 * Returns false if one is not known. A size may be wrong, so nothing is read outside the part of a
 * stack that the unwinder saw. On another stack of the thread the unwinder reads first. */
__attribute__((no_sanitize("address"))) static bool walk(reader *r, const uintptr_t *place) {
  lm_unwound *u = r->u;
  uint32_t words = 0;
  if ((uintptr_t)place < u->bottom) return false;
  for (; place <= u->top; place += words) {
    if (u->words == LM_COUNT(u->word)) return false;
    u->word[u->words++] = (lm_unwound_word){ place, *place };
    note_caller(r, *place);
    words = words_above(*place);
    if (words == LAST || u->frames == LM_UNWIND_FRAMES) return true;
    if (!words || words == VARIES) return false;
  }
  return false;
}

/* Reads the callers of the frame that was noted last by `walk`, if the size of that frame is known.
 * Most outer frames are known, and the unwinder takes a hundred times as long for each. Tries it
 * once for each row of known frames. Returns false if the unwinder has to go on. */
static bool walk_the_rest(reader *r, uintptr_t at) {
  lm_unwound *u = r->u;
  uint32_t words = words_above(at), frames = u->frames, before = u->words;
  bool was_known = r->is_known;
  r->is_known = words && words != VARIES && words != LAST;
  if (!r->is_known || was_known) return false;
  r->is_done = walk(r, u->word[before - 1].place + words);
  if (r->is_done) return true;
  u->frames = frames;
  u->words = before;
  return false;
}

/* Notes one frame. A caller's address is that behind its call, which may be the last instruction of
 * a function, so 1 is taken away. A frame that a signal interrupted has its own address. The first
 * frame is the one of lm_unwind. */
static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *ctx) {
  reader *r = ctx;
  lm_unwound *u = r->u;
  int is_interrupted = 0;
  uintptr_t at = _Unwind_GetIPInfo(context, &is_interrupted);
  if (!at) return _URC_END_OF_STACK;
  bool is_first = r->is_first;
  r->is_first = false;
  if (is_first) return _URC_NO_REASON;
  if (is_interrupted) u->at = 0;
  else if (u->at) note_word(u, _Unwind_GetCFA(context), at);
  if (u->at) learn_last(u, r->base);
  r->base = _Unwind_GetGR(context, BASE_POINTER);
  if (is_interrupted) u->frame[u->frames++] = at;
  else note_caller(r, at);
  if (u->at && u->frames < LM_UNWIND_FRAMES && walk_the_rest(r, at)) return _URC_END_OF_STACK;
  return u->frames < LM_UNWIND_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* Reads the stack by the unwinder, and learns the sizes of its frames. */
static void unwind(reader *r) {
  lm_unwound *u = r->u;
  r->is_first = true;
  (void)_Unwind_Backtrace(note_frame, r);
  if (!u->at || !u->words) return;
  if (r->is_done && u->at < u->bottom) u->bottom = u->at;
  if (r->is_done) return;
  const lm_unwound_word *last = &u->word[u->words - 1];
  if (u->frames < LM_UNWIND_FRAMES) learn(last->value, LAST);
  bool is_deeper = last->place != u->top || u->at < u->bottom;
  if (is_deeper) u->bottom = u->at;
  u->top = last->place;
}

/* The words are on the stack of this thread above `at`, and were when they were read, so they can
 * be read as long as a frame is at `at`. */
__attribute__((no_sanitize("address"))) static bool is_same(const lm_unwound *u, uintptr_t at) {
  if (u->at != at) return false;
  for (uint32_t i = 0; i < u->words; i++)
    if (*u->word[i].place != u->word[i].value) return false;
  return u->words > 0;
}

LM_NOINLINE bool lm_unwind(lm_unwound *u) {
  uintptr_t at = (uintptr_t)__builtin_frame_address(0);
  if (is_same(u, at)) return true;
  reader r = { .u = u };
  find_own_code(&r);
  u->at = at;
  u->frames = u->words = 0;
  if (walk(&r, (const uintptr_t *)at + 1)) return false;
  u->at = at;
  u->frames = u->words = 0;
  unwind(&r);
  return false;
}

#else

bool lm_unwind(lm_unwound *u) {
  (void)u;
  return false;
}

#endif
