/* test_arena.c - arenas: many small pieces in one pooled block: arena.h. */
#include "block/arena.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

static loam_site *here(void) { return loam_site_get("test.arena"); }

static void add_row(void *ctx, const loam_stats_row *row) {
  loam_stats_row *sum = ctx;
  if (strcmp(row->tag, "test.arena") != 0) return;
  sum->live_blocks += row->live_blocks;
  sum->live_bytes += row->live_bytes;
}

static loam_stats_row live(void) {
  loam_stats_row sum = { 0 };
  assert_int_equal(loam_stats_by(LOAM_BY_TAG, add_row, &sum), LOAM_OK);
  return sum;
}

static loam_block *new_arena(int flags) {
  loam_block *a = loam_arena_new(here(), flags, 0);
  assert_non_null(a);
  assert_int_equal(loam_block_kind_of(a), LOAM_BLOCK_POOLED);
  return a;
}

static void end_arena(loam_block *a) {
  assert_true(lm_arena_is_valid(a));
  loam_block_release(a);
  assert_int_equal(live().live_blocks, 0);
}

/* ---- Plain */

static void pieces_stand_one_after_the_other(void **state) {
  (void)state;
  loam_block *a = new_arena(0);
  char *before = loam_arena_alloc(a, 1, 10);
  for (int i = 0; i < 100; i++) {
    char *p = loam_arena_alloc(a, 1, 10);
    assert_ptr_equal(p, before + 10);
    before = p;
  }
  assert_int_equal((uintptr_t)loam_arena_alloc(a, 8, 8) % 8, 0);
  assert_int_equal(loam_block_size(a), 101 * 10 + 8);
  assert_null(loam_block_data(a));
  assert_int_equal(live().live_blocks, 1);
  end_arena(a);
}

static void thousands_of_pieces_take_few_chunks(void **state) {
  (void)state;
  loam_block *a = new_arena(0);
  for (int i = 0; i < 100000; i++) memset(loam_arena_alloc(a, 8, 40), 1, 40);
  loam_stats_row held = live();
  assert_true(held.live_blocks < 20);
  assert_true(held.live_bytes < 2 * 100000 * 40);
  end_arena(a);
}

static void a_large_piece_does_not_end_the_chunk_of_small_ones(void **state) {
  (void)state;
  loam_block *a = new_arena(0);
  char *p = loam_arena_alloc(a, 1, 10);
  assert_non_null(loam_arena_alloc(a, 1, 100000));
  assert_ptr_equal(loam_arena_alloc(a, 1, 10), p + 10);
  end_arena(a);
}

static void only_the_last_piece_can_be_resized(void **state) {
  (void)state;
  loam_block *a = new_arena(0);
  char *first = loam_arena_alloc(a, 1, 10), *last = loam_arena_alloc(a, 1, 10);
  assert_null(loam_arena_resize(a, first, 20));
  assert_non_null(strstr(loam_error(), " is not the arena's last piece"));
  assert_ptr_equal(loam_arena_resize(a, last, 30), last);
  assert_ptr_equal(loam_arena_resize(a, last, 5), last);
  assert_int_equal(loam_block_size(a), 15);
  assert_ptr_equal(loam_arena_alloc(a, 1, 1), last + 5);
  assert_null(loam_arena_resize(a, last, 6));
  end_arena(a);
}

static void a_piece_of_size_0_is_not_taken_for_the_next(void **state) {
  (void)state;
  loam_block *a = new_arena(0);
  char *none = loam_arena_alloc(a, 1, 0), *p = loam_arena_alloc(a, 1, 10);
  assert_ptr_not_equal(none, p);
  assert_null(loam_arena_resize(a, none, 5));
  assert_ptr_equal(loam_arena_resize(a, p, 0), p);
  assert_ptr_not_equal(loam_arena_alloc(a, 1, 10), p);
  assert_null(loam_arena_resize(a, p, 5));
  assert_int_equal(loam_block_size(a), 10);
  end_arena(a);
}

static void an_aligned_piece_of_size_0_has_an_address_of_its_own(void **state) {
  (void)state;
  for (int flags = 0; flags <= LOAM_ARENA_RESIZABLE; flags += LOAM_ARENA_RESIZABLE) {
    loam_block *a = new_arena(flags);
    for (int i = 0; i < 64; i++) {
      char *p = loam_arena_alloc(a, 64, 0), *block = loam_aligned_alloc(here(), 64, 64);
      assert_ptr_not_equal(p, block);
      loam_free(block);
      p = loam_arena_resize(a, p, 0);
      loam_owner_info owner;
      assert_int_equal(loam_owner(p, &owner), LOAM_OK);
      assert_true((char *)owner.base < p);
    }
    end_arena(a);
  }
}

