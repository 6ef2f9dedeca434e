/* strategy.c - strategies: a table by id, and chains by the hash of the description. Both only
 * grow, so a lookup takes no lock. */
#include "heap/strategy.h"

#include <string.h>

#include "gpu/gpu.h"
#include "heap/quota.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

lm_strategy lm_strategy_builtin = { .desc = { .name = "default" },
                                    .whole = &lm_strategy_builtin,
                                    .account = &lm_strategy_builtin,
                                    .family = &lm_strategy_builtin };

enum { CHAINS = 1024 };

/* The lock is held for writes. A chain begins with its newest strategy. The built-in one is in
 * no chain and not in the table. */
static lm_lock lock;
static _Atomic uint32_t added; /* strategies in the table */
static LM_SPARSE _Atomic(lm_strategy *) chain[CHAINS];
LM_SPARSE _Atomic(lm_strategy *) lm_strategy_table[LM_STRATEGIES_MAX];

/* ---- Descriptions ------------------------------------------------------------------------- */

static bool needs_device(lm_kind kind) { return kind == LM_KIND_DEVICE || kind == LM_KIND_MANAGED; }

static loam_status check_device(const lm_desc *d) {
  if (d->kind == LM_KIND_DEVICE && (unsigned)d->supply >= LM_DEVICE_POOL_KINDS)
    return lm_error(LOAM_EINVAL, "pool %d: there are pools 0-%d", d->supply,
                    LM_DEVICE_POOL_KINDS - 1);
  if (d->device > LM_DEVICES_MAX)
    return lm_error(LOAM_EINVAL, "device %d: devices are 0-%d", d->device - 1, LM_DEVICES_MAX - 1);
  if (d->kind == LM_KIND_MANAGED && d->prefer > LM_DEVICES_MAX + 1)
    return lm_error(LOAM_EINVAL, "prefer %d: devices are 0-%d", d->prefer - 2, LM_DEVICES_MAX - 1);
  return LOAM_OK;
}

static loam_status check(const lm_desc *d) {
  if (!memchr(d->name, 0, sizeof d->name))
    return lm_error(LOAM_EINVAL, "a strategy's name is longer than %d bytes", LM_STRATEGY_NAME - 1);
  if ((unsigned)d->kind >= LM_KINDS)
    return lm_error(LOAM_EINVAL, "strategy kind %d: there are kinds 0-%d", d->kind, LM_KINDS - 1);
  if (d->align && (!lm_is_pow2(d->align) || d->align > LM_GIB))
    return lm_error(LOAM_EINVAL, "align %zu: a power of two up to 1 GiB is possible", d->align);
  if (!memchr(d->handler, 0, sizeof d->handler))
    return lm_error(LOAM_EINVAL, "a handler's name is longer than %zu bytes",
                    sizeof d->handler - 1);
  if (!memchr(d->shared, 0, sizeof d->shared))
    return lm_error(LOAM_EINVAL, "the name of a shared limit is longer than %d bytes",
                    LM_STRATEGY_NAME - 1);
  if (d->shared[0] && !d->limit)
    return lm_error(LOAM_EINVAL, "shared \"%s\": there is no limit to share", d->shared);
  if (d->soft > d->limit)
    return lm_error(LOAM_EINVAL, "soft limit %zu: it is above the limit, %zu", d->soft, d->limit);
  if (d->kind == LM_KIND_FILE && !memchr(d->dir, 0, sizeof d->dir))
    return lm_error(LOAM_EINVAL, "a folder's path is longer than %zu bytes", sizeof d->dir - 1);
  if (d->kind == LM_KIND_FILE && d->dir[0] != '/')
    return lm_error(LOAM_EINVAL, "dir \"%s\": a file strategy has the absolute path of a folder",
                    d->dir);
  if (needs_device(d->kind)) return check_device(d);
  if (d->kind == LM_KIND_HANDLER && !d->handler[0])
    return lm_error(LOAM_EINVAL, "a handler strategy without the handler's name");
  return LOAM_OK;
}

