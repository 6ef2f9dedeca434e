/* misuse.c - small programs that misuse memory, to see what an allocator does about it.
 *
 *   misuse          lists the cases, one in each line: class, tab, name
 *   misuse NAME     runs the case
 *
 * A case does something wrong, frees the damaged blocks, and then prints "went on". If the program
 * ends earlier, or a message comes earlier, the allocator has found the misuse. Then the program
 * allocates, fills and frees more blocks, as any program does, and prints "end"; it prints "spoilt"
 * if a block was given out twice or lost its contents. A request that can only be refused prints
 * "refused" if it is. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "expect.h"

enum { KiB = 1024, MiB = 1048576, PAGE = 4096, HELD_MAX = 8192, EDGE = 32, SIZES = 8 };

/* Cases that differ only in the size of the block. `act` says what `at` is: mostly an offset in the
 * block. */
typedef struct family {
  const char *class, *name;
  void (*act)(const struct family *f, size_t size);
  ptrdiff_t at;
  size_t size[SIZES];
} family;

static void say(const char *word) {
  if (write(STDOUT_FILENO, word, strlen(word)) < 0) _exit(4);
}

/* ---- Blocks whose contents show whether foreign code wrote to them */

static struct {
  unsigned char *p;
  size_t size;
  unsigned char byte;
} held[HELD_MAX];
static int held_n;

static size_t edge_of(size_t size) { return size < EDGE ? size : EDGE; }

static unsigned char *hold(size_t size) {
  unsigned char *p = kept(malloc(size)), byte = (unsigned char)(held_n * 7 + 1);
  expect(p && held_n < HELD_MAX);
  memset(p, byte, edge_of(size));
  memset(p + size - edge_of(size), byte, edge_of(size));
  held[held_n].p = p;
  held[held_n].size = size;
  held[held_n++].byte = byte;
  return p;
}

static int is_whole(int i) {
  size_t edge = edge_of(held[i].size);
  const unsigned char *first = held[i].p, *last = first + held[i].size - edge;
  for (size_t at = 0; at < edge; at++)
    if (first[at] != held[i].byte || last[at] != held[i].byte) return 0;
  return 1;
}

static void hold_some(size_t size) {
  for (int i = 0; i < 8; i++) hold(size);
}

/* Returns a block that was allocated between other blocks of its size. */
static char *block_of(size_t size) {
  hold_some(size);
  char *p = kept(malloc(size));
  expect(p);
  hold_some(size);
  memset(p, 'b', edge_of(size));
  return p;
}

static _Noreturn void go_on(size_t size) {
  int whole = 1;
  say("went on\n");
  for (int i = size > MiB ? 6 : 60; i > 0; i--) hold(size), hold(48), hold(size / 2 + 1);
  for (int i = 0; i < held_n; i++) whole &= is_whole(i);
  for (int i = 0; i < held_n; i++) free(held[i].p);
  free(kept(malloc(100)));
  say(whole ? "end\n" : "spoilt\n");
  _exit(whole ? 0 : 3);
}

/* ---- Double frees */

static void twice(const family *f, size_t size) {
  (void)f;
  char *p = block_of(size);
  free(p);
  free(kept(p));
}

/* Frees `at` blocks, and then one of them again; other blocks were freed before it and after it. */
static void twice_among(const family *f, size_t size) {
  void *p[4000];
  for (int i = 0; i < f->at; i++) p[i] = kept(malloc(size));
  for (int i = 0; i < f->at; i++) free(p[i]);
  free(kept(p[f->at / 2]));
}

/* If q has the place of p, free(p) frees q's block, and free(q) is the double free. If not, free(p)
 * is the double free. */
static void twice_reused(const family *f, size_t size) {
  (void)f;
  char *p = block_of(size);
  free(p);
  char *q = kept(malloc(size));
  free(kept(p));
  free(kept(q));
}

/* Frees p again after another block may have taken its place. If one did, the allocator cannot know
 * that this free is wrong. */
static void taken(const family *f, size_t size) {
  (void)f;
  char *p = block_of(size);
  free(p);
  hold(size);
  free(kept(p));
}

