/* preload.h - what the files of the preload library tell each other.
 *
 *   malloc.c  the C library's malloc family
 *   new.c     C++'s operators new and delete
 *   figures.c what the C library tells of memory, and malloc_trim
 *   caller.c  the site of a return address
 *   next.c    the allocator that would serve if loam were not there
 *   host.c    starting from the environment, and what a person is told
 *
 * Whose is a pointer? loam says it, and nothing else is asked: what it does not own (made before it
 * was awake, or by another allocator) goes to the next allocator's free. */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loam.h"

#define PRELOAD_API __attribute__((visibility("default")))
#define PRELOAD_INLINE static inline __attribute__((always_inline))
/* As LM_SPARSE of core: much larger than what is used of it. */
#define PRELOAD_SPARSE __attribute__((section(".sbss.loam")))
#define likely(e) __builtin_expect(!!(e), 1)
#define unlikely(e) __builtin_expect(!!(e), 0)

/* ---- next.c ---------------------------------------------------------------------------------- */

/* The next allocator's functions, looked up at first use; its aligned_alloc takes any size. While
 * they are being looked up, what the lookup itself allocates comes from a small static arena. */
void *next_malloc(size_t size);
void *next_calloc(size_t count, size_t size);
void *next_realloc(void *ptr, size_t size);
void *next_aligned_alloc(size_t alignment, size_t size);
void next_free(void *ptr);
size_t next_usable_size(void *ptr);
bool next_is_arena(const void *ptr);

/* ---- stray.c --------------------------------------------------------------------------------- */

/* Where a pointer is that is not loam's, if that is where nobody allocates; else NULL. */
const char *stray_place(const void *ptr);

/* Of pointers that are not loam's: to the next allocator. What nobody allocated is refused (0), or
 * told, and NULL. */
int stray_free(void *ptr);
void *stray_realloc(void *ptr, size_t size);

/* ---- host.c ---------------------------------------------------------------------------------- */

enum { HOST_ASLEEP, HOST_WAKING, HOST_AWAKE };
extern _Atomic int host_state;

/* Starts the engine if that is possible now; `caller` is the code that asks for memory. False: the
 * next allocator serves this request. */
bool host_wake(const void *caller);

PRELOAD_INLINE bool host_is_awake(const void *caller) {
  /* Pairs with the release in host_wake. */
  return likely(atomic_load_explicit(&host_state, memory_order_acquire) == HOST_AWAKE) ||
         host_wake(caller);
}

/* ---- caller.c --------------------------------------------------------------------------------
 *
 * A table all threads share, read without a lock and, once a program has warmed up, never written.
 * An entry holds its site and (key xor site): two words that do not belong together, torn by two
 * writers, do not check. The key is the return address with the number of dlclose calls so far in
 * the bits that no address has, so that code loaded where other code was gets its own site.
 *
 * A key has a place in the first sets, which are a page, and when that is full one in all of them:
 * a program with few callers has them on one page. What finds no room there either is remembered
 * further away (caller.c), too. */

enum { CALLER_SETS = 2048, CALLER_FIRST_SETS = 64, CALLER_WAYS = 4 };

typedef struct caller_entry {
  _Atomic uintptr_t check, site;
} caller_entry;

typedef struct caller_set {
  _Alignas(64) caller_entry way[CALLER_WAYS];
} caller_set;

extern caller_set caller_table[CALLER_SETS];
extern _Atomic uintptr_t caller_epoch; /* bits 48 and up */

/* Finds out about an address that is not in the table, and enters it. */
loam_site *caller_learn(uintptr_t key, const void *address);

/* The tag of the code that a call returns to, and the function where that is known; false where it
 * is not the program's. */
bool caller_describe(const void *address, char *words, size_t size);

/* Whether the code at `address` is the dynamic loader's. */
bool caller_is_loader(const void *address);

PRELOAD_INLINE uint64_t caller_hash(uintptr_t key) { return key * UINT64_C(0x9e3779b97f4a7c15); }

PRELOAD_INLINE caller_set *caller_set_of(uintptr_t key, uint64_t sets) {
  return &caller_table[(caller_hash(key) >> 32) * sets >> 32];
}

PRELOAD_INLINE uintptr_t caller_key(const void *address) {
  return (uintptr_t)address | atomic_load_explicit(&caller_epoch, memory_order_relaxed);
}

/* The key's site in a set; NULL: it has none there. */
PRELOAD_INLINE loam_site *caller_site_in(caller_set *set, uintptr_t key) {
  for (int i = 0; i < CALLER_WAYS; i++) {
    /* Acquire pairs with the release in caller_learn: the site is whole. */
    uintptr_t site = atomic_load_explicit(&set->way[i].site, memory_order_acquire);
    uintptr_t check = atomic_load_explicit(&set->way[i].check, memory_order_relaxed);
    if (likely((check ^ site) == key)) return (loam_site *)site;
  }
  return NULL;
}

PRELOAD_INLINE loam_site *caller_site(const void *address) {
  uintptr_t key = caller_key(address);
  loam_site *site = caller_site_in(caller_set_of(key, CALLER_FIRST_SETS), key);
  if (unlikely(!site)) site = caller_site_in(caller_set_of(key, CALLER_SETS), key);
  return likely(site != NULL) ? site : caller_learn(key, address);
}

/* ---- malloc.c -------------------------------------------------------------------------------- */

/* The site of a request: a scope set through loam.h wins over the calling module. */
loam_site *site_of(const void *caller);

/* malloc and aligned_alloc for a caller, NULL with ENOMEM on failure; errno kept on success. */
void *serve_new(size_t size, const void *caller);
PRELOAD_INLINE void *serve(const void *caller, size_t size) {
  return loam_code_malloc(size, caller, serve_new);
}
void *serve_aligned(const void *caller, size_t alignment, size_t size);

#endif
