/* test_unwind - a stack that is read from known sizes of frames is the stack that the unwinder of
 * the C library finds, also through functions whose frames vary in size. */
#include "test.h"

#include "os/unwind.h"

#include <alloca.h>
#include <execinfo.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { DEPTH = 24, STACKS = 20000 };

/* The address sanitizer's frames vary in their sizes, and keep what earlier calls have left. */
#ifdef __SANITIZE_ADDRESS__
enum { LEAVES_ADDRESSES = 1 };
#else
enum { LEAVES_ADDRESSES = 0 };
#endif

static lm_unwound seen;
static uint64_t seed = 7;
static unsigned compared, deepest;

static uint32_t below(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

/* Compares the frames outside of this function. `seen` has the addresses of calls, backtrace(3) the
 * return addresses behind them; the first two are in lm_unwind's caller and here. */
static LM_NOINLINE void compare(void) {
  static void *want[LM_UNWIND_FRAMES + 2]; /* not on the stack, where addresses would be left */
  (void)lm_unwind(&seen);
  int n = backtrace(want, LM_COUNT(want));
  uintptr_t caller = (uintptr_t)__builtin_return_address(0);
  uint32_t own = 0;
  int i = 0; /* where a sanitizer takes the place of backtrace(3), it has a frame more */
  while (own < seen.frames && seen.frame[own] + 1 != caller) own++;
  while (i < n && (uintptr_t)want[i] != caller) i++;
  assert_true(own < seen.frames && i < n);
  for (; i < n && own < seen.frames; i++, own++) {
    if (seen.frame[own] + 1 != (uintptr_t)want[i])
      fail_msg("frame %d is %#lx, and not %p", i, (long)seen.frame[own] + 1, want[i]);
    compared++;
  }
  assert_true(own == seen.frames);
  if (seen.frames > deepest) deepest = seen.frames;
}

static void descend(unsigned depth);

static LM_NOINLINE void plain(unsigned depth) {
  descend(depth - 1);
  __asm__ volatile("" ::: "memory"); /* no tail call */
}
static LM_NOINLINE void wide(unsigned depth) {
  char room[400];
  memset(room, (int)depth, sizeof room);
  __asm__ volatile("" ::"r"(room) : "memory");
  descend(depth - 1);
  __asm__ volatile("" ::"r"(room) : "memory");
}
/* Its frame varies in its size. It clears its room: return addresses that earlier calls have left
 * there could be taken for its own, as unwind.h says. */
static uint32_t (*choose_room)(uint32_t) = below;
static LM_NOINLINE void varying(unsigned depth) {
  uint32_t size = 16 + 16 * choose_room(40);
  char *room = alloca(size);
  memset(room, 0, size);
  __asm__ volatile("" ::"r"(room) : "memory");
  descend(depth - 1);
  __asm__ volatile("" ::"r"(room) : "memory");
}

static LM_NOINLINE void descend(unsigned depth) {
  static void (*const kind[])(unsigned) = { plain, wide, varying };
  if (!depth) compare();
  else kind[below(LM_COUNT(kind))](depth);
  __asm__ volatile("" ::: "memory");
}

static uint32_t least(uint32_t n) { return n * 0; }
static uint32_t most(uint32_t n) { return n - 1; }

/* Clears what earlier calls have left below the caller on the stack. */
static LM_NOINLINE void clear_stack(void) {
  char room[8192];
  memset(room, 0, sizeof room);
  __asm__ volatile("" ::"r"(room) : "memory");
}
/* Lets lm_unwind see two sizes of the frame of `varying`. Until then it may take one size for the
 * only one, and a return address that an earlier call has left for the one it looks for. */
static void learn_varying(void) {
  uint32_t (*const size[])(uint32_t) = { least, most };
  for (size_t i = 0; i < LM_COUNT(size); i++) {
    choose_room = size[i];
    clear_stack();
    varying(1);
  }
  choose_room = below;
}

static void a_stack_is_what_the_c_library_finds(void **state) {
  (void)state;
  if (LEAVES_ADDRESSES) skip();
  learn_varying();
  for (int i = 0; i < STACKS; i++) descend(below(DEPTH));
  assert_true(compared > STACKS && deepest > DEPTH);
}

static void a_stack_deeper_than_its_table_has_the_innermost_frames(void **state) {
  (void)state;
  for (int i = 0; i < 50; i++) descend(2 * LM_UNWIND_FRAMES);
  assert_int_equal(seen.frames, LM_UNWIND_FRAMES);
}

/* ---- Another stack of the thread ---------------------------------------------------------- */

enum { STACK = 64 << 10, PAGE = 4096 };
static ucontext_t back;
static unsigned room_size;

static LM_NOINLINE void near_the_top(void) {
  char *room = alloca(room_size);
  memset(room, 0, room_size);
  __asm__ volatile("" ::"r"(room) : "memory");
  (void)lm_unwind(&seen);
  __asm__ volatile("" ::"r"(room) : "memory");
}

static void run_on(char *stack, unsigned size) {
  ucontext_t there;
  room_size = size;
  assert_int_equal(getcontext(&there), 0);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = STACK;
  there.uc_link = &back;
  makecontext(&there, near_the_top, 0);
  assert_int_equal(swapcontext(&back, &there), 0);
}

/* The memory behind the stack cannot be read. The second call has a frame that is smaller than the
 * known one, so the known size leads out of the stack. */
static void nothing_is_read_outside_a_stack(void **state) {
  char *stack = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0);
  (void)state;
  assert_ptr_not_equal(stack, MAP_FAILED);
  assert_int_equal(mprotect(stack + STACK, PAGE, PROT_NONE), 0);
  run_on(stack, 368);
  for (int i = 0; i < 3; i++) descend(1); /* the unwinder sees the thread's own stack again */
  run_on(stack, 16);
  munmap(stack, STACK + PAGE);
}

static LM_NOINLINE bool read_here(void) { return lm_unwind(&seen); }

static void a_stack_that_comes_again_is_recognised(void **state) {
  bool is_same = false;
  (void)state;
  for (volatile int i = 0; i < 3; i++) is_same = read_here(); /* volatile: one call, not three */
  assert_true(is_same);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_read_outside_a_stack),
    cmocka_unit_test(a_stack_is_what_the_c_library_finds),
    cmocka_unit_test(a_stack_deeper_than_its_table_has_the_innermost_frames),
    cmocka_unit_test(a_stack_that_comes_again_is_recognised),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
