/* deep.c - opens a library with RTLD_DEEPBIND; the library frees memory of the program. The library
 * then opens another library, which only its RUNPATH leads to. PART selects what this file becomes:
 * the program (0), the library (1), or the library that the library opens (2). */
#include <dlfcn.h>
#include <string.h>

#include "expect.h"

#if PART == 2

char *inner_word(void);
char *inner_word(void) { return strdup("inner"); }

#elif PART == 1

void outer_free(void *block);
void outer_free(void *block) { free(block); }

char *outer_make(void);
char *outer_make(void) {
  void *inner = dlopen("libdeep_inner.so", RTLD_NOW | RTLD_DEEPBIND);
  if (!inner) return NULL;
  char *(*word)(void) = (char *(*)(void))dlsym(inner, "inner_word");
  return word ? word() : NULL;
}

#else

int main(int argc, char **argv) {
  expect(argc == 3);
  for (int i = 0; i < 2; i++) {
    void *outer = i ? dlmopen(LM_ID_BASE, argv[2], RTLD_NOW | RTLD_DEEPBIND)
                    : dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
    expect(outer);
    void (*release)(void *) = (void (*)(void *))dlsym(outer, "outer_free");
    char *(*make)(void) = (char *(*)(void))dlsym(outer, "outer_make");
    expect(release && make);
    release(malloc(100));
    char *word = make();
    expect(word && !strcmp(word, "inner"));
    free(word);
  }
  expect(!dlopen("libdeep_inner.so.9", RTLD_NOW)); /* the program has no RUNPATH */
  puts("deep: as it must be");
  return 0;
}

#endif
