/* pressure.h - memory pressure: whether memory is short for this process and those beside it, and
 * what loam does about that.
 *
 * Two figures tell of it, which os/available.h reads. Neither is enough alone. The kernel counts
 * stalls, the time in which tasks of a control group wait for memory (PSI: pressure stall
 * information), after they happened; where nothing can be reclaimed, a group that grows up to
 * memory.max is killed without one. The bytes that the group may still take tell of that in time,
 * but a group may live near its limit for days and not wait at all.
 *
 *   loam.pressure()   the stalls alone, in percent: a policy gets the number that the kernel shows
 *   the alarm         raised if the stalls pass LM_PRESSURE_STALLED, or if few bytes are left
 *
 * The alarm is one word in lm_published.gauges. While its lowest bit is set, memory is short: bins
 * stay narrow, few free slots are kept, and ticks of decay follow each other soon. The other bits
 * count the alarms. Each alarm makes each thread give up its bins once, and each process give back
 * its free memory once (heap/sweep.c). An alarm that lasts is raised again after 1, 2, 4 and so on
 * up to 64 seconds.
 *
 * Who looks. A process that follows a board reads no file: the watcher of its tree looks, and
 * writes both figures on the board (cli/watcher.c). It also changes the published word when it
 * raises an alarm, so that each thread takes a slow path with its next request. In other processes
 * the service thread looks while there is idle memory to give back or to keep (LOAM_KEEP). */
#ifndef LM_PRESSURE_H
#define LM_PRESSURE_H

#include "os/published.h"

/* An alarm is raised from this percentage of stalls on. It ends below half of that. */
enum { LM_PRESSURE_STALLED = 10 };
/* A figure that a process reads itself is at most this old, where a policy reads it. The kernel
 * renews its own every two seconds. */
enum { LM_PRESSURE_REFRESH_MS = 250 };

/* Holds what the latest look has found, and when the next alarm may come. All zeros before the
 * first look.
 * Law: if `alarms` is 0, `is_short` is false. */
typedef struct lm_pressure {
  uint64_t limit, left; /* bytes that the groups allow, and that are left; UINT64_MAX: no limit */
  int stalled;          /* whole percents; -1: the kernel does not count stalls */
  bool is_short;
  uint32_t alarms;     /* raised so far */
  int64_t alarm_ns;    /* lm_sys_clock_ns at which an alarm that lasts is raised again */
  int64_t interval_ns; /* from that time to the next one */
} lm_pressure;

/* Returns whether the law of the looks holds. */
LM_INLINE bool lm_pressure_is_valid(const lm_pressure *p) { return p->alarms || !p->is_short; }

/* Returns whether loam reacts at all: not if the variable LOAM_PRESSURE is 0. Reads the environment
 * at the first call. */
bool lm_pressure_is_wanted(void);

/* Looks at the groups of the process whose /proc/PID/cgroup has the path `self` (NULL: the calling
 * process) at the time `now_ns` (lm_sys_clock_ns). Returns whether an alarm is raised. Reads about
 * three files for each group above that process, and memory.stat of those with a limit. Without
 * lm_pressure_is_wanted it reads the figures and raises no alarm. */
bool lm_pressure_look(lm_pressure *p, const char *self, int64_t now_ns);

/* Returns after how many milliseconds the next look is due. Few bytes can be used up in between,
 * even if a program touches memory as fast as machines can: so a group that has much left is looked
 * at every LM_PRESSURE_CALM_MS, and one that has little left every LM_PRESSURE_SOON_MS. */
enum { LM_PRESSURE_SOON_MS = 50, LM_PRESSURE_CALM_MS = 2000 };
int lm_pressure_wait_ms(const lm_pressure *p);

/* Returns whether the groups of the calling process limit its memory and lm_pressure_is_wanted. */
bool lm_pressure_has_limit(void);

/* For publishers: writes the figure of a look and the word of the alarm into the gauges of a
 * board. */
void lm_pressure_publish(const lm_pressure *p, lm_published_gauges *to);
/* For the service thread: writes the word of the alarm into the gauges of this process. Does
 * nothing if the process follows a board. */
void lm_pressure_set_alarm(const lm_pressure *p);

/* Returns the percentage of the last ten seconds in which tasks of this process's control group
 * waited for memory, from 0 to 100. In a process that follows a board, it is the figure of the
 * watcher, or 0 if that is older than three seconds: a thread compares the time with each
 * LM_PRESSURE_READS'th figure. A guest without a board gets 0. In any other process, the calling
 * thread reads the figure again if it is older than LM_PRESSURE_REFRESH_MS. 0 also where the kernel
 * does not count stalls. Allocates nothing; any thread may call it. */
LM_INLINE unsigned lm_pressure_now(void);

/* A thread takes so many figures of a board without a look whether they are fresh. */
enum { LM_PRESSURE_READS = 2048 };
/* Counts down these figures in the calling thread, to 1: the next reading takes the slow path. */
extern _Thread_local uint16_t lm_pressure_reads
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* The slow path of lm_pressure_now. */
unsigned lm_pressure_now_slow(void);

/* Returns what lm_pressure_now returns, or a number below 0 if that would have to call a
 * function. */
LM_INLINE int lm_pressure_now_fast(void) {
  uint32_t kept = atomic_load_explicit(&lm_published.gauges.stalled, memory_order_relaxed);
  if (lm_unlikely(!kept) || lm_unlikely(lm_pressure_reads == 1)) return -1;
  lm_pressure_reads--;
  return (int)kept - 1;
}

LM_INLINE unsigned lm_pressure_now(void) {
  int stalled = lm_pressure_now_fast();
  return lm_likely(stalled >= 0) ? (unsigned)stalled : lm_pressure_now_slow();
}

/* Says whether this process is a guest, which reads no file. Called before the first policy is
 * loaded. */
void lm_pressure_set_guest(bool is_guest);

/* Returns the word of the alarm: the number of alarms times 2, plus 1 while memory is short. If
 * the watcher is killed, the word keeps its last value. Relaxed: a thread that sees the word late
 * gives memory back late. */
LM_INLINE uint32_t lm_pressure_word(void) {
  return atomic_load_explicit(&lm_published.gauges.alarm, memory_order_relaxed);
}
/* Returns whether memory is short now. */
LM_INLINE bool lm_pressure_is_short(void) { return lm_pressure_word() & 1; }

#if LOAM_CHECKS >= 1
/* For tests: forgets the figure that this process has read, and raises or ends an alarm in this
 * process, which follows no board. */
void lm_pressure_pretend(bool is_short);
#endif

#endif
