/* quota.h - quotas: limits that the processes of a user share.
 *
 * A strategy whose limit has `shared = "name"` draws its bytes from a quota. The quotas of a user
 * are in one table, in a file that each process which needs it has mapped (service/quota_file.h).
 * Everything here works on the mapped memory alone: drawing bytes and giving them back make no
 * system call, and a request that finds a quota full may call kill(pid, 0), which sends no signal.
 *
 * A process that draws from quotas is a holder, and has a place in the table. For each holder and
 * quota, the table has the number of bytes that the holder has drawn. It has no sum of them. So a
 * process that is killed between any two instructions leaves nothing to repair: what a quota has
 * given is always the sum of what its living holders have drawn, and one store to the word of a
 * dead holder gives back all that it had drawn.
 *
 * How bytes are drawn. A process sums up the numbers of all holders. If the limit has room, it
 * adds the bytes to its own number, and sums up again. If this sum is above the limit, it takes the
 * bytes off again, and begins again a few times before it refuses the request. All these operations
 * are sequentially consistent. So of two processes that draw at one time, the process that adds
 * later sees what the other process has added, and the two cannot both keep bytes for which there
 * is room only once. Each process first stores and then loads, as in Dekker's algorithm for mutual
 * exclusion.
 *
 * The processes may have more than the limit in three cases. lm_quota_give draws negative bytes
 * even if too few are left. A strategy with a higher limit may draw from the quota. And a forked
 * child may free memory that it has inherited, and that counts for its parent: the bytes are then
 * taken off the number of the child, down to 0, although the child still has the bytes that it
 * has drawn itself. To prevent this, each span would have to note the process that has drawn it.
 *
 * A request for which there is room may be refused in two cases. The bytes of a dead holder count
 * until a process finds that it has died. And another process may have added its bytes, must take
 * them off again, and is stopped in between for longer than the tries of the request last.
 *
 * Nothing that is read from the table is trusted: indices have bounds, and what a holder has
 * drawn counts at most LM_SIZE_MAX. A table that was overwritten can make limits wrong, but never
 * causes an access outside the table. */
#ifndef LM_QUOTA_H
#define LM_QUOTA_H

#include <stdatomic.h>

#include "os/base.h"

#define LM_QUOTA_MAGIC "loam quotas"
enum {
  LM_QUOTA_VERSION = 1,
  LM_QUOTAS = 128,         /* quotas in a table; a name stays until the machine starts again */
  LM_QUOTA_HOLDERS = 512,  /* processes that draw from quotas at a time */
  LM_QUOTA_NAME = 64,      /* bytes of a name with its NUL */
  LM_QUOTA_PAGE = 4096,    /* the unit of the file format, not the page size of the machine */
  LM_QUOTA_NO_HOLDER = -1, /* instead of a place or a number: this process is no holder */
};

/* The word of a place. It is 0 if the place was never used. Else it has the id of the process, the
 * milliseconds from the machine's boot to the time at which the process made the word, and two
 * bits: ENDED means that the holder has ended, and ENTERING that the process does not hold the
 * place yet. A place counts if it has neither bit. */
#define LM_QUOTA_PID ((UINT64_C(1) << 22) - 1)
#define LM_QUOTA_ENDED (UINT64_C(1) << 22)
#define LM_QUOTA_MS_SHIFT 23
#define LM_QUOTA_ENTERING (UINT64_C(1) << 63)

/* The name of a quota, and the memory that it counts. Memory of two kinds, devices or sets of nodes
 * is never added up, so strategies that differ in one of these draw from two quotas, even under one
 * name. */
typedef struct lm_quota_id {
  char name[LM_QUOTA_NAME]; /* terminated, and zeros behind it */
  uint64_t nodes;           /* the NUMA nodes that the strategy names; 0: none */
  uint32_t kind, device;    /* lm_kind; as lm_desc has it */
} lm_quota_id;

/* A quota. `key` is a hash of `id`, and 0 while the row is free; it is stored first, and is what
 * tells quotas apart. `id` is for people who read the table. */
typedef struct lm_quota_row {
  _Atomic uint64_t key;
  lm_quota_id id;
  uint64_t unused[5];
} lm_quota_row;

/* A place. Its word is the field `owner`. The process stores the other fields while it is
 * ENTERING. */
typedef struct lm_quota_holder {
  _Atomic uint64_t owner;
  _Atomic uint64_t pid_namespace;         /* inode number of its PID namespace; 0: not known */
  _Atomic uint64_t exe_device, exe_inode; /* the file of its program; 0: not known */
} lm_quota_holder;

