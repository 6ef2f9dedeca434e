/* test_preload.c - the malloc family as glibc documents it. Run plain, the program tests glibc, and
 * so the tests themselves; under the preload library it tests loam. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE ((size_t)4096)
#define HUGE ((size_t)PTRDIFF_MAX + 1)

static bool is_aligned(const void *p, size_t alignment) { return (uintptr_t)p % alignment == 0; }

static bool is_zero(const char *p, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (p[i]) return false;
  return true;
}

static void gives_size_zero_a_pointer_of_its_own(void **state) {
  (void)state;
  void *a = malloc(0), *b = malloc(0), *c = calloc(0, 5);
  assert_non_null(a);
  assert_non_null(b);
  assert_non_null(c);
  assert_ptr_not_equal(a, b);
  free(a);
  free(b);
  free(c);
}

static void aligns_to_sixteen_and_offers_what_was_asked(void **state) {
  (void)state;
  for (size_t size = 1; size < (size_t)8 << 20; size += 1 + size / 3) {
    char *p = malloc(size);
    assert_non_null(p);
    assert_true(is_aligned(p, 16));
    assert_true(malloc_usable_size(p) >= size);
    memset(p, 0xee, malloc_usable_size(p));
    free(p);
  }
  assert_int_equal(malloc_usable_size(NULL), 0);
}

static void zeroes_callocs_memory_also_when_it_is_used_again(void **state) {
  (void)state;
  for (size_t size = 1; size < (size_t)4 << 20; size += 1 + size / 2) {
    for (int round = 0; round < 3; round++) {
      char *p = calloc(1, size);
      assert_non_null(p);
      assert_true(is_zero(p, size));
      memset(p, 0xee, size);
      free(p);
    }
  }
}

static void refuses_what_no_machine_has_with_enomem(void **state) {
  (void)state;
  const size_t sizes[] = { HUGE, SIZE_MAX, SIZE_MAX - PAGE };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *(*const calls[])(size_t) = { malloc, valloc, pvalloc };
    for (int c = 0; c < 3; c++) {
      errno = 0;
      assert_null(calls[c](sizes[i]));
      assert_int_equal(errno, ENOMEM);
    }
    errno = 0;
    assert_null(aligned_alloc(64, sizes[i]));
    assert_int_equal(errno, ENOMEM);
  }
  errno = 0;
  assert_null(calloc(SIZE_MAX / 2, 3));
  assert_int_equal(errno, ENOMEM);
  errno = 0;
  assert_null(reallocarray(NULL, SIZE_MAX / 2, 3));
  assert_int_equal(errno, ENOMEM);
}

static void keeps_errno_when_it_succeeds(void **state) {
  (void)state;
  for (size_t size = 1; size < (size_t)64 << 20; size *= 5) {
    errno = EDOM;
    void *p = malloc(size);
    p = realloc(p, size * 2);
    void *q = NULL;
    assert_int_equal(posix_memalign(&q, 4096, size), 0);
    free(p);
    free(q);
    free(calloc(size, 2));
    assert_int_equal(errno, EDOM);
  }
}

static void reallocates_as_glibc_does(void **state) {
  (void)state;
  char *p = realloc(NULL, 100);
  assert_non_null(p);
  for (int i = 0; i < 100; i++) p[i] = (char)i;
  for (size_t size = 150; size < (size_t)20 << 20; size *= 3) {
    p = realloc(p, size);
    assert_non_null(p);
    for (int i = 0; i < 100; i++) assert_int_equal(p[i], i);
  }
  p = realloc(p, 50);
  assert_non_null(p);
  for (int i = 0; i < 50; i++) assert_int_equal(p[i], i);
  errno = 0;
  assert_null(realloc(p, HUGE));
  assert_int_equal(errno, ENOMEM);
  assert_int_equal(p[49], 49); /* unchanged */
  assert_null(reallocarray(p, HUGE, 2));
  p = reallocarray(p, 100, 10);
  assert_non_null(p);
  assert_int_equal(p[49], 49);
  assert_null(realloc(p, 0)); /* this freed the block */
}

static void posix_memalign_says_what_is_wrong_and_writes_nothing(void **state) {
  (void)state;
  void *const untouched = &state;
  void *p = untouched;
  assert_int_equal(posix_memalign(&p, 0, 10), EINVAL);
  assert_int_equal(posix_memalign(&p, 3, 10), EINVAL);
  assert_int_equal(posix_memalign(&p, 4, 10), EINVAL);
  assert_int_equal(posix_memalign(&p, 24, 10), EINVAL);
  errno = ERANGE;
  assert_int_equal(posix_memalign(&p, 64, HUGE), ENOMEM);
  assert_int_equal(errno, ENOMEM); /* like glibc */
  assert_ptr_equal(p, untouched);
  errno = ERANGE;
  for (size_t alignment = 8; alignment <= (size_t)4 << 20; alignment *= 2) {
    assert_int_equal(posix_memalign(&p, alignment, 100), 0);
    assert_true(is_aligned(p, alignment));
    memset(p, 1, 100);
    free(p);
  }
  assert_int_equal(errno, ERANGE);
}

