/* site.c - call sites and tags, interned for the life of the process; generation slots.
 *
 * Finding a site takes no lock. The table of sites is an open-addressed hash table of pointers with
 * linear probing. Entries are added under the lock and never removed. A table that is half full is
 * replaced by one twice as large; the old table is not freed, because another thread may be reading
 * it (all old tables together are smaller than the new one).
 *
 * Two threads that request a new site together may both make it, because lm_site_on_new runs
 * without a lock. The thread that finishes last then uses the site of the other thread. The site
 * that it made itself stays unused, with an index that no token names. */
#include "plan/site.h"

#include <string.h>

#include "device/provider.h"
#include "heap/walk.h"
#include "os/error.h"
#include "os/lock.h"

enum { SITES_MAX = (1 << LM_SITE_BITS) - 2, CHUNKS = SITES_MAX / LM_SITE_CHUNK + 1 };
enum { TABLE_MIN = 64, NAMES_BLOCK = 16384 };

_Atomic uint64_t lm_site_generation;
void (*_Atomic lm_site_on_new)(loam_site *site);

/* An interned string. If it is a tag, it also has the fields that the sites of the tag share. */
typedef struct name {
  uint64_t hash;
  _Atomic int64_t live; /* the counter of live bytes: the law of loam_site */
  loam_site *sites;     /* sites of this tag, linked by next_of_tag */
  uint32_t tag_index;   /* 0: not used as a tag so far */
  uint32_t counted;     /* 1: each site of this tag is counted */
  char text[];
} name;

/* An open-addressed hash table of sites or names.
 *
 * Law: mask + 1 is a power of two; at most half of the mask + 1 slots are not NULL. */
typedef struct table {
  size_t mask;
  _Atomic(void *) slot[];
} table;

/* The empty name and the default site are static, so that they exist before memory can be
 * allocated. The default site is not in the table of sites. */
static name empty = { .sites = &lm_site_empty, .tag_index = 1, .text = "" };
loam_site lm_site_empty = {
  .now = { { &lm_plan_bare, LM_SITE_FIRST }, { &lm_plan_bare, LM_SITE_FIRST } },
  .index = LM_SITE_FIRST,
  .key = LM_SITE_KEY(LM_SITE_FIRST),
  .live = &empty.live,
  .tag_index = 1,
  .where = { empty.text, empty.text, empty.text, empty.text, 0 },
};

static lm_lock lock;

/* Read and written under the lock: */
static table *names;
static size_t names_n;
static char *block; /* free memory for the next name */
static size_t block_left;
/* Written under the lock, read without it: */
static _Atomic(table *) sites;
LM_SPARSE _Atomic(loam_site *) lm_site_chunk[CHUNKS];
static _Atomic uint32_t count = 1, tags = 1;

/* ---- Hashing ------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t h, uint64_t word) {
  unsigned __int128 product = (unsigned __int128)(h ^ word) * 0x9e3779b97f4a7c15u;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_text(uint64_t h, const char *text, size_t n) {
  uint64_t word;
  for (; n >= sizeof word; n -= sizeof word, text += sizeof word) {
    memcpy(&word, text, sizeof word);
    h = mix(h, word);
  }
  word = n;
  memcpy((char *)&word + 1, text, n);
  return mix(h, word);
}

static uint64_t hash_where(const loam_where *w, size_t tag_size) {
  uint64_t h = hash_text(0x2545f4914f6cdd1du, w->tag, tag_size);
  if (!*w->file && !*w->func && !*w->module && !w->line) return h; /* most sites: a tag alone */
  h = hash_text(h, w->file, strlen(w->file));
  h = hash_text(h, w->func, strlen(w->func));
  return mix(hash_text(h, w->module, strlen(w->module)), (unsigned)w->line);
}

/* ---- Tables ------------------------------------------------------------------------------- */

/* Returns the first free slot for a hash. There is one, since a table is at most half full. */
static size_t free_slot(const table *t, uint64_t hash) {
  size_t i = hash & t->mask;
  while (atomic_load_explicit(&t->slot[i], memory_order_relaxed)) i = (i + 1) & t->mask;
  return i;
}

/* Adds an item. Release pairs with the acquire of find: whoever finds the item sees its fields. */
static void table_put(table *t, uint64_t hash, void *item) {
  atomic_store_explicit(&t->slot[free_slot(t, hash)], item, memory_order_release);
}

