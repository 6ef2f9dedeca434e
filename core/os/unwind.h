/* unwind.h - a thread reads the stack of its callers.
 *
 * Unwinding is done by libgcc's _Unwind_Backtrace, which is linked into the library. It reads the
 * tables that compilers make for exceptions. It finds them by _dl_find_object(3), which glibc has
 * since 2.35: that takes no lock and allocates nothing, so a malloc may call it, also while some
 * thread is inside the dynamic loader. With an older glibc no stack has frames.
 *
 * To unwind a frame takes about 200 ns, so it is avoided in two ways.
 *
 * A loop that allocates has one stack again and again. A thread keeps where on its stack the return
 * addresses of the last stack stand. If the thread is at the same depth and all these words are
 * unchanged, the stack is taken for the same.
 *
 * Most frames were seen before, in other stacks. The process keeps the size that a frame has at the
 * call behind which it was seen. If it knows the sizes of all frames, it finds the return addresses
 * by additions. A frame that has two sizes at one call is not found in this way any more.
 *
 * Both are wrong only if a function has a frame of varying size, and a return address of earlier
 * calls is left where the one that is looked for would stand. */
#ifndef LM_UNWIND_H
#define LM_UNWIND_H

#include "os/base.h"

enum {
  LM_UNWIND_FRAMES = 64, /* frames of a stack at most; of a deeper stack, the innermost */
  LM_UNWIND_OWN = 16     /* innermost frames that are loam's own, and left out */
};

/* A return address on the stack, and where it stands. */
typedef struct lm_unwound_word {
  const uintptr_t *place;
  uintptr_t value;
} lm_unwound_word;

/* A stack that was read. Zeros: none.
 * Law: frames <= LM_UNWIND_FRAMES, words <= LM_UNWIND_FRAMES + LM_UNWIND_OWN. If `at` is not 0,
 * each word stood at its place when the stack was read. */
typedef struct lm_unwound {
  uintptr_t at; /* how deep the thread was: the frame of lm_unwind; 0: it is always read again */
  uint32_t frames, words;
  /* A part of one stack, as the unwinder saw it: the deepest frame of lm_unwind, and the place of
   * the outermost return address. NULL: it has seen none. A thread may have several stacks. */
  uintptr_t bottom;
  const uintptr_t *top;
  /* Addresses of code, the innermost first. Of a caller: an address inside its call instruction. */
  uint64_t frame[LM_UNWIND_FRAMES];
  lm_unwound_word word[LM_UNWIND_FRAMES + LM_UNWIND_OWN]; /* the innermost first */
} lm_unwound;

/* Reads the stack of the calling thread. Returns true if it is the one that *u has, which the
 * calling thread has read before, or which is zeros. Leaves out the innermost frames that are in
 * the library which this function is part of; it cannot tell them where loam is linked into the
 * program itself. With any locks held. It needs about 3 KiB of stack. */
bool lm_unwind(lm_unwound *u);

#endif
