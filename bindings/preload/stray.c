/* stray.c - frees of pointers that are not loam's: pointers of the next allocator, from before the
 * engine was awake, and pointers that no allocator returned.
 *
 * Three kinds of addresses cannot have been allocated: in a loaded object (data or code), on the
 * calling thread's stack, and addresses that cannot be read. The C library's allocator also has no
 * block with unreadable memory before it. Such addresses are reported like loam_free reports a bad
 * free, because the next allocator would trust the bytes that happen to stand before the address.
 * Every other pointer goes to the next allocator, which has checks of its own. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

/* The kernel keeps this many bytes below the top of the first thread's stack free of mappings. */
enum { FIRST_STACK = 128 << 20 };

/* The kernel puts the file name of the program above the first thread's stack and environment. */
static uintptr_t top_of_first(void) { return getauxval(AT_EXECFN); }

static bool is_on_stack(uintptr_t p) {
  uintptr_t here = (uintptr_t)__builtin_frame_address(0), top = top_of_first();
  if (p < here) return false;
  if (top - here < FIRST_STACK) return p <= top;
  pthread_attr_t attributes;
  void *lowest;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &attributes)) return false;
  bool known = !pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  /* `here` is elsewhere if the program has switched to a stack of its own. */
  return known && here - (uintptr_t)lowest < size && p - (uintptr_t)lowest < size;
}

/* The kernel reads the bytes here, as a signal mask: the call fails with EFAULT if they cannot be
 * read, and else because there is no such operation. */
static bool is_unreadable(uintptr_t p) {
  enum { NO_SUCH_THING = -1, BYTES = 8, PAGE = 4096 };
  if (p < PAGE) return true; /* the kernel takes NULL for no mask at all */
  int before = errno;
  uintptr_t at = (next_reads_before() ? p - 16 : p) & ~(uintptr_t)(BYTES - 1);
  bool faulted = syscall(SYS_rt_sigprocmask, NO_SUCH_THING, at, NULL, (size_t)BYTES) &&
                 errno == EFAULT;
  errno = before;
  return faulted;
}

const char *stray_place(const void *ptr) {
  struct dl_find_object object;
  if (next_is_arena(ptr)) return NULL;
  if (_dl_find_object((void *)ptr, &object) == 0) return "in code or static data";
  if (is_on_stack((uintptr_t)ptr)) return "on the stack";
  return is_unreadable((uintptr_t)ptr) ? "at an address that cannot be read" : NULL;
}

int stray_free(void *ptr) {
  if (unlikely(stray_place(ptr) != NULL)) return 0;
  next_free(ptr);
  return 1;
}

void *stray_realloc(void *ptr, size_t size) {
  if (likely(!stray_place(ptr))) return next_realloc(ptr, size);
  errno = EINVAL;
  return loam_realloc(NULL, ptr, size); /* reports it and returns NULL */
}