static void a_last_piece_that_grows_byte_by_byte_leaves_nothing(void **state) {
  (void)state;
  for (int flags = 0; flags < 4; flags++) {
    loam_block *a = new_arena(flags);
    loam_arena_alloc(a, 16, 100);
    char *p = loam_arena_alloc(a, 1, 0);
    size_t moves = 0, size = SANITIZED ? 1 << 18 : 1 << 20;
    for (size_t n = 1; n <= size; n++) {
      char *q = loam_arena_resize(a, p, n);
      assert_non_null(q);
      moves += q != p;
      p = q;
      p[n - 1] = (char)n;
    }
    for (size_t n = 1; n <= size; n++) assert_int_equal(p[n - 1], (char)n);
    assert_true(moves < 200);
    assert_true(live().live_bytes < 2 * size);
    assert_int_equal(loam_block_size(a), size + 100);
    end_arena(a);
  }
}

static void the_place_that_a_last_piece_leaves_is_used_again(void **state) {
  (void)state;
  loam_block *a = new_arena(0);
  char *first = loam_arena_alloc(a, 1, 100), *last = loam_arena_alloc(a, 1, 100);
  char *moved = loam_arena_resize(a, last, 100000);
  assert_ptr_not_equal(moved, last);
  assert_ptr_equal(loam_arena_alloc(a, 1, 100), first + 100);
  end_arena(a);
}

/* ---- Resizable */

static void any_piece_can_be_resized(void **state) {
  (void)state;
  loam_block *a = new_arena(LOAM_ARENA_RESIZABLE);
  char *first = loam_arena_alloc(a, 1, 5), *second = loam_arena_alloc(a, 1, 5);
  strcpy(first, "one");
  strcpy(second, "two");
  first = loam_arena_resize(a, first, 1000);
  second = loam_arena_resize(a, second, 100000);
  assert_string_equal(first, "one");
  assert_string_equal(second, "two");
  second = loam_arena_resize(a, second, 4);
  assert_string_equal(second, "two");
  assert_int_equal(loam_block_size(a), 1004);
  end_arena(a);
}

static void a_pointer_that_is_not_a_piece_is_refused(void **state) {
  (void)state;
  loam_block *a = new_arena(LOAM_ARENA_RESIZABLE);
  char *p = loam_arena_alloc(a, 1, 100);
  memset(p, 0, 100);
  char *moved = loam_arena_resize(a, p, 1000);
  assert_null(loam_arena_resize(a, p, 10)); /* the piece has moved */
  assert_non_null(strstr(loam_error(), " is not a live piece of the arena"));
  assert_null(loam_arena_resize(a, moved + 1, 10));
  assert_null(loam_arena_resize(a, moved + 32, 10));
  end_arena(a);
}

/* Resizes strings in many rounds. After the first rounds, the arena must need no more memory. */
static void resizing_for_ever_takes_no_more_memory(void **state) {
  (void)state;
  enum { STRINGS = 300, ROUNDS = 200 };
  loam_block *a = new_arena(LOAM_ARENA_RESIZABLE);
  char *string[STRINGS] = { 0 };
  size_t held = 0;
  srand(7);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < STRINGS; i++) {
      string[i] = loam_arena_resize(a, string[i], (size_t)((round * 37 + i * 11) % 3000));
      assert_non_null(string[i]);
    }
    if (round == ROUNDS / 2) held = live().live_bytes;
  }
  assert_int_equal(live().live_bytes, held);
  assert_true(held < 4 * STRINGS * 3000);
  end_arena(a);
}

static void a_large_piece_that_shrinks_gives_back(void **state) {
  (void)state;
  loam_block *a = new_arena(LOAM_ARENA_RESIZABLE);
  char *p = loam_arena_alloc(a, 16, 8 << 20);
  p = loam_arena_resize(a, p, 100000);
  assert_true(live().live_bytes < 1 << 20);
  p = loam_arena_resize(a, p, 100);
  assert_true(live().live_bytes < 20000);
  end_arena(a);
}

/* ---- Arenas of both kinds */

/* A piece of an arena, and the byte that fills it. */
enum { PIECES = 200 };
typedef struct piece {
  unsigned char *p;
  size_t size, alignment;
  unsigned char fill;
} piece;

