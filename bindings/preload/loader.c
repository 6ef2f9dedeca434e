/* loader.c - dlopen, dlmopen and dlclose: what the preload library has to know of other libraries
 * that come and go.
 *
 * RTLD_DEEPBIND makes a library look up its symbols in itself and in the libraries it needs before
 * it looks in the program and in preloaded libraries. So its `free` would be the C library's, and
 * would get blocks of loam: PHP's modules ended with "double free or corruption". Therefore dlopen
 * and dlmopen leave that flag out. A library whose own symbols have the names of other libraries'
 * symbols may then find those. loam itself opens LuaJIT with the flag, in a program that has
 * another Lua (script/luajit.c): LuaJIT's memory comes from loam, so there the flag stays. */
#include "preload.h"

#include <dlfcn.h>
#include <string.h>

/* Any function; a caller casts it to the type that the function has. */
typedef void any_function(void);
typedef void *open_function(const char *, int);
typedef void *open_in_function(Lmid_t, const char *, int);
typedef int close_function(void *);

/* Functions that are found by dlsym(RTLD_NEXT). An index into `next_of`. */
enum { OPEN, OPEN_IN, CLOSE, FUNCTIONS };
static const char *const name_of[FUNCTIONS] = { "dlopen", "dlmopen", "dlclose" };
static void *_Atomic next_of[FUNCTIONS];

/* Returns the next definition of a function. ISO C has no conversion from an object pointer to a
 * function's; POSIX promises that it works. */
static __attribute__((noinline)) any_function *find(int which) {
  any_function *function;
  void *found = atomic_load_explicit(&next_of[which], memory_order_relaxed);
  if (!found) {
    found = dlsym(RTLD_NEXT, name_of[which]);
    atomic_store_explicit(&next_of[which], found, memory_order_relaxed);
  }
  memcpy(&function, &found, sizeof found);
  return function;
}

/* Where this library begins and ends; the linker defines them. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

/* The flags that the next dlopen gets; `caller` is the return address of this one. */
PRELOAD_INLINE int allowed(int mode, const void *caller) {
  bool is_own = (uintptr_t)caller - (uintptr_t)__ehdr_start < (uintptr_t)(_end - __ehdr_start);
  return is_own ? mode : mode & ~RTLD_DEEPBIND;
}

/* The C library reads the return address of dlopen: it finds the library that called, and searches
 * the folders of that library's RUNPATH. So this function ends in a jump, which keeps the address.
 * CMakeLists.txt has this file optimised in every kind of build. */
PRELOAD_API void *dlopen(const char *file, int mode) {
  open_function *open = (open_function *)find(OPEN);
  return open(file, allowed(mode, __builtin_return_address(0)));
}

/* A new namespace has a C library of its own and no preloaded library, so the flag does no harm
 * there. Ends in a jump, like dlopen. */
PRELOAD_API void *dlmopen(Lmid_t space, const char *file, int mode) {
  open_in_function *open = (open_in_function *)find(OPEN_IN);
  return open(space, file, space == LM_ID_BASE ? mode & ~RTLD_DEEPBIND : mode);
}

/* Interposed because new code may soon be loaded at the addresses of the unloaded code. */
PRELOAD_API int dlclose(void *handle) {
  int status = ((close_function *)find(CLOSE))(handle);
  atomic_fetch_add_explicit(&caller_epoch, (uintptr_t)1 << 48, memory_order_relaxed);
  loam_code_forget();
  return status;
}
