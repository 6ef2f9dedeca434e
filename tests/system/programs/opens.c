/* opens.c - allocates while it opens and closes a library. The library's constructor waits for a
 * thread that allocates from code that loam has not seen before. If that allocation took the
 * loader's lock, the program would hang. */
#include <dlfcn.h>
#include <string.h>

#include "expect.h"

int main(int argc, char **argv) {
  expect(argc == 2);
  alarm(30);
  for (int i = 0; i < 50; i++) {
    void *plugin = dlopen(argv[1], i % 2 ? RTLD_NOW : RTLD_LAZY);
    expect(plugin);
    char *(*make)(size_t) = (char *(*)(size_t))dlsym(plugin, "plugin_make");
    expect(make);
    char *block = make(1000 + i);
    expect(block && strlen(block) == 999 + (size_t)i);
    expect(!dlclose(plugin));
    block = realloc(block, 5000); /* the block outlives the library that allocated it */
    expect(block && block[998] == 'x');
    free(block);
  }
  expect(!dlopen("/nonexistent/library.so", RTLD_NOW));
  expect(strstr(dlerror(), "/nonexistent/library.so"));
  puts("opens: as it must be");
  return 0;
}