static size_t some_size(void) {
  static const size_t limit[] = { 20, 20, 200, 200, 5000, 100000 };
  return (size_t)rand() % limit[rand() % 6];
}

static void expect_filled(const piece *it, size_t upto) {
  assert_int_equal((uintptr_t)it->p % it->alignment, 0);
  for (size_t i = 0; i < upto; i++) assert_int_equal(it->p[i], it->fill);
}

static void fill(piece *it, int flags, size_t from) {
  if (flags & LOAM_ARENA_ZEROED)
    for (size_t i = from; i < it->size; i++) assert_int_equal(it->p[i], 0);
  it->fill = (unsigned char)(rand() % 255 + 1);
  if (it->size) memset(it->p, it->fill, it->size);
}

static void step(loam_block *a, int flags, piece *pieces, int *n) {
  bool resizable = flags & LOAM_ARENA_RESIZABLE;
  if (*n < PIECES && (!*n || rand() % 3 == 0)) {
    piece *it = &pieces[(*n)++];
    *it = (piece){ NULL, some_size(), (size_t)1 << rand() % (rand() % 10 ? 5 : 12), 0 };
    it->p = loam_arena_alloc(a, it->alignment, it->size);
    assert_non_null(it->p);
    fill(it, flags, 0);
    return;
  }
  piece *it = &pieces[resizable ? rand() % *n : *n - 1];
  size_t was = it->size, size = some_size();
  it->p = loam_arena_resize(a, it->p, size);
  assert_non_null(it->p);
  it->size = size;
  expect_filled(it, was < size ? was : size);
  fill(it, flags, was);
}

static void random_calls_keep_the_contents_of_pieces(void **state) {
  (void)state;
  static piece pieces[PIECES];
  srand(11);
  for (int run = 0; run < (SANITIZED ? 12 : 40); run++) {
    int flags = run % 4, n = 0;
    loam_block *a = new_arena(flags);
    for (int i = 0; i < 600; i++) {
      if (i == 300 && run % 3 == 0) {
        assert_int_equal(loam_arena_reset(a), LOAM_OK);
        assert_int_equal(loam_block_size(a), 0);
        n = 0;
      }
      step(a, flags, pieces, &n);
      if (i % 50 == 0) assert_true(lm_arena_is_valid(a));
    }
    size_t sum = 0;
    for (int i = 0; i < n; i++) {
      expect_filled(&pieces[i], pieces[i].size);
      sum += pieces[i].size;
    }
    assert_int_equal(loam_block_size(a), sum);
    end_arena(a);
  }
}

static void a_reset_keeps_a_chunk_and_frees_the_rest(void **state) {
  (void)state;
  for (int flags = 0; flags < 4; flags++) {
    loam_block *a = new_arena(flags);
    for (int i = 0; i < 10000; i++) loam_arena_alloc(a, 8, 100);
    assert_int_equal(loam_arena_reset(a), LOAM_OK);
    assert_int_equal(live().live_blocks, 1);
    assert_non_null(loam_arena_alloc(a, 8, 100));
    assert_int_equal(live().live_blocks, 1);
    end_arena(a);
  }
}

static void with_two_owners_there_is_no_reset(void **state) {
  (void)state;
  loam_block *a = new_arena(0);
  loam_block_retain(a);
  assert_int_equal(loam_arena_reset(a), LOAM_ESTATE);
  assert_string_equal(loam_error(), "the arena has 2 owners: its pieces may be in use");
  loam_block_release(a);
  assert_int_equal(loam_arena_reset(a), LOAM_OK);
  end_arena(a);
}

static void a_finished_arena_gives_no_more_until_it_is_reset(void **state) {
  (void)state;
  for (int flags = 0; flags < 4; flags++) {
    loam_block *a = new_arena(flags);
    char *p = loam_arena_alloc(a, 1, 10);
    strcpy(p, "stays");
    assert_int_equal(loam_arena_finalize(a), LOAM_OK);
    assert_null(loam_arena_alloc(a, 1, 10));
    assert_string_equal(loam_error(), "the arena is finalized: no pieces can be allocated");
    assert_null(loam_arena_resize(a, p, 20));
    assert_string_equal(loam_error(), "the arena is finalized: no pieces can be resized");
    assert_string_equal(p, "stays");
    assert_int_equal(loam_arena_reset(a), LOAM_OK);
    assert_non_null(loam_arena_alloc(a, 1, 10));
    end_arena(a);
  }
}

