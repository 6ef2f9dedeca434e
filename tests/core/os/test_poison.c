/* test_poison.c - in a build with AddressSanitizer, a wrong use of loam's memory is reported like a
 * wrong use of malloc's memory, and a correct use is not reported: poison.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "loam.h"
#include "test.h"

/* A function that uses a block of `size` bytes wrongly, so that a report ends the process. */
typedef void wrong_fn(size_t size);

static volatile char *block(size_t size) {
  char *p = loam_malloc(loam_site_get("poison"), size);
  memset(p, 1, loam_usable_size(p));
  return p;
}

static volatile char sink;

static void reads_after_free(size_t size) {
  volatile char *p = block(size);
  loam_free((void *)p);
  sink = p[size / 2];
}

static void writes_after_free(size_t size) {
  volatile char *p = block(size);
  loam_free((void *)p);
  p[0] = 1;
}

/* A sized free takes the object's token with compare and exchange, unlike loam_free. */
static void reads_after_sized_free(size_t size) {
  volatile char *p = block(size);
  loam_free_sized((void *)p, size);
  sink = p[0];
}

static void reads_after_realloc(size_t size) {
  volatile char *p = block(size), *beside = block(size);
  if (loam_realloc(NULL, (void *)p, size > 1000 ? 10 : size * 8) == p) _exit(1);
  sink = p[0];
  sink = beside[0];
}

/* A block of 1 MiB or more moves by its pages. */
static char *grown(volatile char *p, size_t size) {
  char *to = loam_realloc(NULL, (void *)p, size * 8);
  if (to == p) _exit(1);
  memset(to, 1, loam_usable_size(to));
  return to;
}

static void reads_after_growing(size_t size) {
  volatile char *p = block(size), *beside = block(size);
  grown(p, size);
  sink = p[0];
  sink = beside[0];
}

static void reads_after_growing_and_free(size_t size) {
  volatile char *p = block(size), *beside = block(size);
  char *to = grown(p, size);
  loam_free(to);
  sink = ((volatile char *)to)[0];
  sink = beside[0];
}

/* The block is the only object in its span, so no live object follows it. */
static void writes_past_the_end(size_t size) {
  volatile char *p = block(size);
  p[loam_usable_size((void *)p)] = 1;
}

static void writes_before_the_start(size_t size) {
  volatile char *one = block(size), *other = block(size);
  volatile char *low = one < other ? one : other, *high = one < other ? other : one;
  loam_free((void *)low);
  high[-1] = 1;
}

/* The wrong access is in the C library. */
static void copies_into_freed(size_t size) {
  char *p = (char *)block(size), *from = malloc(size);
  memset(from, 0, size);
  loam_free(p);
  memcpy(p, from, size);
}

typedef struct attempt {
  wrong_fn *act;
  size_t size;
} attempt;

/* Makes the attempt in a child process and copies the child's standard error to `text`. */
static void report_of(const attempt *a, char *text, size_t room) {
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    alarm(PATIENCE_S);
    a->act(a->size);
    _exit(0);
  }
  close(ends[1]);
  size_t used = 0;
  for (ssize_t n = 1; n > 0;) {
    char rest[512];
    n = used + 1 < room ? read(ends[0], text + used, room - used - 1)
                        : read(ends[0], rest, sizeof rest);
    if (n > 0 && used + 1 < room) used += (size_t)n;
  }
  text[used] = 0;
  close(ends[0]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_not_equal(status, 0);
}

static void is_reported(wrong_fn *act) {
  static const size_t sizes[] = { 16, 100, 4096, 32768, 100000, 3 << 20 };
  static char text[8192];
  if (!POISONED) {
    print_message("a build without -fsanitize=address\n");
    skip();
  }
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    report_of(&(attempt){ act, sizes[i] }, text, sizeof text);
    if (!strstr(text, "AddressSanitizer: use-after-poison") &&
        !strstr(text, "AddressSanitizer: SEGV"))
      fail_msg("%zu bytes: %s", sizes[i], text);
  }
}

#define REPORTED(name)                         \
  static void tells_who_##name(void **state) { \
    (void)state;                               \
    is_reported(name);                         \
  }
REPORTED(reads_after_free)
REPORTED(writes_after_free)
REPORTED(reads_after_sized_free)
REPORTED(reads_after_realloc)
REPORTED(reads_after_growing)
REPORTED(reads_after_growing_and_free)
REPORTED(writes_past_the_end)
REPORTED(writes_before_the_start)
REPORTED(copies_into_freed)

/* ---- Right uses */

static uint64_t seed = 3;

static size_t some_size(void) {
  return chance(&seed, 10)  ? chance(&seed, 5000)
         : chance(&seed, 2) ? chance(&seed, 200000)
                            : chance(&seed, 4000000);
}

static void use_whole(char *p) {
  assert_non_null(p);
  memset(p, 1, loam_usable_size(p));
}

static char *make_some(void) {
  size_t size = some_size();
  switch (chance(&seed, 3)) {
    case 0: return loam_malloc(NULL, size);
    case 1: return loam_calloc(NULL, 1, size);
    default: return loam_aligned_alloc(NULL, (size_t)16 << chance(&seed, 12), size);
  }
}

static void lets_every_live_block_be_used_whole(void **state) {
  enum { SLOTS = 100 };
  char *p[SLOTS] = { 0 };
  (void)state;
  for (int i = 0; i < 5000; i++) {
    uint32_t at = chance(&seed, SLOTS);
    if (!p[at]) p[at] = make_some();
    else if (chance(&seed, 3) == 0) p[at] = loam_realloc(NULL, p[at], some_size());
    else {
      loam_free(p[at]);
      p[at] = NULL;
      continue;
    }
    use_whole(p[at]);
    if (i % 500 == 0) loam_trim();
  }
  for (int i = 0; i < SLOTS; i++) loam_free(p[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(tells_who_reads_after_free),
    cmocka_unit_test(tells_who_writes_after_free),
    cmocka_unit_test(tells_who_reads_after_sized_free),
    cmocka_unit_test(tells_who_reads_after_realloc),
    cmocka_unit_test(tells_who_reads_after_growing),
    cmocka_unit_test(tells_who_reads_after_growing_and_free),
    cmocka_unit_test(tells_who_writes_past_the_end),
    cmocka_unit_test(tells_who_writes_before_the_start),
    cmocka_unit_test(tells_who_copies_into_freed),
    cmocka_unit_test(lets_every_live_block_be_used_whole),
  };
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
