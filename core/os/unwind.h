/* unwind.h - a thread reads the stack of its callers.
 *
 * A frame leads to its caller by a rule (os/frame_rule.h), which is read from the tables that
 * compilers make for exceptions. If the stack has a frame that no rule can describe, the
 * _Unwind_Backtrace of libgcc reads the whole stack; it takes about 200 ns for a frame.
 *
 * libgcc is linked into the library. Since version 12 it finds the tables by _dl_find_object(3),
 * which glibc has since 2.35. That function takes no lock and allocates nothing, so a malloc may
 * call it, also while some thread is inside the dynamic loader. With an older glibc no stack has
 * frames.
 *
 * Most stacks and frames were seen before, so most tables are not read. On AArch64 there are no
 * rules and no stack is recognised: libgcc's unwinder reads each stack.
 *
 * A loop that allocates has one stack again and again. A thread keeps where on its stack the return
 * addresses of the last stack stand. If the thread is at the same depth and all these words are
 * unchanged, the stack is taken for the last one. That is wrong only if a function has a frame of
 * varying size, and a return address of an earlier call is left where the present one would stand
 * in the last stack.
 *
 * The process keeps the rules that it has read. A kept rule is wrong only where a library was
 * unloaded and another one is loaded in its place; so who unloads one calls lm_unwind_forget. */
#ifndef LM_UNWIND_H
#define LM_UNWIND_H

#include "os/base.h"

enum {
  LM_UNWIND_FRAMES = 64, /* frames of a stack at most; of a deeper stack, the innermost */
  LM_UNWIND_OWN = 16     /* innermost frames that are loam's own, and are read too */
};

/* A return address on the stack, and where it stands. */
typedef struct lm_unwound_word {
  const uintptr_t *place;
  uintptr_t value;
} lm_unwound_word;

/* A stack that was read. Zeros: none.
 * Law: own <= words <= LM_UNWIND_FRAMES + LM_UNWIND_OWN. If `at` is not 0, each word stood at its
 * place when the stack was read. */
typedef struct lm_unwound {
  uintptr_t at;        /* how deep the thread was: the frame of lm_unwind; 0: it is read again */
  uint32_t words, own; /* `own`: of the words, the innermost that lead into this library */
  /* A part of one stack that is known to be readable: the deepest frame of lm_unwind, and the place
   * of the outermost return address. NULL: none. A thread may have several stacks. */
  uintptr_t bottom;
  const uintptr_t *top;
  lm_unwound_word word[LM_UNWIND_FRAMES + LM_UNWIND_OWN]; /* the innermost first */
} lm_unwound;

/* Returns whether the law of the numbers holds. */
LM_INLINE bool lm_unwound_is_valid(const lm_unwound *u) {
  return u->own <= u->words && u->words <= LM_COUNT(u->word);
}

/* Returns how many frames of callers outside of this library were read. */
LM_INLINE uint32_t lm_unwound_frames(const lm_unwound *u) {
  uint32_t frames = u->words - u->own;
  return frames < LM_UNWIND_FRAMES ? frames : LM_UNWIND_FRAMES;
}
/* Returns the address of the code of such a frame, of which frame 0 is the innermost. Of a caller:
 * an address inside its call instruction. */
LM_INLINE uint64_t lm_unwound_frame(const lm_unwound *u, uint32_t i) {
  return u->word[u->own + i].value - 1;
}

/* Reads the stack of the calling thread. Returns true if it is the one that *u has, which the
 * calling thread has read before, or which is zeros. Leaves out the innermost frames that are in
 * the library which this function is part of; it cannot tell them where loam is linked into the
 * program itself. With any locks held. It needs about 3 KiB of stack. */
bool lm_unwind(lm_unwound *u);

/* Forgets all rules that were read. Called after a library was unloaded, by any thread. */
void lm_unwind_forget(void);

#endif
