/* throw.c - C++ exceptions, thrown from C: for a C++ host it is the only way to learn why there was
 * no memory.
 *
 * A library for all versions of PyTorch cannot be linked with one of them. So PyTorch's exception
 * is made in the way of PyTorch's own code: with its constructor, its type and its table of virtual
 * functions. Each is found by a mangled name, which contains the whole signature; so a function
 * with another signature is not found. */
#include "throw.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Larger than any c10::Error was so far: some 150 bytes. */
enum { ERROR_SIZE = 1024, LOCAL = 16 };

/* std::string of libstdc++; `local` holds short strings. */
typedef struct text {
  char *data;
  size_t length;
  char local[LOCAL];
} text;

typedef struct place { /* c10::SourceLocation */
  const char *function, *file;
  uint32_t line;
} place;

static struct {
  void *(*make)(size_t size);
  void (*construct)(void *error, place at, text *words);
  void (*raise)(void *error, void *type, void (*destroy)(void *error));
  void *(*allocate)(size_t size);
  void (*release)(void *data);
  void *type;
  void **table; /* two words, then the destructor and the virtual functions */
} torch;        /* `table` is set last, if all of the others were found */

void throw_learn(const char *library) {
  void *from = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (!from) return;
  *(void **)&torch.make = dlsym(from, "__cxa_allocate_exception");
  *(void **)&torch.raise = dlsym(from, "__cxa_throw");
  *(void **)&torch.allocate = dlsym(from, "_Znwm");
  *(void **)&torch.release = dlsym(from, "_ZdlPv");
  *(void **)&torch.construct = dlsym(from,
                                     "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_string"
                                     "IcSt11char_traitsIcESaIcEEE");
  torch.type = dlsym(from, "_ZTIN3c1016OutOfMemoryErrorE");
  if (torch.make && torch.raise && torch.allocate && torch.release && torch.construct && torch.type)
    torch.table = dlsym(from, "_ZTVN3c1016OutOfMemoryErrorE");
}

static void throw_torch(const char *words) {
  text message = { .data = message.local, .length = strlen(words) };
  if (message.length >= LOCAL) {
    message.data = torch.allocate(message.length + 1);
    memcpy(message.local, &message.length, sizeof message.length); /* the string's capacity */
  }
  memcpy(message.data, words, message.length + 1);
  void *error = torch.make(ERROR_SIZE);
  torch.construct(error, (place){ "loam_torch_alloc", "loam", 0 }, &message);
  if (message.data != message.local) torch.release(message.data); /* it was copied, not moved */
  void (*destroy)(void *error);
  memcpy(&destroy, &torch.table[2], sizeof destroy);
  *(void **)error = &torch.table[2];
  torch.raise(error, torch.type, destroy);
}

void throw_out_of_memory(const char *words) {
  if (torch.table) throw_torch(words);
  void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void (*throw)(const char *) = NULL;
  if (library) *(void **)&throw = dlsym(library, "_ZSt21__throw_runtime_errorPKc");
  if (throw) throw(words);
}
