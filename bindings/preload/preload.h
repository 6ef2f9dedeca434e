/* preload.h - the interfaces between the files of the preload library.
 *
 *   malloc.c  the C library's malloc family; free and C++'s operators delete: CMakeLists.txt
 *   jemalloc.c  the functions with which jemalloc extends malloc
 *   new.c     C++'s operators new
 *   figures.c the C library's figures of memory, and malloc_trim
 *   caller.c  the site of a return address
 *   next.c    the allocator that would serve without loam
 *   stray.c   pointers that loam did not allocate
 *   loader.c  dlopen and dlclose
 *   limits.c  setrlimit and prlimit
 *   lock.c    mlockall
 *   host.c    starting from the environment, and messages for people
 * loam alone decides whether a pointer is loam's (loam_owns). Any other pointer was allocated
 * before loam was awake, or by another allocator: it goes to the next allocator's free. */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loam.h"

#define PRELOAD_API __attribute__((visibility("default")))
#define PRELOAD_INLINE static inline __attribute__((always_inline))
/* A section for tables of which a process uses only a small part, like LM_SPARSE in core. */
#define PRELOAD_SPARSE __attribute__((section(".sbss.loam")))
#define likely(e) __builtin_expect(!!(e), 1)
#define unlikely(e) __builtin_expect(!!(e), 0)

/* ---- next.c ---------------------------------------------------------------------------------- */

/* The functions of the next allocator, which are looked up at first use. next_aligned_alloc accepts
 * any size. The lookup may allocate memory; during the lookup that memory comes from a small static
 * arena. */
void *next_malloc(size_t size);
void *next_calloc(size_t count, size_t size);
void *next_realloc(void *ptr, size_t size);
void *next_aligned_alloc(size_t alignment, size_t size);
void next_free(void *ptr);
size_t next_usable_size(void *ptr);
/* Sets the pointer to a function at `function` to the next definition of `name`, or to NULL.
 * Returns whether there is one. May allocate memory. */
bool next_find(void *function, const char *name);
/* Returns whether the next free reads the bytes before a block. The C library's does. Other
 * allocators, such as jemalloc, may have a block where a mapping begins. */
bool next_reads_before(void);
/* Returns whether `ptr` is in the static arena. */
bool next_is_arena(const void *ptr);

/* ---- stray.c --------------------------------------------------------------------------------- */

/* For a pointer that is not loam's: says in words where it points if no allocator can have returned
 * it. Otherwise NULL. */
const char *stray_place(const void *ptr);

/* Pass a pointer that is not loam's to the next allocator. If no allocator can have returned it,
 * stray_free returns 0 and does nothing, and stray_realloc reports it and returns NULL. */
int stray_free(void *ptr);
void *stray_realloc(void *ptr, size_t size);

/* ---- host.c ---------------------------------------------------------------------------------- */

/* Whether the engine is started: not yet, being started by a thread, or started. */
enum { HOST_ASLEEP, HOST_WAKING, HOST_AWAKE };
extern _Atomic int host_state;

/* Starts the engine if that is possible now; `caller` is the code that requests memory. Returns
 * false if the next allocator has to serve this request. */
bool host_wake(const void *caller);

PRELOAD_INLINE bool host_is_awake(const void *caller) {
  /* Pairs with the release in host_wake. */
  return likely(atomic_load_explicit(&host_state, memory_order_acquire) == HOST_AWAKE) ||
         host_wake(caller);
}

/* ---- caller.c --------------------------------------------------------------------------------
 * All threads share one table. They read it without a lock and, once a program has warmed up, write
 * nothing to it. An entry holds its site and (key xor site). If two writers mix up an entry, its
 * two words do not match, and the entry is ignored. The key is the return address; the bits that no
 * address uses hold the number of dlclose calls so far. So code that is loaded where other code was
 * gets a site of its own.
 *
 * A key has a place in the first sets, which fill one page. When that place is full, the key has a
 * place in the whole table; so a program with few callers uses one page. When that place is full
 * too, the key is also kept in a second, larger table (caller.c). */