/* Returns a table twice as large as `old` with the items of `old`; NULL if there is no memory. */
static table *table_grown(const table *old, uint64_t (*hash_of)(const void *item)) {
  size_t size = old ? (old->mask + 1) * 2 : TABLE_MIN;
  table *t = lm_metadata_alloc(sizeof *t + size * sizeof t->slot[0]);
  if (!t) return NULL;
  t->mask = size - 1;
  for (size_t i = 0; old && i <= old->mask; i++) {
    void *item = atomic_load_explicit(&old->slot[i], memory_order_relaxed);
    if (item) table_put(t, hash_of(item), item);
  }
  return t;
}

/* Returns whether a table with n items is too small for one more. */
static bool is_crowded(const table *t, size_t n) { return !t || (n + 1) * 2 > t->mask + 1; }

static uint64_t hash_of_site(const void *item) { return ((const loam_site *)item)->hash; }
static uint64_t hash_of_name(const void *item) { return ((const name *)item)->hash; }

/* ---- Names -------------------------------------------------------------------------------- */

/* Returns memory for a name, which is never freed; NULL if there is none. */
static void *block_take_locked(size_t size) {
  lm_assert(lm_lock_is_held(&lock));
  size = lm_align_up(size, 8);
  if (size > NAMES_BLOCK / 4) return lm_metadata_alloc(size);
  if (block_left < size) {
    char *fresh = lm_metadata_alloc(NAMES_BLOCK);
    if (!fresh) return NULL;
    block = fresh;
    block_left = NAMES_BLOCK;
  }
  void *p = block;
  block += size;
  block_left -= size;
  return p;
}

/* Returns the name with this text; NULL if there is none. */
static name *name_find_locked(const char *text, uint64_t hash) {
  for (size_t i = hash & names->mask;; i = (i + 1) & names->mask) {
    name *n = atomic_load_explicit(&names->slot[i], memory_order_relaxed);
    if (!n || (n->hash == hash && !strcmp(n->text, text))) return n;
  }
}

/* Returns the name with this text, made if it is new; NULL if there is no memory. */
static name *intern_locked(const char *text) {
  lm_assert(lm_lock_is_held(&lock));
  size_t size = strlen(text);
  if (!size) return &empty;
  uint64_t hash = hash_text(0, text, size);
  if (is_crowded(names, names_n)) {
    table *grown = table_grown(names, hash_of_name);
    if (!grown) return NULL;
    lm_metadata_free(names); /* it is only read under the lock */
    names = grown;
  }
  name *n = name_find_locked(text, hash);
  if (n) return n;
  n = block_take_locked(sizeof *n + size + 1);
  if (!n) return NULL;
  n->hash = hash;
  memcpy(n->text, text, size + 1);
  table_put(names, hash, n);
  names_n++;
  return n;
}

/* ---- Finding ------------------------------------------------------------------------------ */

static bool is_same(const loam_where *a, const loam_where *b) {
  return a->line == b->line && !strcmp(a->tag, b->tag) && !strcmp(a->file, b->file) &&
         !strcmp(a->func, b->func) && !strcmp(a->module, b->module);
}

/* Returns the site of a description; NULL if it is not in the table. Both loads are acquires: they
 * pair with the release of grow_sites_locked and of table_put. */
static loam_site *find(const loam_where *where, uint64_t hash) {
  table *t = atomic_load_explicit(&sites, memory_order_acquire);
  if (!t) return NULL;
  for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
    loam_site *s = atomic_load_explicit(&t->slot[i], memory_order_acquire);
    if (!s || (s->hash == hash && is_same(&s->where, where))) return s;
  }
}

uint32_t lm_site_count(void) { return atomic_load_explicit(&count, memory_order_acquire); }
uint32_t lm_site_tag_count(void) { return atomic_load_explicit(&tags, memory_order_relaxed); }
/* The acquire in lm_site_count pairs with the release of make_locked: the site is seen whole. */
loam_site *lm_site_at(uint32_t index) {
  if (index == LM_SITE_FIRST) return &lm_site_empty;
  if (index < LM_SITE_FIRST || index - LM_SITE_FIRST >= lm_site_count()) return NULL;
  uint32_t at = index - LM_SITE_FIRST;
  return &atomic_load_explicit(&lm_site_chunk[at / LM_SITE_CHUNK],
                               memory_order_relaxed)[at % LM_SITE_CHUNK];
}

/* ---- Making ------------------------------------------------------------------------------- */

