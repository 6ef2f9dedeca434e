/* test_error.c - the text of a thread's latest error, events, quoted text: error.h. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "os/error.h"
#include "os/thread.h"

/* ---- Failures */

static void words_name_the_value_and_the_status_passes_through(void **state) {
  (void)state;
  assert_int_equal(lm_error(LOAM_EINVAL, "node %d: this machine has nodes %s", 7, "0-1"),
                   LOAM_EINVAL);
  assert_string_equal(loam_error(), "node 7: this machine has nodes 0-1");
  assert_null(lm_error_null("no memory for %zu bytes", (size_t)12));
  assert_string_equal(loam_error(), "no memory for 12 bytes");
}

static void new_words_may_quote_the_old(void **state) {
  (void)state;
  lm_error(LOAM_EIO, "no such file");
  lm_error(LOAM_EPOLICY, "prod.lua: %s", loam_error());
  assert_string_equal(loam_error(), "prod.lua: no such file");
}

static void long_words_are_cut(void **state) {
  (void)state;
  static char words[2 * LM_ERROR_SIZE];
  memset(words, 'x', sizeof words - 1);
  lm_error(LOAM_EPOLICY, "%s", words);
  assert_int_equal(strlen(loam_error()), LM_ERROR_SIZE - 1);
}

/* Returns NULL if the thread has words of its own and no area is made. */
static void *fail_alone(void *unused) {
  (void)unused;
  if (strcmp(loam_error(), "") != 0 || lm_thread_self) return (void *)1;
  lm_error(LOAM_EIO, "other words");
  return strcmp(loam_error(), "other words") == 0 ? NULL : (void *)1;
}

static void each_thread_has_its_own(void **state) {
  (void)state;
  lm_error(LOAM_EIO, "words");
  void *wrong;
  pthread_join(start_thread(fail_alone, NULL), &wrong);
  assert_null(wrong);
  assert_string_equal(loam_error(), "words");
}

static void *fail_without_memory(void *unused) {
  (void)unused;
  lm_thread_trim_vacant();
  lm_sys_refuse_from(1); /* all calls fail: if one call fails, loam may get the memory by another */
  loam_status status = lm_error(LOAM_ENOMEM, "words");
  const char *words = loam_error();
  lm_sys_refuse(0);
  return status == LOAM_ENOMEM && strcmp(words, "words") != 0 ? NULL : (void *)1;
}

static void a_failure_without_memory_for_words_passes_through(void **state) {
  (void)state;
  void *wrong;
  pthread_join(start_thread(fail_without_memory, NULL), &wrong);
  assert_null(wrong);
}

static void each_status_has_words(void **state) {
  (void)state;
  assert_string_equal(loam_status_text(LOAM_OK), "success");
  assert_string_equal(loam_status_text(LOAM_EINTERNAL), "an error in loam itself");
  assert_string_equal(loam_status_text((loam_status)-99), "not a status of loam");
  assert_string_equal(loam_status_text((loam_status)1), "not a status of loam");
}

/* ---- Events */

typedef struct heard {
  int n;
  loam_event last;
  char message[64];
} heard;

static void listen(void *ctx, const loam_event *event) {
  heard *h = ctx;
  h->n++;
  h->last = *event;
  snprintf(h->message, sizeof h->message, "%s", event->message);
}

static void a_listener_hears_events_until_it_is_taken_away(void **state) {
  (void)state;
  heard h = { 0 };
  lm_error_event(LOAM_EVENT_WATCH, 1, NULL, "nobody listens");
  loam_on_event(listen, &h);
  lm_error_event(LOAM_EVENT_BAD_FREE, 3, &h, "double free of %p", (void *)&h);
  assert_int_equal(h.n, 1);
  assert_int_equal(h.last.kind, LOAM_EVENT_BAD_FREE);
  assert_int_equal(h.last.generation, 3);
  assert_ptr_equal(h.last.pointer, &h);
  assert_int_equal(strncmp(h.message, "double free of 0x", 17), 0);
  loam_on_event(NULL, NULL);
  lm_error_event(LOAM_EVENT_WATCH, 1, NULL, "nobody listens");
  assert_int_equal(h.n, 1);
}

static char heard_words[2 * LM_ERROR_SIZE];

static void copy_words(void *ctx, const loam_event *event) {
  (void)ctx;
  snprintf(heard_words, sizeof heard_words, "%s", event->message);
}

