/* site.c - call-sites and tags, interned for good; slots of generations.
 *
 * Finding a site takes no lock: an open-addressed table of pointers, filled under the lock, never
 * emptied; a larger one replaces it when it is half full, and the old ones stay, because somebody
 * may be reading them (together they are smaller than the new one).
 *
 * Two threads that meet a new site at once may both make it, because the hook runs without a lock:
 * the second to finish takes the first one's, and its own stays behind, an index that nobody asks
 * for. */
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

/* An interned string; and, if it is a tag, what the tag's sites share. */
typedef struct name {
  uint64_t hash;
  _Atomic int64_t live;
  loam_site *sites;   /* of this tag, linked by next_of_tag */
  uint32_t tag_index; /* 0: not a tag so far */
  uint32_t counted;
  char text[];
} name;

typedef struct table {
  size_t mask;
  _Atomic(void *) slot[];
} table;

/* Both are there before any memory is. The site is not in the table. */
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
/* Under the lock: */
static table *names;
static size_t names_n;
static char *block; /* where the next name goes */
static size_t block_left;
/* Written under the lock, read without: */
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
  if (!*w->file && !*w->func && !*w->module && !w->line) return h; /* loam_site_get's */
  h = hash_text(h, w->file, strlen(w->file));
  h = hash_text(h, w->func, strlen(w->func));
  return mix(hash_text(h, w->module, strlen(w->module)), (unsigned)w->line);
}

/* ---- Tables ------------------------------------------------------------------------------- */

/* The first free slot for a hash; there is one, since a table is at most half full. */
static size_t free_slot(const table *t, uint64_t hash) {
  size_t i = hash & t->mask;
  while (atomic_load_explicit(&t->slot[i], memory_order_relaxed)) i = (i + 1) & t->mask;
  return i;
}

/* Release pairs with the acquire of find: the pointee is seen whole. */
static void table_put(table *t, uint64_t hash, void *item) {
  atomic_store_explicit(&t->slot[free_slot(t, hash)], item, memory_order_release);
}

/* A table twice as large with the same items; NULL when there is no memory. */
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

static bool is_crowded(const table *t, size_t n) { return !t || (n + 1) * 2 > t->mask + 1; }

static uint64_t hash_of_site(const void *item) { return ((const loam_site *)item)->hash; }
static uint64_t hash_of_name(const void *item) { return ((const name *)item)->hash; }

/* ---- Names -------------------------------------------------------------------------------- */