typedef struct lm_quota_head {
  char magic[16];
  uint32_t version, rows, holders, unused;
  char boot_id[40];          /* of the kernel: a table of an earlier boot is not used */
  _Atomic uint32_t taken;    /* places below this number may have been used */
  _Atomic uint32_t refusals; /* how often holders found a quota full; watchers look at it */
} lm_quota_head;

typedef struct lm_quota_table {
  union {
    lm_quota_head head;
    char head_page[LM_QUOTA_PAGE];
  };
  lm_quota_row row[LM_QUOTAS];
  lm_quota_holder holder[LM_QUOTA_HOLDERS];
  _Atomic int64_t drawn[LM_QUOTA_HOLDERS][LM_QUOTAS]; /* bytes, at least 0 */
} lm_quota_table;

_Static_assert(sizeof(lm_quota_row) == 128, "fixed-width fields");
_Static_assert(sizeof(lm_quota_table) % LM_QUOTA_PAGE == 0, "the file has whole pages");

/* The description of a process that becomes a holder. */
typedef struct lm_quota_self {
  uint64_t owner; /* without the two bits */
  uint64_t pid_namespace, exe_device, exe_inode;
} lm_quota_self;

/* The table that this process has mapped; NULL: none. `loam stats` reads it from outside. */
extern lm_quota_table *_Atomic lm_quota_mapped __attribute__((visibility("hidden")));

/* Returns whether the head is of a table of this version. Does not look at the boot id. */
bool lm_quota_is_sound(const lm_quota_head *head);

/* Returns whether a place has a holder with this process id, in whatever PID namespace. */
bool lm_quota_has_pid(const lm_quota_table *table, int pid);
/* Gives this process the table. A holder with the process id and the PID namespace of this process
 * is this process before exec: its place ends, if the namespace is known. The process gets a place
 * of its own only from lm_quota_find. Called once, before the process draws from a quota. */
void lm_quota_attach(lm_quota_table *table, const lm_quota_self *self);
/* Replaces the description that this process gave to lm_quota_attach. Not in a holder. */
void lm_quota_describe(const lm_quota_self *self);
/* Lets a forked child draw for itself, if its parent was a holder or awaited a place. Memory that
 * the child inherits counts for its parent. The child gets a place when it first draws, so that a
 * child which soon calls exec leaves none behind. `self` describes the child. Called by the fork
 * hook of the child. */
void lm_quota_fork_child(const lm_quota_self *self);
/* Ends the place of this process, which gives back all that it has drawn. Called as the process
 * ends. Does nothing in a child that shares the memory of its parent, whose place it is. Another
 * thread may be drawing bytes: if another process takes the place before the thread adds them, they
 * count for that process until it ends. */
void lm_quota_end(void);
/* Ends the place of this process, and takes the table away from it. No other thread may use the
 * table. For tests. */
void lm_quota_detach(void);

/* Finds a quota, or makes it. Returns its number, 1 or more; 0: the process has no table, or the
 * table has no room for another quota or process. The process becomes a holder. One thread at a
 * time may call it. */
uint32_t lm_quota_find(const lm_quota_id *id);

/* Draws `size` bytes as often as possible, at most `want` times, so that the quota gives at most
 * `limit` bytes to all processes. Returns how often, and sets *used to the bytes that the quota has
 * given. Before it refuses, it looks for holders that have died (lm_quota_search). Returns
 * LM_QUOTA_NO_HOLDER in a process that is no holder, such as a child that was made without the C
 * library's fork. Any thread. */
int64_t lm_quota_take(uint32_t quota, uint64_t limit, size_t size, uint32_t want, uint64_t *used);
/* Looks for holders that have drawn from the quota and have died, and ends their places. Does
 * nothing if a thread of this process has looked for this quota in the present tick of the coarse
 * clock. Any thread. */
void lm_quota_search(uint32_t quota);
/* Gives bytes back, at most what this process has drawn. Negative ones are drawn, even if too few
 * are left. Any thread. */
void lm_quota_give(uint32_t quota, int64_t bytes);
/* Returns the bytes that a quota has given. Any thread. */
uint64_t lm_quota_used(uint32_t quota);
/* Like lm_quota_used, in any table, which may be a copy. Returns 0 if there is no such quota. */
uint64_t lm_quota_used_of(const lm_quota_table *table, uint32_t quota);
/* Returns whether this process is a holder, or a forked child that becomes one when it draws. */
bool lm_quota_is_holder(void);

/* Ends a place if its word is still `owner`: the place of a holder that has died, or of the calling
 * process. Any process may call it. */
void lm_quota_bury(lm_quota_table *table, uint32_t holder, uint64_t owner);
/* Returns whether a place with this word has a holder. */
LM_INLINE bool lm_quota_counts(uint64_t owner) {
  return owner && !(owner & (LM_QUOTA_ENDED | LM_QUOTA_ENTERING));
}

#endif