static bool has_mask(int mode) {
  return mode == LM_BIND_PREFERRED || mode == LM_BIND_BIND || mode == LM_BIND_INTERLEAVE ||
         mode == LM_BIND_PREFERRED_MANY;
}

/* Copies the fields of a placement that its mode uses. */
static void copy_placement(lm_placement *out, const lm_placement *p, lm_huge huge) {
  out->mode = p->mode;
  if (has_mask(p->mode)) out->nodes = p->nodes;
  if (p->mode != LM_BIND_WEIGHTED) return;
  for (unsigned i = 0; i < LM_NODES_MAX; i++) {
    out->weight[i] = p->weight[i];
    if (p->weight[i]) out->nodes |= (uint64_t)1 << i;
  }
  out->huge = huge >= LM_HUGE_THP;
}

/* Tells whether memory of the kind is in a file. */
static bool is_backed(lm_kind kind) { return kind == LM_KIND_SHARED || kind == LM_KIND_FILE; }

/* Makes equal descriptions equal bytes: padding, the bytes behind a text, and the fields that the
 * kind or mode does not use become zero. */
static void canonicalise(lm_desc *out, const lm_desc *d) {
  memset(out, 0, sizeof *out);
  strcpy(out->name, d->name);
  out->kind = d->kind;
  out->align = d->align;
  out->limit = d->limit;
  out->soft = d->soft;
  strcpy(out->shared, d->shared);
  copy_placement(&out->placement, &d->placement, d->huge);
  out->huge = d->huge;
  out->zero = d->zero;
  out->prefault = d->prefault;
  out->lock = d->lock;
  if (!is_backed(d->kind)) out->guard = d->guard;
  if (d->kind == LM_KIND_HANDLER) strcpy(out->handler, d->handler);
  if (d->kind == LM_KIND_FILE) strcpy(out->dir, d->dir);
  if (needs_device(d->kind)) out->device = d->device;
  if (d->kind == LM_KIND_DEVICE) out->supply = d->supply;
  if (d->kind == LM_KIND_MANAGED) out->prefer = d->prefer;
  if (d->kind != LM_KIND_PINNED) return;
  out->mapped = d->mapped;
  out->portable = d->portable;
  out->write_combined = d->write_combined;
}

/* ---- The table ---------------------------------------------------------------------------- */

/* Acquire pairs with the release in add_locked: strategies below the count are in the table. */
uint32_t lm_strategy_count(void) { return 1 + atomic_load_explicit(&added, memory_order_acquire); }

static uint32_t hash_bytes(uint32_t h, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 0x01000193u;
  return h;
}

/* The bytes of a description before its limits, and from where those behind the limits begin. */
enum { BEFORE = offsetof(lm_desc, limit), BEHIND = offsetof(lm_desc, soft) + sizeof(size_t) };
_Static_assert(offsetof(lm_desc, soft) == BEFORE + sizeof(size_t), "the limits are side by side");

/* FNV-1a of the description without its limits. */
static uint32_t hash_of(const lm_desc *desc) {
  uint32_t h = hash_bytes(0x811c9dc5u, desc, BEFORE);
  return hash_bytes(h, (const char *)desc + BEHIND, sizeof *desc - BEHIND);
}

static bool is_same_but_limits(const lm_desc *a, const lm_desc *b) {
  return !memcmp(a, b, BEFORE) &&
         !memcmp((const char *)a + BEHIND, (const char *)b + BEHIND, sizeof *a - BEHIND);
}

static _Atomic(lm_strategy *) *chain_of(uint32_t hash) { return &chain[hash % CHAINS]; }

static lm_strategy *find(const lm_desc *desc, uint32_t hash) {
  if (!memcmp(&lm_strategy_builtin.desc, desc, sizeof *desc)) return &lm_strategy_builtin;
  lm_strategy *s = atomic_load_explicit(chain_of(hash), memory_order_acquire);
  while (s && (s->hash != hash || memcmp(&s->desc, desc, sizeof *desc) != 0)) s = s->older;
  return s;
}

