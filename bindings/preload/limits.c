/* limits.c - setrlimit and prlimit. loam has reserved its address space before the program limits
 * it, so these functions call loam_limits_changed. That call also gives free memory back, which
 * counts against a limit on data (RLIMIT_DATA): else a thread that starts later, and needs memory
 * for itself first, might find the limit used up by memory that loam keeps free. */
#define _GNU_SOURCE 1
#include "preload.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The process in which this library's memory is. A child of vfork has another id and uses the
 * memory of its parent, for which its limits do not hold. */
static pid_t owner;

static void set_owner(void) { owner = getpid(); }

__attribute__((constructor)) static void begin(void) {
  set_owner();
  pthread_atfork(NULL, NULL, set_owner);
}

/* Calls the kernel as glibc's functions do. Its errno is the caller's. */
static int limit(pid_t pid, int resource, const struct rlimit64 *new, struct rlimit64 *old) {
  int status = (int)syscall(SYS_prlimit64, pid, resource, new, old);
  bool is_own = (pid == 0 || pid == owner) && getpid() == owner;
  if (status == 0 && new && (resource == RLIMIT_AS || resource == RLIMIT_DATA) && is_own)
    loam_limits_changed();
  return status;
}

_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64) && sizeof(rlim_t) == 8,
               "one type serves both names");

PRELOAD_API int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *new) {
  return limit(0, (int)resource, new, NULL);
}

PRELOAD_API int setrlimit(__rlimit_resource_t resource, const struct rlimit *new) {
  return limit(0, (int)resource, (const struct rlimit64 *)new, NULL);
}

PRELOAD_API int prlimit64(pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *new,
                          struct rlimit64 *old) {
  return limit(pid, (int)resource, new, old);
}

PRELOAD_API int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *new,
                        struct rlimit *old) {
  return limit(pid, (int)resource, (const struct rlimit64 *)new, (struct rlimit64 *)old);
}
