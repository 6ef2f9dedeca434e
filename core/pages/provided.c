/* provided.c - a treap of blocks: a search tree by address, a heap by a hash of the address
 * (Seidel, Aragon, "Randomized search trees", 1996), so balanced whatever the order of arrival. */
#include "pages/provided.h"

#include "os/thread.h"
#include "pages/metadata.h"

typedef struct node {
  lm_provided block;
  uint64_t rank; /* the heap's order */
  struct node *left, *right;
} node;

/* Law: addresses in left < own < in right; ranks of children <= own. */
static struct {
  lm_lock lock;
  node *top;
} map;

static uintptr_t key_of(const node *n) { return (uintptr_t)n->block.base; }

/* splitmix64's mixer. */
static uint64_t rank_of(uintptr_t key) {
  uint64_t x = key;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* Those of `n` below `key` to *low, the others to *high. */
static void split(node *n, uintptr_t key, node **low, node **high) {
  while (n) {
    if (key_of(n) < key) {
      *low = n;
      low = &n->right;
      n = n->right;
    } else {
      *high = n;
      high = &n->left;
      n = n->left;
    }
  }
  *low = *high = NULL;
}

/* All of `low` is below all of `high`. */
static void join(node *low, node *high, node **out) {
  while (low && high) {
    if (low->rank >= high->rank) {
      *out = low;
      out = &low->right;
      low = low->right;
    } else {
      *out = high;
      out = &high->left;
      high = high->left;
    }
  }
  *out = low ? low : high;
}

/* Where a node of exactly this key hangs; an empty place if there is none. */
static node **place_of(uintptr_t key) {
  node **at = &map.top;
  while (*at && key_of(*at) != key) at = key < key_of(*at) ? &(*at)->left : &(*at)->right;
  return at;
}

static void insert_locked(node *added) {
  uintptr_t key = key_of(added);
  node **at = &map.top;
  while (*at && (*at)->rank >= added->rank) at = key < key_of(*at) ? &(*at)->left : &(*at)->right;
  split(*at, key, &added->left, &added->right);
  *at = added;
}

static node *remove_locked(uintptr_t key) {
  node **at = place_of(key);
  node *gone = *at;
  if (gone) join(gone->left, gone->right, at);
  return gone;
}

static const node *find_locked(uintptr_t p) {
  const node *below = NULL;
  for (const node *n = map.top; n; n = key_of(n) <= p ? n->right : n->left)
    if (key_of(n) <= p) below = n;
  return below && p - key_of(below) < below->block.size ? below : NULL;
}

/* A block that stood here went without a word to loam: its allocator has made another one. */
bool lm_provided_put(const lm_provided *block) {
  node *added = lm_metadata_alloc(sizeof *added);
  if (!added) return false;
  lm_thread_add_fork_lock(&map.lock);
  added->block = *block;
  added->rank = rank_of(key_of(added));
  lm_lock_take(&map.lock);
  node *stale = remove_locked(key_of(added));
  insert_locked(added);
  lm_lock_drop(&map.lock);
  lm_metadata_free(stale);
  return true;
}

bool lm_provided_find(const void *p, lm_provided *out) {
  lm_lock_take(&map.lock);
  const node *n = find_locked((uintptr_t)p);
  if (n) *out = n->block;
  lm_lock_drop(&map.lock);
  return n;
}

bool lm_provided_take(const void *p, lm_provided *out) {
  lm_lock_take(&map.lock);
  node *gone = remove_locked((uintptr_t)p);
  lm_lock_drop(&map.lock);
  if (!gone) return false;
  *out = gone->block;
  lm_metadata_free(gone);
  return true;
}

/* The depth is logarithmic. */
static void visit_all(node *n, void (*visit)(void *ctx, lm_provided *block), void *ctx) {
  for (; n; n = n->right) {
    visit_all(n->left, visit, ctx);
    visit(ctx, &n->block);
  }
}

void lm_provided_each(void (*visit)(void *ctx, lm_provided *block), void *ctx) {
  lm_lock_take(&map.lock);
  visit_all(map.top, visit, ctx);
  lm_lock_drop(&map.lock);
}

static bool is_below(const node *child, const node *n) {
  return !child || (child->rank <= n->rank && child->rank == rank_of(key_of(child)));
}

/* Every address in the tree is in [low, high]. */
static bool is_valid(const node *n, uintptr_t low, uintptr_t high) {
  for (; n; low = key_of(n) + 1, n = n->right) {
    if (key_of(n) < low || key_of(n) > high) return false;
    if (!is_below(n->left, n) || !is_below(n->right, n)) return false;
    if (n->left && !is_valid(n->left, low, key_of(n) - 1)) return false;
  }
  return true;
}

bool lm_provided_is_valid(void) {
  lm_lock_take(&map.lock);
  bool valid = is_valid(map.top, 0, UINTPTR_MAX);
  lm_lock_drop(&map.lock);
  return valid;
}