/* The account of a new strategy: a part has the account of its whole. */
static lm_strategy *account_of(lm_strategy *made) {
  lm_assert(made->whole);
  if (made->whole != made) return made->whole->account;
  lm_strategy *s = atomic_load_explicit(chain_of(made->hash), memory_order_acquire);
  while (made->desc.limit && s) {
    if (s->desc.limit && s->hash == made->hash && is_same_but_limits(&s->desc, &made->desc))
      return s->account;
    s = s->older;
  }
  return made;
}

/* The family of a new strategy: a part has the family of its whole. Every whole that differs at
 * most in the limits has one family already. */
static lm_strategy *family_of(lm_strategy *made) {
  if (made->whole != made) return made->whole->family;
  lm_strategy *s = atomic_load_explicit(chain_of(made->hash), memory_order_acquire);
  for (; s; s = s->older)
    if (s->whole == s && s->hash == made->hash && is_same_but_limits(&s->desc, &made->desc))
      return s->family;
  return made;
}

/* The pointer is stored before the count, so that every id below the count can be looked up. The
 * count is stored before the chain, so that whoever finds the strategy by its description knows an
 * id below the count. The three releases pair with the acquires in lm_strategy_at,
 * lm_strategy_count and find. */
static void add_locked(lm_strategy *s) {
  uint32_t id = 1 + atomic_load_explicit(&added, memory_order_relaxed);
  lm_assert(id < LM_STRATEGIES_MAX && !lm_load(lm_strategy *, &lm_strategy_table[id]));
  s->id = id;
  s->account = account_of(s);
  s->family = family_of(s);
  lm_assert(s->account->account == s->account && s->family->family == s->family);
  s->older = atomic_load_explicit(chain_of(s->hash), memory_order_relaxed);
  atomic_store_explicit(&lm_strategy_table[id], s, memory_order_release);
  atomic_store_explicit(&added, id, memory_order_release);
  atomic_store_explicit(chain_of(s->hash), s, memory_order_release);
}

/* Adds a new strategy, unless another thread added an equal one first. Returns the one that is in
 * the table; NULL: the table is full. */
static lm_strategy *add_or_find(lm_strategy *made) {
  lm_lock_take(&lock);
  lm_strategy *s = find(&made->desc, made->hash);
  if (!s && lm_strategy_count() < LM_STRATEGIES_MAX) {
    add_locked(made);
    s = made;
  }
  lm_lock_drop(&lock);
  return s;
}

static bool is_one_valid(uint32_t id) {
  const lm_strategy *s = lm_strategy_at(id);
  if (s->id != id || s->whole->whole != s->whole || s->account->account != s->account) return false;
  if (s->whole != s && (s->shares || s->twins || s->account != s->whole->account)) return false;
  if (s->family->family != s->family || s->family != s->whole->family) return false;
  if (s->account != s && !is_same_but_limits(&s->account->desc, &s->whole->desc)) return false;
  return find(&s->desc, s->hash) == s;
}

bool lm_strategy_is_valid(void) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (!is_one_valid(id)) return false;
  return true;
}

/* ---- Making ------------------------------------------------------------------------------- */

static bool wants_shares(const lm_desc *d) {
  return d->kind == LM_KIND_HOST && d->placement.mode == LM_BIND_LOCAL && !d->placement.nodes &&
         !lm_is_pow2((size_t)lm_numa_nodes());
}

static bool wants_twins(const lm_desc *d) {
  return d->kind == LM_KIND_PINNED && !d->write_combined;
}

/* Frees a strategy that was not added. */
static void discard(lm_strategy *made) {
  lm_metadata_free(made->shares);
  lm_metadata_free(made->twins);
  lm_metadata_free(made);
}

/* A strategy that is not in the table yet; NULL: there is no memory. */
static lm_strategy *prepare(const lm_desc *desc, uint32_t hash) {
  lm_strategy *made = lm_metadata_alloc(sizeof *made);
  if (!made) return NULL;
  memcpy(&made->desc, desc, sizeof *desc); /* with the padding: find compares bytes */
  made->hash = hash;
  made->whole = made;
  if (wants_shares(desc)) made->shares = lm_metadata_alloc(sizeof *made->shares);
  if (wants_twins(desc)) made->twins = lm_metadata_alloc(sizeof *made->twins);
  bool lacks = (wants_shares(desc) && !made->shares) || (wants_twins(desc) && !made->twins);
  if (!lacks) return made;
  discard(made);
  return NULL;
}

