/* quota.c - quotas: limits that the processes of a user share (quota.h).
 *
 * Rows are found by open addressing with linear probing from the hash of the name, and are never
 * freed. So two processes that look for one name probe the same rows in one order, and the one that
 * loses the race for a free row finds the row of the other. */
#include "heap/quota.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "os/hash.h"
#include "os/lock.h"
#include "os/sys.h"
#include "os/thread.h"

lm_quota_table *_Atomic lm_quota_mapped;

enum { TRIES = 16 }; /* of a request while others may be about to take bytes off again */

/* Law: `own_place` is LM_QUOTA_NO_HOLDER, or the place whose `owner` became self.owner when this
 * process took it. A thread that takes the place writes it under `joining`. The fork hook of a
 * child and lm_quota_detach write it while there is one thread. Any thread reads it. Relaxed,
 * because it publishes no memory: what a thread finds in the table has an order of its own, and a
 * thread that must not miss the place has read `awaits_place`, or the number of a quota, with
 * acquire. */
static _Atomic int32_t own_place = LM_QUOTA_NO_HOLDER;
/* This process is a forked child that takes a place when it first draws: its parent was a holder or
 * awaited a place itself. Cleared under `joining` by the thread that has tried to take the place.
 * Release there, acquire where a thread reads it without the lock. */
static _Atomic bool awaits_place;
static lm_lock joining;
static lm_quota_self self;
/* A page that the kernel clears in every child with memory of its own. Its first word is 1 in the
 * process that has taken the place `own_place`. NULL: the kernel has no such pages; then a child
 * that was made without the C library's fork draws for its parent. Release at the store of the
 * pointer, and acquire at its load, so that the page is mapped where a thread reads it. */
static _Atomic uint64_t *_Atomic signature;

static lm_quota_table *table_now(void) {
  return atomic_load_explicit(&lm_quota_mapped, memory_order_acquire);
}

bool lm_quota_is_sound(const lm_quota_head *head) {
  return !memcmp(head->magic, LM_QUOTA_MAGIC, sizeof LM_QUOTA_MAGIC) &&
         head->version == LM_QUOTA_VERSION && head->rows == LM_QUOTAS &&
         head->holders == LM_QUOTA_HOLDERS && memchr(head->boot_id, 0, sizeof head->boot_id);
}

/* ---- Holders ------------------------------------------------------------------------------ */

/* Returns how many places to look at. */
static uint32_t taken_of(const lm_quota_table *table) {
  uint32_t n = atomic_load(&table->head.taken);
  return n < LM_QUOTA_HOLDERS ? n : LM_QUOTA_HOLDERS;
}

void lm_quota_bury(lm_quota_table *table, uint32_t holder, uint64_t owner) {
  lm_assert(holder < LM_QUOTA_HOLDERS);
  if (lm_quota_counts(owner))
    atomic_compare_exchange_strong(&table->holder[holder].owner, &owner, owner | LM_QUOTA_ENDED);
}

/* Tells whether the place belongs to this process before exec, which keeps the process id. Two
 * processes with one id may both live if their namespaces are not known. */
static bool is_earlier_self(const lm_quota_holder *h, uint64_t owner) {
  return lm_quota_counts(owner) && (owner & LM_QUOTA_PID) == (self.owner & LM_QUOTA_PID) &&
         self.pid_namespace && atomic_load(&h->pid_namespace) == self.pid_namespace;
}

static void bury_earlier_self(lm_quota_table *table) {
  for (uint32_t i = 0, n = taken_of(table); i < n; i++) {
    uint64_t owner = atomic_load(&table->holder[i].owner);
    if (is_earlier_self(&table->holder[i], owner)) lm_quota_bury(table, i, owner);
  }
}

/* Tells whether the process of a holder does not exist any more. The id of a process in another PID
 * namespace says nothing here. A process that has ended, and that its parent has not waited for,
 * still exists; the watcher sees in /proc that it has ended (service/quota_file.c). */
static bool is_dead(const lm_quota_holder *h, uint64_t owner) {
  int before = errno;
  bool dead = self.pid_namespace && atomic_load(&h->pid_namespace) == self.pid_namespace &&
              kill((int)(owner & LM_QUOTA_PID), 0) && errno == ESRCH;
  errno = before;
  return dead;
}

