/* quota.c - quotas: limits that the processes of a user share (quota.h).
 *
 * Rows are found by open addressing with linear probing from the hash of the name, and are never
 * freed. So two processes that look for one name probe the same rows in one order, and the one that
 * loses the race for a free row finds the row of the other. */
#include "heap/quota.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "os/hash.h"
#include "os/lock.h"
#include "os/sys.h"

lm_quota_table *_Atomic lm_quota_mapped;

enum {
  NO_MEMBER = -1,
  TRIES = 64, /* of a process that takes bytes while others do */
};

/* Law: `me` is NO_MEMBER, or the place whose `owner` was self.owner when this process entered it.
 * Written by the thread that holds the load lock of service/policy.c, by a start, or by the only
 * thread of a forked child; read by all. Relaxed: what a place contains is shared memory, and the
 * operations on it have their own order. */
static _Atomic int32_t me = NO_MEMBER;
static lm_quota_self self;
/* A page that the kernel clears in every child: its first word is 1 in the process that is the
 * member. NULL: the kernel does not do that. */
static uint64_t *signature;

static lm_quota_table *table_now(void) {
  return atomic_load_explicit(&lm_quota_mapped, memory_order_acquire);
}

bool lm_quota_is_sound(const lm_quota_head *head) {
  return !memcmp(head->magic, LM_QUOTA_MAGIC, sizeof LM_QUOTA_MAGIC) &&
         head->version == LM_QUOTA_VERSION && head->rows == LM_QUOTAS &&
         head->members == LM_QUOTA_MEMBERS && memchr(head->boot_id, 0, sizeof head->boot_id);
}

/* ---- Members ------------------------------------------------------------------------------ */

/* Returns how many places of members to look at. */
static uint32_t taken_of(const lm_quota_table *table) {
  uint32_t n = atomic_load(&table->head.taken);
  return n < LM_QUOTA_MEMBERS ? n : LM_QUOTA_MEMBERS;
}

void lm_quota_bury(lm_quota_table *table, uint32_t member, uint64_t owner) {
  lm_assert(member < LM_QUOTA_MEMBERS);
  if (lm_quota_counts(owner))
    atomic_compare_exchange_strong(&table->member[member].owner, &owner, owner | LM_QUOTA_ENDED);
}

/* Tells whether a member is an earlier program of this process: exec keeps the process id. */
static bool is_earlier_self(const lm_quota_member *m, uint64_t owner) {
  return lm_quota_counts(owner) && (owner & LM_QUOTA_PID) == (self.owner & LM_QUOTA_PID) &&
         atomic_load(&m->pid_namespace) == self.pid_namespace;
}

static void bury_earlier_self(lm_quota_table *table) {
  for (uint32_t i = 0, n = taken_of(table); i < n; i++) {
    uint64_t owner = atomic_load(&table->member[i].owner);
    if (is_earlier_self(&table->member[i], owner)) lm_quota_bury(table, i, owner);
  }
}

/* Tells whether the member's process does not exist any more. A process of another PID namespace
 * cannot be asked for. A process that its parent has not waited for still exists here; who may read
 * /proc knows better (service/quota_file.c). */
static bool is_dead(const lm_quota_member *m, uint64_t owner) {
  int before = errno;
  bool dead = self.pid_namespace && atomic_load(&m->pid_namespace) == self.pid_namespace &&
              kill((int)(owner & LM_QUOTA_PID), 0) && errno == ESRCH;
  errno = before;
  return dead;
}

/* Buries the dead members that have bytes of a quota, or any dead member if `quota` is 0. Returns
 * whether there was one. */
static bool bury_dead(lm_quota_table *table, uint32_t quota) {
  bool found = false;
  for (uint32_t i = 0, n = taken_of(table); i < n; i++) {
    uint64_t owner = atomic_load(&table->member[i].owner);
    if (!lm_quota_counts(owner) || owner == self.owner) continue;
    if (quota && atomic_load(&table->share[i][quota - 1]) <= 0) continue;
    if (!is_dead(&table->member[i], owner)) continue;
    lm_quota_bury(table, i, owner);
    found = true;
  }
  return found;
}

static void raise_taken(lm_quota_table *table, uint32_t n) {
  uint32_t now = atomic_load(&table->head.taken);
  while (now < n && !atomic_compare_exchange_weak(&table->head.taken, &now, n)) continue;
}

/* Takes the place of a member that has ended, or a fresh one. A process that is killed in here
 * leaves a place that nobody uses again, and no bytes in any quota. */
static bool take_place(lm_quota_table *table, uint32_t i) {
  lm_quota_member *m = &table->member[i];
  uint64_t was = atomic_load(&m->owner);
  if (was && (was & (LM_QUOTA_ENDED | LM_QUOTA_ENTERING)) != LM_QUOTA_ENDED) return false;
  if (!atomic_compare_exchange_strong(&m->owner, &was, self.owner | LM_QUOTA_ENTERING))
    return false;
  for (uint32_t q = 0; q < LM_QUOTAS; q++)
    atomic_store_explicit(&table->share[i][q], 0, memory_order_relaxed);
  atomic_store_explicit(&m->pid_namespace, self.pid_namespace, memory_order_relaxed);
  atomic_store_explicit(&m->exe_device, self.exe_device, memory_order_relaxed);
  atomic_store_explicit(&m->exe_inode, self.exe_inode, memory_order_relaxed);
  raise_taken(table, i + 1);
  atomic_store(&m->owner, self.owner);
  atomic_store_explicit(&me, (int32_t)i, memory_order_relaxed);
  return true;
}

