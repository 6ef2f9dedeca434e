/* service_lock.c - the lock of the service. */
#include "service/service_lock.h"

#include <pthread.h>

#include "os/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void lm_service_lock(void) {
  (void)lm_thread_inside_begin();
  lm_lock_hold_cancel(); /* a fork waits until the lock is free */
  pthread_mutex_lock(&lock);
}

void lm_service_unlock(void) {
  lm_assert(!lm_thread_self || lm_thread_self->inside > 0);
  pthread_mutex_unlock(&lock);
  lm_lock_allow_cancel();
  lm_thread_inside_end(lm_thread_self);
}

void lm_service_lock_renew(void) { pthread_mutex_init(&lock, NULL); }