static void the_first_chunk_has_the_requested_room(void **state) {
  (void)state;
  loam_block *a = loam_arena_new(here(), 0, 3 << 20);
  assert_int_equal(live().live_blocks, 0);
  for (int i = 0; i < 3 << 10; i++) assert_non_null(loam_arena_alloc(a, 1, 1024));
  assert_int_equal(live().live_blocks, 1);
  end_arena(a);
}

static void invalid_arguments_are_refused_in_words(void **state) {
  (void)state;
  assert_null(loam_arena_new(here(), 4, 0));
  assert_non_null(strstr(loam_error(), "flags 4"));
  assert_null(loam_arena_new(here(), 0, SIZE_MAX));
  assert_null(loam_arena_alloc(NULL, 1, 1));
  assert_string_equal(loam_error(), "the arena is NULL");
  loam_block *b = loam_block_new(here(), 100), *a = new_arena(0);
  assert_null(loam_arena_alloc(b, 1, 1));
  assert_string_equal(loam_error(), "the block is not an arena");
  assert_int_equal(loam_arena_reset(b), LOAM_EINVAL);
  assert_int_equal(loam_arena_finalize(b), LOAM_EINVAL);
  assert_null(loam_arena_resize(b, loam_block_data(b), 1));
  assert_null(loam_arena_alloc(a, 3, 1));
  assert_string_equal(loam_error(), "alignment 3: it is not a power of two");
  assert_null(loam_arena_alloc(a, 1, SIZE_MAX));
  assert_null(loam_arena_alloc(a, (size_t)1 << 63, 1));
  void *p = loam_arena_alloc(a, 1, 10);
  assert_null(loam_arena_resize(a, p, SIZE_MAX));
  assert_null(loam_arena_resize(a, p, (size_t)1 << 46));
  assert_ptr_equal(loam_arena_resize(a, p, 11), p);
  loam_block_release(b);
  end_arena(a);
}

/* When a piece grows together with its chunk, loam first tries to add an eighth of its size. That
 * sum must not overflow. */
static void a_piece_larger_than_all_addresses_is_refused(void **state) {
  (void)state;
  const size_t wraps = SIZE_MAX / 9 * 8 + 10000; /* with an eighth more, it is above 2^64 */
  for (int flags = 0; flags < 4; flags++) {
    loam_block *a = new_arena(flags);
    void *p = loam_arena_alloc(a, 16, 8000);
    assert_null(loam_arena_resize(a, p, wraps));
    assert_non_null(strstr(loam_error(), "no address space is that large"));
    assert_null(loam_arena_resize(a, p, SIZE_MAX));
    assert_null(loam_arena_alloc(a, 16, wraps));
    assert_null(loam_arena_alloc(a, (size_t)1 << 63, 1));
    assert_non_null(strstr(loam_error(), "alignment 9223372036854775808: it is above"));
    assert_int_equal(loam_block_size(a), 8000);
    end_arena(a);
  }
}

/* The memory of a handler. A new block begins at a multiple of 64. A reallocated block begins 16
 * bytes after one. */
static char handler_memory[2][20000] __attribute__((aligned(64)));

static void *handler_malloc(void *ctx, size_t size) {
  (void)ctx;
  return handler_memory[size > 5000];
}

static void *handler_realloc(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  return memmove(handler_memory[1] + 16, ptr, size < 5000 ? size : 5000);
}

static void *handler_calloc(void *ctx, size_t count, size_t size) {
  return handler_malloc(ctx, count * size);
}

static void handler_free(void *ctx, void *ptr, size_t size) { (void)ctx, (void)ptr, (void)size; }

static void a_piece_keeps_its_alignment_when_its_chunk_moves(void **state) {
  (void)state;
  static const loam_handler handler = {
    "kinds", 1, { NULL, handler_malloc, handler_calloc, handler_realloc, handler_free }
  };
  const loam_handler *before = loam_handler_set(&handler);
  loam_block *a = new_arena(0);
  loam_handler_set(before);
  assert_non_null(loam_arena_alloc(a, 16, 100));
  assert_int_equal(loam_arena_reset(a), LOAM_OK);
  char *p = loam_arena_alloc(a, 64, 1000);
  assert_ptr_equal(p, handler_memory[0] + 64);
  memset(p, 7, 1000);
  p = loam_arena_resize(a, p, 9000);
  assert_true(p && (uintptr_t)p % 64 == 0 && p[999] == 7);
  loam_block_release(a);
}

