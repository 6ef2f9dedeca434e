/* test_unwind.c - lm_unwind, which reads a stack by the rules of its frames, finds the stack that
 * backtrace(3) finds, also through functions whose frames vary in size. */
#include "chance.h"
#include "test.h"

#include "frame_tables.h"
#include "os/frame_rule.h"
#include "os/unwind.h"

#include <alloca.h>
#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { DEPTH = 24, STACKS = 20000 };

/* Frames of AddressSanitizer vary in size, and keep return addresses that earlier calls left there.
 * lm_unwind could take these for the stack that it read last (unwind.h). */
#ifdef __SANITIZE_ADDRESS__
enum { LEAVES_ADDRESSES = 1 };
#else
enum { LEAVES_ADDRESSES = 0 };
#endif

static lm_unwound seen;
static uint64_t seed = 7;
static unsigned compared, deepest;

/* Compares the frames outside of this function with those of backtrace(3). `seen` has the addresses
 * of calls; backtrace(3) has the return addresses after them. The first frames of both differ and
 * are skipped. */
static LM_NOINLINE void compare(void) {
  static void *want[LM_UNWIND_FRAMES + 2]; /* not on the stack, where its addresses would stay */
  if (LEAVES_ADDRESSES) seen.at = 0;       /* so that lm_unwind reads the stack again */
  (void)lm_unwind(&seen);
  assert_true(lm_unwound_is_valid(&seen));
  int n = backtrace(want, LM_COUNT(want));
  uintptr_t caller = (uintptr_t)__builtin_return_address(0);
  uint32_t own = 0;
  int i = 0; /* a sanitizer's backtrace has one more frame */
  uint32_t frames = lm_unwound_frames(&seen);
  while (own < frames && lm_unwound_frame(&seen, own) + 1 != caller) own++;
  while (i < n && (uintptr_t)want[i] != caller) i++;
  assert_true(own < frames && i < n);
  for (; i < n && own < frames; i++, own++) {
    uintptr_t frame = lm_unwound_frame(&seen, own);
    /* For a frame that a signal interrupted, both have the address of the interrupted
     * instruction. */
    if (frame + 1 != (uintptr_t)want[i] && frame != (uintptr_t)want[i])
      fail_msg("frame %d is %#lx, and not %p", i, (long)frame + 1, want[i]);
    compared++;
  }
  assert_true(own == frames && (i == n || frames == LM_UNWIND_FRAMES));
  if (frames > deepest) deepest = frames;
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
/* The frame of this function varies in size. It clears `room`, because lm_unwind could take a
 * return address that an earlier call left there for one of the stack that it read last. */
static LM_NOINLINE void varying(unsigned depth) {
  uint32_t size = 16 + 16 * chance(&seed, 40);
  char *room = alloca(size);
  memset(room, 0, size);
  __asm__ volatile("" ::"r"(room) : "memory");
  descend(depth - 1);
  __asm__ volatile("" ::"r"(room) : "memory");
}

static LM_NOINLINE void descend(unsigned depth) {
  static void (*const kind[])(unsigned) = { plain, wide, varying };
  if (!depth) compare();
  else kind[chance(&seed, LM_COUNT(kind))](depth);
  __asm__ volatile("" ::: "memory");
}

static void a_stack_is_what_the_c_library_finds(void **state) {
  (void)state;
  for (int i = 0; i < STACKS; i++) descend(chance(&seed, DEPTH));
  assert_true(compared > STACKS && deepest > DEPTH);
}

static void a_stack_deeper_than_its_table_has_the_innermost_frames(void **state) {
  (void)state;
  for (int i = 0; i < 50; i++) descend(2 * LM_UNWIND_FRAMES);
  assert_int_equal(lm_unwound_frames(&seen), LM_UNWIND_FRAMES);
  lm_unwound broken = seen;
  broken.own = broken.words + 1;
  assert_false(lm_unwound_is_valid(&broken));
  broken.words = LM_COUNT(broken.word) + 1;
  assert_false(lm_unwound_is_valid(&broken));
}

/* ---- Signals ------------------------------------------------------------------------------ */

static void on_signal(int number) {
  (void)number;
  compare();
  __asm__ volatile("" ::: "memory");
}

static void handle_signals(int flags) {
  struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
  unsigned before = compared;
  assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
  for (int i = 0; i < 3; i++) {
    raise(SIGUSR1);
    compare();
  }
  assert_true(compared > before);
  signal(SIGUSR1, SIG_DFL);
}

/* A rule cannot state the caller of a signal frame, so the C library's unwinder reads the stack. */
static void a_handler_of_a_signal_has_the_frames_that_it_interrupted(void **state) {
  (void)state;
  handle_signals(0);
}

static void so_has_a_handler_on_a_stack_of_its_own(void **state) {
  static char room[64 << 10];
  stack_t stack = { .ss_sp = room, .ss_size = sizeof room };
  (void)state;
  assert_int_equal(sigaltstack(&stack, NULL), 0);
  handle_signals(SA_ONSTACK);
  assert_int_equal(sigaltstack(&(stack_t){ .ss_flags = SS_DISABLE }, NULL), 0);
}

/* ---- A rule that has become wrong ---------------------------------------------------------- */

enum { STACK = 64 << 10, GUARD = 64 << 10, PAGE = 4096, LARGE = 32000 + 8, SMALL = 8 };
static ucontext_t back;

/* A function that makes room on the stack and calls its argument. The test writes it twice with
 * different room, as if a library were unloaded and another one were loaded in its place. */
static struct __attribute__((packed)) {
  uint8_t sub[3];
  uint32_t room;
  uint8_t call[2], add[3];
  uint32_t same_room;
  uint8_t ret;
} * code;

static frame_tables tables;

/* Writes the code with `room` bytes, and its tables: the CFA offset is correct from the call on. */
static void write_code(uint32_t room) {
  static const uint8_t sub[] = { 0x48, 0x81, 0xec }, call[] = { 0xff, 0xd7 },
                       add[] = { 0x48, 0x81, 0xc4 };
  uint32_t cfa = room + 8;
  memcpy(code->sub, sub, sizeof sub);
  memcpy(code->call, call, sizeof call);
  memcpy(code->add, add, sizeof add);
  code->room = code->same_room = room;
  code->ret = 0xc3;
  uint8_t program[] = { 0x40 + offsetof(typeof(*code), call), 0x0e, (cfa & 0x7f) | 0x80,
                        (cfa >> 7 & 0x7f) | 0x80, (uint8_t)(cfa >> 14) };
  make_tables(&tables, code, sizeof *code, program, sizeof program);
}

static void run_code(void) {
  void *at = code;
  void (*run)(void (*)(void)) = (void (*)(void (*)(void)))(uintptr_t)at;
  run(compare);
  __asm__ volatile("" ::: "memory");
}

static void run_on(char *stack) {
  ucontext_t there;
  assert_int_equal(getcontext(&there), 0);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = STACK;
  there.uc_link = &back;
  makecontext(&there, run_code, 0);
  assert_int_equal(swapcontext(&back, &there), 0);
}

/* The kept rule leads to memory behind the stack, which cannot be read. */
static void a_kept_rule_that_is_wrong_does_not_lead_out_of_the_stack(void **state) {
  int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (!LM_FRAME_HAS_RULES) skip(); /* the code above is of x86-64 too */
  char *stack = mmap(NULL, STACK + GUARD, prot, flags, -1, 0);
  code = mmap(NULL, PAGE, prot | PROT_EXEC, flags, -1, 0);
  (void)state;
  assert_ptr_not_equal(stack, MAP_FAILED);
  assert_ptr_not_equal(code, MAP_FAILED);
  assert_int_equal(mprotect(stack + STACK, GUARD, PROT_NONE), 0);
  write_code(LARGE);
  run_on(stack);
  __deregister_frame(&tables);
  write_code(SMALL);
  for (int i = 0; i < 2; i++) run_on(stack);
  __deregister_frame(&tables);
  /* A wrong rule that leads to a place inside the known stack would not be noticed. */
  write_code(LARGE);
  lm_unwind_forget();
  for (int i = 0; i < 2; i++) run_on(stack);
  __deregister_frame(&tables);
  munmap(stack, STACK + GUARD);
  munmap(code, PAGE);
}

static LM_NOINLINE bool read_here(void) { return lm_unwind(&seen); }

static void a_stack_that_comes_again_is_recognised(void **state) {
  bool is_same = false;
  (void)state;
  if (!LM_FRAME_HAS_RULES) skip();
  for (volatile int i = 0; i < 3; i++) is_same = read_here(); /* volatile: one call, not three */
  assert_true(is_same);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_kept_rule_that_is_wrong_does_not_lead_out_of_the_stack),
    cmocka_unit_test(a_stack_is_what_the_c_library_finds),
    cmocka_unit_test(a_handler_of_a_signal_has_the_frames_that_it_interrupted),
    cmocka_unit_test(so_has_a_handler_on_a_stack_of_its_own),
    cmocka_unit_test(a_stack_deeper_than_its_table_has_the_innermost_frames),
    cmocka_unit_test(a_stack_that_comes_again_is_recognised),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
