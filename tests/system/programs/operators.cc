// operators.cc - every form of new and delete, the new_handler, and the exceptions of new.
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "expect.h"

struct alignas(256) Wide {
  char bytes[300];
};

static bool is_aligned(const void *p, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
}

static void plain_forms() {
  int *one = new int(7);
  int *many = new int[1000]();
  expect(*one == 7 && many[999] == 0);
  delete one;
  delete[] many;
  void *p = kept(operator new(100));
  operator delete(p);
  p = kept(operator new(100));
  operator delete(p, std::size_t{100});
  p = kept(operator new[](100));
  operator delete[](p, std::size_t{100});
  p = kept(operator new(100, std::nothrow));
  operator delete(p, std::nothrow);
  p = kept(operator new[](100, std::nothrow));
  operator delete[](p, std::nothrow);
  p = kept(operator new(0));
  expect(p);
  operator delete(p);
}

static void aligned_forms() {
  auto *wide = new Wide;
  auto *wides = new Wide[5];
  expect(is_aligned(wide, 256) && is_aligned(wides, 256));
  delete wide;
  delete[] wides;
  for (std::size_t a = 1; a <= 1 << 16; a *= 2) {
    std::align_val_t alignment{a};
    void *p = kept(operator new(100, alignment));
    expect(is_aligned(p, a));
    operator delete(p, alignment);
    p = kept(operator new[](100, alignment, std::nothrow));
    expect(is_aligned(p, a));
    operator delete[](p, std::size_t{100}, alignment);
    p = kept(operator new(100, alignment, std::nothrow));
    operator delete(p, alignment, std::nothrow);
    p = kept(operator new[](100, alignment));
    operator delete[](p, alignment, std::nothrow);
  }
}

static int handled;
static void give_up() {
  if (++handled == 3) std::set_new_handler(nullptr);
}
static void throw_own() { throw std::bad_alloc(); }

template <typename F> static bool throws(F f) {
  try {
    kept(f());
  } catch (const std::bad_alloc &) {
    return true;
  }
  return false;
}

static void failing_forms() {
  const std::size_t all = SIZE_MAX / 2 - 100;
  const std::align_val_t page{4096};
  expect(throws([=] { return operator new(all); }));
  expect(throws([=] { return operator new[](all); }));
  expect(throws([=] { return operator new(all, page); }));
  expect(throws([=] { return operator new[](all, page); }));
  expect(!kept(operator new(all, std::nothrow)));
  expect(!kept(operator new[](all, page, std::nothrow)));
  std::set_new_handler(give_up);
  expect(throws([=] { return operator new(all); }));
  expect(handled == 3);
  std::set_new_handler(throw_own);
  expect(throws([=] { return operator new(all, page); }));
  expect(!kept(operator new(all, std::nothrow)));
  expect(!kept(operator new(all, page, std::nothrow)));
  std::set_new_handler(nullptr);
}

static void containers() {
  std::map<std::string, std::vector<int>> all;
  for (int i = 0; i < 20000; i++) all[std::to_string(i % 500) + " and some more text"].push_back(i);
  std::size_t sum = 0;
  for (auto &entry : all) sum += entry.second.size();
  expect(sum == 20000);
  auto shared = std::make_shared<std::string>(100000, 'x');
  std::thread other([shared] { expect(shared->size() == 100000); });
  shared.reset();
  other.join();
}

int main() {
  plain_forms();
  aligned_forms();
  failing_forms();
  containers();
  std::puts("operators: as it must be");
}