/* Memory is allocated before the lock is taken, so no lock is taken under it. */
static loam_status make(const lm_desc *desc, uint32_t hash, lm_strategy **out) {
  lm_strategy *made = prepare(desc, hash);
  if (!made) return lm_error(LOAM_ENOMEM, "no memory for strategy \"%s\"", desc->name);
  lm_thread_add_fork_lock(&lock);
  lm_strategy *s = add_or_find(made);
  if (s != made) discard(made);
  if (!s)
    return lm_error(LOAM_EBUDGET,
                    "strategy \"%s\": a process has at most %d strategies in its life", desc->name,
                    LM_STRATEGIES_MAX);
  *out = s;
  return LOAM_OK;
}

loam_status lm_strategy_intern(const lm_desc *desc, lm_strategy **out) {
  loam_status status = check(desc);
  if (status) return status;
  lm_desc canonical;
  canonicalise(&canonical, desc);
  uint32_t hash = hash_of(&canonical);
  lm_strategy *known = find(&canonical, hash);
  if (!known) return make(&canonical, hash, out);
  *out = known;
  return LOAM_OK;
}

/* ---- Shares and twins --------------------------------------------------------------------- */

/* A part of a whole: a share or a twin. Its description equals no other's, because canonicalise
 * clears the fields that tell parts apart. NULL: there is no memory, or the table is full. */
static lm_strategy *make_part(lm_strategy *whole, const lm_desc *desc) {
  lm_strategy *part = lm_metadata_alloc(sizeof *part);
  if (!part) return NULL;
  lm_assert(whole->whole == whole);
  memcpy(&part->desc, desc, sizeof *desc);
  part->hash = hash_of(desc);
  part->whole = whole;
  lm_strategy *s = add_or_find(part);
  if (s != part) lm_metadata_free(part);
  return s;
}

static lm_strategy *make_share(lm_strategy *whole, unsigned node) {
  lm_desc desc;
  memcpy(&desc, &whole->desc, sizeof desc);
  desc.placement.nodes = (uint64_t)1 << node;
  return make_part(whole, &desc);
}

/* Acquire and release pair with each other: whoever finds the share finds it complete. */
static lm_strategy *share_of(lm_strategy *whole, unsigned node) {
  lm_assert(whole->shares && node < LM_NODES_MAX);
  _Atomic(lm_strategy *) *at = &whole->shares->of[node];
  lm_strategy *share = atomic_load_explicit(at, memory_order_acquire);
  if (lm_likely(share != NULL)) return share;
  share = make_share(whole, node);
  if (share) atomic_store_explicit(at, share, memory_order_release);
  return share ? share : whole;
}

static lm_strategy *make_twin(lm_strategy *whole, int node, bool asked) {
  lm_desc desc;
  memcpy(&desc, &whole->desc, sizeof desc);
  desc.asked = asked;
  if (node >= 0) desc.placement.mode = LM_BIND_PREFERRED;
  if (node >= 0) desc.placement.nodes = (uint64_t)1 << node;
  return make_part(whole, &desc);
}

lm_strategy *lm_strategy_twin(lm_strategy *whole, int node, bool asked) {
  lm_assert(node >= -1 && node < LM_NODES_MAX);
  if (!whole->twins || (node < 0 && !asked)) return whole;
  _Atomic(lm_strategy *) *at = &whole->twins->of[node + 1][asked];
  lm_strategy *twin = atomic_load_explicit(at, memory_order_acquire);
  if (lm_likely(twin != NULL)) return twin;
  twin = make_twin(whole, node, asked);
  if (twin) atomic_store_explicit(at, twin, memory_order_release);
  return twin ? twin : whole;
}

lm_strategy *lm_strategy_share(lm_strategy *whole) { return share_of(whole, lm_numa_nearest()); }

lm_strategy *lm_strategy_on_node(lm_strategy *s, unsigned node) {
  return s->shares && lm_numa_has(node) ? share_of(s, node) : s;
}

