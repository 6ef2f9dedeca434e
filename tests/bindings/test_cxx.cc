/* test_cxx.cc - bindings/cxx: containers of libstdc++ on loam's memory, and owners of blocks. */
#include <loam.hpp>

#include <csetjmp>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

#include "live.hpp"

namespace {

template <class E, class F> std::string thrown_by(F f) {
  try {
    f();
  } catch (const E &why) {
    return why.what();
  }
  return "nothing";
}

/* ---- Containers */

void pmr_containers_live_on_a_resource(void **) {
  {
    loam::resource memory("cxx.pmr");
    std::pmr::vector<int> numbers(&memory);
    std::pmr::map<int, std::pmr::string> words(&memory);
    std::pmr::unordered_map<int, int> squares(&memory);
    std::pmr::list<double> list(&memory);
    for (int i = 0; i < 10000; i++) {
      numbers.push_back(i);
      words.emplace(i, "a string that is too long for the short form " + std::to_string(i));
      squares[i] = i * i;
      list.push_front(i);
    }
    for (int i = 0; i < 10000; i += 2) words.erase(i);
    assert_true(numbers[9999] == 9999 && squares[100] == 10000 && list.front() == 9999);
    assert_string_equal(words.at(77).c_str(), "a string that is too long for the short form 77");
    assert_string_equal(loam::owner(numbers.data())->tag, "cxx.pmr");
    assert_true(live_under("cxx.pmr") > 20000);
  }
  assert_int_equal(live_under("cxx.pmr"), 0);
}

void containers_live_on_the_allocator(void **) {
  {
    using string = std::basic_string<char, std::char_traits<char>, loam::allocator<char>>;
    loam::allocator<string> memory("cxx.std");
    std::vector<string, loam::allocator<string>> words(memory);
    for (int i = 0; i < 1000; i++) words.emplace_back(100, 'x', memory);
    std::vector<string, loam::allocator<string>> moved(loam::allocator<string>("cxx.other"));
    moved = std::move(words);
    assert_int_equal(moved.size(), 1000);
    assert_string_equal(loam::owner(moved.data())->tag, "cxx.std");
    assert_string_equal(loam::owner(moved[7].data())->tag, "cxx.std");
    std::map<int, int, std::less<>, loam::allocator<std::pair<const int, int>>> map;
    for (int i = 0; i < 1000; i++) map[i] = i;
    auto shared = std::allocate_shared<std::string>(memory, "shared");
    assert_true(*shared == "shared");
  }
  assert_int_equal(live_under("cxx.std"), 0);
  assert_int_equal(live_under("cxx.other"), 0);
}

struct alignas(256) wide {
  char bytes[256];
};

void alignment_is_what_is_asked(void **) {
  std::vector<wide, loam::allocator<wide>> std_wide(10, loam::allocator<wide>("cxx.wide"));
  loam::resource memory("cxx.wide");
  std::pmr::vector<wide> pmr_wide(10, &memory);
  assert_int_equal(reinterpret_cast<std::uintptr_t>(std_wide.data()) % 256, 0);
  assert_int_equal(reinterpret_cast<std::uintptr_t>(pmr_wide.data()) % 256, 0);
  for (std::size_t size = 1; size < 1000; size += 37) {
    void *p = memory.allocate(size, 256);
    assert_int_equal(reinterpret_cast<std::uintptr_t>(p) % 256, 0);
    memory.deallocate(p, size, 256);
  }
}

void what_cannot_be_allocated_throws(void **) {
  assert_string_equal(thrown_by<std::bad_alloc>([] {
                        loam::allocator<char>("cxx").allocate(std::size_t(1) << 60);
                      }).c_str(),
                      "std::bad_alloc");
  assert_string_equal(thrown_by<std::bad_array_new_length>([] {
                        loam::allocator<wide>("cxx").allocate(SIZE_MAX / 2);
                      }).c_str(),
                      "std::bad_array_new_length");
  loam::resource memory("cxx");
  assert_string_not_equal(
      thrown_by<std::bad_alloc>([&] { (void)memory.allocate(std::size_t(1) << 60); }).c_str(),
      "nothing");
  assert_non_null(std::strstr(
      thrown_by<loam::error>([] { loam::check(loam_policy_load("/nowhere.lua")); }).c_str(),
      "/nowhere.lua"));
  assert_string_not_equal(
      thrown_by<loam::error>([] { loam::resource named(std::string(300, 'x')); }).c_str(),
      "nothing");
}

/* A sanitizer allocates memory too, and ends the process if it gets none. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool may_lack_memory = false;
#else
constexpr bool may_lack_memory = true;
#endif

/* Makes sites until there is no memory for one. */
[[noreturn]] void fill_with_sites() {
  rlimit none = { 0, 0 };
  setrlimit(RLIMIT_DATA, &none);
  try {
    for (int i = 0;; i++) loam::site(("cxx." + std::to_string(i)).c_str());
  } catch (const loam::error &why) {
    _exit(why.status() == LOAM_ENOMEM ? 0 : 1);
  }
}

void a_site_without_memory_is_no_wrong_tag(void **) {
  try {
    loam::site(std::string(256, 'x'));
    fail();
  } catch (const loam::error &why) {
    assert_int_equal(why.status(), LOAM_EINVAL);
  }
  int status;
  if (!may_lack_memory) return;
  pid_t child = fork();
  if (!child) fill_with_sites();
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

void all_resources_are_equal_and_arenas_are_not(void **) {
  loam::resource one("cxx.one"), two("cxx.two");
  loam::arena arena;
  assert_true(one == two);
  assert_true(one != arena && arena != one && one != *std::pmr::new_delete_resource());
  assert_true(loam::allocator<int>("cxx.one") == loam::allocator<long>("cxx.two"));
}

void a_scope_names_what_brings_no_site(void **) {
  int *p;
  {
    loam::scope scope("cxx.scope");
    p = loam::allocator<int>().allocate(1);
  }
  assert_string_equal(loam::owner(p)->tag, "cxx.scope");
  loam_free(p);
  assert_true(!loam::owner(p));
  loam::allocator<int> here(LOAM_SITE("cxx.here"));
  p = here.allocate(1);
  assert_non_null(std::strstr(loam::owner(p)->file, "test_cxx.cc"));
  here.deallocate(p, 1);
}

/* ---- Blocks */

void a_block_ends_with_its_last_copy(void **) {
  loam::block none;
  assert_true(!none && none.size() == 0 && none.use_count() == 0 && !none.data());
  {
    loam::block block("cxx.block", 100), copy = block, moved = std::move(block);
    assert_true(!block);
    assert_int_equal(copy.use_count(), 2);
    std::memset(copy.data(), 1, copy.size());
    copy = moved;
    assert_int_equal(copy.use_count(), 2);
    auto &same = copy;
    copy = same;
    assert_int_equal(copy.use_count(), 2);
    moved.reset();
    assert_int_equal(copy.use_count(), 1);
    none = copy.slice(10, 20);
    assert_int_equal(copy.use_count(), 2);
  }
  assert_int_equal(live_under("cxx.block"), 1);
  assert_true(none.kind() == LOAM_BLOCK_SLICE && none.as<char>()[19] == 1);
  none = {};
  assert_int_equal(live_under("cxx.block"), 0);
}

void a_slice_that_does_not_fit_is_an_error(void **) {
  loam::block block = loam::block::zeroed("cxx.block", 10);
  assert_string_equal(thrown_by<loam::error>([&] { block.slice(5, 6); }).c_str(),
                      "a slice of 6 bytes from 5 on: the block has 10");
  assert_string_equal(thrown_by<loam::error>([&] { loam::block().slice(0, 0); }).c_str(),
                      "a slice of a block that is NULL");
  assert_int_equal(block.use_count(), 1);
}

void wrapped_memory_is_ended_by_what_was_given(void **) {
  int ended = 0;
  auto owned = std::make_unique<char[]>(50);
  char *p = owned.get();
  {
    loam::block block = loam::block::wrap(
        "cxx.block", p, 50, [owned = std::move(owned), &ended](void *ptr, std::size_t size) {
          ended += ptr == owned.get() && size == 50;
        });
    loam::block part = block.slice(0, 1);
    block.reset();
    assert_int_equal(ended, 0);
  }
  assert_int_equal(ended, 1);
}

void a_block_goes_to_c_and_comes_back(void **) {
  loam::block block = loam::block::aligned("cxx.block", 512, 10);
  void *data = block.data();
  loam_block *given = block.release();
  assert_true(!block);
  block = loam::block::adopt(given);
  assert_ptr_equal(block.data(), data);
  assert_int_equal(reinterpret_cast<std::uintptr_t>(data) % 512, 0);
}

void copies_may_be_anywhere(void **) {
  {
    loam::block block("cxx.block", 100000);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
      threads.emplace_back([block] {
        for (int j = 0; j < 5000; j++) {
          loam::block copy = block, part = copy.slice(std::size_t(j), 10);
        }
      });
    block.reset();
    for (auto &thread : threads) thread.join();
  }
  assert_int_equal(live_under("cxx.block"), 0);
}

/* ---- Arenas */

void containers_live_in_an_arena_and_end_with_it(void **) {
  loam::block kept;
  {
    loam::arena arena("cxx.arena");
    std::pmr::vector<std::pmr::string> words(&arena);
    for (int i = 0; i < 1000; i++) words.emplace_back("a word of more than a few letters");
    assert_string_equal(words[999].c_str(), "a word of more than a few letters");
    assert_true(live_under("cxx.arena") > 0 && live_under("cxx.arena") < 20);
    kept = arena.owner();
  }
  assert_true(live_under("cxx.arena") > 0);
  kept.reset();
  assert_int_equal(live_under("cxx.arena"), 0);
}

void an_arena_resizes_and_is_cleared(void **) {
  loam::arena arena("cxx.arena", LOAM_ARENA_RESIZABLE | LOAM_ARENA_ZEROED);
  auto p = static_cast<char *>(arena.allocate(10, 1)), q = static_cast<char *>(arena.allocate(10));
  p = static_cast<char *>(arena.resize(p, 1000));
  assert_true(p != q && p[999] == 0 && arena.size() == 1010);
  arena.clear();
  assert_int_equal(arena.size(), 0);
  arena.finalize();
  assert_string_not_equal(thrown_by<std::bad_alloc>([&] { (void)arena.allocate(1); }).c_str(),
                          "nothing");
  loam::block second = arena.owner();
  assert_string_equal(thrown_by<loam::error>([&] { arena.clear(); }).c_str(),
                      "the arena has 2 owners: its pieces may be in use");
}

/* C's macros must also compile here: these programs are compiled with -Wpedantic. */
void an_array_is_indexed_by_the_macros_of_c(void **) {
  loam_type *type = nullptr;
  loam_array *array = nullptr, *part = nullptr;
  loam::check(loam_type_parse("3 * 4 * int32", &type));
  loam::check(loam_array_new(LOAM_SITE("cxx.array"), type, &array));
  const loam_index index[] = { LOAM_RANGE(1, LOAM_OPEN), LOAM_AT(0) };
  loam::check(loam_array_index(array, 2, index, &part));
  assert_string_equal(loam_type_text(loam_array_type(part)), "2 * int32");
  loam_array_release(part);
  loam_array_release(array);
  loam_type_release(type);
}

} // namespace

int main() {
  setenv("LOAM_CONTROL", "0", 1);
  const CMUnitTest tests[] = {
    cmocka_unit_test(pmr_containers_live_on_a_resource),
    cmocka_unit_test(containers_live_on_the_allocator),
    cmocka_unit_test(alignment_is_what_is_asked),
    cmocka_unit_test(what_cannot_be_allocated_throws),
    cmocka_unit_test(a_site_without_memory_is_no_wrong_tag),
    cmocka_unit_test(all_resources_are_equal_and_arenas_are_not),
    cmocka_unit_test(a_scope_names_what_brings_no_site),
    cmocka_unit_test(a_block_ends_with_its_last_copy),
    cmocka_unit_test(a_slice_that_does_not_fit_is_an_error),
    cmocka_unit_test(wrapped_memory_is_ended_by_what_was_given),
    cmocka_unit_test(a_block_goes_to_c_and_comes_back),
    cmocka_unit_test(copies_may_be_anywhere),
    cmocka_unit_test(containers_live_in_an_arena_and_end_with_it),
    cmocka_unit_test(an_arena_resizes_and_is_cleared),
    cmocka_unit_test(an_array_is_indexed_by_the_macros_of_c),
  };
  return cmocka_run_group_tests_name("cxx", tests, nullptr, nullptr);
}
