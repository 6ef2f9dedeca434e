/* spare.c - memory for a thread that must not wait for a fork: two tables without locks.
 *
 * Both tables are searched from their beginning. That is quick enough: entries are used only while
 * a fork lasts unusually long. */
#include "os/spare.h"

enum { SPARE_BLOCKS = 1024, NOTED_FREES = 4096 };

/* The blocks. Law: `at` is 0 (unused), TAKEN (being made or freed by one thread) or the address of
 * a block, and then the other fields describe its mapping. The release that stores an address pairs
 * with the acquire that finds it.
 *
 * Law: lm_spare_uses is at least the number of entries of both tables that are used, and `notes` at
 * least the number of used entries of `noted`. While no thread changes the tables the numbers are
 * equal, and no entry is TAKEN. So a thread counts an entry before it uses it. */
enum { TAKEN = 1 };
static LM_SPARSE struct block {
  _Atomic uintptr_t at;
  void *map;
  size_t map_size;
} block[SPARE_BLOCKS];
static LM_SPARSE _Atomic uintptr_t noted[NOTED_FREES]; /* 0: unused */
static _Atomic uint32_t notes;                         /* entries of `noted` that are not 0 */

_Atomic uint32_t lm_spare_uses;

/* ---- Blocks */

static struct block *take_block(void) {
  atomic_fetch_add(&lm_spare_uses, 1);
  for (int i = 0; i < SPARE_BLOCKS; i++) {
    uintptr_t unused = 0;
    if (atomic_compare_exchange_strong(&block[i].at, &unused, TAKEN)) return &block[i];
  }
  atomic_fetch_sub(&lm_spare_uses, 1);
  return NULL;
}

static void drop_block(struct block *b) {
  atomic_store(&b->at, 0);
  atomic_fetch_sub(&lm_spare_uses, 1);
}

void *lm_spare_alloc(size_t size, size_t align) {
  size_t extra = align > LM_PAGE ? align : 0;
  lm_assert(lm_is_pow2(align));
  if (size > LM_SIZE_MAX - LM_PAGE || extra > LM_SIZE_MAX - LM_PAGE - size) return NULL;
  struct block *b = take_block();
  if (!b) return NULL;
  b->map_size = lm_align_up(size + extra + !size, LM_PAGE);
  if (lm_sys_map(b->map_size, &b->map)) {
    drop_block(b);
    return NULL;
  }
  uintptr_t at = lm_align_up((uintptr_t)b->map, align);
  atomic_store_explicit(&b->at, at, memory_order_release);
  return (char *)b->map + (at - (uintptr_t)b->map);
}

/* NULL: no block begins there. */
static struct block *find(const void *ptr) {
  if (lm_likely(!lm_spare_is_used()) || (uintptr_t)ptr <= TAKEN) return NULL;
  for (int i = 0; i < SPARE_BLOCKS; i++)
    if (atomic_load_explicit(&block[i].at, memory_order_acquire) == (uintptr_t)ptr)
      return &block[i];
  return NULL;
}

size_t lm_spare_usable(const void *ptr) {
  const struct block *b = find(ptr);
  return b ? b->map_size - ((uintptr_t)ptr - (uintptr_t)b->map) : 0;
}

bool lm_spare_free(void *ptr) {
  struct block *b = find(ptr);
  uintptr_t at = (uintptr_t)ptr;
  if (!b || !atomic_compare_exchange_strong(&b->at, &at, TAKEN)) return false;
  lm_sys_unmap(b->map, b->map_size);
  drop_block(b);
  return true;
}

/* ---- Frees */

static void uncount_note(void) {
  atomic_fetch_sub(&notes, 1);
  atomic_fetch_sub(&lm_spare_uses, 1);
}

bool lm_spare_note_free(void *ptr) {
  atomic_fetch_add(&lm_spare_uses, 1);
  atomic_fetch_add(&notes, 1);
  for (int i = 0; i < NOTED_FREES; i++) {
    uintptr_t unused = 0;
    if (atomic_compare_exchange_strong(&noted[i], &unused, (uintptr_t)ptr)) return true;
  }
  uncount_note();
  return false;
}

void *lm_spare_next_noted(void) {
  if (!atomic_load_explicit(&notes, memory_order_relaxed)) return NULL;
  for (int i = 0; i < NOTED_FREES; i++) {
    uintptr_t ptr = atomic_load(&noted[i]);
    if (!ptr || !atomic_compare_exchange_strong(&noted[i], &ptr, 0)) continue;
    uncount_note();
    return (void *)ptr; /* NOLINT(performance-no-int-to-ptr) */
  }
  return NULL;
}

/* ---- Fork */

/* Returns how many entries are used. Frees the entries that were being made or freed: the thread
 * that did that does not exist. */
static uint32_t recount_blocks(void) {
  uint32_t used = 0;
  for (int i = 0; i < SPARE_BLOCKS; i++) {
    uintptr_t at = atomic_load(&block[i].at);
    if (at == TAKEN) atomic_store(&block[i].at, 0);
    used += at > TAKEN;
  }
  return used;
}

static uint32_t count_notes(void) {
  uint32_t used = 0;
  for (int i = 0; i < NOTED_FREES; i++) used += atomic_load(&noted[i]) != 0;
  return used;
}

/* Most processes have no spare memory when they fork. Then the tables are not touched, because they
 * have no pages yet. */
void lm_spare_fork_child(void) {
  if (!lm_spare_is_used()) return;
  uint32_t found = count_notes();
  atomic_store(&notes, found);
  atomic_store(&lm_spare_uses, found + recount_blocks());
}

bool lm_spare_is_valid(void) {
  uint32_t used = count_notes();
  if (atomic_load(&notes) != used) return false;
  for (int i = 0; i < SPARE_BLOCKS; i++) {
    uintptr_t at = atomic_load(&block[i].at);
    if (at == TAKEN) return false;
    used += at != 0;
  }
  return atomic_load(&lm_spare_uses) == used;
}
