/* unwind.h - a thread reads the stack of its callers.
 *
 * Unwinding is done by libgcc's _Unwind_Backtrace, which is linked into the library. It reads the
 * tables that compilers make for exceptions. It finds them by _dl_find_object(3), which glibc has
 * since 2.35: that takes no lock and allocates nothing, so a malloc may call it, also while some
 * thread is inside the dynamic loader. With an older glibc no stack has frames. */
#ifndef LM_UNWIND_H
#define LM_UNWIND_H

#include "os/base.h"

/* Fills in addresses of code, the innermost first, and returns how many: at most `most`. The
 * address of a caller is one inside its call instruction. Leaves out the innermost frames that are
 * in the library which this function is part of; it cannot tell them where loam is linked into the
 * program itself. Any thread may call it, with any locks held. It needs about 3 KiB of stack. */
uint32_t lm_unwind(uint64_t *frames, uint32_t most);

#endif
