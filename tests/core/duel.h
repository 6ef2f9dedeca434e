/* duel.h - two threads act at one time, in many rounds. */
#ifndef DUEL_H
#define DUEL_H

#include "test.h"

/* `arrived` counts the arrivals of both threads at their meetings. What else the threads use is in
 * other cache lines, so that they leave a meeting at one time. */
typedef struct duel {
  void (*theirs)(void);
  _Alignas(LM_CACHE_LINE) _Atomic int arrived;
  _Atomic bool is_over;
} duel;

/* Arrives at meeting number `nth` (from 1 on), and waits for the other thread. */
static inline void duel_meet(duel *d, int nth) {
  d->arrived++;
  for (int tries = 0; d->arrived < 2 * nth; tries++)
    if (tries > 1000) sched_yield();
}

static inline void *duel_other(void *argument) {
  duel *d = argument;
  for (int i = 0; !d->is_over; i++) {
    duel_meet(d, 3 * i + 1);
    d->theirs();
    duel_meet(d, 3 * i + 2);
    duel_meet(d, 3 * i + 3);
  }
  return NULL;
}

/* In each round this thread calls `mine` while another thread calls `theirs`; then this thread
 * calls `is_right`. Ends after `rounds` rounds, or a few seconds. Returns how many rounds were not
 * right. */
static inline int duel_count_wrong(int rounds, void (*mine)(void), void (*theirs)(void),
                                   bool (*is_right)(void)) {
  int64_t end_ns = lm_sys_clock_ns() + 3000000000;
  duel d = { .theirs = theirs };
  int wrong = 0;
  pthread_t other = start_thread(duel_other, &d);
  for (int i = 0; !d.is_over; i++) {
    duel_meet(&d, 3 * i + 1);
    mine();
    duel_meet(&d, 3 * i + 2);
    wrong += !is_right();
    d.is_over = i + 1 == rounds || lm_sys_clock_ns() > end_ns;
    duel_meet(&d, 3 * i + 3);
  }
  pthread_join(other, NULL);
  return wrong;
}

#endif
