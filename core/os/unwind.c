/* unwind.c - a thread reads the stack of its callers, by the unwinder of libgcc. */
#include "os/unwind.h"

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)

typedef struct reader {
  uint64_t *frames;
  uint32_t n, most;
  uintptr_t own_from, own_to; /* the code of this library; both 0: it is part of the program */
} reader;

static void find_own_code(reader *r) {
  struct dl_find_object own;
  void *here = (void *)(uintptr_t)find_own_code;
  if (_dl_find_object(here, &own) || !own.dlfo_link_map->l_name[0]) return;
  r->own_from = (uintptr_t)own.dlfo_map_start;
  r->own_to = (uintptr_t)own.dlfo_map_end;
}

/* Notes one frame. A caller's address is that behind its call, which may be the last instruction of
 * a function, so 1 is taken away. A frame that a signal interrupted has its own address. */
static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *ctx) {
  reader *r = ctx;
  int is_interrupted = 0;
  uintptr_t at = _Unwind_GetIPInfo(context, &is_interrupted);
  if (!at) return _URC_END_OF_STACK;
  if (!is_interrupted) at--;
  bool is_own = at >= r->own_from && at < r->own_to;
  if (is_own && !r->n) return _URC_NO_REASON;
  r->frames[r->n++] = at;
  return r->n < r->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

uint32_t lm_unwind(uint64_t *frames, uint32_t most) {
  reader r = { .frames = frames, .most = most };
  if (!most) return 0;
  find_own_code(&r);
  (void)_Unwind_Backtrace(note_frame, &r);
  return r.n;
}

#else

uint32_t lm_unwind(uint64_t *frames, uint32_t most) {
  (void)frames;
  (void)most;
  return 0;
}

#endif
