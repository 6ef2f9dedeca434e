// deletes.cc - every form of new with every form of delete, with right and wrong sizes.
//
//   deletes          all pairs that C++ allows, with the size of the request; prints their number
//   deletes list     prints the pairs whose delete takes a size, one in each line: NEW DELETE
//   deletes NEW DELETE SIZE   allocates 100 bytes with NEW, and frees them with DELETE and SIZE
#include <cstdlib>
#include <cstring>
#include <new>

#include "expect.h"

enum { REQUEST = 100, WIDE = 64 };
static constexpr std::align_val_t wide{ WIDE };

// A form of new or delete: its name, whether it is for arrays, whether it takes an alignment, for
// delete whether it takes a size, and a function that calls it.
typedef void *(*make)(std::size_t size);
typedef void (*end)(void *p, std::size_t size);
struct form_of_new {
  const char *name;
  bool array, aligned;
  make call;
};
struct form_of_delete {
  const char *name;
  bool array, aligned, sized;
  end call;
};

static const form_of_new news[] = {
  { "new", false, false, [](std::size_t n) { return operator new(n); } },
  { "new-nothrow", false, false, [](std::size_t n) { return operator new(n, std::nothrow); } },
  { "new-aligned", false, true, [](std::size_t n) { return operator new(n, wide); } },
  { "new-aligned-nothrow", false, true,
    [](std::size_t n) { return operator new(n, wide, std::nothrow); } },
  { "new[]", true, false, [](std::size_t n) { return operator new[](n); } },
  { "new[]-nothrow", true, false, [](std::size_t n) { return operator new[](n, std::nothrow); } },
  { "new[]-aligned", true, true, [](std::size_t n) { return operator new[](n, wide); } },
  { "new[]-aligned-nothrow", true, true,
    [](std::size_t n) { return operator new[](n, wide, std::nothrow); } },
};

static const form_of_delete deletes[] = {
  { "delete", false, false, false, [](void *p, std::size_t) { operator delete(p); } },
  { "delete-sized", false, false, true, [](void *p, std::size_t n) { operator delete(p, n); } },
  { "delete-nothrow", false, false, false,
    [](void *p, std::size_t) { operator delete(p, std::nothrow); } },
  { "delete-aligned", false, true, false, [](void *p, std::size_t) { operator delete(p, wide); } },
  { "delete-aligned-sized", false, true, true,
    [](void *p, std::size_t n) { operator delete(p, n, wide); } },
  { "delete-aligned-nothrow", false, true, false,
    [](void *p, std::size_t) { operator delete(p, wide, std::nothrow); } },
  { "delete[]", true, false, false, [](void *p, std::size_t) { operator delete[](p); } },
  { "delete[]-sized", true, false, true, [](void *p, std::size_t n) { operator delete[](p, n); } },
  { "delete[]-nothrow", true, false, false,
    [](void *p, std::size_t) { operator delete[](p, std::nothrow); } },
  { "delete[]-aligned", true, true, false,
    [](void *p, std::size_t) { operator delete[](p, wide); } },
  { "delete[]-aligned-sized", true, true, true,
    [](void *p, std::size_t n) { operator delete[](p, n, wide); } },
  { "delete[]-aligned-nothrow", true, true, false,
    [](void *p, std::size_t) { operator delete[](p, wide, std::nothrow); } },
};

static bool is_pair(const form_of_new &n, const form_of_delete &d) {
  return n.array == d.array && n.aligned == d.aligned;
}

static void pass(const form_of_new &n, const form_of_delete &d, std::size_t size) {
  void *p = kept(n.call(REQUEST));
  expect(p);
  std::memset(p, 1, REQUEST);
  d.call(p, size);
}

int main(int argc, char **argv) {
  int pairs = 0;
  for (const form_of_new &n : news)
    for (const form_of_delete &d : deletes) {
      if (!is_pair(n, d)) continue;
      if (argc == 1) pass(n, d, REQUEST);
      if (argc == 2 && d.sized) printf("%s %s\n", n.name, d.name);
      if (argc == 4 && !std::strcmp(argv[1], n.name) && !std::strcmp(argv[2], d.name))
        pass(n, d, std::strtoul(argv[3], nullptr, 10));
      pairs++;
    }
  if (argc != 2) printf("went on, %d pairs\n", pairs);
}
