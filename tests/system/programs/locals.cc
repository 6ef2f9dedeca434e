// locals.cc - thread_local C++ objects whose destructors free and allocate. The threads end at
// once, are detached, or, for the main thread, end after main.
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "expect.h"

static std::atomic<int> made, ended;

struct Cache {
  std::map<int, std::string> names;
  std::vector<char *> blocks;
  Cache() { made++; }
  ~Cache() {
    for (char *p : blocks) free(p);
    names.clear();
    std::string last(5000, 'x');
    free(kept(malloc(last.size() * 100)));
    ended++;
  }
};

static thread_local Cache cache;
static thread_local std::string name = "a name that is too long to stand in the string itself";

static void use(int n) {
  for (int i = 0; i < 20; i++) {
    cache.names[i] = name + std::to_string(n);
    void *block = kept(malloc(static_cast<std::size_t>(i * n % 70000)));
    cache.blocks.push_back(static_cast<char *>(block));
  }
}

int main() {
  for (int round = 0; round < 60; round++) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) threads.emplace_back(use, round * 8 + i);
    for (auto &thread : threads) thread.join();
  }
  expect(made == 480 && ended == 480);
  std::thread(use, 1).detach();
  while (ended < 481) std::this_thread::yield();
  use(2); // the main thread's objects are destroyed after main
  std::puts("locals: as it must be");
}
