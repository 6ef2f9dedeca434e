/* slow_call.c - how slow calls begin, also while another thread forks. */
#include "api/slow_call.h"

#include <errno.h>
#include <string.h>

#include "api/memory.h"
#include "api/start.h"
#include "device/device_idle.h"
#include "engine/record.h"
#include "heap/sweep.h"
#include "os/pressure.h"
#include "service/board.h"
#include "service/control.h"
#include "service/publish.h"

/* Does the frees that were noted while a thread forked. Does nothing in an inner guarded section
 * and in calls of a handler, because this function itself may have called its caller. */
static void free_noted(void) {
  if (lm_lock_cancel_holds > 1 || lm_thread_self_or_empty->inside) return;
  for (void *ptr; (ptr = lm_spare_next_noted());) lm_memory_free(ptr, SIZE_MAX, NULL, NULL);
}

/* These requests wait for a fork that lasts: a request for pinned or device memory; and a request
 * that names a handler, because the handler's own function will reallocate the block. */
void *lm_slow_call_begin(const lm_request *r) {
  void *p = NULL;
  if (lm_likely(lm_lock_try_hold())) return NULL;
  if (r->want == LM_WANT_HOST && !r->handler) p = lm_spare_alloc(r->size, r->align);
  if (!p) lm_lock_hold_cancel();
  return p;
}

bool lm_slow_call_begin_free(void *ptr, const lm_stream *on) {
  bool has_begun = lm_lock_try_hold();
  if (lm_likely(has_begun && !lm_spare_is_used())) return true;
  if (lm_spare_free(ptr) || (!has_begun && !on && lm_spare_note_free(ptr))) {
    if (has_begun) lm_lock_allow_cancel();
    return false;
  }
  if (!has_begun) lm_lock_hold_cancel();
  free_noted();
  return true;
}

/* A spare block that grows moves to where the policy wants it. While a fork lasts, an object of a
 * pool moves to spare memory, unless the host requested it as pinned; any other block waits for the
 * fork. */
bool lm_slow_call_begin_realloc(loam_site *site, void *ptr, size_t size, void **out) {
  lm_object object;
  size_t from = lm_spare_usable(ptr);
  bool is_spare = from;
  *out = is_spare && size <= from ? ptr : NULL;
  if (*out) return false;
  if (lm_likely(!is_spare && lm_lock_try_hold())) return true;
  if (is_spare) {
    *out = loam_malloc(site, size);
  } else if (!lm_record_is_nested(ptr) && lm_pool_find(ptr, &object) && object.base == ptr &&
             !lm_strategy_at(object.strategy)->desc.asked) {
    from = object.size;
    *out = lm_spare_alloc(size, 16);
  }
  if (*out) {
    memcpy(*out, ptr, from < size ? from : size);
    loam_free(ptr);
  }
  if (is_spare || *out) return false;
  lm_lock_hold_cancel();
  return true;
}

/* ---- Chores ------------------------------------------------------------------------------- */

/* Gives memory back if an alarm of memory pressure is new to the calling thread. */
static LM_NOINLINE void obey_alarm(void) {
  lm_thread *t = lm_thread_self;
  if (!t || !lm_start_is_running() || t->inside || t->dying || !lm_sweep_is_alarmed(t)) return;
  lm_thread_enter(t);
  lm_sweep_obey_alarm(t);
  lm_thread_leave(t);
}

void lm_slow_call_chores(void) {
  int before = errno;
  lm_assert(!lm_thread_is_active());
  if (lm_unlikely(!lm_start_is_running())) lm_start_from_environment();
  lm_control_wake_if_asleep();
  lm_device_idle_poll(lm_thread_self);
  lm_publish_obey_if_new();
  lm_board_refresh_calmly();
  if (lm_unlikely(lm_pressure_is_short())) obey_alarm();
  if (lm_unlikely(lm_spare_is_used())) free_noted();
  errno = before;
}