static sem_t asked, done;
static char *handed;

static void *free_handed(void *unused) {
  (void)unused;
  sem_wait(&asked);
  free(kept(handed));
  sem_post(&done);
  pause();
  return NULL;
}

/* Frees `p` in each of `n` threads, which start_threads started before. */
static void free_in_threads(char *p, int n) {
  handed = p;
  for (int i = 0; i < n; i++) {
    sem_post(&asked);
    sem_wait(&done);
  }
}

static void start_threads(int n) {
  pthread_t thread;
  expect(!sem_init(&asked, 0, 0) && !sem_init(&done, 0, 0));
  while (n--) expect(!pthread_create(&thread, NULL, free_handed, NULL));
}

static void twice_in_thread(const family *f, size_t size) {
  (void)f;
  start_threads(1);
  char *p = block_of(size);
  free(p);
  free_in_threads(p, 1);
}

static void twice_in_two_threads(const family *f, size_t size) {
  (void)f;
  start_threads(2);
  free_in_threads(block_of(size), 2);
}

static void twice_zeroed(const family *f, size_t size) {
  (void)f;
  char *p = kept(calloc(1, size));
  free(p);
  free(kept(p));
}

static void twice_aligned(const family *f, size_t size) {
  char *p = kept(aligned_alloc((size_t)f->at, size));
  expect(p);
  free(p);
  free(kept(p));
}

/* realloc may have moved the block. If it did, free(p) is wrong; if it did not, free(q) is. */
static void old_and_new(const family *f, size_t size) {
  (void)f;
  char *p = block_of(size), *q = kept(realloc(kept(p), size * 16));
  expect(q);
  free(kept(p));
  free(kept(q));
}

static char *dead;
static size_t dead_size;

static void free_at_exit(void) {
  free(kept(dead));
  go_on(dead_size);
}

static void twice_at_exit(const family *f, size_t size) {
  (void)f;
  dead = block_of(size);
  dead_size = size;
  free(dead);
  expect(!atexit(free_at_exit));
  exit(0);
}

static void free_in_destructor(void *p) { free(kept(p)); }

static void *end_with(void *p) {
  pthread_key_t key;
  expect(!pthread_key_create(&key, free_in_destructor));
  expect(!pthread_setspecific(key, p));
  free(kept(p));
  return NULL;
}

static void twice_in_destructor(const family *f, size_t size) {
  (void)f;
  pthread_t thread;
  expect(!pthread_create(&thread, NULL, end_with, block_of(size)));
  expect(!pthread_join(thread, NULL));
}

static void realloc_freed(const family *f, size_t size) {
  char *p = block_of(size);
  free(p);
  kept(realloc(kept(p), size * (size_t)f->at));
}

/* ---- Pointers that are not the start of a block */

static void inside(const family *f, size_t size) { free(kept(block_of(size) + f->at)); }

static void end_of(const family *f, size_t size) {
  (void)f;
  free(kept(block_of(size) + size));
}

static void realloc_inside(const family *f, size_t size) {
  kept(realloc(kept(block_of(size) + f->at), size));
}

static void aligned_inside(const family *f, size_t size) {
  free(kept((char *)kept(aligned_alloc(PAGE, size)) + f->at));
}

/* If f->at is 1, writes words that look like the headers of small blocks of glibc's malloc. */
static void forge(uintptr_t *words, const family *f) {
  for (int i = 0; f->at == 1 && i < 64; i++) words[i] = i % 8 == 1 ? 0x41 : 0;
}

static void stack(const family *f, size_t size) {
  uintptr_t words[64] __attribute__((aligned(16))) = { 0 };
  (void)size;
  forge(kept(words), f);
  free(kept((char *)words + (f->at == 1 ? 16 : f->at)));
}

static void *lend_stack(void *unused) {
  char here[64] __attribute__((aligned(16)));
  (void)unused;
  handed = kept(here);
  sem_post(&done);
  pause();
  return NULL;
}