/* Ends the places of holders that have died: of those that have drawn from a quota, or of all if
 * `quota` is 0. Returns whether there was one. */
static bool bury_dead(lm_quota_table *table, uint32_t quota) {
  bool found = false;
  for (uint32_t i = 0, n = taken_of(table); i < n; i++) {
    uint64_t owner = atomic_load(&table->holder[i].owner);
    if (!lm_quota_counts(owner) || owner == self.owner) continue;
    if (quota && atomic_load(&table->drawn[i][quota - 1]) <= 0) continue;
    if (!is_dead(&table->holder[i], owner)) continue;
    lm_quota_bury(table, i, owner);
    found = true;
  }
  return found;
}

static void raise_taken(lm_quota_table *table, uint32_t n) {
  uint32_t now = atomic_load(&table->head.taken);
  while (now < n && !atomic_compare_exchange_weak(&table->head.taken, &now, n)) continue;
}

/* Takes a place that was never used, or whose holder has ended. False: it has a holder, or another
 * process is ENTERING it. A process that is killed while it is ENTERING leaves a place that no
 * process can take again, and no bytes that count. */
static bool take_place(lm_quota_table *table, uint32_t i) {
  lm_quota_holder *h = &table->holder[i];
  uint64_t was = atomic_load(&h->owner);
  if (was && (was & (LM_QUOTA_ENDED | LM_QUOTA_ENTERING)) != LM_QUOTA_ENDED) return false;
  if (!atomic_compare_exchange_strong(&h->owner, &was, self.owner | LM_QUOTA_ENTERING))
    return false;
  for (uint32_t q = 0; q < LM_QUOTAS; q++)
    atomic_store_explicit(&table->drawn[i][q], 0, memory_order_relaxed);
  atomic_store_explicit(&h->pid_namespace, self.pid_namespace, memory_order_relaxed);
  atomic_store_explicit(&h->exe_device, self.exe_device, memory_order_relaxed);
  atomic_store_explicit(&h->exe_inode, self.exe_inode, memory_order_relaxed);
  raise_taken(table, i + 1);
  atomic_store(&h->owner, self.owner);
  atomic_store_explicit(&own_place, (int32_t)i, memory_order_relaxed);
  return true;
}

/* Makes a page that a child finds cleared. */
static void sign_locked(void) {
  void *page = atomic_load_explicit(&signature, memory_order_relaxed);
  if (!page && lm_sys_map_wiped(LM_PAGE, &page)) return;
  atomic_store_explicit((_Atomic uint64_t *)page, 1, memory_order_relaxed);
  atomic_store_explicit(&signature, page, memory_order_release);
}

/* Tells whether this process is a child that was made without the C library's fork, and so without
 * the fork hooks. */
static bool is_unknown_child(void) {
  const _Atomic uint64_t *page = atomic_load_explicit(&signature, memory_order_acquire);
  return page && !atomic_load_explicit(page, memory_order_relaxed);
}

/* Makes this process a holder. False: there is no place for it. Each place has a holder that is not
 * known to have died, or a process is ENTERING it. */
static bool join_locked(lm_quota_table *table) {
  sign_locked();
  for (int round = 0; round < 2; round++) {
    for (uint32_t i = 0; i < LM_QUOTA_HOLDERS; i++)
      if (take_place(table, i)) return true;
    if (!bury_dead(table, 0)) break;
  }
  return false;
}

/* Returns the place of this process in the table; LM_QUOTA_NO_HOLDER: it has none. Another process
 * may have taken the place, if it found that this process had died. */
static int32_t place_of_self(const lm_quota_table *table) {
  int32_t i = atomic_load_explicit(&own_place, memory_order_relaxed);
  if (i == LM_QUOTA_NO_HOLDER || !table || is_unknown_child()) return LM_QUOTA_NO_HOLDER;
  lm_assert(i >= 0 && i < LM_QUOTA_HOLDERS);
  uint64_t owner = atomic_load_explicit(&table->holder[i].owner, memory_order_relaxed);
  return owner == self.owner ? i : LM_QUOTA_NO_HOLDER;
}

/* Like place_of_self, but first takes a place for a child that awaits one, and for each process
 * without a place if `must_join`. Looks at `awaits_place` before `own_place`: if another thread has
 * just got the place and cleared `awaits_place`, this thread sees the place. */
