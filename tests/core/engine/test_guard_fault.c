/* test_guard_fault.c - loam reports a fault in guarded memory, with the block that it concerns. The
 * handler that was installed before loam then gets the signal. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "loam.h"
#include "test.h"

static const char policy[] = "local g = loam.host { name = 'guarded', guard = true }\n"
                             "local p = loam.host { name = 'plain' }\n"
                             "return loam.policy { pick = function(req)\n"
                             "  if req.tag:is('suspect') then return g end\n"
                             "  return p\n"
                             "end }\n";
static const char unguarded[] = "local p = loam.host { name = 'plain' }\n"
                                "return loam.policy { pick = function(req) return p end }\n";

/* The pipe to which a child writes the message of each fault event, one line for each. */
static int out;
static void on_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_FAULT) return;
  if (write(out, event->message, strlen(event->message)) < 0 || write(out, "\n", 1) < 0) _exit(9);
}

static void start(int report, const char *text) {
  loam_config config = { .size = sizeof config, .control = -1, .guard_report = report };
  loam_on_event(on_event, NULL);
  if (loam_start(&config) || loam_policy_load_text("fault.lua", text)) _exit(8);
}

/* Runs `body` without the signal handlers of cmocka and of a sanitizer, as in a new program. */
static int run_plain(void *body) {
  signal(SIGSEGV, SIG_DFL);
  return ((int (*)(void))body)();
}

/* Runs `body` in a child. `said` becomes the messages that the child wrote. Returns the exit
 * status, or minus the signal that ended the child. */
static char said[1000];
static int run_and_get_status(int (*body)(void)) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  out = ends[1];
  int status = run_in_child(run_plain, (void *)body);
  close(ends[1]);
  ssize_t n = read(ends[0], said, sizeof said - 1);
  said[n > 0 ? n : 0] = 0;
  close(ends[0]);
  return status;
}

static void expect_words(const char *expected) {
  if (!strstr(said, expected)) fail_msg("\"%s\" is not in: %s", expected, said);
}

static char *block(size_t size) { return loam_malloc(loam_site_get("suspect"), size); }
static void touch(char *p) { *(volatile char *)p = 1; }

static int overflow(void) {
  start(1, policy);
  char *p = block(100);
  touch(p + 111); /* the size was rounded up for the alignment, so this is no fault */
  touch(p + 112);
  return 0;
}

static int overflow_further(void) {
  start(1, policy);
  touch(block(4096) + 4096 + 1000);
  return 0;
}

static int underflow(void) {
  start(1, policy);
  touch(block(4096) - 1);
  return 0;
}

static int overflow_of_one(void) {
  start(1, policy);
  char *p = block(1);
  touch(p + 17); /* behind the bytes that the alignment added */
  return 0;
}

static int use_after_free(void) {
  start(1, policy);
  char *p = block(5000);
  loam_free(p);
  touch(p + 12);
  return 0;
}

static void the_words_say_how_far_from_whose_block(void **state) {
  (void)state;
  assert_int_equal(run_and_get_status(overflow), -SIGSEGV);
  expect_words(
      "12 bytes past the end of a block of 100 bytes of tag 'suspect' and strategy 'guarded', "
      "decided by generation 1\n");
  assert_int_equal(run_and_get_status(overflow_further), -SIGSEGV);
  expect_words("1000 bytes past the end of a block of 4096 bytes of tag 'suspect'");
  assert_int_equal(run_and_get_status(overflow_of_one), -SIGSEGV);
  expect_words(" bytes past the end of a block of 1 byte of tag 'suspect'");
  assert_int_equal(run_and_get_status(underflow), -SIGSEGV);
  expect_words("1 byte before a block of 4096 bytes of tag 'suspect'");
  assert_int_equal(run_and_get_status(use_after_free), -SIGSEGV);
  expect_words(
      "12 bytes into a freed block of 5000 bytes of tag 'suspect' and strategy 'guarded', decided "
      "by generation 1\n");
}

/* ---- Other handlers of the signal */

static bool is_untouched(void) {
  struct sigaction now;
  sigaction(SIGSEGV, NULL, &now);
  return !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL;
}

static int start_unasked(void) {
  start(0, policy);
  if (!is_untouched()) return 1;
  touch(block(4096) + 4096);
  return 0;
}

static int start_unguarded(void) {
  start(1, unguarded);
  if (!is_untouched()) return 1;
  if (loam_policy_load_text("fault.lua", policy)) return 2;
  return is_untouched() ? 3 : 0;
}

static void the_signal_is_left_alone_until_it_is_wanted(void **state) {
  (void)state;
  assert_int_equal(run_and_get_status(start_unasked), -SIGSEGV);
  assert_string_equal(said, "");
  assert_int_equal(run_and_get_status(start_unguarded), 0);
}