static void others_stack(const family *f, size_t size) {
  pthread_t thread;
  (void)f;
  (void)size;
  expect(!sem_init(&done, 0, 0));
  expect(!pthread_create(&thread, NULL, lend_stack, NULL));
  sem_wait(&done);
  free(kept(handed));
}

static void own_threads_stack(const family *f, size_t size) {
  pthread_t thread;
  (void)size;
  expect(!pthread_create(&thread, NULL, (void *(*)(void *))(void (*)(void))stack, (void *)f));
  expect(!pthread_join(thread, NULL));
}

static void realloc_stack(const family *f, size_t size) {
  uintptr_t words[64] __attribute__((aligned(16))) = { 0 };
  (void)f;
  kept(realloc(kept(words), size));
}

extern char **environ;

static void environment(const family *f, size_t size) {
  (void)f;
  (void)size;
  free(kept(environ[0]));
}

static uintptr_t data[64] __attribute__((aligned(16))) = { 1 }, zeros[64];
static _Thread_local uintptr_t of_thread[64] __attribute__((aligned(16)));

static void static_data(const family *f, size_t size) {
  (void)size;
  forge(data, f);
  free(kept((char *)data + 16));
}

static void static_zeros(const family *f, size_t size) {
  (void)f;
  (void)size;
  free(kept((char *)zeros + 16));
}

static void literal(const family *f, size_t size) {
  (void)f;
  (void)size;
  free(kept((void *)(uintptr_t) "a string that nobody allocated"));
}

static void code(const family *f, size_t size) {
  (void)f;
  (void)size;
  free(kept((void *)(uintptr_t)literal));
}

static void thread_local_data(const family *f, size_t size) {
  (void)f;
  (void)size;
  free(kept(of_thread + 2));
}

static void realloc_static(const family *f, size_t size) {
  (void)f;
  kept(realloc(kept(data), size));
}

static void mapped(const family *f, size_t size) {
  char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(p != MAP_FAILED);
  free(kept(p + f->at));
}

static void unmapped(const family *f, size_t size) {
  char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(p != MAP_FAILED && !munmap(p, size));
  free(kept(p + f->at));
}

static void no_access(const family *f, size_t size) {
  char *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(p != MAP_FAILED);
  free(kept(p + f->at));
}

/* Frees an address far from a block, where the allocator may have other blocks or reserved
 * space. */
static void far_from(const family *f, size_t size) { free(kept((char *)malloc(size) + f->at)); }

static void number(const family *f, size_t size) {
  (void)f;
  free(kept((void *)size));
}

static void of_kernel(const family *f, size_t size) {
  (void)size;
  uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
  free(kept((void *)(vdso + (uintptr_t)f->at)));
}

/* ---- Sizes */

/* Calls C++'s sized delete by its mangled name. `at` is the size that is passed, which is wrong. */
static void sized(const family *f, size_t size) {
  void (*sized_delete)(void *, size_t) = NULL;
  if (!dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL)) _exit(77);
  void *found = dlsym(RTLD_DEFAULT, "_ZdlPvm");
  expect(found);
  memcpy(&sized_delete, &found, sizeof found);
  sized_delete(block_of(size), (size_t)f->at);
}

static void refused_or(void *p) {
  if (!kept(p)) say("refused\n");
}

static void product(const family *f, size_t size) { refused_or(calloc((size_t)f->at, size)); }

static void array(const family *f, size_t size) {
  refused_or(reallocarray(NULL, (size_t)f->at, size));
}

static void too_much(const family *f, size_t size) {
  (void)f;
  refused_or(malloc(size));
}

static void too_much_aligned(const family *f, size_t size) {
  refused_or(aligned_alloc((size_t)f->at, size));
}

static void grown_too_much(const family *f, size_t size) {
  (void)f;
  refused_or(realloc(block_of(100), size));
}

/* ---- Writes and reads beyond a block or in a freed block */

/* Writes `at` bytes from the end of the block on. */
static void write_past(const family *f, size_t size) {
  char *p = block_of(size);
  memset((char *)kept(p) + size, 'x', (size_t)f->at);
  free(kept(p));
}

