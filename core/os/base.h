/* base.h - what every file of the core may use: assertions, attributes, relaxed loads, alignment.
 *
 * Assertions come in three tiers, which LOAM_CHECKS (0, 1 or 2) chooses:
 *   lm_require  always on: a broken rule would corrupt the host's memory
 *   lm_assert   from 1 on: tests in constant time
 *   lm_verify   from 2 on: tests that walk a whole structure */
#ifndef LM_BASE_H
#define LM_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef LOAM_CHECKS
#define LOAM_CHECKS 0
#endif

/* Marks functions that run when something fails. gcc then moves the code that leads to such a call
 * away from the code that programs run, so that code fills fewer pages. */
#define LM_COLD __attribute__((cold))

/* Writes "loam: FILE:LINE: not true: EXPRESSION" to standard error and aborts the process. Uses no
 * memory but its stack. */
_Noreturn LM_COLD void lm_abort(const char *file, int line, const char *expression);

/* Each stringizes its own argument: a macro in the argument is shown by its name. */
#define lm_require(e) ((e) ? (void)0 : lm_abort(__FILE__, __LINE__, #e))
#if LOAM_CHECKS >= 1
#define lm_assert(e) ((e) ? (void)0 : lm_abort(__FILE__, __LINE__, #e))
#else
#define lm_assert(e) ((void)0)
#endif
#if LOAM_CHECKS >= 2
#define lm_verify(e) ((e) ? (void)0 : lm_abort(__FILE__, __LINE__, #e))
#else
#define lm_verify(e) ((void)0)
#endif

#define lm_likely(e) __builtin_expect(!!(e), 1)
#define lm_unlikely(e) __builtin_expect(!!(e), 0)
#define LM_INLINE static inline __attribute__((always_inline))
#define LM_NOINLINE __attribute__((noinline))
/* Marks functions that programs call all the time. They begin at a cache line, so their speed does
 * not depend on the code in front of them. */
#define LM_HOT __attribute__((aligned(LM_CACHE_LINE)))
/* Marks tables that begin as zeros, and of which most processes use little or nothing. The linker
 * puts them together behind all other variables, so they share few pages with those. */
#define LM_SPARSE __attribute__((section(".sbss.loam")))
/* Marks a large variable whose first values are not all zeros and that few programs touch. On
 * x86-64 GNU ld puts it into a mapping of its own. Next to other variables, up to 64 KiB of it
 * would come into memory whenever a program touches one of them. */
#define LM_APART __attribute__((section(".ldata")))
#define LM_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define LM_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define LM_KIB ((size_t)1024)
#define LM_MIB (LM_KIB * 1024)
#define LM_GIB (LM_MIB * 1024)
#define LM_CACHE_LINE 64
#define LM_PAGE ((size_t)4096) /* the page of every kernel that loam supports */

/* lm_load(type, object) is a relaxed load of an _Atomic object of this type. It is written as a
 * plain load: gcc can make a plain load part of another instruction, but gives an atomic load an
 * instruction and a register of its own. The compiler may repeat a plain load, so the caller uses
 * the value once, or the object does not change while the caller uses the value.
 *
 * lm_load_first is lm_load for a value that leads to other data: the caller calls lm_load_fence
 * after it and before it reads that data. Both together are an acquire load, which pairs with the
 * release store of whoever wrote the object. */
#ifdef __SANITIZE_THREAD__
#define lm_load(type, object) __atomic_load_n((type const *)(object), __ATOMIC_RELAXED)
#define lm_load_first(type, object) __atomic_load_n((type const *)(object), __ATOMIC_ACQUIRE)
#else
#define lm_load(type, object) (*(type const *)(object))
#define lm_load_first(type, object) lm_load(type, object)
#endif
LM_INLINE void lm_load_fence(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

/* Stops the compiler from computing the value again: from here on it is kept in a register. */
#define lm_keep(value) __asm__("" : "+r"(value))

/* lm_keep for a value that gcc would else hold in a register of arguments or of the result, and
 * copy from there before a call or a return. */
#ifdef __x86_64__
#define lm_keep_apart(value)                           \
  do {                                                 \
    register uint64_t apart_ __asm__("r11") = (value); \
    __asm__("" : "+r"(apart_));                        \
    (value) = apart_;                                  \
  } while (0)
#else
#define lm_keep_apart(value) lm_keep(value)
#endif

/* Adds to a counter that one thread writes and others read. lm_add_relaxed orders nothing.
 * lm_add_release takes an _Atomic object and releases, which pairs with the acquire load of a
 * reader. Both are plain additions, because gcc makes two instructions of an atomic load and an
 * atomic store. */
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

/* Takes 1 from a count that one thread writes and others read, and returns whether the count is
 * negative now. Orders nothing. In assembly it is one subtraction in memory, whose flags the caller
 * can jump on; gcc makes five instructions of C. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
LM_INLINE bool lm_count_down(int32_t *count) {
  bool is_negative;
  __asm__("subl $1, %0" : "+m"(*count), "=@ccs"(is_negative));
  return is_negative;
}
#else
LM_INLINE bool lm_count_down(int32_t *count) {
  lm_add_relaxed(count, -1);
  return __atomic_load_n(count, __ATOMIC_RELAXED) < 0;
}
#endif

/* Lets other threads of the processor's core run for a moment, in a loop that waits for another
 * thread. On AArch64 an isb takes about as long as the pause of x86-64; a yield takes no time. */
#if defined(__x86_64__)
LM_INLINE void lm_pause(void) { __builtin_ia32_pause(); }
#elif defined(__aarch64__) && defined(__AARCH64EL__)
LM_INLINE void lm_pause(void) { __asm__ volatile("isb"); }
#else
#error "loam runs on x86-64 and on little-endian AArch64"
#endif

LM_INLINE bool lm_is_pow2(size_t n) { return n && !(n & (n - 1)); }

/* Round n up or down to a multiple of `align`, which is a power of two. Rounding up wraps to 0 near
 * SIZE_MAX; callers accept sizes up to LM_SIZE_MAX only. */
LM_INLINE size_t lm_align_up(size_t n, size_t align) { return (n + align - 1) & ~(align - 1); }
LM_INLINE size_t lm_align_down(size_t n, size_t align) { return n & ~(align - 1); }

/* The largest size that loam accepts, since the addresses of the range have 47 bits
 * (lm_sys_reserve). */
#define LM_SIZE_MAX ((size_t)1 << 47)

/* Sets *out to a * b and returns true, or returns false if the product needs more than 64 bits. */
LM_INLINE bool lm_mul(size_t a, size_t b, size_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}

#endif
