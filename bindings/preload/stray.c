/* stray.c - pointers that are given back and are not loam's: the next allocator's, from before the
 * engine was awake, or nobody's.
 *
 * What nobody can have allocated is told here, as loam_free tells it: an address in a loaded object
 * (data, text), in the calling thread's stack, or behind nothing that can be read. The next
 * allocator would believe whatever happens to stand before it. Of all else its own checks are
 * asked. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

/* The kernel maps nothing by itself in so many bytes below the top of the first thread's stack. */
enum { FIRST_STACK = 128 << 20 };

/* The name of the program's file stands above all of the first thread's stack and environment. */
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
  /* Not so of a stack that the program switched to by itself. */
  return known && here - (uintptr_t)lowest < size && p - (uintptr_t)lowest < size;
}

/* Allocators look at what stands before a block. So does the kernel here, and then finds that there
 * is no such thing to be done with these signals. */
static bool is_unreadable(uintptr_t p) {
  enum { NO_SUCH_THING = -1, BYTES = 8, PAGE = 4096 };
  if (p < PAGE) return true; /* NULL would be no address to the kernel */
  int before = errno;
  uintptr_t at = (p - 16) & ~(uintptr_t)(BYTES - 1);
  bool faulted = syscall(SYS_rt_sigprocmask, NO_SUCH_THING, at, NULL, (size_t)BYTES) &&
                 errno == EFAULT;
  errno = before;
  return faulted;
}

const char *stray_place(const void *ptr) {
  struct dl_find_object object;
  if (next_is_arena(ptr)) return NULL;
  if (_dl_find_object((void *)ptr, &object) == 0) return "in a program or library";
  if (is_on_stack((uintptr_t)ptr)) return "on the stack";
  return is_unreadable((uintptr_t)ptr) ? "where nothing can be read" : NULL;
}

int stray_free(void *ptr) {
  if (unlikely(stray_place(ptr) != NULL)) return 0;
  next_free(ptr);
  return 1;
}

void *stray_realloc(void *ptr, size_t size) {
  if (likely(!stray_place(ptr))) return next_realloc(ptr, size);
  errno = EINVAL;
  return loam_realloc(NULL, ptr, size); /* tells it, and gives NULL */
}