/* Memory that is never given back, for a name. */
static void *block_take_locked(size_t size) {
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

static name *name_find_locked(const char *text, uint64_t hash) {
  for (size_t i = hash & names->mask;; i = (i + 1) & names->mask) {
    name *n = atomic_load_explicit(&names->slot[i], memory_order_relaxed);
    if (!n || (n->hash == hash && !strcmp(n->text, text))) return n;
  }
}

static name *intern_locked(const char *text) {
  size_t size = strlen(text);
  if (!size) return &empty;
  uint64_t hash = hash_text(0, text, size);
  if (is_crowded(names, names_n)) {
    table *grown = table_grown(names, hash_of_name);
    if (!grown) return NULL;
    lm_metadata_free(names); /* nobody reads it without the lock */
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
loam_site *lm_site_default(void) { return &lm_site_empty; }

/* The acquire of the count pairs with the release of make_locked: the site is seen whole. */
loam_site *lm_site_at(uint32_t index) {
  if (index == LM_SITE_FIRST) return &lm_site_empty;
  if (index < LM_SITE_FIRST || index - LM_SITE_FIRST >= lm_site_count()) return NULL;
  uint32_t at = index - LM_SITE_FIRST;
  return &atomic_load_explicit(&lm_site_chunk[at / LM_SITE_CHUNK],
                               memory_order_relaxed)[at % LM_SITE_CHUNK];
}

/* ---- Making ------------------------------------------------------------------------------- */

/* Room for the next site, aligned to a line; NULL when there is none. */
static loam_site *room_locked(uint32_t at) {
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

static bool describe_locked(loam_site *s, const loam_where *where) {
  name *tag = intern_locked(where->tag), *file = intern_locked(where->file);
  name *func = intern_locked(where->func), *module = intern_locked(where->module);
  if (!tag || !file || !func || !module) return false;
  s->where = (loam_where){ tag->text, file->text, func->text, module->text, where->line };
  if (!tag->tag_index)
    tag->tag_index = 1 + atomic_fetch_add_explicit(&tags, 1, memory_order_relaxed);
  s->tag_index = tag->tag_index;
  s->live = &tag->live;
  s->next_of_tag = tag->sites;
  tag->sites = s;
  atomic_init(&s->counted, tag->counted);
  return true;
}

/* Room in the table for every site there is, found or not, and one more: so that entering a site
 * that is made cannot fail. */
static bool grow_sites_locked(void) {
  table *t = atomic_load_explicit(&sites, memory_order_relaxed);
  if (!is_crowded(t, lm_site_count())) return true;
  table *grown = table_grown(t, hash_of_site);
  if (!grown) return false;
  atomic_store_explicit(&sites, grown, memory_order_release); /* pairs with find */
  return true;
}

/* A new site with an index, under the default plan, not yet in the table. */
static loam_site *make_locked(const loam_where *where, uint64_t hash) {
  uint32_t at = atomic_load_explicit(&count, memory_order_relaxed);
  loam_site *s = room_locked(at);
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
  atomic_store_explicit(&count, at + 1, memory_order_release); /* pairs with lm_site_at */
  return s;
}

/* Enters a made site, unless an equal one was entered meanwhile; the one that was entered. */
static loam_site *enter(loam_site *made) {
  lm_lock_take(&lock);
  loam_site *s = find(&made->where, made->hash);
  if (!s) {
    table_put(atomic_load_explicit(&sites, memory_order_relaxed), made->hash, made);
    s = made;
  }
  lm_lock_drop(&lock);
  return s;
}

static loam_site *make(const loam_where *where, uint64_t hash) {
  lm_lock_take(&lock);
  loam_site *s = find(where, hash), *made = s ? NULL : make_locked(where, hash);
  lm_lock_drop(&lock);
  if (s) return s;
  if (!made) return lm_error_null("tag '%s': no memory for one more site", where->tag);
  void (*on_new)(loam_site *) = atomic_load_explicit(&lm_site_on_new, memory_order_acquire);
  if (on_new) on_new(made);
  return enter(made);
}

static loam_site *refuse_tag(const char *tag) {
  char words[64];
  lm_error(LOAM_EINVAL, "tag %s...: it is longer than %d bytes",
           lm_error_quote(words, sizeof words, tag), LM_TAG_MAX);
  return NULL;
}

loam_site *lm_site_get(const loam_where *where) {
  size_t tag_size = strnlen(where->tag, LM_TAG_MAX + 1);
  if (tag_size > LM_TAG_MAX) return refuse_tag(where->tag);
  uint64_t hash = hash_where(where, tag_size);
  if (is_same(where, &lm_site_empty.where)) return &lm_site_empty;
  loam_site *s = find(where, hash);
  if (s) return s;
  lm_thread *t = lm_thread_get();
  if (!t || t->inside) return lm_error_null("tag '%s': asked for from inside loam", where->tag);
  return make(where, hash);
}

bool lm_site_begin_counting(loam_site *site) {
  lm_lock_take(&lock);
  name *tag = intern_locked(site->where.tag); /* it is there: no memory is asked for */
  bool was_used = false;
  for (loam_site *s = tag && !tag->counted ? tag->sites : NULL; s; s = s->next_of_tag) {
    atomic_store_explicit(&s->counted, 1, memory_order_release);
    was_used |= s == &lm_site_empty || find(&s->where, s->hash) == s;
  }
  if (tag) tag->counted = 1;
  lm_lock_drop(&lock);
  return was_used;
}

/* ---- Start and fork ----------------------------------------------------------------------- */

static lm_lock slots_lock;

/* Slots are taken while sites are locked, so that lock is taken first. */
static void fork_prepare(void) {
  lm_lock_take(&lock);
  lm_lock_take(&slots_lock);
}

static void fork_parent(void) {
  lm_lock_drop(&slots_lock);
  lm_lock_drop(&lock);
}

static void fork_child(void) {
  lm_lock_renew(&slots_lock);
  lm_lock_renew(&lock);
}

void lm_site_start(void) {
  static _Atomic bool begun;
  if (atomic_exchange_explicit(&begun, true, memory_order_relaxed)) return;
  lm_plan_start();
  lm_thread_add_hooks(&(lm_thread_hooks){ NULL, fork_prepare, fork_parent, fork_child });
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

/* Under slots_lock, but for reading generations' numbers. Slot 0 begins as generation 0's. */
static bool slot_used[LM_GENERATION_SLOTS] = { true };
LM_SPARSE _Atomic uint64_t lm_site_generations[LM_GENERATION_SLOTS];

lm_token lm_site_token(const loam_site *site, uint32_t slot) {
  lm_token slow = atomic_load_explicit(&site->counted, memory_order_relaxed) ? LM_TOKEN_COUNTED : 0;
  return slow | slot << LM_SITE_BITS | site->index;
}

/* A slot that is a generation's, or that is free; LM_GENERATION_SLOTS if none. The place where a
 * generation is if every generation before it has one is looked at first. */
static uint32_t slot_find_locked(uint64_t generation, bool used) {
  for (uint32_t i = 0; i < LM_GENERATION_SLOTS; i++) {
    uint32_t slot = (uint32_t)(generation + i) % LM_GENERATION_SLOTS;
    if (slot_used[slot] == used && (!used || lm_site_generation_of(slot) == generation))
      return slot;
  }
  return LM_GENERATION_SLOTS;
}

static void keep_slot_of(void *ctx, const lm_object *object) {
  ((bool *)ctx)[lm_site_token_slot(object->token)] = true;
}

static void keep_slot_of_foreign(void *ctx, lm_provided *block_) {
  ((bool *)ctx)[lm_site_token_slot(block_->token)] = true;
}

/* Frees the slots that no live block carries. A thread that decided under an old generation and has
 * not stamped its block yet was waited for when the next one's grace ended. */
static void slots_reclaim_locked(void) {
  bool kept[LM_GENERATION_SLOTS] = { false };
  uint64_t live = atomic_load_explicit(&lm_site_generation, memory_order_relaxed);
  uint32_t slot = slot_find_locked(live, true);
  if (slot < LM_GENERATION_SLOTS) kept[slot] = true;
  lm_walk_each(keep_slot_of, kept);
  lm_provider_each(keep_slot_of_foreign, kept);
  memcpy(slot_used, kept, sizeof kept);
}

static uint32_t slot_take_locked(uint64_t generation) {
  uint32_t slot = slot_find_locked(generation, false);
  if (slot == LM_GENERATION_SLOTS) {
    slots_reclaim_locked();
    slot = slot_find_locked(generation, false);
  }
  if (slot == LM_GENERATION_SLOTS) /* as many generations have live blocks: two are told as one */
    slot = slot_find_locked(atomic_load_explicit(&lm_site_generation, memory_order_relaxed), true);
  lm_require(slot < LM_GENERATION_SLOTS);
  slot_used[slot] = true;
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
