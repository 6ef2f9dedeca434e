/* poison.h - tells the address sanitizer which of loam's memory may be used.
 *
 * Memory of pools is poisoned when it comes from the range, but for the usable bytes of live
 * objects; so in a build with -fsanitize=address a use after free, or past the end, of memory that
 * loam gave is reported as of malloc's. Guarded blocks are left to their pages. In other builds
 * nothing is evaluated. */
#ifndef LM_POISON_H
#define LM_POISON_H

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define lm_poison(at, size) __asan_poison_memory_region(at, size)
#define lm_unpoison(at, size) __asan_unpoison_memory_region(at, size)
#else
#define lm_poison(at, size) ((void)sizeof(at), (void)sizeof(size))
#define lm_unpoison(at, size) ((void)sizeof(at), (void)sizeof(size))
#endif

#endif
