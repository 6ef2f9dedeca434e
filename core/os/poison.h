/* poison.h - tells the address sanitizer which bytes of loam's memory the host may use.
 *
 * In a build with -fsanitize=address, pool memory is poisoned, except for the usable bytes of live
 * objects. So the sanitizer reports a use after free, or past the end, of loam's memory as it does
 * for malloc's memory. Guarded blocks are not poisoned, since their guard pages find such a use. In
 * other builds the macros evaluate nothing. */
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