static sigjmp_buf back;
static void *touched;
static void note_and_return(int number, siginfo_t *info, void *context) {
  (void)number;
  (void)context;
  touched = info->si_addr;
  siglongjmp(back, 1);
}
static void return_only(int number) { siglongjmp(back, number); }

/* The program's own handler is called for each of these places in turn, and the program goes on. */
static int with_handler(void) {
  struct sigaction ours = { .sa_sigaction = note_and_return, .sa_flags = SA_SIGINFO };
  sigaction(SIGSEGV, &ours, NULL);
  start(1, policy);
  char *p = block(4096) + 4096;
  char *const places[] = { p, (char *)16, p + 8 };
  for (volatile size_t i = 0; i < LM_COUNT(places); i++) {
    touched = NULL;
    if (!sigsetjmp(back, 1)) touch(places[i]);
    if (touched != places[i]) return (int)i + 1;
  }
  return 0;
}

static int with_plain_handler(void) {
  signal(SIGSEGV, return_only);
  start(1, policy);
  char *volatile p = block(4096) + 4096;
  if (sigsetjmp(back, 1) == SIGSEGV) return 0;
  touch(p);
  return 1;
}

static void a_handler_that_was_there_has_its_turn(void **state) {
  (void)state;
  assert_int_equal(run_and_get_status(with_handler), 0);
  char *second = strchr(said, '\n');
  assert_non_null(second); /* two lines: loam reports no fault outside its own memory */
  assert_int_equal(strncmp(second + 1, "fault at ", 9), 0);
  assert_ptr_equal(strchr(second + 1, '\n'), said + strlen(said) - 1);
  assert_int_equal(run_and_get_status(with_plain_handler), 0);
  expect_words("0 bytes past the end");
}

static int send_it(void) {
  start(1, policy);
  raise(SIGSEGV);
  return 1;
}

static int send_it_ignored(void) {
  signal(SIGSEGV, SIG_IGN);
  start(1, policy);
  raise(SIGSEGV);
  touch(block(4096) + 4096);
  return 1;
}

static void a_signal_that_was_sent_is_no_fault(void **state) {
  (void)state;
  assert_int_equal(run_and_get_status(send_it), -SIGSEGV);
  assert_string_equal(said, "");
  /* the touch ends the child, not the raise */
  assert_int_equal(run_and_get_status(send_it_ignored), -SIGSEGV);
  expect_words("0 bytes past the end");
}

/* ---- Reports in a forked child, on a small stack, in another thread */

static void *touch_it(void *p) {
  static char small[16 << 10];
  stack_t stack = { .ss_sp = small, .ss_size = sizeof small };
  sigaltstack(&stack, NULL);
  touch(p);
  return NULL;
}

static int in_forked_thread(void) {
  start(1, policy);
  char *p = block(4096) + 4096;
  pid_t child = fork();
  int status = 0;
  if (child) return waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? 0 : 1;
  pthread_join(start_thread(touch_it, p), NULL);
  return 2;
}

static void it_is_reported_in_children_and_threads(void **state) {
  (void)state;
  assert_int_equal(run_and_get_status(in_forked_thread), 0);
  expect_words("0 bytes past the end of a block of 4096 bytes");
}

static _Atomic bool is_in_event;
static void stay_in_event(void *ctx, const loam_event *event) {
  (void)ctx, (void)event;
  is_in_event = true;
  for (;;) pause();
}

static int fork_amid_a_report(void) {
  start(1, policy);
  char *p = block(4096) + 4096;
  loam_on_event(stay_in_event, NULL);
  start_thread(touch_it, p);
  while (!is_in_event) sched_yield();
  pid_t child = fork();
  int status = 0;
  if (child) return waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? 0 : 1;
  loam_on_event(on_event, NULL);
  touch(p);
  return 2;
}

static void it_is_reported_in_a_child_that_is_forked_amid_a_report(void **state) {
  (void)state;
  assert_int_equal(run_and_get_status(fork_amid_a_report), 0);
  expect_words("0 bytes past the end of a block of 4096 bytes");
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_words_say_how_far_from_whose_block),
    cmocka_unit_test(the_signal_is_left_alone_until_it_is_wanted),
    cmocka_unit_test(a_handler_that_was_there_has_its_turn),
    cmocka_unit_test(a_signal_that_was_sent_is_no_fault),
    cmocka_unit_test(it_is_reported_in_children_and_threads),
    cmocka_unit_test(it_is_reported_in_a_child_that_is_forked_amid_a_report),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