static void memalign_rounds_an_alignment_up_to_a_power_of_two(void **state) {
  (void)state;
  const size_t asked[] = { 0, 1, 3, 17, 24, 100, 4097 };
  const size_t given[] = { 16, 16, 16, 32, 32, 128, 8192 };
  for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
    char *p = memalign(asked[i], 1000);
    assert_non_null(p);
    assert_true(is_aligned(p, given[i]));
    memset(p, 1, 1000);
    p = realloc(p, 5000);
    assert_int_equal(p[999], 1);
    free(p);
  }
  errno = 0;
  assert_null(memalign(SIZE_MAX / 2 + 2, 10));
  assert_int_equal(errno, EINVAL);
  void *p = aligned_alloc(64, 100); /* glibc accepts that 100 is no multiple */
  assert_non_null(p);
  assert_true(is_aligned(p, 64));
  free(p);
}

static void valloc_and_pvalloc_give_pages(void **state) {
  (void)state;
  void *p = valloc(10), *q = pvalloc(10), *r = pvalloc(PAGE + 1);
  assert_true(is_aligned(p, PAGE) && is_aligned(q, PAGE) && is_aligned(r, PAGE));
  assert_true(malloc_usable_size(q) >= PAGE);
  assert_true(malloc_usable_size(r) >= 2 * PAGE);
  memset(r, 1, 2 * PAGE);
  free(p);
  free(q);
  free(r);
}

static void serves_the_c_librarys_own_allocations(void **state) {
  (void)state;
  char *text = NULL, *line = NULL, *word = strdup("a word");
  size_t size = 0;
  assert_int_equal(asprintf(&text, "%d %s", 7, word), 8);
  FILE *file = fmemopen(text, 8, "r");
  assert_int_equal(getline(&line, &size, file), 8);
  assert_string_equal(line, "7 a word");
  fclose(file);
  line = realloc(line, 10000);
  free(line);
  free(text);
  free(word);
  char *directory = getcwd(NULL, 0);
  assert_non_null(directory);
  free(directory);
}

/* Runs `print` while a request to cancel this thread is pending. Returns NULL if the thread was not
 * cancelled. */
static void *print_while_cancelled(void *print) {
  pthread_cancel(pthread_self());
  ((void (*)(void))print)();
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  return NULL;
}

static void malloc_stats_is_no_cancellation_point(void **state) {
  (void)state;
  pthread_t thread;
  void *result;
  int saved = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
  assert_int_equal(dup2(nowhere, STDERR_FILENO), STDERR_FILENO);
  assert_int_equal(pthread_create(&thread, NULL, print_while_cancelled, malloc_stats), 0);
  pthread_join(thread, &result);
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(nowhere);
  assert_null(result);
}

/* Functions of C23. glibc has them from 2.43 on. */
static void frees_with_a_size_and_an_alignment(void **state) {
  (void)state;
  void (*sized)(void *p, size_t size), (*aligned)(void *p, size_t alignment, size_t size);
  void *found = dlsym(RTLD_DEFAULT, "free_sized");
  if (!found && !dlsym(RTLD_DEFAULT, "loam_version")) skip();
  assert_non_null(found);
  memcpy(&sized, &found, sizeof found);
  found = dlsym(RTLD_DEFAULT, "free_aligned_sized");
  assert_non_null(found);
  memcpy(&aligned, &found, sizeof found);
  for (size_t size = 0; size < (size_t)4 << 20; size += 1 + size / 3) {
    sized(malloc(size), size);
    sized(calloc(1, size), size);
    sized(realloc(malloc(1), size + 1), size + 1);
    aligned(aligned_alloc(256, size / 256 * 256), 256, size / 256 * 256);
  }
  sized(NULL, 0);
  aligned(NULL, 64, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(gives_size_zero_a_pointer_of_its_own),
    cmocka_unit_test(aligns_to_sixteen_and_offers_what_was_asked),
    cmocka_unit_test(zeroes_callocs_memory_also_when_it_is_used_again),
    cmocka_unit_test(refuses_what_no_machine_has_with_enomem),
    cmocka_unit_test(keeps_errno_when_it_succeeds),
    cmocka_unit_test(reallocates_as_glibc_does),
    cmocka_unit_test(posix_memalign_says_what_is_wrong_and_writes_nothing),
    cmocka_unit_test(memalign_rounds_an_alignment_up_to_a_power_of_two),
    cmocka_unit_test(valloc_and_pvalloc_give_pages),
    cmocka_unit_test(serves_the_c_librarys_own_allocations),
    cmocka_unit_test(malloc_stats_is_no_cancellation_point),
    cmocka_unit_test(frees_with_a_size_and_an_alignment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