static int32_t place_to_draw(lm_quota_table *table, bool must_join) {
  bool joins = atomic_load_explicit(&awaits_place, memory_order_acquire) || must_join;
  int32_t i = place_of_self(table);
  if (i != LM_QUOTA_NO_HOLDER || !joins) return i;
  lm_lock_take(&joining);
  i = place_of_self(table);
  joins = atomic_load_explicit(&awaits_place, memory_order_relaxed) || must_join;
  if (i == LM_QUOTA_NO_HOLDER && joins && join_locked(table)) i = place_of_self(table);
  atomic_store_explicit(&awaits_place, false, memory_order_release);
  lm_lock_drop(&joining);
  return i;
}

bool lm_quota_is_holder(void) {
  bool awaits = atomic_load_explicit(&awaits_place, memory_order_acquire);
  return awaits || place_of_self(table_now()) != LM_QUOTA_NO_HOLDER;
}

bool lm_quota_has_pid(const lm_quota_table *table, int pid) {
  for (uint32_t i = 0, n = taken_of(table); i < n; i++) {
    uint64_t owner = atomic_load(&table->holder[i].owner);
    if (lm_quota_counts(owner) && (owner & LM_QUOTA_PID) == (uint64_t)pid) return true;
  }
  return false;
}

void lm_quota_describe(const lm_quota_self *given) {
  lm_assert(lm_quota_counts(given->owner) && !lm_quota_is_holder());
  self = *given;
}

void lm_quota_attach(lm_quota_table *table, const lm_quota_self *given) {
  lm_assert(!table_now() && given->owner && lm_quota_counts(given->owner));
  self = *given;
  bury_earlier_self(table);
  lm_thread_add_fork_lock(&joining);
  atomic_store_explicit(&lm_quota_mapped, table, memory_order_release);
}

void lm_quota_fork_child(const lm_quota_self *given) {
  lm_quota_table *table = table_now();
  bool was_holder = atomic_load_explicit(&own_place, memory_order_relaxed) != LM_QUOTA_NO_HOLDER;
  if (!table) return;
  self = *given;
  if (!was_holder) return;
  atomic_store_explicit(&own_place, LM_QUOTA_NO_HOLDER, memory_order_relaxed);
  atomic_store_explicit(&awaits_place, true, memory_order_relaxed);
}

void lm_quota_end(void) {
  lm_quota_table *table = table_now();
  int32_t i = place_of_self(table);
  if (i == LM_QUOTA_NO_HOLDER || (self.owner & LM_QUOTA_PID) != (uint64_t)getpid()) return;
  lm_quota_bury(table, (uint32_t)i, self.owner);
}

void lm_quota_detach(void) {
  lm_quota_end();
  atomic_store_explicit(&own_place, LM_QUOTA_NO_HOLDER, memory_order_relaxed);
  atomic_store_explicit(&awaits_place, false, memory_order_relaxed);
  atomic_store_explicit(&lm_quota_mapped, NULL, memory_order_release);
}

/* ---- Quotas ------------------------------------------------------------------------------- */

static uint64_t key_of(const lm_quota_id *id) {
  uint64_t key = lm_hash_bytes(id, sizeof *id);
  return key ? key : 1;
}

/* Tells whether the row has the key, after it has got the key if it was free. */
static bool is_row_of(lm_quota_row *row, uint64_t key, const lm_quota_id *id) {
  uint64_t found = 0;
  if (atomic_compare_exchange_strong(&row->key, &found, key)) row->id = *id;
  return !found || found == key;
}

uint32_t lm_quota_find(const lm_quota_id *id) {
  lm_quota_table *table = table_now();
  uint64_t key = key_of(id);
  lm_assert(id->name[0] && memchr(id->name, 0, sizeof id->name));
  if (!table || place_to_draw(table, true) == LM_QUOTA_NO_HOLDER) return 0;
  for (uint32_t i = 0; i < LM_QUOTAS; i++) {
    uint32_t at = (uint32_t)((key + i) % LM_QUOTAS);
    if (is_row_of(&table->row[at], key, id)) return at + 1;
  }
  return 0;
}