enum { CALLER_SETS = 2048, CALLER_FIRST_SETS = 64, CALLER_WAYS = 4 };

typedef struct caller_entry {
  _Atomic uintptr_t check, site;
} caller_entry;

typedef struct caller_set {
  _Alignas(64) caller_entry way[CALLER_WAYS];
} caller_set;

extern caller_set caller_table[CALLER_SETS];
/* Set once a key found no room in the first sets. Until then the other sets are empty and no thread
 * looks there, since each look takes a page fault. Relaxed: a thread that does not see it yet finds
 * the site again. */
extern _Atomic bool caller_has_more;
extern _Atomic uintptr_t caller_epoch; /* bits 48 and up */

/* Learns the path of the program. Called once, when the engine starts: later the program may have
 * given up the right to make system calls. */
void caller_start(void);

/* Finds the site of an address that is not in the table, and enters it there. Returns NULL if loam
 * cannot make a site now. */
loam_site *caller_learn(uintptr_t key, const void *address);

/* Writes the tag of the code that a call returns to, the place of the call in its file, which
 * addr2line(1) takes, and, if known, the name of the function. Returns false if the code is unknown
 * or is this library's own. */
bool caller_describe(const void *address, char *words, size_t size);

/* Returns whether the code at `address` is the dynamic loader's. */
bool caller_is_loader(const void *address);

PRELOAD_INLINE uint64_t caller_hash(uintptr_t key) { return key * UINT64_C(0x9e3779b97f4a7c15); }

PRELOAD_INLINE caller_set *caller_set_of(uintptr_t key, uint64_t sets) {
  return &caller_table[(caller_hash(key) >> 32) * sets >> 32];
}

PRELOAD_INLINE uintptr_t caller_key(const void *address) {
  return (uintptr_t)address | atomic_load_explicit(&caller_epoch, memory_order_relaxed);
}

/* The site of a key in a set, or NULL. */
PRELOAD_INLINE loam_site *caller_site_in(caller_set *set, uintptr_t key) {
  for (int i = 0; i < CALLER_WAYS; i++) {
    /* Acquire pairs with the release in caller_learn: the site is whole. */
    uintptr_t site = atomic_load_explicit(&set->way[i].site, memory_order_acquire);
    uintptr_t check = atomic_load_explicit(&set->way[i].check, memory_order_relaxed);
    if (likely((check ^ site) == key)) return (loam_site *)site;
  }
  return NULL;
}

/* The site of the code at a return address; NULL as caller_learn. */
PRELOAD_INLINE loam_site *caller_site(const void *address) {
  uintptr_t key = caller_key(address);
  loam_site *site = caller_site_in(caller_set_of(key, CALLER_FIRST_SETS), key);
  if (unlikely(!site) && atomic_load_explicit(&caller_has_more, memory_order_relaxed))
    site = caller_site_in(caller_set_of(key, CALLER_SETS), key);
  return likely(site != NULL) ? site : caller_learn(key, address);
}

/* ---- malloc.c -------------------------------------------------------------------------------- */

/* The site of a request: a scope set through loam.h wins over the calling module. */
loam_site *site_of(const void *caller);

/* malloc and aligned_alloc for a caller. On failure they return NULL and set errno to ENOMEM;
 * success keeps errno. serve_new serves the requests that loam_code_malloc cannot decide by
 * itself. */
void *serve_new(size_t size, const void *caller);
PRELOAD_INLINE void *serve(const void *caller, size_t size) {
  return loam_code_malloc(size, caller, serve_new);
}
void *serve_aligned(const void *caller, size_t alignment, size_t size);
/* calloc for a caller. */
void *serve_zeroed(const void *caller, size_t count, size_t size);

#endif