/* Returns memory for the site number `at`, aligned to a cache line; NULL if there is none. */
static loam_site *alloc_site_locked(uint32_t at) {
  if (at >= SITES_MAX) return NULL;
  loam_site *c = atomic_load_explicit(&lm_site_chunk[at / LM_SITE_CHUNK], memory_order_relaxed);
  if (!c) {
    char *p = lm_metadata_alloc(LM_SITE_CHUNK * sizeof *c + LM_CACHE_LINE);
    if (!p) return NULL;
    c = (loam_site *)lm_align_up((uintptr_t)p, LM_CACHE_LINE);
    atomic_store_explicit(&lm_site_chunk[at / LM_SITE_CHUNK], c, memory_order_relaxed);
  }
  return &c[at % LM_SITE_CHUNK];
}

/* Fills in the description of a new site, and the fields that sites of its tag share. False if
 * there is no memory. */
static bool describe_locked(loam_site *s, const loam_where *where) {
  name *tag = intern_locked(where->tag), *file = intern_locked(where->file);
  name *func = intern_locked(where->func), *module = intern_locked(where->module);
  if (!tag || !file || !func || !module) return false;
  s->where = (loam_where){ tag->text, file->text, func->text, module->text, where->line };
  if (!tag->tag_index)
    tag->tag_index = 1 + atomic_fetch_add_explicit(&tags, 1, memory_order_relaxed);
  lm_assert(tag->tag_index);
  s->tag_index = tag->tag_index;
  s->live = &tag->live;
  s->next_of_tag = tag->sites;
  tag->sites = s;
  atomic_init(&s->counted, tag->counted);
  return true;
}

/* Grows the table of sites, if need be, to hold one site more than there are, in the table or not.
 * So intern_made cannot fail. */
static bool grow_sites_locked(void) {
  table *t = atomic_load_explicit(&sites, memory_order_relaxed);
  if (!is_crowded(t, lm_site_count())) return true;
  table *grown = table_grown(t, hash_of_site);
  if (!grown) return false;
  atomic_store_explicit(&sites, grown, memory_order_release); /* pairs with the acquire of find */
  return true;
}

/* Makes a site that has an index and the default plan, and is not in the table yet. NULL if there
 * is no memory. */
static loam_site *make_locked(const loam_where *where, uint64_t hash) {
  lm_assert(lm_lock_is_held(&lock));
  uint32_t at = atomic_load_explicit(&count, memory_order_relaxed);
  loam_site *s = alloc_site_locked(at);
  if (!s || !grow_sites_locked() || !describe_locked(s, where)) return NULL;
  s->index = at + LM_SITE_FIRST;
  s->key = LM_SITE_KEY(s->index);
  s->hash = hash;
  uint64_t generation = atomic_load_explicit(&lm_site_generation, memory_order_acquire);
  uint32_t slot = lm_site_generation_slot(generation);
  for (int i = 0; i < 2; i++) {
    atomic_init(&s->now[i].plan, lm_plan_default());
    atomic_init(&s->now[i].token, lm_site_token(s, slot));
  }
  atomic_store_explicit(&count, at + 1, memory_order_release); /* pairs with lm_site_count */
  return s;
}

/* Puts a site that was made into the table, unless another thread has put an equal one there since.
 * Returns the site that is in the table. */
static loam_site *intern_made(loam_site *made) {
  lm_lock_take(&lock);
  loam_site *s = find(&made->where, made->hash);
  if (!s) {
    table_put(atomic_load_explicit(&sites, memory_order_relaxed), made->hash, made);
    s = made;
  }
  lm_lock_drop(&lock);
  return s;
}

/* Sets the error words of a site that could not be made. Returns NULL. */
static loam_site *fail_new(const loam_where *where) {
  if (lm_site_count() < SITES_MAX)
    return lm_error_null("tag '%s': no memory for a new site", where->tag);
  return lm_error_null("tag '%s': the process has %d sites already, and no more are possible: use "
                       "fewer tags, files, functions and lines",
                       where->tag, SITES_MAX);
}

/* Makes the site of a description, unless another thread has made it since. NULL, with error words,
 * if there is no memory or no number left for it. The calling thread is in a guarded section. */
static loam_site *make(const loam_where *where, uint64_t hash) {
  lm_lock_take(&lock);
  loam_site *s = find(where, hash), *made = s ? NULL : make_locked(where, hash);
  lm_lock_drop(&lock);
  if (s) return s;
  if (!made) return fail_new(where);
  void (*on_new)(loam_site *) = atomic_load_explicit(&lm_site_on_new, memory_order_acquire);
  if (on_new) on_new(made);
  return intern_made(made);
}