/* A short message is formatted on the stack, a long one elsewhere. */
static void events_have_long_messages_whole_in_one_line(void **state) {
  (void)state;
  static char tag[2 * LM_ERROR_SIZE];
  loam_on_event(copy_words, NULL);
  for (size_t n = 1; n < LM_ERROR_SIZE - 3; n++) {
    memset(tag, 'x', n);
    lm_error_event(LOAM_EVENT_SHORTFALL, 1, NULL, "a\n%s%d", tag, 7);
    assert_int_equal(strlen(heard_words), n + 3);
    assert_true(heard_words[0] == 'a' && heard_words[n + 2] == '7' && !strchr(heard_words, '\n'));
  }
  memset(tag, 'x', sizeof tag - 1);
  lm_error_event(LOAM_EVENT_SHORTFALL, 1, NULL, "%s", tag);
  assert_int_equal(strlen(heard_words), LM_ERROR_SIZE - 1);
  memset(tag, '\n', 1000);
  lm_error_event(LOAM_EVENT_POLICY_REFUSED, 1, NULL, "%s", tag);
  assert_non_null(strchr(heard_words, '\n'));
  loam_on_event(NULL, NULL);
}

static void replace_listener(void *ctx, const loam_event *event) {
  loam_on_event(listen, ctx);
  lm_error_event(event->kind, event->generation, NULL, "again");
}

static void a_listener_may_call_loam(void **state) {
  (void)state;
  heard h = { 0 };
  loam_on_event(replace_listener, &h);
  lm_error_event(LOAM_EVENT_WATCH, 1, NULL, "first");
  assert_int_equal(h.n, 1);
  assert_string_equal(h.message, "again");
  loam_on_event(NULL, NULL);
}

/* While one thread replaces the callback, no callback gets the ctx of another callback. */
static _Atomic bool stop;
static _Atomic int mixed_up;
static int one, two;
static void expect_one(void *ctx, const loam_event *event) {
  (void)event;
  mixed_up += ctx != &one;
}
static void expect_two(void *ctx, const loam_event *event) {
  (void)event;
  mixed_up += ctx != &two;
}
static void *tell(void *unused) {
  (void)unused;
  while (!stop) lm_error_event(LOAM_EVENT_WATCH, 1, NULL, "event");
  return NULL;
}

static void a_listener_and_its_context_go_together(void **state) {
  (void)state;
  loam_on_event(expect_one, &one);
  pthread_t thread = start_thread(tell, NULL);
  for (int i = 0; i < 5000; i++) {
    loam_on_event(expect_two, &two);
    loam_on_event(expect_one, &one);
  }
  stop = true;
  pthread_join(thread, NULL);
  assert_int_equal(mixed_up, 0);
  loam_on_event(NULL, NULL);
}

/* ---- Quoting */

static void quotes_what_is_not_printable(void **state) {
  (void)state;
  char buffer[64];
  assert_string_equal(lm_error_quote(buffer, sizeof buffer, "plain text"), "\"plain text\"");
  assert_string_equal(lm_error_quote(buffer, sizeof buffer, "a\n\x7f\xc3\xa9"),
                      "\"a\\x0A\\x7F\\xC3\\xA9\"");
  assert_string_equal(lm_error_quote(buffer, sizeof buffer, "\"\\"), "\"\\\"\\\\\"");
  assert_string_equal(lm_error_quote(buffer, sizeof buffer, ""), "\"\"");
  assert_string_equal(lm_error_quote(buffer, sizeof buffer, NULL), "\"\"");
}

static void what_does_not_fit_ends_in_dots(void **state) {
  (void)state;
  char buffer[10];
  assert_string_equal(lm_error_quote(buffer, sizeof buffer, "abcd"), "\"abcd\"");
  assert_string_equal(lm_error_quote(buffer, sizeof buffer, "abcdefgh"), "\"abcd...\"");
  assert_string_equal(lm_error_quote(buffer, sizeof buffer, "abc\n"), "\"abc...\"");
  for (size_t size = 6; size <= sizeof buffer; size++)
    assert_true(strlen(lm_error_quote(buffer, size, "\x01\x02\x03\x04")) < size);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(words_name_the_value_and_the_status_passes_through),
    cmocka_unit_test(new_words_may_quote_the_old),
    cmocka_unit_test(long_words_are_cut),
    cmocka_unit_test(each_thread_has_its_own),
    cmocka_unit_test(a_failure_without_memory_for_words_passes_through),
    cmocka_unit_test(each_status_has_words),
    cmocka_unit_test(a_listener_hears_events_until_it_is_taken_away),
    cmocka_unit_test(events_have_long_messages_whole_in_one_line),
    cmocka_unit_test(a_listener_may_call_loam),
    cmocka_unit_test(a_listener_and_its_context_go_together),
    cmocka_unit_test(quotes_what_is_not_printable),
    cmocka_unit_test(what_does_not_fit_ends_in_dots),
  };
  return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
