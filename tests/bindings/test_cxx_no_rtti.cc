/* test_cxx_no_rtti.cc - bindings/cxx in a program without type information (-fno-rtti). */
#include <loam.hpp>

#include <csetjmp>
#include <cstdarg>
#include <memory>
#include <memory_resource>
#include <vector>

extern "C" {
#include <cmocka.h>
}

namespace {

/* A container copies when it is assigned from a container of another resource. Both then own
 * memory. */
void resources_serve_containers(void **) {
  loam::resource one("cxx.one"), two("cxx.two");
  std::pmr::vector<int> from({ 1, 2, 3 }, &one), to(&two);
  assert_true(one.is_equal(one));
  to = std::move(from);
  assert_true(to.size() == 3 && to[2] == 3);
  assert_string_equal(loam::owner(to.data())->tag, "cxx.two");
}

struct shape {
  virtual ~shape() = default;
};
struct name {
  virtual ~name() = default;
};
struct named_shape : name, shape {};

/* The pointer to the base class differs from the start of the block. */
void an_object_ends_by_its_base(void **) {
  shape *made = new (loam::at("cxx.shape")) named_shape;
  std::unique_ptr<shape, loam::deleter> kept(made);
  void *start = dynamic_cast<void *>(made);
  assert_ptr_not_equal(start, made);
  assert_ptr_equal(loam::owner(made)->base, start);
  kept.reset();
  assert_false(loam::owner(start).has_value());
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
    cmocka_unit_test(resources_serve_containers),
    cmocka_unit_test(an_object_ends_by_its_base),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
