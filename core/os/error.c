/* error.c - the text of a thread's latest error, and events for the host's callback. */
#include "os/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "os/text.h"
#include "os/thread.h"

/* ---- Failures */

/* The thread's latest error has no text, because there was no memory for the thread's area. */
static _Thread_local bool has_no_text __attribute__((tls_model("initial-exec")));

/* A thread may have a stack of 16 KiB. So a text is formatted into SHORT bytes of the stack. The
 * few texts that are longer are formatted again, by a function whose frame has room for them. */
enum { SHORT = 512 };

static LM_NOINLINE void set_long_text(lm_thread *t, const char *format, va_list arguments) {
  char text[LM_ERROR_SIZE];
  vsnprintf(text, sizeof text, format, arguments);
  strcpy(t->error, text);
}

/* Formats on the stack first, because the arguments often contain the old text. */
static void set_text(const char *format, va_list arguments) {
  lm_thread *t = lm_thread_get();
  has_no_text = !t;
  if (!t) return;
  char text[SHORT];
  va_list again;
  va_copy(again, arguments);
  if (vsnprintf(text, sizeof text, format, arguments) < SHORT) strcpy(t->error, text);
  else set_long_text(t, format, again);
  va_end(again);
}

loam_status lm_error(loam_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_text(format, arguments);
  va_end(arguments);
  return status;
}

loam_status lm_error_missing(const char *name) {
  return lm_error(LOAM_EINVAL, "%s: it is NULL", name);
}

void *lm_error_null(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_text(format, arguments);
  va_end(arguments);
  return NULL;
}

const char *loam_error(void) {
  if (lm_thread_self) return lm_thread_self->error;
  return has_no_text ? "no memory: not even for a thread's bookkeeping" : "";
}

const char *loam_status_text(loam_status status) {
  switch (status) {
#define STATUS_TEXT(name, value, words) \
  case name: return words;
    LOAM_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
  }
  return "not a status of loam";
}

/* ---- Events */

/* The host's callback. A callback and its ctx belong together, so both change and are read under
 * the lock. */
static struct {
  lm_lock lock;
  loam_event_fn callback;
  void *ctx;
} listener;

void loam_on_event(loam_event_fn callback, void *ctx) {
  lm_thread_add_fork_lock(&listener.lock);
  lm_lock_take(&listener.lock);
  listener.callback = callback;
  listener.ctx = ctx;
  lm_lock_drop(&listener.lock);
}

/* Copies the callback and its ctx. Returns whether there is a callback. */
static bool get_listener(loam_event_fn *callback, void **ctx) {
  lm_lock_take(&listener.lock);
  *callback = listener.callback;
  *ctx = listener.ctx;
  lm_lock_drop(&listener.lock);
  return *callback;
}

/* The callback may contain cancellation points. The thread is not cancelled there, since it is in
 * the middle of an allocation or a free. */
static void call(loam_event_fn callback, void *ctx, const loam_event *event) {
  lm_sys_cancel_off();
  lm_lock_suspended section = lm_lock_suspend();
  callback(ctx, event);
  lm_lock_resume(section);
  lm_sys_cancel_restore();
}

void lm_error_event_tell(const loam_event *event) {
  lm_assert(event && event->message);
  loam_event_fn callback;
  void *ctx;
  if (get_listener(&callback, &ctx)) call(callback, ctx, event);
}

/* Only the errors of a policy have several lines. In the words of other events, a tag may be the
 * name of a file, with a newline. */
static void keep_one_line(loam_event_kind kind, char *message) {
  if (kind != LOAM_EVENT_POLICY_REFUSED) lm_text_make_line(message);
}

static LM_NOINLINE void tell_long(loam_event *event, const char *format, va_list arguments) {
  char message[LM_ERROR_SIZE];
  vsnprintf(message, sizeof message, format, arguments);
  keep_one_line(event->kind, message);
  event->message = message;
  lm_error_event_tell(event);
}

bool lm_error_event(loam_event_kind kind, uint64_t generation, const void *pointer,
                    const char *format, ...) {
  loam_event_fn callback;
  void *ctx;
  if (!get_listener(&callback, &ctx)) return false;
  char message[SHORT];
  va_list arguments, again;
  const void *caller = kind == LOAM_EVENT_BAD_FREE && lm_thread_self ? lm_thread_self->caller
                                                                     : NULL;
  loam_event event = { kind, generation, pointer, message, caller };
  va_start(arguments, format);
  va_copy(again, arguments);
  if (vsnprintf(message, sizeof message, format, arguments) < SHORT) {
    keep_one_line(kind, message);
    call(callback, ctx, &event);
  } else {
    tell_long(&event, format, again);
  }
  va_end(again);
  va_end(arguments);
  return true;
}

/* ---- Quoted text */

/* Writes how one byte is shown to `out`. Returns the length, which is at most 4. */
static size_t show_byte(char *out, unsigned char c) {
  static const char digits[] = "0123456789ABCDEF";
  if (c == '"' || c == '\\') {
    out[0] = '\\';
    out[1] = (char)c;
    return 2;
  }
  if (c >= ' ' && c <= '~') {
    out[0] = (char)c;
    return 1;
  }
  out[0] = '\\';
  out[1] = 'x';
  out[2] = digits[c >> 4];
  out[3] = digits[c & 15];
  return 4;
}

const char *lm_error_quote(char *buffer, size_t size, const char *text) {
  enum { CLOSE = sizeof "...\"" }; /* room for three dots, the quote and the terminator */
  lm_assert(buffer);
  lm_require(size >= 1 + CLOSE);
  size_t used = 0;
  buffer[used++] = '"';
  for (; text && *text; text++) {
    char shown[4];
    size_t n = show_byte(shown, (unsigned char)*text);
    if (used + n + CLOSE > size) break;
    memcpy(buffer + used, shown, n);
    used += n;
  }
  strcpy(buffer + used, text && *text ? "...\"" : "\"");
  return buffer;
}
