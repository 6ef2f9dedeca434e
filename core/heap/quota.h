/* quota.h - quotas: limits that the processes of a user share.
 *
 * A strategy whose limit has `shared = "name"` draws its bytes from a quota. The quotas of a user
 * are in one table, in a file that each process which needs it has mapped (service/quota_file.h).
 * Everything here works on the mapped memory alone: taking and giving back make no system call, and
 * a request that finds a quota full may call kill(pid, 0), which signals nothing.
 *
 * A process that draws from a quota is a member of the table. The table has the number of bytes
 * that each member has of each quota, its share, and no sum. So a process that is killed between
 * any two instructions leaves nothing to repair: what a quota has given is always the sum of the
 * shares of the members that live, and one store to the word of a member gives all its shares back.
 *
 * How bytes are taken. A process first adds the bytes to its own share and then sums up the shares
 * of all members. If the sum is above the limit, it takes the bytes off its share again and has
 * none of them. All these operations are sequentially consistent. So of two processes that take at
 * a time, the later one to add sees what the other one added, and the bytes that processes keep
 * never exceed the limit. This is the announce-then-check of Dekker's algorithm, for any number of
 * processes.
 *
 * Nothing that is read from the table is trusted: indices are bounded, and a share counts at most
 * LM_SIZE_MAX. A table that was overwritten gives wrong limits, and no wrong access. */
#ifndef LM_QUOTA_H
#define LM_QUOTA_H

#include <stdatomic.h>

#include "os/base.h"

#define LM_QUOTA_MAGIC "loam quotas"
enum {
  LM_QUOTA_VERSION = 1,
  LM_QUOTAS = 128,          /* quotas in a table; a name stays until the machine starts again */
  LM_QUOTA_MEMBERS = 512,   /* processes that draw from quotas at a time */
  LM_QUOTA_NAME = 64,       /* bytes of a name with its NUL */
  LM_QUOTA_PAGE = 4096,     /* on every machine, also where pages are larger */
  LM_QUOTA_OF_PROCESS = -1, /* lm_quota_take: this process has no share, only limits of its own */
};

/* The word of a member. It is 0 if the place was never used. Else it has the process id, the
 * milliseconds from the machine's boot to the time at which the process made the word, and two
 * bits: whether the member has ended, and whether it is still entering its place. A member counts
 * if it has neither bit. */
#define LM_QUOTA_PID ((UINT64_C(1) << 22) - 1)
#define LM_QUOTA_ENDED (UINT64_C(1) << 22)
#define LM_QUOTA_MS_SHIFT 23
#define LM_QUOTA_ENTERING (UINT64_C(1) << 63)

/* Which memory a quota counts. Memory of two kinds, devices or sets of nodes is never added up, so
 * strategies that differ in one of these draw from two quotas, even under one name. */
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

/* A process. `owner` is its word. The owner stores the other fields while it enters the place. */
typedef struct lm_quota_member {
  _Atomic uint64_t owner;
  _Atomic uint64_t pid_namespace;         /* inode number of its PID namespace; 0: not known */
  _Atomic uint64_t exe_device, exe_inode; /* the file of its program; 0: not known */
} lm_quota_member;

typedef struct lm_quota_head {
  char magic[16];
  uint32_t version, rows, members, unused;
  char boot_id[40];          /* of the kernel: a table of an earlier boot is not used */
  _Atomic uint32_t taken;    /* places of members that were ever used */
  _Atomic uint32_t refusals; /* how often a member found a quota full; watchers look at it */
} lm_quota_head;

typedef struct lm_quota_table {
  union {
    lm_quota_head head;
    char head_page[LM_QUOTA_PAGE];
  };
  lm_quota_row row[LM_QUOTAS];
  lm_quota_member member[LM_QUOTA_MEMBERS];
  _Atomic int64_t share[LM_QUOTA_MEMBERS][LM_QUOTAS]; /* bytes; at least 0 */
} lm_quota_table;

_Static_assert(sizeof(lm_quota_row) == 128, "fixed-width fields");
_Static_assert(sizeof(lm_quota_table) % LM_QUOTA_PAGE == 0, "the file has whole pages");

/* What a process says of itself when it becomes a member. */
typedef struct lm_quota_self {
  uint64_t owner; /* without the two bits */
  uint64_t pid_namespace, exe_device, exe_inode;
} lm_quota_self;

/* The table that this process has mapped; NULL: none. For readers from outside. */
extern lm_quota_table *_Atomic lm_quota_mapped __attribute__((visibility("hidden")));

/* Returns whether the head is of a table of this version. Does not look at the boot id. */
bool lm_quota_is_sound(const lm_quota_head *head);

/* Gives this process the table. An earlier member with this process's id ends: it is this process
 * before it replaced its program. The process becomes a member only by lm_quota_find. Called once,
 * before the process draws from a quota. */
void lm_quota_attach(lm_quota_table *table, const lm_quota_self *self);
/* Makes a forked child a member of its own, with no bytes, if its parent was a member: memory that
 * it shares with its parent counts for the parent. `self` is of the child. Called by the child's
 * fork hook. */
void lm_quota_fork_child(const lm_quota_self *self);
/* Ends the membership of this process, which gives its shares back. Called as the process ends. */
void lm_quota_end(void);
/* Takes the table away from this process, and ends its membership. No other thread may use it. For
 * tests. */
void lm_quota_detach(void);

/* Finds a quota, or makes it. Returns its number, 1 or more; 0: the process has no table, or the
 * table has no room for another quota or process. The process becomes a member. One thread at a
 * time. */
uint32_t lm_quota_find(const lm_quota_id *id);

/* Takes `size` bytes as often as possible, at most `want` times, so that the quota gives at most
 * `limit` bytes. Returns how often, and sets *used to the bytes that the quota has given. Looks for
 * members that have died before it refuses. Returns LM_QUOTA_OF_PROCESS in a process that is no
 * member, such as a child that was made without the C library's fork. Any thread. */
int64_t lm_quota_take(uint32_t quota, uint64_t limit, size_t size, uint32_t want, uint64_t *used);
/* Looks for members that have died and have bytes of a quota, and gives their shares back. Looks
 * once in a tick of the coarse clock. Returns whether there was one. Any thread. */
bool lm_quota_search(uint32_t quota);
/* Gives bytes back, at most what this process has; negative ones are taken, even if too few are
 * left. Any thread. */
void lm_quota_give(uint32_t quota, int64_t bytes);
/* Returns the bytes that a quota has given. Any thread. */
uint64_t lm_quota_used(uint32_t quota);
/* Like lm_quota_used, of any table, which may be a copy. 0 if there is no such quota. */
uint64_t lm_quota_used_of(const lm_quota_table *table, uint32_t quota);
/* Returns whether this process is a member now. */
bool lm_quota_is_member(void);

/* Says that a member, whose word was `owner`, has died: gives its shares back. Any process. */
void lm_quota_bury(lm_quota_table *table, uint32_t member, uint64_t owner);
/* Returns whether the word is of a member that counts. */
LM_INLINE bool lm_quota_counts(uint64_t owner) {
  return owner && !(owner & (LM_QUOTA_ENDED | LM_QUOTA_ENTERING));
}

#endif
