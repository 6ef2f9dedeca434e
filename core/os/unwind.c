/* unwind.c - a thread reads the stack of its callers, by the unwinder of libgcc. */
#include "os/unwind.h"

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)

typedef struct reader {
  lm_unwound *u;
  uintptr_t own_from, own_to; /* the code of this library; both 0: it is part of the program */
  bool is_first;
} reader;

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
  if (!is_interrupted) at--;
  bool is_own = at >= r->own_from && at < r->own_to;
  if (is_own && !u->frames) return _URC_NO_REASON;
  u->frame[u->frames++] = at;
  return u->frames < LM_UNWIND_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
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
  reader r = { .u = u, .is_first = true };
  u->at = at;
  u->frames = u->words = 0;
  find_own_code(&r);
  (void)_Unwind_Backtrace(note_frame, &r);
  return false;
}

#else

bool lm_unwind(lm_unwound *u) {
  (void)u;
  return false;
}

#endif
