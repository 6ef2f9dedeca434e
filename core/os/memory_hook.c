/* memory_hook.c - the host's callback for each block that is made, resized or freed. */
#include "os/memory_hook.h"

#include "os/thread.h"

_Atomic bool lm_memory_hook_is_set;

/* The callback and its ctx belong together, so both change and are read under the lock. The reasons
 * of all threads for the slow path change under the lock too. Otherwise two threads that set hooks
 * at one time could leave a callback that no thread calls, or slow threads without a callback. */
static struct {
  lm_lock lock;
  loam_memory_hook hook;
} listener;

/* This thread is in the callback: what the callback itself allocates is not reported. */
static _Thread_local bool is_calling __attribute__((tls_model("initial-exec")));

loam_memory_hook loam_on_memory(loam_memory_fn callback, void *ctx) {
  lm_thread_add_fork_lock(&listener.lock);
  lm_lock_take(&listener.lock);
  loam_memory_hook previous = listener.hook;
  listener.hook = (loam_memory_hook){ callback, ctx };
  atomic_store_explicit(&lm_memory_hook_is_set, callback != NULL, memory_order_relaxed);
  if (callback) lm_thread_set_slow_all(LM_SLOW_HOOKED);
  else lm_thread_clear_slow_all(LM_SLOW_HOOKED);
  lm_lock_drop(&listener.lock);
  return previous;
}

void lm_memory_hook_call(void *from, void *to, size_t size) {
  lm_assert(from || to);
  if (is_calling) return;
  lm_lock_take(&listener.lock);
  loam_memory_hook hook = listener.hook;
  lm_lock_drop(&listener.lock);
  if (!hook.callback) return;
  is_calling = true;
  lm_sys_cancel_off(); /* the thread is in the middle of an allocation or a free */
  lm_lock_suspended section = lm_lock_suspend();
  hook.callback(hook.ctx, from, to, size);
  lm_lock_resume(section);
  lm_sys_cancel_restore();
  is_calling = false;
}