/* Makes a page that a child finds cleared. */
static void sign(void) {
  void *page = NULL;
  if (!signature && !lm_sys_map(LM_PAGE, &page)) {
    if (!lm_sys_wipe_on_fork(page, LM_PAGE)) signature = page;
    else lm_sys_unmap(page, LM_PAGE);
  }
  if (signature) *signature = 1;
}

/* Makes this process a member. False: all places are those of processes that live. */
static bool join(lm_quota_table *table) {
  for (int round = 0; round < 2; round++) {
    for (uint32_t i = 0; i < LM_QUOTA_MEMBERS; i++)
      if (take_place(table, i)) return true;
    if (!bury_dead(table, 0)) break;
  }
  return false;
}

/* Returns the place of this process in the table; NO_MEMBER: it has none. Another process may have
 * taken the place, if it found that this process had died. */
static int32_t place_of_self(const lm_quota_table *table) {
  int32_t i = atomic_load_explicit(&me, memory_order_relaxed);
  if (i == NO_MEMBER || !table || (signature && !*signature)) return NO_MEMBER;
  return atomic_load_explicit(&table->member[i].owner, memory_order_relaxed) == self.owner
             ? i
             : NO_MEMBER;
}

bool lm_quota_is_member(void) { return place_of_self(table_now()) != NO_MEMBER; }

void lm_quota_attach(lm_quota_table *table, const lm_quota_self *given) {
  lm_assert(!table_now() && given->owner && lm_quota_counts(given->owner));
  self = *given;
  bury_earlier_self(table);
  sign();
  atomic_store_explicit(&lm_quota_mapped, table, memory_order_release);
}

void lm_quota_fork_child(const lm_quota_self *given) {
  lm_quota_table *table = table_now();
  bool was_member = atomic_load_explicit(&me, memory_order_relaxed) != NO_MEMBER;
  if (!table) return;
  self = *given;
  atomic_store_explicit(&me, NO_MEMBER, memory_order_relaxed);
  if (signature) *signature = 1;
  if (was_member) (void)join(table);
}

void lm_quota_end(void) {
  lm_quota_table *table = table_now();
  int32_t i = place_of_self(table);
  if (i != NO_MEMBER) lm_quota_bury(table, (uint32_t)i, self.owner);
}

void lm_quota_detach(void) {
  lm_quota_end();
  atomic_store_explicit(&me, NO_MEMBER, memory_order_relaxed);
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
  if (!table || (place_of_self(table) == NO_MEMBER && !join(table))) return 0;
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
    if (!lm_quota_counts(atomic_load(&table->member[i].owner))) continue;
    int64_t share = atomic_load(&table->share[i][quota - 1]);
    if (share > 0) sum += (uint64_t)share < LM_SIZE_MAX ? (uint64_t)share : LM_SIZE_MAX;
  }
  return sum;
}

uint64_t lm_quota_used(uint32_t quota) { return lm_quota_used_of(table_now(), quota); }

/* ---- Taking and giving -------------------------------------------------------------------- */

/* A share is never below 0: a forked child frees what counts for its parent. */
static void reduce(_Atomic int64_t *share, int64_t bytes) {
  int64_t now = atomic_load(share);
  while (now > 0 &&
         !atomic_compare_exchange_weak(share, &now, now > bytes ? now - bytes : INT64_C(0)))
    continue;
}

void lm_quota_give(uint32_t quota, int64_t bytes) {
  lm_quota_table *table = table_now();
  int32_t i = place_of_self(table);
  if (i == NO_MEMBER || !quota) return;
  if (bytes > 0) reduce(&table->share[i][quota - 1], bytes);
  else atomic_fetch_add(&table->share[i][quota - 1], -bytes);
}

/* Once in a tick of the coarse clock, so that requests which a full quota refuses one after another
 * stay cheap. The watchers of the user see `refusals` change, and then look for those dead that
 * this process cannot recognize. */
bool lm_quota_search(uint32_t quota) {
  static _Atomic int64_t looked_ns;
  lm_quota_table *table = table_now();
  int64_t now = lm_sys_coarse_ns();
  if (place_of_self(table) == NO_MEMBER) return false;
  if (atomic_exchange_explicit(&looked_ns, now, memory_order_relaxed) == now) return false;
  atomic_fetch_add_explicit(&table->head.refusals, 1, memory_order_relaxed);
  return bury_dead(table, quota);
}

/* How many pieces of `size` bytes a limit leaves, at most `want`. */
static uint32_t pieces(uint64_t limit, uint64_t used, size_t size, uint32_t want) {
  uint64_t n = used < limit ? (limit - used) / size : 0;
  return n < want ? (uint32_t)n : want;
}

/* Another process may take bytes between the first sum and the addition. Then the sum is made
 * again; a process that has lost so often gets nothing. */
int64_t lm_quota_take(uint32_t quota, uint64_t limit, size_t size, uint32_t want, uint64_t *used) {
  lm_quota_table *table = table_now();
  int32_t i = place_of_self(table);
  if (i == NO_MEMBER) return LM_QUOTA_OF_PROCESS;
  lm_assert(size && quota && quota <= LM_QUOTAS && limit <= LM_SIZE_MAX);
  _Atomic int64_t *share = &table->share[i][quota - 1];
  for (int tries = 0; tries < TRIES; tries++) {
    *used = lm_quota_used_of(table, quota);
    uint32_t n = pieces(limit, *used, size, want);
    if (!n && !lm_quota_search(quota)) return 0;
    if (!n) continue;
    atomic_fetch_add(share, (int64_t)(n * size));
    *used = lm_quota_used_of(table, quota);
    if (*used <= limit) return n;
    reduce(share, (int64_t)(n * size));
  }
  return 0;
}
