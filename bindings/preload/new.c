/* new.c - C++'s operators new. They are written in C under their mangled names, so that the callers
 * of the operators are the sites, and no C++ library is needed. The operators delete are defined in
 * CMakeLists.txt.
 *
 * When there is no memory, C++ prescribes: the program's new_handler is called until there is no
 * handler, and then std::bad_alloc is thrown. Both are found in the program's own C++ library. */
#include "preload.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define CALLER __builtin_return_address(0)

/* C++'s std::nothrow_t, only ever passed by reference. */
typedef struct nothrow nothrow;

typedef void (*plain_fn)(void);

/* Finds a function of the C++ library. A library that was opened with RTLD_LOCAL is not among the
 * next objects; it is found by its file name. */
static void *library_symbol(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found) return found;
  void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return library ? dlsym(library, name) : NULL;
}

static plain_fn new_handler(void) {
  plain_fn (*get)(void) = NULL;
  void *found = library_symbol("_ZSt15get_new_handlerv");
  memcpy(&get, &found, sizeof found);
  return get ? get() : NULL;
}

static _Noreturn void throw_bad_alloc(void) {
  plain_fn throw = NULL;
  void *found = library_symbol("_ZSt17__throw_bad_allocv");
  memcpy(&throw, &found, sizeof found);
  if (throw) throw();
  abort(); /* without a C++ library nothing can catch an exception */
}

/* `alignment` is 0 for operators without an alignment. */
static void *try_new(const void *caller, size_t size, size_t alignment) {
  return alignment ? serve_aligned(caller, alignment, size) : serve(caller, size);
}

static void *new_or_throw(const void *caller, size_t size, size_t alignment) {
  for (;;) {
    void *block = try_new(caller, size, alignment);
    if (likely(block != NULL)) return block;
    plain_fn handler = new_handler();
    if (!handler) throw_bad_alloc();
    handler();
  }
}

/* A new_handler may throw an exception that only C++ code can catch. So when there is a handler,
 * the library's own operator serves; its malloc is ours, and the scope gives it the caller's
 * site. */
static void *new_or_null(const void *caller, size_t size, size_t alignment, const char *name,
                         const nothrow *tag) {
  void *block = try_new(caller, size, alignment);
  if (likely(block != NULL) || !new_handler()) return block;
  void *found = library_symbol(name);
  if (!found) return NULL;
  loam_scope_enter(site_of(caller));
  if (alignment) {
    void *(*operator_new)(size_t, size_t, const nothrow *);
    memcpy(&operator_new, &found, sizeof found);
    block = operator_new(size, alignment, tag);
  } else {
    void *(*operator_new)(size_t, const nothrow *);
    memcpy(&operator_new, &found, sizeof found);
    block = operator_new(size, tag);
  }
  loam_scope_leave();
  return block;
}

#define OPERATOR_NEW(name)             \
  PRELOAD_API void *name(size_t size); \
  PRELOAD_API void *name(size_t size) { return new_or_throw(CALLER, size, 0); }

#define OPERATOR_NEW_ALIGNED(name)                        \
  PRELOAD_API void *name(size_t size, size_t alignment);  \
  PRELOAD_API void *name(size_t size, size_t alignment) { \
    return new_or_throw(CALLER, size, alignment);         \
  }

#define OPERATOR_NEW_NOTHROW(name)                          \
  PRELOAD_API void *name(size_t size, const nothrow *tag);  \
  PRELOAD_API void *name(size_t size, const nothrow *tag) { \
    return new_or_null(CALLER, size, 0, #name, tag);        \
  }

#define OPERATOR_NEW_ALIGNED_NOTHROW(name)                                    \
  PRELOAD_API void *name(size_t size, size_t alignment, const nothrow *tag);  \
  PRELOAD_API void *name(size_t size, size_t alignment, const nothrow *tag) { \
    return new_or_null(CALLER, size, alignment, #name, tag);                  \
  }

OPERATOR_NEW(_Znwm)
OPERATOR_NEW(_Znam)
OPERATOR_NEW_ALIGNED(_ZnwmSt11align_val_t)
OPERATOR_NEW_ALIGNED(_ZnamSt11align_val_t)
OPERATOR_NEW_NOTHROW(_ZnwmRKSt9nothrow_t)
OPERATOR_NEW_NOTHROW(_ZnamRKSt9nothrow_t)
OPERATOR_NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
OPERATOR_NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)
