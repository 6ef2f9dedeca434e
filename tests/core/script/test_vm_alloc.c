/* test_vm_alloc.c - the memory of a Lua state. Pieces do not overlap, keep their bytes, and are
 * freed together. */
#include "script/vm_alloc.h"

#include <string.h>

#include "os/sys.h"
#include "pages/metadata.h"
#include "test.h"

enum { PIECES = 4000 };

typedef struct piece {
  unsigned char *at;
  size_t size;
} piece;

static piece held[PIECES];
static uint32_t seed = 1;

static size_t some_size(void) {
  seed = seed * 1664525 + 1013904223;
  return seed >> 28 ? 1 + (seed >> 8) % 700 : 1 + (seed >> 8) % 100000;
}

static void fill(int i) { memset(held[i].at, i % 251, held[i].size); }

static void check(int i, size_t size) {
  for (size_t k = 0; k < size; k++) assert_int_equal(held[i].at[k], i % 251);
}

static void pieces_are_apart_and_keep_their_bytes(void **state) {
  lm_vm_alloc heap = { .chunks = NULL };
  (void)state;
  size_t before = lm_metadata_held();
  for (int i = 0; i < PIECES; i++) {
    held[i] = (piece){ NULL, some_size() };
    held[i].at = lm_vm_alloc_take(&heap, held[i].size);
    assert_non_null(held[i].at);
    assert_int_equal((uintptr_t)held[i].at % 16, 0);
    fill(i);
  }
  for (int i = 0; i < PIECES; i++) {
    size_t size = some_size(), was = held[i].size;
    held[i].at = lm_vm_alloc_resize(&heap, held[i].at, was, size);
    assert_non_null(held[i].at);
    held[i].size = size;
    check(i, was < size ? was : size);
    fill(i);
  }
  assert_true(lm_vm_alloc_is_valid(&heap));
  for (int i = 0; i < PIECES; i++) {
    check(i, held[i].size);
    lm_vm_alloc_put(&heap, held[i].at, held[i].size);
  }
  assert_true(lm_vm_alloc_is_valid(&heap));
  lm_vm_alloc_end(&heap);
  assert_true(lm_vm_alloc_is_valid(&heap));
  lm_metadata_trim();
  assert_true(lm_metadata_held() <= before + (256 << 10));
}

static void all_pieces_go_with_the_heap(void **state) {
  lm_vm_alloc heap = { .chunks = NULL };
  (void)state;
  size_t before = lm_metadata_held();
  for (int i = 0; i < 64; i++) {
    void *large = lm_vm_alloc_take(&heap, (size_t)100 << 10);
    assert_non_null(large);
    assert_non_null(lm_vm_alloc_take(&heap, 500));
    if (i % 4 == 1) lm_vm_alloc_put(&heap, large, (size_t)100 << 10);
    if (i % 4 == 2) assert_non_null(lm_vm_alloc_resize(&heap, large, (size_t)100 << 10, 1 << 20));
    if (i % 4 == 3) assert_non_null(lm_vm_alloc_resize(&heap, large, (size_t)100 << 10, 100));
  }
  lm_vm_alloc_end(&heap);
  lm_metadata_trim();
  assert_true(lm_metadata_held() <= before + (256 << 10));
}

static void a_piece_that_was_put_is_used_again(void **state) {
  lm_vm_alloc heap = { .chunks = NULL };
  (void)state;
  void *first = lm_vm_alloc_take(&heap, 40);
  lm_vm_alloc_put(&heap, first, 40);
  assert_ptr_not_equal(lm_vm_alloc_take(&heap, 50), first);
  assert_ptr_equal(lm_vm_alloc_take(&heap, 33), first);
  lm_vm_alloc_end(&heap);
}

/* If there is no memory for a call, the call changes nothing and no piece is lost. */
static void without_memory_all_is_as_it_was(void **state) {
  lm_vm_alloc heap = { .chunks = NULL };
  (void)state;
  held[0] = (piece){ lm_vm_alloc_take(&heap, 500), 500 };
  fill(0);
  lm_sys_refuse_from(1);
  while (lm_vm_alloc_take(&heap, 512)) continue;
  assert_null(lm_vm_alloc_resize(&heap, held[0].at, 500, 64 << 20));
  lm_sys_refuse_from(0);
  check(0, 500);
  lm_vm_alloc_end(&heap);
}

/* Lua counts on it that a piece can always get smaller. */
static void a_piece_gets_smaller_without_memory(void **state) {
  lm_vm_alloc heap = { .chunks = NULL };
  (void)state;
  held[0] = (piece){ lm_vm_alloc_take(&heap, 100000), 100000 };
  held[1] = (piece){ lm_vm_alloc_take(&heap, 500), 500 };
  fill(0);
  fill(1);
  lm_sys_refuse_from(1);
  held[0].at = lm_vm_alloc_resize(&heap, held[0].at, 100000, 600);
  assert_non_null(held[0].at);
  while (lm_vm_alloc_take(&heap, 16)) continue;
  assert_ptr_equal(lm_vm_alloc_resize(&heap, held[0].at, 600, 100), held[0].at);
  assert_ptr_equal(lm_vm_alloc_resize(&heap, held[1].at, 500, 100), held[1].at);
  check(0, 100);
  check(1, 100);
  lm_vm_alloc_put(&heap, held[0].at, 100);
  lm_vm_alloc_put(&heap, held[1].at, 100);
  assert_true(lm_vm_alloc_is_valid(&heap));
  assert_ptr_equal(lm_vm_alloc_take(&heap, 100), held[1].at);
  assert_ptr_equal(lm_vm_alloc_take(&heap, 100), held[0].at);
  lm_sys_refuse_from(0);
  lm_vm_alloc_end(&heap);
}

/* Breaks each part of the law of lm_vm_alloc in a copy of a heap. */
static void a_heap_that_breaks_its_law_is_not_valid(void **state) {
  static _Alignas(LM_VM_ALLOC_UNIT) char foreign[LM_VM_ALLOC_UNIT];
  lm_vm_alloc heap = { .chunks = NULL };
  (void)state;
  lm_vm_alloc broken = { .at = foreign };
  assert_false(lm_vm_alloc_is_valid(&broken));
  broken = (lm_vm_alloc){ .end = foreign };
  assert_false(lm_vm_alloc_is_valid(&broken));
  assert_non_null(lm_vm_alloc_take(&heap, 100));
  assert_non_null(lm_vm_alloc_take(&heap, 100000));
  assert_true(lm_vm_alloc_is_valid(&heap));
  broken = heap;
  broken.end++;
  assert_false(lm_vm_alloc_is_valid(&broken));
  broken = heap;
  broken.at = broken.end + 1;
  assert_false(lm_vm_alloc_is_valid(&broken));
  broken = heap;
  broken.unused[0] = (lm_vm_alloc_piece *)(void *)foreign;
  assert_false(lm_vm_alloc_is_valid(&broken));
  broken = heap;
  heap.large = NULL; /* the large piece of the copy points back here */
  assert_false(lm_vm_alloc_is_valid(&broken));
  heap.large = broken.large;
  lm_vm_alloc_end(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_are_apart_and_keep_their_bytes),
    cmocka_unit_test(all_pieces_go_with_the_heap),
    cmocka_unit_test(a_piece_that_was_put_is_used_again),
    cmocka_unit_test(without_memory_all_is_as_it_was),
    cmocka_unit_test(a_piece_gets_smaller_without_memory),
    cmocka_unit_test(a_heap_that_breaks_its_law_is_not_valid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