const char *const lm_strategy_kind_texts[LM_KINDS] = {
  [LM_KIND_HOST] = "host",       [LM_KIND_SYSTEM] = "system", [LM_KIND_HANDLER] = "handler",
  [LM_KIND_DENY] = "deny",       [LM_KIND_PINNED] = "pinned", [LM_KIND_DEVICE] = "device",
  [LM_KIND_MANAGED] = "managed", [LM_KIND_SHARED] = "shared", [LM_KIND_FILE] = "file",
};

/* ---- Limits ------------------------------------------------------------------------------- */

_Static_assert((int)LM_QUOTA_NAME == (int)LM_STRATEGY_NAME, "a quota has the name of a limit");

/* Returns the number of the quota from which a strategy draws; 0: none. Acquire pairs with the
 * release of lm_strategy_bind_quotas: a thread that reads the number sees that the process is a
 * holder. */
static uint32_t quota_of(const lm_strategy *s) {
  return s->desc.shared[0] ? atomic_load_explicit(&s->account->quota, memory_order_acquire) : 0;
}

/* Tells whether a strategy is an account that is to have a quota and has none. */
static bool lacks_quota(const lm_strategy *s) {
  return s->account == s && s->desc.shared[0] && !quota_of(s);
}

bool lm_strategy_lacks_quota(void) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lacks_quota(lm_strategy_at(id))) return true;
  return false;
}

const lm_strategy *lm_strategy_bind_quotas(void) {
  const lm_strategy *left = NULL;
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++) {
    lm_strategy *s = lm_strategy_at(id);
    if (!lacks_quota(s)) continue;
    lm_quota_id quota = { .nodes = s->desc.placement.nodes,
                          .kind = (uint32_t)s->desc.kind,
                          .device = s->desc.device };
    strcpy(quota.name, s->desc.shared);
    uint32_t number = lm_quota_find(&quota);
    /* Bytes that were taken while there was no table count from now on. The quota does not count
     * what other threads take or free between the load and the store. That is accepted: a thread
     * can do so only if an earlier policy with this limit became live while there was no table. */
    lm_quota_give(number, -atomic_load_explicit(&s->used, memory_order_relaxed));
    atomic_store_explicit(&s->quota, number, memory_order_release);
    if (!number) left = s;
  }
  return left;
}

uint64_t lm_strategy_limit_used(const lm_strategy *s) {
  if (!s->desc.limit) return 0;
  if (quota_of(s) && lm_quota_is_holder()) return lm_quota_used(quota_of(s));
  int64_t used = atomic_load_explicit(&s->account->used, memory_order_relaxed);
  return used > 0 ? (uint64_t)used : 0;
}

uint64_t lm_strategy_limit_peak(const lm_strategy *s, uint64_t used) {
  uint64_t peak = (uint64_t)atomic_load_explicit(&s->account->peak, memory_order_relaxed);
  return used > peak ? used : peak;
}

/* Notes that `used` bytes count against the limit. */
static void raise_peak(lm_strategy *s, int64_t used) {
  _Atomic int64_t *peak = &s->account->peak;
  int64_t now = atomic_load_explicit(peak, memory_order_relaxed);
  while (used > now && !atomic_compare_exchange_weak_explicit(
                           peak, &now, used, memory_order_relaxed, memory_order_relaxed))
    continue;
}

static size_t left_of(const lm_strategy *s, int64_t used) {
  if (used < 0) return s->desc.limit;
  return (size_t)used < s->desc.limit ? s->desc.limit - (size_t)used : 0;
}

_Atomic uint32_t lm_strategy_soft_passed;

/* Notes how a strategy with a soft limit stands to it: `used` bytes count against the limit now.
 * Relaxed: the state publishes nothing. */