uint64_t lm_quota_used_of(const lm_quota_table *table, uint32_t quota) {
  uint64_t sum = 0;
  if (!table || !quota || quota > LM_QUOTAS) return 0;
  for (uint32_t i = 0, n = taken_of(table); i < n; i++) {
    if (!lm_quota_counts(atomic_load(&table->holder[i].owner))) continue;
    int64_t drawn = atomic_load(&table->drawn[i][quota - 1]);
    if (drawn > 0) sum += (uint64_t)drawn < LM_SIZE_MAX ? (uint64_t)drawn : LM_SIZE_MAX;
  }
  return sum;
}

uint64_t lm_quota_used(uint32_t quota) { return lm_quota_used_of(table_now(), quota); }

/* ---- Drawing and giving back ---------------------------------------------------------------- */

/* Takes bytes off what this process has drawn, down to 0: a forked child may free memory that
 * counts for its parent. The child may then have more than its number says (quota.h). */
static void reduce(_Atomic int64_t *drawn, int64_t bytes) {
  int64_t now = atomic_load(drawn);
  while (now > 0 &&
         !atomic_compare_exchange_weak(drawn, &now, now > bytes ? now - bytes : INT64_C(0)))
    continue;
}

void lm_quota_give(uint32_t quota, int64_t bytes) {
  lm_quota_table *table = table_now();
  int32_t i = place_of_self(table);
  if (i == LM_QUOTA_NO_HOLDER || !quota) return;
  if (bytes > 0) reduce(&table->drawn[i][quota - 1], bytes);
  else atomic_fetch_add(&table->drawn[i][quota - 1], -bytes);
}

/* No look begins in a tick of the coarse clock in which another look has ended, so that requests
 * which a full quota refuses one after another stay cheap. A thread that therefore does not look
 * sees the bytes that the look has given back. Release at the end of the look pairs with acquire
 * for that. The watchers of the user see `refusals` change, and then look for those dead that this
 * process cannot recognize. */
void lm_quota_search(uint32_t quota) {
  static LM_SPARSE _Atomic int64_t looked_ns[LM_QUOTAS];
  lm_quota_table *table = table_now();
  int64_t now = lm_sys_coarse_ns();
  lm_assert(quota && quota <= LM_QUOTAS);
  if (!lm_quota_is_holder()) return;
  if (atomic_load_explicit(&looked_ns[quota - 1], memory_order_acquire) == now) return;
  atomic_fetch_add_explicit(&table->head.refusals, 1, memory_order_relaxed);
  (void)bury_dead(table, quota);
  atomic_store_explicit(&looked_ns[quota - 1], now, memory_order_release);
}

/* Returns how many pieces of `size` bytes a limit leaves, at most `want`. */
static uint32_t pieces(uint64_t limit, uint64_t used, size_t size, uint32_t want) {
  uint64_t n = used < limit ? (limit - used) / size : 0;
  return n < want ? (uint32_t)n : want;
}

/* Only a sum that no other request can be about to lower is a reason to refuse. While two requests
 * have both added their bytes, the sum may be above the limit although each of them fits, or a
 * third one. So a request that finds the sum above the limit begins again after a pause, TRIES
 * times at most. The other reason for such a sum is a strategy with a higher limit and the name of
 * this quota, and then the tries are in vain. A request that finds the quota full for the first
 * time looks for the dead, and begins again too. */
int64_t lm_quota_take(uint32_t quota, uint64_t limit, size_t size, uint32_t want, uint64_t *used) {
  lm_quota_table *table = table_now();
  int32_t i = place_to_draw(table, false);
  if (i == LM_QUOTA_NO_HOLDER) return LM_QUOTA_NO_HOLDER;
  lm_assert(size && quota && quota <= LM_QUOTAS && limit <= LM_SIZE_MAX);
  _Atomic int64_t *drawn = &table->drawn[i][quota - 1];
  bool was_above = false;
  for (int tries = 0; tries < TRIES; tries++) {
    *used = lm_quota_used_of(table, quota);
    uint32_t n = pieces(limit, *used, size, want);
    was_above |= *used > limit;
    if (!n && tries && !was_above) return 0;
    if (!n) lm_quota_search(quota);
    if (n) {
      atomic_fetch_add(drawn, (int64_t)(n * size));
      *used = lm_quota_used_of(table, quota);
      if (*used <= limit) return n;
      reduce(drawn, (int64_t)(n * size));
      was_above = true;
    }
    if (was_above) lm_pause();
  }
  return 0;
}