static loam_site *refuse_tag(const char *tag) {
  char words[64];
  lm_error(LOAM_EINVAL, "tag %s: it is longer than %d bytes",
           lm_error_quote(words, sizeof words, tag), LM_TAG_MAX);
  return NULL;
}

/* A thread without an area gets no words, because making the area takes a lock. */
static loam_site *refuse_in_fork(const loam_where *where) {
  if (!lm_thread_self) return NULL;
  return lm_error_null("tag '%s': a fork lasts too long to make a new tag", where->tag);
}

loam_site *lm_site_get(const loam_where *where) {
  size_t tag_size = strnlen(where->tag, LM_TAG_MAX + 1);
  if (tag_size > LM_TAG_MAX) return refuse_tag(where->tag);
  lm_assert(where->file && where->func && where->module);
  uint64_t hash = hash_where(where, tag_size);
  if (is_same(where, &lm_site_empty.where)) return &lm_site_empty;
  loam_site *s = find(where, hash);
  if (s) return s;
  if (!lm_lock_try_hold()) return refuse_in_fork(where);
  lm_thread *t = lm_thread_get();
  s = t && !t->inside ? make(where, hash)
                      : lm_error_null("tag '%s': loam itself cannot make a new tag", where->tag);
  lm_lock_allow_cancel();
  return s;
}

bool lm_site_begin_counting(loam_site *site) {
  lm_lock_take(&lock);
  name *tag = intern_locked(site->where.tag); /* found, since the site has it: allocates nothing */
  bool was_used = false; /* a site of the tag can be found: its blocks may have plain tokens */
  for (loam_site *s = tag && !tag->counted ? tag->sites : NULL; s; s = s->next_of_tag) {
    atomic_store_explicit(&s->counted, 1, memory_order_release);
    was_used |= s == &lm_site_empty || find(&s->where, s->hash) == s;
  }
  if (tag) tag->counted = 1;
  lm_lock_drop(&lock);
  return was_used;
}

/* ---- Start and fork ----------------------------------------------------------------------- */

/* Guards slot_used and the writing of lm_site_generations. make_locked takes a generation slot
 * while it holds `lock`: so `lock` is taken first. */
static lm_lock slots_lock;

/* A set of generation slots: a bit for each. */
typedef struct slot_set {
  uint64_t bits[LM_GENERATION_SLOTS / 64];
} slot_set;

static bool has_slot(const slot_set *set, uint32_t slot) {
  return set->bits[slot / 64] >> slot % 64 & 1;
}
static void add_slot(slot_set *set, uint32_t slot) {
  set->bits[slot / 64] |= (uint64_t)1 << slot % 64;
}

/* By generation slot: the generation that has taken it, and whether one has. Written under
 * slots_lock; lm_site_generations is read without it. Slot 0 belongs to generation 0 from the
 * start. */
LM_SPARSE _Atomic uint64_t lm_site_generations[LM_GENERATION_SLOTS];
static slot_set slot_used;

static void fork_child(void) {
  lm_lock_renew(&slots_lock);
  lm_lock_renew(&lock);
}

void lm_site_start(void) {
  static _Atomic bool begun;
  if (atomic_exchange_explicit(&begun, true, memory_order_relaxed)) return;
  lm_plan_start();
  lm_lock_take(&slots_lock);
  add_slot(&slot_used, 0);
  lm_lock_drop(&slots_lock);
  lm_thread_add_hooks(&(lm_thread_hooks){ .fork_child = fork_child });
  lm_lock_take(&lock);
  for (uint32_t i = LM_SITE_FIRST; i < LM_SITE_FIRST + lm_site_count(); i++)
    for (int parity = 0; parity < 2; parity++) {
      const lm_plan *bare = &lm_plan_bare;
      atomic_compare_exchange_strong_explicit(&lm_site_at(i)->now[parity].plan, &bare,
                                              lm_plan_default(), memory_order_release,
                                              memory_order_relaxed);
    }
  lm_lock_drop(&lock);
}

/* ---- Tokens and the slots of generations -------------------------------------------------- */

lm_token lm_site_token(const loam_site *site, uint32_t slot) {
  lm_assert(slot < LM_GENERATION_SLOTS && site->index >= LM_SITE_FIRST);
  lm_token counted = atomic_load_explicit(&site->counted, memory_order_relaxed) ? LM_TOKEN_COUNTED
                                                                                : 0;
  return counted | slot << LM_SITE_BITS | site->index;
}

