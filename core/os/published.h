/* published.h - the page that all processes of a program tree share: the word by which threads
 * notice that a policy image was published on the board, the free memory of NUMA nodes, and memory
 * pressure.
 *
 * `lm_published` fills a page of its own. A process that follows a board maps the board's first
 * page of news over it, readable only, so that a publisher in another process changes the word
 * here. In every other process the page is plain memory that holds zeros.
 *
 * The key of each kept decision contains the word (engine/decision.h). So once a publisher has
 * changed the word, no kept decision matches, and the next request of each thread takes a slow
 * path.
 * The slow path compares the page with what the process obeys (lm_published_is_new) and obeys the
 * new image (service/publish.h).
 *
 * The word has a few bits only, because it is added to a key. `number` is the full count of
 * publications. A publisher stores `number` before `word`; a process reads `word` before `number`.
 * So a process never takes an old number for the one that belongs to a new word.
 *
 * The free memory of the nodes stands on this page so that a process which follows a board need not
 * read files of /sys: the watcher of the tree reads them for all (cli/watcher.h). In a process that
 * follows no board, its own service thread writes the figures here. os/numa.c has both. The figures
 * of memory pressure (os/pressure.h) stand here for the same reason. */
#ifndef LM_PUBLISHED_H
#define LM_PUBLISHED_H

#include <stdatomic.h>

#include "os/base.h"

/* The words that a publisher writes on the first page of news. Zeros: nothing was published. */
typedef struct lm_published_words {
  /* lm_published_word of the number, plus the wishes in places of the board (board_layout.h), plus
   * the alarms of memory pressure (os/pressure.h). So the word also changes when a process is to
   * read a wish, or to give memory back. */
  _Atomic uint64_t word;
  _Atomic uint64_t number; /* of the latest publication, counted from 1 */
} lm_published_words;

enum { LM_PUBLISHED_NODES = 64, LM_PUBLISHED_LINES = 128 };

/* The free memory of NUMA nodes, and memory pressure. All loads and stores are relaxed: each figure
 * is a hint that stands for itself. They begin at other cache lines than the words, because each
 * malloc reads the words and the figures change every 50 ms.
 *
 * A word of node_free says in which state the figure of a node is:
 *   0       no figure is kept
 *   n > 0   the figure is n - 1 bytes; if a service thread of this process keeps it, then a thread
 *           has read the figure since the latest refresh
 *   n < 0   only in a process that follows no board: the figure is -n - 1 bytes, and no thread has
 *           read it since the latest refresh; the first reader negates the word */
typedef struct lm_published_gauges {
  /* When a publisher wrote the figures, by lm_sys_coarse_ns; 0: no publisher keeps them. Unused in
   * a process that follows no board. */
  _Atomic int64_t refreshed_at;
  _Atomic uint64_t nodes; /* on a board: a bit for each node that has a figure */
  _Atomic int64_t node_free[LM_PUBLISHED_NODES];
  /* When a publisher wrote `stalled`, by lm_sys_coarse_ns; 0: no publisher keeps it. Unused in a
   * process that follows no board, as `stalled` is. */
  _Atomic int64_t stalled_at;
  _Atomic uint32_t stalled; /* percent (lm_pressure_now) plus 1; 0: no figure is kept */
  _Atomic uint32_t alarm;   /* lm_pressure_word */
} lm_published_gauges;

typedef union lm_published_page {
  struct {
    lm_published_words now;
    lm_published_gauges gauges __attribute__((aligned(LM_PUBLISHED_LINES)));
  };
  char page[LM_PAGE];
} lm_published_page;

extern lm_published_page lm_published __attribute__((visibility("hidden")));

/* What this process obeys: the word and the number that it has read from the page. Written by the
 * holder of the load lock of service/policy.c. Relaxed: a thread that sees an old value only looks
 * again. */
extern lm_published_words lm_published_obeyed __attribute__((visibility("hidden")));

/* The bits of a key that the word uses: no other part of a key has them (engine/decision.h). The
 * address of an instruction has 47 bits on x86-64. On AArch64 it has 48, of which the lowest two
 * are zeros. */
#ifdef __aarch64__
enum { LM_PUBLISHED_LOW = 0 };
#else
enum { LM_PUBLISHED_LOW = 47 };
#endif
enum { LM_PUBLISHED_MIDDLE = 54, LM_PUBLISHED_HIGH = 56 };
#define LM_PUBLISHED_WORDS 32 /* different words: after so many publications one comes again */

/* Returns the word after `number` publications, wishes and alarms together. */
LM_INLINE uint64_t lm_published_word(uint64_t number) {
  return (number & 7) << LM_PUBLISHED_HIGH | (number >> 3 & 1) << LM_PUBLISHED_MIDDLE |
         (number >> 4 & 1) << LM_PUBLISHED_LOW;
}

/* Returns whether the page differs from what the process obeys. Constant time, for slow paths. */
LM_INLINE bool lm_published_is_new(void) {
  return atomic_load_explicit(&lm_published.now.word, memory_order_relaxed) !=
             atomic_load_explicit(&lm_published_obeyed.word, memory_order_relaxed) ||
         atomic_load_explicit(&lm_published.now.number, memory_order_relaxed) !=
             atomic_load_explicit(&lm_published_obeyed.number, memory_order_relaxed);
}

/* Makes a forked child renew the lock of the writes. Called before the first write. */
void lm_published_start(void);

/* Maps a page of a file over lm_published, readable only. `fd` is open for reading. Returns 0 or an
 * errno value; after a failure the page is as before. */
int lm_published_map(int fd, uint64_t offset);
/* Makes lm_published plain memory that holds zeros, and notes that nothing is obeyed. If the system
 * has no memory for that, the mapping stays. */
void lm_published_unmap(void);
/* Returns whether the page is one of a board, so that this process cannot write it. */
bool lm_published_is_mapped(void);
/* Writes of this process to lm_published stand between these two calls. The first returns false if
 * the page is one of a board: then there is nothing to write, and lm_published_end_write
 * is not called. No thread can map the page in between. */
bool lm_published_begin_write(void);
void lm_published_end_write(void);

#endif
