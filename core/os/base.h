/* base.h - what every file of the core may use: assertions, annotations, size arithmetic.
 *
 * Assertions come in three tiers, chosen by LOAM_CHECKS (0, 1 or 2):
 *   lm_require  always on: a broken promise that would corrupt the host's memory
 *   lm_assert   from 1: constant time
 *   lm_verify   from 2: walks a whole structure */
#ifndef LM_BASE_H
#define LM_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef LOAM_CHECKS
#define LOAM_CHECKS 0
#endif

/* Of what is called where something fails: gcc then puts each way to it apart from the code that
 * programs run, which so shares fewer pages with it. */
#define LM_COLD __attribute__((cold))

/* Writes "loam: FILE:LINE: not true: EXPRESSION" to standard error and aborts. */
_Noreturn LM_COLD void lm_abort(const char *file, int line, const char *expression);

#define lm_require(e) ((e) ? (void)0 : lm_abort(__FILE__, __LINE__, #e))
#if LOAM_CHECKS >= 1
#define lm_assert(e) lm_require(e)
#else
#define lm_assert(e) ((void)0)
#endif
#if LOAM_CHECKS >= 2
#define lm_verify(e) lm_require(e)
#else
#define lm_verify(e) ((void)0)
#endif

#define lm_likely(e) __builtin_expect(!!(e), 1)
#define lm_unlikely(e) __builtin_expect(!!(e), 0)
#define LM_INLINE static inline __attribute__((always_inline))
#define LM_NOINLINE __attribute__((noinline))
/* Of functions that programs call all the time. They begin a line, so that how fast they are is not
 * a matter of what stands before them. */
#define LM_HOT __attribute__((aligned(LM_CACHE_LINE)))
/* Of tables, zeros at first, that are much larger than what is used of them. They lie together,
 * behind all other variables, which so share few pages. */
#define LM_SPARSE __attribute__((section(".sbss.loam")))
#define LM_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define LM_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define LM_KIB ((size_t)1024)
#define LM_MIB (LM_KIB * 1024)
#define LM_GIB (LM_MIB * 1024)
#define LM_CACHE_LINE 64
#define LM_PAGE ((size_t)4096) /* the smallest page of every port */

/* A relaxed load of an _Atomic object of this type that is used once, or does not change while it
 * is looked at. As plain as it is, gcc can make it part of another instruction; of an atomic load,
 * it makes one of its own and keeps a register for it. */
#ifdef __SANITIZE_THREAD__
#define lm_load(type, object) __atomic_load_n((type const *)(object), __ATOMIC_RELAXED)
#define lm_load_first(type, object) __atomic_load_n((type const *)(object), __ATOMIC_ACQUIRE)
#else
#define lm_load(type, object) (*(type const *)(object))
#define lm_load_first(type, object) lm_load(type, object)
#endif
/* With lm_load_first, which is used before it: an acquire of what was loaded. */
LM_INLINE void lm_load_fence(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

/* Stops the compiler from computing the value again: from here on it is kept in a register. */
#define lm_keep(value) __asm__("" : "+r"(value))

/* More on a counter that one thread writes and others read. Relaxed, as if by a load and a store;
 * but of those gcc does not make one instruction. lm_add_release of an _Atomic one is a release. */
#ifdef __SANITIZE_THREAD__
#define lm_add_relaxed(counter, more) \
  __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + (more), __ATOMIC_RELAXED)
#define lm_add_release(type, object, by)                                                         \
  __atomic_store_n((type *)(object), __atomic_load_n((type *)(object), __ATOMIC_RELAXED) + (by), \
                   __ATOMIC_RELEASE)
#else
#define lm_add_relaxed(counter, more) (void)(*(counter) += (more))
#define lm_add_release(type, object, by) \
  (__atomic_thread_fence(__ATOMIC_RELEASE), lm_add_relaxed((type *)(object), by))
#endif

LM_INLINE bool lm_is_pow2(size_t n) { return n && !(n & (n - 1)); }

/* `align` is a power of two; wraps to 0 near SIZE_MAX, which callers exclude by LM_SIZE_MAX. */
LM_INLINE size_t lm_align_up(size_t n, size_t align) { return (n + align - 1) & ~(align - 1); }
LM_INLINE size_t lm_align_down(size_t n, size_t align) { return n & ~(align - 1); }

/* The largest request that is looked at: user addresses have 47 bits. */
#define LM_SIZE_MAX ((size_t)1 << 47)

LM_INLINE bool lm_mul(size_t a, size_t b, size_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}

#endif