/* Writes the `at` bytes before the block. */
static void write_before(const family *f, size_t size) {
  char *p = block_of(size);
  memset((char *)kept(p) - f->at, 'x', (size_t)f->at);
  free(kept(p));
}

/* Writes into a block of size 0, `at` bytes after its start. */
static void write_empty(const family *f, size_t size) {
  (void)size;
  char *p = malloc(0);
  memset((char *)kept(p) + f->at, 'x', 1);
  free(kept(p));
}

static volatile char seen;

static void read_past(const family *f, size_t size) {
  char *p = block_of(size);
  seen = ((volatile char *)kept(p))[size + (size_t)f->at - 1];
  free(kept(p));
}

static void write_freed(const family *f, size_t size) {
  char *p = block_of(size);
  free(p);
  memset((char *)kept(p) + f->at, 'x', 16);
}

static void read_freed(const family *f, size_t size) {
  char *p = block_of(size);
  free(p);
  seen = ((volatile char *)kept(p))[f->at];
}

/* ---- The cases */

#define DOUBLE "double free"
#define FREED "realloc of freed"
#define INTERIOR "inside a block"
#define STACK "stack"
#define STATIC "static"
#define FOREIGN "nobody's memory"
#define SIZED "wrong size"
#define HUGE_SIZE "impossible size"
#define PAST "overflow"
#define BEFORE "underflow"
#define READ "over-read"
#define AFTER "use after free"
#define NONE \
  { 1 }

