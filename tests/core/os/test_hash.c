/* test_hash.c - hashes of bytes: hash.h. */
#include "test.h"

#include "os/hash.h"

/* The value is of the authors of FNV. */
static void bytes_have_their_fnv(void **state) {
  (void)state;
  assert_int_equal(lm_hash_bytes("", 0), LM_HASH_NONE);
  assert_int_equal(lm_hash_bytes("foobar", 6), 0x85944171f73967e8u);
}

static uint64_t words_of(const char *bytes, size_t size) {
  return lm_hash_words(LM_HASH_NONE, bytes, size);
}

enum { SIZE = 100 }; /* not a multiple of eight */

static void each_bit_counts(void **state) {
  (void)state;
  char bytes[SIZE];
  memset(bytes, 'a', sizeof bytes);
  uint64_t whole = words_of(bytes, SIZE);
  for (int i = 0; i < SIZE * 8; i++) {
    bytes[i / 8] ^= (char)(1 << i % 8);
    assert_int_not_equal(words_of(bytes, SIZE), whole);
    bytes[i / 8] ^= (char)(1 << i % 8);
  }
  assert_int_equal(words_of(bytes, SIZE), whole);
}

/* The highest bit of a word has no bit above it to which a multiplication could carry. */
static void two_high_bits_do_not_undo_each_other(void **state) {
  (void)state;
  char bytes[SIZE] = { 0 };
  uint64_t whole = words_of(bytes, SIZE);
  for (int i = 7; i < 96; i += 8) {
    for (int j = i + 8; j < 96; j += 8) {
      bytes[i] ^= (char)0x80, bytes[j] ^= (char)0x80;
      assert_int_not_equal(words_of(bytes, SIZE), whole);
      bytes[i] ^= (char)0x80, bytes[j] ^= (char)0x80;
    }
  }
}

static void parts_of_whole_words_are_joined(void **state) {
  (void)state;
  static const char text[] = "sixteen bytes, and some that come after them";
  uint64_t joined = lm_hash_words(words_of(text, 16), text + 16, sizeof text - 16);
  assert_int_equal(joined, words_of(text, sizeof text));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(bytes_have_their_fnv),
    cmocka_unit_test(each_bit_counts),
    cmocka_unit_test(two_high_bits_do_not_undo_each_other),
    cmocka_unit_test(parts_of_whole_words_are_joined),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