static void an_arena_cannot_be_sliced(void **state) {
  (void)state;
  for (int flags = 0; flags < 4; flags++) {
    loam_block *a = new_arena(flags);
    assert_non_null(loam_arena_alloc(a, 1, 10));
    assert_null(loam_block_slice(a, 2, 5));
    assert_string_equal(loam_error(), "a slice of 5 bytes from 2 on: the block is an arena, which "
                                      "has pieces and no data");
    assert_null(loam_block_slice(a, 0, 0));
    assert_int_equal(loam_block_refcount(a), 1);
    end_arena(a);
  }
}

/* ---- No memory */

static void use_an_arena(int flags) {
  piece pieces[40];
  int n = 0;
  loam_block *a = loam_arena_new(here(), flags, 0);
  if (!a) return;
  for (int i = 0; i < 200; i++) {
    piece *it = &pieces[n ? (flags & LOAM_ARENA_RESIZABLE ? i % n : n - 1) : 0];
    size_t size = (size_t)(i * i * 13) % 300000;
    if (n < 40 && i % 2 == 0) {
      pieces[n] = (piece){ loam_arena_alloc(a, 16, size), size, 16, (unsigned char)i };
      if (pieces[n].p) memset(pieces[n].p, i, size), n++;
      continue;
    }
    if (!n) continue;
    unsigned char *p = loam_arena_resize(a, it->p, size);
    if (!p) continue;
    it->p = p;
    expect_filled(it, it->size < size ? it->size : size);
    it->size = size;
    it->fill = (unsigned char)i;
    memset(p, i, size);
  }
  for (int i = 0; i < n; i++) expect_filled(&pieces[i], pieces[i].size);
  end_arena(a);
  (void)loam_trim();
}

static void use_arenas(bool refused) {
  (void)refused;
  use_an_arena(0);
  use_an_arena(LOAM_ARENA_RESIZABLE);
}

static void without_memory_pieces_are_unchanged(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_true(refuse_each(use_arenas) > 0);
}

/* Fails on any event except SHORTFALL. Tests cause SHORTFALL, because they request more memory than
 * the machine has. */
static void no_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_SHORTFALL) fail_msg("%s", event->message);
}

static void an_arena_of_a_wrong_kind_or_size_is_not_valid(void **state) {
  (void)state;
  for (int flags = 0; flags <= LOAM_ARENA_RESIZABLE; flags += LOAM_ARENA_RESIZABLE) {
    loam_block *a = new_arena(flags);
    assert_non_null(loam_arena_alloc(a, 1, 100));
    a->size += 1 << 20;
    assert_false(lm_arena_is_valid(a));
    a->size -= 1 << 20;
    a->kind = LOAM_BLOCK_SLICE;
    assert_false(lm_arena_is_valid(a));
    a->kind = LOAM_BLOCK_POOLED;
    end_arena(a);
  }
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1);
  loam_on_event(no_event, NULL);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_stand_one_after_the_other),
    cmocka_unit_test(thousands_of_pieces_take_few_chunks),
    cmocka_unit_test(a_large_piece_does_not_end_the_chunk_of_small_ones),
    cmocka_unit_test(only_the_last_piece_can_be_resized),
    cmocka_unit_test(a_piece_of_size_0_is_not_taken_for_the_next),
    cmocka_unit_test(an_aligned_piece_of_size_0_has_an_address_of_its_own),
    cmocka_unit_test(a_last_piece_that_grows_byte_by_byte_leaves_nothing),
    cmocka_unit_test(the_place_that_a_last_piece_leaves_is_used_again),
    cmocka_unit_test(any_piece_can_be_resized),
    cmocka_unit_test(a_pointer_that_is_not_a_piece_is_refused),
    cmocka_unit_test(resizing_for_ever_takes_no_more_memory),
    cmocka_unit_test(a_large_piece_that_shrinks_gives_back),
    cmocka_unit_test(random_calls_keep_the_contents_of_pieces),
    cmocka_unit_test(a_reset_keeps_a_chunk_and_frees_the_rest),
    cmocka_unit_test(with_two_owners_there_is_no_reset),
    cmocka_unit_test(a_finished_arena_gives_no_more_until_it_is_reset),
    cmocka_unit_test(the_first_chunk_has_the_requested_room),
    cmocka_unit_test(invalid_arguments_are_refused_in_words),
    cmocka_unit_test(a_piece_larger_than_all_addresses_is_refused),
    cmocka_unit_test(a_piece_keeps_its_alignment_when_its_chunk_moves),
    cmocka_unit_test(an_arena_cannot_be_sliced),
    cmocka_unit_test(without_memory_pieces_are_unchanged),
    cmocka_unit_test(an_arena_of_a_wrong_kind_or_size_is_not_valid),
  };
  return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
