/* test_cxx_new.cc - bindings/cxx: operator new with a tag, as a base class and with loam::at. CMake
 * builds the program for C++17 and for C++20. */
#include <loam.hpp>

#include <csetjmp>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>
#if defined(__cpp_impl_coroutine)
#include <coroutine>
#endif

extern "C" {
#include <cmocka.h>
}

#include "live.hpp"

namespace {

int wrong_frees = 0;

void on_event(void *, const loam_event *event) {
  if (event->kind == LOAM_EVENT_BAD_FREE) wrong_frees++;
}

const char *tag_of(const void *ptr) { return loam::owner(ptr)->tag; }

struct mesh_tag {
  static constexpr const char *tag = "scene.mesh";
};

struct mesh : loam::tagged_by<mesh_tag> {
  explicit mesh(bool fails = false) {
    if (fails) throw std::runtime_error("no mesh");
  }
  virtual ~mesh() = default;
  double points[9] = {};
};

struct large_mesh : mesh {
  double more[100] = {};
};

struct alignas(128) wide_mesh : loam::tagged_by<mesh_tag> {
  explicit wide_mesh(bool fails = false) {
    if (fails) throw std::runtime_error("no mesh");
  }
  char bytes[300] = {};
};

struct plain_mesh : loam::tagged_by<mesh_tag> {
  int number = 7;
};

template <class F> bool throws(F f) {
  try {
    f();
  } catch (const std::runtime_error &) {
    return true;
  }
  return false;
}

bool is_aligned(const void *ptr) { return reinterpret_cast<std::uintptr_t>(ptr) % 128 == 0; }

void a_class_allocates_for_its_tag(void **) {
  auto one = std::make_unique<mesh>();
  std::unique_ptr<mesh> derived(new large_mesh);
  mesh *many = new mesh[5];
  auto plain = new (std::nothrow) plain_mesh;
  assert_string_equal(tag_of(one.get()), "scene.mesh");
  assert_string_equal(tag_of(derived.get()), "scene.mesh");
  assert_string_equal(tag_of(many + 4), "scene.mesh");
  assert_string_equal(tag_of(plain), "scene.mesh");
  assert_int_equal(live_under("scene.mesh"), 4);
  delete[] many;
  delete plain;
  one.reset();
  derived.reset();
  assert_int_equal(live_under("scene.mesh"), 0);
}

void an_aligned_class_keeps_its_alignment(void **) {
  auto one = new wide_mesh;
  auto many = new wide_mesh[3];
  auto other = new (std::nothrow) wide_mesh;
  assert_true(is_aligned(one) && is_aligned(many) && is_aligned(other));
  assert_string_equal(tag_of(many), "scene.mesh");
  delete one;
  delete[] many;
  delete other;
  assert_int_equal(live_under("scene.mesh"), 0);
}

void a_constructor_that_throws_leaves_no_memory(void **) {
  assert_true(throws([] { (void)new mesh(true); }));
  assert_true(throws([] { (void)new (std::nothrow) mesh(true); }));
  assert_true(throws([] { (void)new wide_mesh(true); }));
  assert_true(throws([] { (void)new (std::nothrow) wide_mesh(true); }));
  assert_true(throws([] { (void)new mesh[2]{ mesh(), mesh(true) }; }));
  assert_true(throws([] { (void)new (std::nothrow) mesh[2]{ mesh(), mesh(true) }; }));
  assert_true(throws([] { (void)new wide_mesh[2]{ wide_mesh(), wide_mesh(true) }; }));
  assert_true(throws([] { (void)new (std::nothrow) wide_mesh[1]{ wide_mesh(true) }; }));
  assert_int_equal(live_under("scene.mesh"), 0);
}

void an_object_can_be_made_at_a_place(void **) {
  alignas(mesh) unsigned char room[sizeof(mesh)];
  mesh *there = new (room) mesh;
  assert_ptr_equal(there, room);
  there->~mesh();
  assert_true(throws([&] { (void)new (room) mesh(true); }));
  std::vector<plain_mesh> in_a_vector(10);
  assert_int_equal(in_a_vector[9].number, 7);
  assert_int_equal(live_under("scene.mesh"), 0);
}

struct shader {
  explicit shader(bool fails = false) {
    if (fails) throw std::runtime_error("no shader");
  }
  virtual ~shader() = default;
  int number = 3;
};

struct other_base {
  virtual ~other_base() = default;
  long words[4] = {};
};

struct both : other_base, shader {};

struct alignas(128) wide_shader {
  explicit wide_shader(bool fails) {
    if (fails) throw std::runtime_error("no shader");
  }
  char bytes[200] = {};
};

void an_expression_goes_before_the_tag_of_a_class(void **) {
  auto one = new (loam::at("scene.other")) mesh;
  auto wide = new (loam::at("scene.other")) wide_mesh;
  assert_string_equal(tag_of(one), "scene.other");
  assert_true(is_aligned(wide));
  assert_true(throws([] { (void)new (loam::at("scene.other")) mesh(true); }));
  assert_true(throws([] { (void)new (loam::at("scene.other")) wide_mesh(true); }));
  assert_int_equal(live_under("scene.other"), 2);
  delete one;
  loam::destroy(wide);
  assert_int_equal(live_under("scene.other"), 0);
  assert_int_equal(live_under("scene.mesh"), 0);
}

void an_expression_names_its_site(void **) {
  {
    std::unique_ptr<shader, loam::deleter> one(new (loam::at("scene.shader")) shader);
    std::unique_ptr<const int, loam::deleter> number(
        new (loam::at(LOAM_SITE("scene.shader"))) int(4));
    auto wide = new (loam::at("scene.shader")) wide_shader(false);
    assert_string_equal(tag_of(one.get()), "scene.shader");
    assert_string_equal(tag_of(number.get()), "scene.shader");
    assert_true(is_aligned(wide));
    assert_int_equal(live_under("scene.shader"), 3);
    loam::destroy(wide);
  }
  shader *second_base = new (loam::at("scene.shader")) both;
  loam::destroy(second_base);
  const shader *constant = new (loam::at("scene.shader")) both;
  loam::destroy(constant);
  loam::destroy(static_cast<shader *>(nullptr));
  assert_int_equal(live_under("scene.shader"), 0);
  assert_true(throws([] { (void)new (loam::at("scene.shader")) shader(true); }));
  assert_true(throws([] { (void)new (loam::at("scene.shader")) wide_shader(true); }));
  assert_int_equal(live_under("scene.shader"), 0);
}

struct giant : loam::tagged_by<mesh_tag> {
  char bytes[std::size_t(1) << 60];
};

int handler_calls = 0;

void give_up_at_the_third_call() {
  if (++handler_calls == 3) std::set_new_handler(nullptr);
}

void what_cannot_be_allocated_throws_or_is_null(void **) {
  assert_null(giant::operator new(sizeof(giant), std::nothrow));
  assert_null(giant::operator new[](sizeof(giant), std::nothrow));
  std::set_new_handler(give_up_at_the_third_call);
  bool thrown = false;
  try {
    giant::operator delete(giant::operator new(sizeof(giant)), sizeof(giant));
  } catch (const std::bad_alloc &) {
    thrown = true;
  }
  assert_true(thrown);
  assert_int_equal(handler_calls, 3);
}

struct long_tag {
  static constexpr const char *tag =
      "................................................................"
      "................................................................"
      "................................................................"
      "................................................................x";
};

struct misnamed : loam::tagged_by<long_tag> {
  int number = 0;
};

void a_tag_that_is_not_valid_is_an_error(void **) {
  assert_true(throws([] { delete new misnamed; }));
  assert_null(new (std::nothrow) misnamed);
}

struct base_without_virtual : loam::tagged_by<mesh_tag> {
  int number = 0;
};

struct much_larger : base_without_virtual {
  char bytes[4000] = {};
};

void a_wrong_size_is_reported(void **) {
  wrong_frees = 0;
  base_without_virtual *object = new much_larger;
  delete object;
  assert_int_equal(wrong_frees, 1);
  assert_int_equal(live_under("scene.mesh"), 0);
  wrong_frees = 0;
}

#if defined(__cpp_nontype_template_args) && __cpp_nontype_template_args >= 201911L
struct light : loam::tagged<"scene.light"> {
  int number = 5;
};
struct lamp : loam::tagged<"scene.lamp"> {
  int number = 5;
};
static_assert(sizeof(light) == sizeof(int));

void a_tag_is_a_literal(void **) {
  auto one = std::make_unique<light>();
  auto other = std::make_unique<lamp>();
  assert_string_equal(tag_of(one.get()), "scene.light");
  assert_string_equal(tag_of(other.get()), "scene.lamp");
}
#else
void a_tag_is_a_literal(void **) { skip(); }
#endif

#if defined(__cpp_impl_coroutine) && defined(__cpp_lib_coroutine)
/* The promise type is the one that loam.hpp shows. */
struct task {
  struct promise_type : loam::tagged<"query.task"> {
    static void *operator new(std::size_t size) { return tagged::operator new(size); }
    static void operator delete(void *ptr, std::size_t size) noexcept {
      loam_free_sized(ptr, size);
    }
    task get_return_object() {
      return { std::coroutine_handle<promise_type>::from_promise(*this) };
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
  std::coroutine_handle<promise_type> handle;
};

task increment(int *number) {
  ++*number;
  co_return;
}

void a_frame_of_a_coroutine_has_a_tag(void **) {
  int numbers[100] = { 41 };
  task one = increment(numbers);
  assert_string_equal(tag_of(one.handle.address()), "query.task");
  one.handle.resume();
  assert_int_equal(numbers[0], 42);
  one.handle.destroy();
  assert_int_equal(live_under("query.task"), 0);
}
#else
void a_frame_of_a_coroutine_has_a_tag(void **) { skip(); }
#endif

} // namespace

int main() {
  setenv("LOAM_CONTROL", "0", 1);
  loam_on_event(on_event, nullptr);
  const CMUnitTest tests[] = {
    cmocka_unit_test(a_class_allocates_for_its_tag),
    cmocka_unit_test(an_aligned_class_keeps_its_alignment),
    cmocka_unit_test(a_constructor_that_throws_leaves_no_memory),
    cmocka_unit_test(an_object_can_be_made_at_a_place),
    cmocka_unit_test(an_expression_names_its_site),
    cmocka_unit_test(an_expression_goes_before_the_tag_of_a_class),
    cmocka_unit_test(what_cannot_be_allocated_throws_or_is_null),
    cmocka_unit_test(a_tag_that_is_not_valid_is_an_error),
    cmocka_unit_test(a_wrong_size_is_reported),
    cmocka_unit_test(a_tag_is_a_literal),
    cmocka_unit_test(a_frame_of_a_coroutine_has_a_tag),
  };
  int failed = cmocka_run_group_tests_name("cxx_new", tests, nullptr, nullptr);
  return failed || wrong_frees;
}