static void note_soft(const lm_strategy *s, int64_t used) {
  int64_t soft = (int64_t)s->desc.soft;
  _Atomic uint32_t *state = &s->whole->soft_state;
  uint32_t now = atomic_load_explicit(state, memory_order_relaxed);
  bool passes = now == LM_SOFT_BELOW && used > soft;
  bool falls = now == LM_SOFT_TOLD && used < soft - soft / 8;
  lm_assert(soft > 0 && now <= LM_SOFT_TOLD);
  if ((passes || falls) &&
      atomic_compare_exchange_strong_explicit(state, &now, passes ? LM_SOFT_PASSED : LM_SOFT_BELOW,
                                              memory_order_relaxed, memory_order_relaxed) &&
      passes)
    atomic_fetch_add_explicit(&lm_strategy_soft_passed, 1, memory_order_release);
}

/* Notes in the thread's area whether a limit has refused the latest request. */
static void note_refusal(bool is_refused) {
  if (lm_thread_self) lm_thread_self->is_at_limit = is_refused;
}

/* Takes of the account's own bytes. Returns how often, and sets *used to the bytes that are used
 * after that. */
static uint32_t take_own(lm_strategy *s, size_t size, uint32_t want, int64_t *used) {
  size_t n;
  *used = atomic_load_explicit(&s->account->used, memory_order_relaxed);
  do {
    n = left_of(s, *used) / size;
    if (n > want) n = want;
    if (!n) return 0;
  } while (!atomic_compare_exchange_weak_explicit(&s->account->used, used,
                                                  *used + (int64_t)(n * size), memory_order_relaxed,
                                                  memory_order_relaxed));
  *used += (int64_t)(n * size);
  return (uint32_t)n;
}

/* Like take_own, but of the quota of a shared limit. */
static LM_NOINLINE uint32_t take_shared(lm_strategy *s, size_t size, uint32_t want, int64_t *used) {
  uint64_t all = 0;
  int64_t n = lm_quota_take(quota_of(s), s->desc.limit, size, want, &all);
  if (n == LM_QUOTA_NO_HOLDER) return take_own(s, size, want, used);
  if (n) atomic_fetch_add_explicit(&s->account->used, n * (int64_t)size, memory_order_relaxed);
  *used = (int64_t)all;
  return (uint32_t)n;
}

uint32_t lm_strategy_limit_take_some(lm_strategy *s, size_t size, uint32_t want) {
  int64_t used = 0;
  lm_assert(s->account);
  if (!s->desc.limit || !size) return want;
  uint32_t n = lm_unlikely(quota_of(s)) ? take_shared(s, size, want, &used)
                                        : take_own(s, size, want, &used);
  note_refusal(!n);
  if (n) raise_peak(s, used);
  if (s->desc.soft && n) note_soft(s, used);
  return n;
}

bool lm_strategy_limit_take(lm_strategy *s, size_t bytes) {
  return lm_strategy_limit_take_some(s, bytes, 1) == 1;
}

void lm_strategy_limit_give(lm_strategy *s, int64_t bytes) {
  if (!s->desc.limit || !bytes) return;
  int64_t used = atomic_fetch_sub_explicit(&s->account->used, bytes, memory_order_relaxed) - bytes;
  if (lm_unlikely(quota_of(s))) lm_quota_give(quota_of(s), bytes);
  if (bytes > 0 && !s->desc.soft) return;
  if (quota_of(s)) used = (int64_t)lm_strategy_limit_used(s);
  if (bytes < 0) raise_peak(s, used);
  if (!s->desc.soft) return;
  /* Nothing passes a soft limit by giving: `s` may be a strategy from before an edit of the limit,
   * and others have taken the bytes above its soft limit. */
  if (bytes < 0 || used <= (int64_t)s->desc.soft) note_soft(s, used);
}

size_t lm_strategy_limit_left(const lm_strategy *s) {
  if (!s->desc.limit) return SIZE_MAX;
  if (lm_unlikely(quota_of(s))) return left_of(s, (int64_t)lm_strategy_limit_used(s));
  return left_of(s, atomic_load_explicit(&s->account->used, memory_order_relaxed));
}

bool lm_strategy_limit_has(const lm_strategy *s, size_t bytes) {
  if (lm_strategy_limit_left(s) >= bytes) return true;
  if (!quota_of(s)) return false;
  lm_quota_search(quota_of(s));
  return lm_strategy_limit_left(s) >= bytes;
}
