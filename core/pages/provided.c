/* provided.c - a treap of blocks: a search tree by address that is also a heap by a hash of the
 * address (Seidel, Aragon, "Randomized search trees", 1996). So its depth is logarithmic in
 * whatever order blocks come. */
#include "pages/provided.h"

#include "os/thread.h"
#include "pages/metadata.h"

/* Law: all addresses in the left subtree are below the node's, all in the right subtree above it;
 * no child has a greater rank than its parent; rank = rank_of(address). */
typedef lm_provided_node node;

static lm_provided_tree blocks;
lm_provided_tree *const lm_provided_outside = &blocks;

static uintptr_t key_of(const node *n) { return (uintptr_t)n->block.base; }

/* Returns a hash of the address: the mixing function of splitmix64 (Steele, Lea, Flood, 2014). */
static uint64_t rank_of(uintptr_t key) {
  uint64_t x = key;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* Splits tree `n`: the nodes below `key` become *low, the others *high. */
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

/* Makes one tree of two. All nodes of `low` are below all nodes of `high`. */
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

/* Returns the pointer that points at the node of this key; if there is none, at NULL. */
static node **link_to(uintptr_t key) {
  node **at = &blocks.root;
  while (*at && key_of(*at) != key) at = key < key_of(*at) ? &(*at)->left : &(*at)->right;
  return at;
}

/* No node has the key of `added`. */
static void insert_locked(node *added) {
  uintptr_t key = key_of(added);
  node **at = &blocks.root;
  while (*at && (*at)->rank >= added->rank) at = key < key_of(*at) ? &(*at)->left : &(*at)->right;
  split(*at, key, &added->left, &added->right);
  lm_assert(!added->right || key_of(added->right) > key);
  *at = added;
}

/* Returns the node that was removed; NULL: there was none. */
static node *remove_locked(uintptr_t key) {
  node **at = link_to(key);
  node *gone = *at;
  if (gone) join(gone->left, gone->right, at);
  return gone;
}

/* Returns the node whose block holds the byte at p. */
static const node *find_locked(uintptr_t p) {
  const node *below = NULL;
  for (const node *n = blocks.root; n; n = key_of(n) <= p ? n->right : n->left)
    if (key_of(n) <= p) below = n;
  return below && p - key_of(below) < below->block.size ? below : NULL;
}

void lm_provided_start(void) { lm_thread_add_fork_lock(&blocks.lock); }

bool lm_provided_put(const lm_provided *block, node *added, lm_provided *stale) {
  lm_assert(block->size > 0 && block->base);
  if (!added) added = lm_metadata_alloc(sizeof *added);
  if (!added) return false;
  added->block = *block;
  added->rank = rank_of(key_of(added));
  lm_lock_take(&blocks.lock);
  lm_changes_begin(&blocks.changes);
  node *gone = remove_locked(key_of(added));
  insert_locked(added);
  lm_changes_end(&blocks.changes);
  lm_lock_drop(&blocks.lock);
  stale->size = 0;
  if (gone) *stale = gone->block;
  lm_metadata_free(gone);
  return true;
}

bool lm_provided_find(const void *p, lm_provided *out) {
  lm_assert(out);
  lm_lock_take(&blocks.lock);
  const node *n = find_locked((uintptr_t)p);
  if (n) *out = n->block;
  lm_lock_drop(&blocks.lock);
  return n;
}

bool lm_provided_take(const void *p, lm_provided *out, node **kept) {
  lm_assert(out);
  lm_lock_take(&blocks.lock);
  lm_changes_begin(&blocks.changes);
  node *gone = remove_locked((uintptr_t)p);
  lm_changes_end(&blocks.changes);
  lm_lock_drop(&blocks.lock);
  if (!gone) return false;
  *out = gone->block;
  if (kept) *kept = gone;
  else lm_metadata_free(gone);
  return true;
}

void lm_provided_set_asleep(const void *p, bool is_asleep) {
  lm_lock_take(&blocks.lock);
  lm_changes_begin(&blocks.changes);
  node *n = *link_to((uintptr_t)p);
  if (n) n->block.is_asleep = is_asleep;
  lm_changes_end(&blocks.changes);
  lm_lock_drop(&blocks.lock);
}

/* Recursion is safe, since the depth is logarithmic. */
static void visit_all(node *n, void (*visit)(void *ctx, lm_provided *block), void *ctx) {
  for (; n; n = n->right) {
    visit_all(n->left, visit, ctx);
    visit(ctx, &n->block);
  }
}

void lm_provided_each(void (*visit)(void *ctx, lm_provided *block), void *ctx) {
  lm_lock_take(&blocks.lock);
  visit_all(blocks.root, visit, ctx);
  lm_lock_drop(&blocks.lock);
}

/* Returns whether a child, or NULL, is in order with its parent n. */
static bool is_child_valid(const node *child, const node *n) {
  return !child || (child->rank <= n->rank && child->rank == rank_of(key_of(child)));
}

static bool is_block_valid(const lm_provided *block) {
  return block->size > 0 && (uintptr_t)block->made <= (uintptr_t)block->base;
}

/* Returns whether the laws hold in tree `n`, and all its addresses are in [low, high]. */
static bool is_valid(const node *n, uintptr_t low, uintptr_t high) {
  for (; n; low = key_of(n) + 1, n = n->right) {
    if (key_of(n) < low || key_of(n) > high || !is_block_valid(&n->block)) return false;
    if (!is_child_valid(n->left, n) || !is_child_valid(n->right, n)) return false;
    if (n->left && !is_valid(n->left, low, key_of(n) - 1)) return false;
  }
  return true;
}

bool lm_provided_is_valid(void) {
  lm_lock_take(&blocks.lock);
  bool valid = is_valid(blocks.root, 0, UINTPTR_MAX);
  lm_lock_drop(&blocks.lock);
  return valid;
}