/* Returns the slot of a generation (`used`), or a free slot for it (not `used`);
 * LM_GENERATION_SLOTS if there is none. The search begins at the slot that the generation has if
 * each generation before it took one. */
static LM_NOINLINE uint32_t slot_find_locked(uint64_t generation, bool used) {
  for (uint32_t i = 0; i < LM_GENERATION_SLOTS; i++) {
    uint32_t slot = (uint32_t)(generation + i) % LM_GENERATION_SLOTS;
    if (has_slot(&slot_used, slot) == used && (!used || lm_site_generation_of(slot) == generation))
      return slot;
  }
  return LM_GENERATION_SLOTS;
}

static void keep_slot_of(void *ctx, const lm_object *object) {
  add_slot(ctx, lm_site_token_slot(object->token));
}

static void keep_slot_of_provided(void *ctx, lm_provided *provided) {
  add_slot(ctx, lm_site_token_slot(provided->token));
}

/* Frees the slots that no live block carries. Each swap of generations waits, by a grace period,
 * for the requests that were decided before it, so no thread is about to set a token of an older
 * generation. Where a swap waits for no grace (lm_thread_refuse_graces), a thread may be: its block
 * then counts for the generation that gets the slot. */
static LM_NOINLINE void slots_reclaim_locked(void) {
  lm_assert(lm_lock_is_held(&slots_lock));
  slot_set kept = { { 0 } };
  uint64_t live = atomic_load_explicit(&lm_site_generation, memory_order_relaxed);
  uint32_t slot = slot_find_locked(live, true);
  if (slot < LM_GENERATION_SLOTS) add_slot(&kept, slot);
  lm_walk_each(keep_slot_of, &kept);
  lm_provider_each(keep_slot_of_provided, &kept);
  slot_used = kept;
}

/* Returns a slot for a generation that has none. */
static uint32_t slot_take_locked(uint64_t generation) {
  uint32_t slot = slot_find_locked(generation, false);
  if (slot == LM_GENERATION_SLOTS) {
    slots_reclaim_locked();
    slot = slot_find_locked(generation, false);
  }
  /* Each slot is of a generation with live blocks: this generation shares a slot. */
  if (slot == LM_GENERATION_SLOTS)
    slot = slot_find_locked(atomic_load_explicit(&lm_site_generation, memory_order_relaxed), true);
  lm_require(slot < LM_GENERATION_SLOTS);
  add_slot(&slot_used, slot);
  atomic_store_explicit(&lm_site_generations[slot], generation, memory_order_relaxed);
  return slot;
}

uint32_t lm_site_generation_slot(uint64_t generation) {
  lm_lock_take(&slots_lock);
  uint32_t slot = slot_find_locked(generation, true);
  if (slot == LM_GENERATION_SLOTS) slot = slot_take_locked(generation);
  lm_lock_drop(&slots_lock);
  return slot;
}

/* ---- Laws --------------------------------------------------------------------------------- */

static bool is_table_valid(const table *t, bool (*is_item_valid)(const void *item)) {
  size_t n = 0;
  if (!t) return true;
  for (size_t i = 0; i <= t->mask; i++) {
    const void *item = atomic_load_explicit(&t->slot[i], memory_order_acquire);
    if (item && !is_item_valid(item)) return false;
    n += item != NULL;
  }
  return lm_is_pow2(t->mask + 1) && n * 2 <= t->mask + 1;
}

static bool is_name_found(const void *item) {
  const name *n = item;
  return name_find_locked(n->text, n->hash) == n;
}

static bool is_site_found(const void *item) {
  const loam_site *s = item;
  return lm_site_at(s->index) == s && find(&s->where, s->hash) == s;
}

static bool is_site_valid_locked(const loam_site *s, uint32_t index) {
  const name *tag = intern_locked(s->where.tag);
  return s->index == index && s->key == LM_SITE_KEY(index) && tag && tag->text == s->where.tag &&
         tag->tag_index == s->tag_index && s->live == &tag->live && s->counted == tag->counted &&
         s->tag_index >= 1 && s->tag_index <= tags;
}

bool lm_site_is_valid(void) {
  lm_lock_take(&lock);
  bool valid = is_table_valid(names, is_name_found) && is_table_valid(sites, is_site_found);
  for (uint32_t i = LM_SITE_FIRST; valid && i < LM_SITE_FIRST + lm_site_count(); i++)
    valid = is_site_valid_locked(lm_site_at(i), i);
  lm_lock_drop(&lock);
  return valid;
}