static const family families[] = {
  { DOUBLE, "twice", twice, 0, { 16, 100, 1000, 5000, 40000, 200000, MiB, 8 * MiB } },
  { DOUBLE, "among", twice_among, 100, { 16, 100, 1000, 5000, 40000, MiB } },
  { DOUBLE, "of-many", twice_among, 4000, { 16, 1000, 40000 } },
  { DOUBLE, "reused", twice_reused, 0, { 16, 1000, 40000, MiB } },
  { DOUBLE, "taken", taken, 0, { 16, 40000, MiB } },
  { DOUBLE, "in-thread", twice_in_thread, 0, { 16, 1000, 40000, MiB } },
  { DOUBLE, "in-two-threads", twice_in_two_threads, 0, { 16, 1000, 40000, 8 * MiB } },
  { DOUBLE, "zeroed", twice_zeroed, 0, { 100, MiB } },
  { DOUBLE, "aligned", twice_aligned, PAGE, { 100, 5000, MiB } },
  { DOUBLE, "old-and-new", old_and_new, 0, { 100, 5000, MiB } },
  { DOUBLE, "at-exit", twice_at_exit, 0, { 100, MiB } },
  { DOUBLE, "in-destructor", twice_in_destructor, 0, { 100 } },
  { FREED, "realloc-freed", realloc_freed, 2, { 16, 100, 5000, 40000, MiB, 8 * MiB } },
  { INTERIOR, "inside-1", inside, 1, { 100 } },
  { INTERIOR, "inside-8", inside, 8, { 100 } },
  { INTERIOR, "inside-16", inside, 16, { 100, 1000 } },
  { INTERIOR, "inside-4096", inside, PAGE, { 40000, MiB } },
  { INTERIOR, "inside-65536", inside, 64 * KiB, { 8 * MiB } },
  { INTERIOR, "before", inside, -16, { 100, MiB } },
  { INTERIOR, "end", end_of, 0, { 1000, MiB } },
  { INTERIOR, "realloc-inside", realloc_inside, 16, { 100, MiB } },
  { INTERIOR, "aligned-inside", aligned_inside, 64, { 5000 } },
  { STACK, "stack", stack, 0, NONE },
  { STACK, "stack-odd", stack, 7, NONE },
  { STACK, "stack-forged", stack, 1, NONE },
  { STACK, "stack-of-a-thread", own_threads_stack, 0, NONE },
  { STACK, "stack-of-another", others_stack, 0, NONE },
  { STACK, "realloc-stack", realloc_stack, 0, { 1000 } },
  { STACK, "environment", environment, 0, NONE },
  { STATIC, "data", static_data, 0, NONE },
  { STATIC, "data-forged", static_data, 1, NONE },
  { STATIC, "zeros", static_zeros, 0, NONE },
  { STATIC, "literal", literal, 0, NONE },
  { STATIC, "code", code, 0, NONE },
  { STATIC, "thread-local", thread_local_data, 0, NONE },
  { STATIC, "realloc-static", realloc_static, 0, { 1000 } },
  { FOREIGN, "mapped", mapped, 0, { 16 * PAGE } },
  { FOREIGN, "mapped-inside", mapped, PAGE + 16, { 16 * PAGE } },
  { FOREIGN, "unmapped", unmapped, PAGE, { 16 * PAGE } },
  { FOREIGN, "no-access", no_access, PAGE, { 16 * PAGE } },
  { FOREIGN, "far-from", far_from, (ptrdiff_t)64 << 30, { 100, MiB } },
  { FOREIGN, "number", number, 0, { 16, 1000 } },
  { FOREIGN, "of-the-kernel", of_kernel, 64, NONE },
  { SIZED, "sized-more", sized, 5000, { 100 } },
  { SIZED, "sized-much-more", sized, MiB, { 100, 40000 } },
  { SIZED, "sized-less", sized, 16, { 5000, MiB } },
  { HUGE_SIZE, "product", product, 2, { SIZE_MAX / 2 + 9, SIZE_MAX } },
  { HUGE_SIZE, "array", array, 16, { SIZE_MAX / 16 + 2 } },
  { HUGE_SIZE, "too-much", too_much, 0, { SIZE_MAX - 8 } },
  { HUGE_SIZE, "too-much-aligned", too_much_aligned, 64, { SIZE_MAX - 63 } },
  { HUGE_SIZE, "grown-too-much", grown_too_much, 0, { SIZE_MAX - 8 } },
  { PAST, "past-1", write_past, 1, { 16, 100, 1000, 4096, 40000, MiB } },
  { PAST, "past-8", write_past, 8, { 16, 100, 1000, 4096, 40000, MiB } },
  { PAST, "past-page", write_past, PAGE, { 16, 100, 1000, 4096, 40000, MiB } },
  { PAST, "past-empty", write_empty, 0, NONE },
  { PAST, "past-empty-by-8", write_empty, 8, NONE },
  { BEFORE, "before-1", write_before, 1, { 100, 4096, MiB } },
  { BEFORE, "before-8", write_before, 8, { 100, 4096, MiB } },
  { BEFORE, "before-page", write_before, PAGE, { 100, 4096, MiB } },
  { READ, "read-past-1", read_past, 1, { 100, 4096, MiB } },
  { READ, "read-past-page", read_past, PAGE, { 100, 4096, MiB } },
  { AFTER, "write-freed", write_freed, 0, { 16, 100, 1000, 40000, MiB, 8 * MiB } },
  { AFTER, "read-freed", read_freed, 0, { 16, 100, 1000, 40000, MiB, 8 * MiB } },
};

static const char *name_of(const family *f, int i) {
  static char name[64];
  if (!f->size[1]) return f->name;
  snprintf(name, sizeof name, "%s-%zu", f->name, f->size[i]);
  return name;
}

static void list(void) {
  for (size_t n = 0; n < sizeof families / sizeof *families; n++)
    for (int i = 0; i < SIZES && families[n].size[i]; i++)
      printf("%s\t%s\n", families[n].class, name_of(&families[n], i));
}

static void run(const char *name) {
  for (size_t n = 0; n < sizeof families / sizeof *families; n++)
    for (int i = 0; i < SIZES && families[n].size[i]; i++) {
      const family *f = &families[n];
      if (strcmp(name, name_of(f, i))) continue;
      f->act(f, f->size[i]);
      go_on(f->size[i] > 8 * MiB || f->size[i] < 16 ? 100 : f->size[i]);
    }
}

int main(int argc, char **argv) {
  if (argc == 1) return list(), 0;
  setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
  alarm(20);
  run(argv[1]);
  fprintf(stderr, "misuse: no case \"%s\"; without a name it lists them\n", argv[1]);
  return 2;
}
