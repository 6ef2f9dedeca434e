/* class_tree.c - checks class trees, and finds the plan of a site with them. */
#include "plan/class_tree.h"

#include <string.h>

#include "os/error.h"

/* A string that need not end with a NUL. `text` is NULL for a part that does not exist. */
typedef struct span {
  const char *text;
  size_t length;
} span;

/* ---- Checking ----------------------------------------------------------------------------- */

static loam_status refuse(const char *what, unsigned index, long value) {
  return lm_error(LOAM_EINVAL, "class tree: %s %u: %ld is not valid", what, index, value);
}

/* Returns whether the node `from` may go on to `to`: to a plan, or to a node behind it. */
static bool is_target(const lm_class_head *head, uint32_t from, int32_t to) {
  if (to < 0) return (uint32_t)~to < head->plans;
  return (uint32_t)to > from && (uint32_t)to < head->nodes;
}

/* Returns whether a literal is within the strings and not too long. */
static bool is_text(const lm_class_head *head, uint32_t text, uint32_t length) {
  return length <= LM_CLASS_TEXT_MAX && text <= head->strings && length <= head->strings - text;
}

static span key_text(const lm_class_tree *tree, uint32_t i) {
  return (span){ tree->strings + tree->key[i].text, tree->key[i].length };
}

/* Returns a number below, equal to or above 0, as the first string comes before the other string,
 * is equal to it, or comes after it. */
static int compare(span a, span b) {
  size_t shared = a.length < b.length ? a.length : b.length;
  int order = shared ? memcmp(a.text, b.text, shared) : 0;
  return order ? order : (a.length > b.length) - (a.length < b.length);
}

/* Checks the keys of a node whose range of keys is in range. */
static loam_status check_keys(const lm_class_tree *tree, uint32_t node) {
  uint32_t first = tree->node[node].text, end = first + tree->node[node].length;
  for (uint32_t i = first; i < end; i++) {
    const lm_class_key *key = &tree->key[i];
    if (!is_text(&tree->head, key->text, key->length)) return refuse("text of key", i, key->text);
    if (!is_target(&tree->head, node, key->next)) return refuse("next of key", i, key->next);
    if (i > first && compare(key_text(tree, i - 1), key_text(tree, i)) >= 0)
      return refuse("order of key", i, key->text);
  }
  return LOAM_OK;
}

/* Checks a node. *keys is the number of keys that the nodes before it have; the keys of the node
 * are added. */
static loam_status check_node(const lm_class_tree *tree, uint32_t i, uint32_t *keys) {
  const lm_class_node *node = &tree->node[i];
  const lm_class_head *head = &tree->head;
  if (node->ask >= LM_ASKS) return refuse("question of node", i, node->ask);
  if (node->field >= LM_FIELDS) return refuse("field of node", i, node->field);
  if (node->ask == LM_ASK_PART && !node->part) return refuse("part of node", i, 0);
  if (!is_target(head, i, node->no)) return refuse("no of node", i, node->no);
  if (node->ask != LM_ASK_KEY) {
    if (!is_target(head, i, node->yes)) return refuse("yes of node", i, node->yes);
    bool is_good = node->ask == LM_ASK_PART || is_text(head, node->text, node->length);
    return is_good ? LOAM_OK : refuse("text of node", i, node->text);
  }
  if (node->text > head->keys || node->length > head->keys - node->text)
    return refuse("keys of node", i, node->text);
  if (node->length > head->keys - *keys) return refuse("number of keys of node", i, node->length);
  *keys += node->length;
  return check_keys(tree, i);
}

/* Returns the size of a tree by its head. */
static size_t size_of(const lm_class_head *head) {
  return sizeof *head + (size_t)head->nodes * sizeof(lm_class_node) +
         (size_t)head->keys * sizeof(lm_class_key) + head->strings;
}

static loam_status check_nodes(const lm_class_tree *tree) {
  loam_status status = LOAM_OK;
  uint32_t keys = 0;
  for (uint32_t i = 0; !status && i < tree->head.nodes; i++) status = check_node(tree, i, &keys);
  return status;
}

bool lm_class_tree_is_valid(const lm_class_tree *tree) {
  return tree->head.plans > 0 && check_nodes(tree) == LOAM_OK;
}

static loam_status check_head(const lm_class_head *head, size_t size) {
  if (head->magic != LM_CLASS_MAGIC)
    return lm_error(LOAM_EINVAL, "class tree: it begins with %#x instead of %#x", head->magic,
                    (unsigned)LM_CLASS_MAGIC);
  if (size_of(head) != size)
    return lm_error(LOAM_EINVAL, "class tree: it has %zu bytes, but its head says %zu", size,
                    size_of(head));
  return head->plans ? LOAM_OK : refuse("count of plans", 0, 0);
}

loam_status lm_class_tree_check(const void *bytes, size_t size, lm_class_tree *out) {
  lm_class_tree tree;
  lm_assert(bytes && out && (uintptr_t)bytes % _Alignof(lm_class_head) == 0);
  if (size < sizeof tree.head)
    return lm_error(LOAM_EINVAL, "class tree: it has %zu bytes; its head alone has %zu", size,
                    sizeof tree.head);
  memcpy(&tree.head, bytes, sizeof tree.head);
  loam_status status = check_head(&tree.head, size);
  if (status) return status;
  tree.node = (const lm_class_node *)((const lm_class_head *)bytes + 1);
  tree.key = (const lm_class_key *)(tree.node + tree.head.nodes);
  tree.strings = (const char *)(tree.key + tree.head.keys);
  status = check_nodes(&tree);
  if (!status) *out = tree;
  return status;
}

/* ---- Questions ---------------------------------------------------------------------------- */

static bool is(span name, span other) {
  return name.length == other.length &&
         (!name.length || !memcmp(name.text, other.text, name.length));
}

static bool is_under(span name, span prefix) {
  if (!prefix.length || is(name, prefix)) return true;
  return name.length > prefix.length && name.text[prefix.length] == '.' &&
         !memcmp(name.text, prefix.text, prefix.length);
}

/* After a mismatch only the last star is tried again, one character further on, so the time is at
 * most the product of the two lengths. */
static bool matches(span name, span pattern) {
  size_t at = 0, p = 0, star = 0, mark = 0; /* `star`: behind the last star; 0: there is none */
  while (at < name.length) {
    char want = p < pattern.length ? pattern.text[p] : 0;
    bool is_over = p == pattern.length;
    if (!is_over && want == '*') {
      star = ++p;
      mark = at;
    } else if (!is_over && (want == '?' || want == name.text[at])) {
      at++;
      p++;
    } else if (star) {
      at = ++mark;
      p = star;
    } else {
      return false;
    }
  }
  while (p < pattern.length && pattern.text[p] == '*') p++;
  return p == pattern.length;
}

/* Returns the part number `index`, from 1, of a field. */
static span part_of(span name, unsigned index) {
  const char *from = name.text, *end = from + name.length;
  if (!name.length) return (span){ 0 };
  for (; index > 1; index--) {
    from = memchr(from, '.', (size_t)(end - from));
    if (!from) return (span){ 0 };
    from++;
  }
  const char *dot = memchr(from, '.', (size_t)(end - from));
  return (span){ from, (size_t)((dot ? dot : end) - from) };
}

/* ---- Finding ------------------------------------------------------------------------------ */

/* Returns the way of a string at a node with keys: a binary search. */
static int32_t find_key(const lm_class_tree *tree, const lm_class_node *node, span name) {
  uint32_t low = node->text, high = low + node->length;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    int order = compare(name, key_text(tree, middle));
    if (!order) return tree->key[middle].next;
    if (order < 0) high = middle;
    else low = middle + 1;
  }
  return node->no;
}

/* Returns the way of a site at a node; `field` are the strings of the site. */
static int32_t follow(const lm_class_tree *tree, const lm_class_node *node, const span *field) {
  span name = field[node->field];
  if (node->part) name = part_of(name, node->part);
  if (!name.text) return node->no;
  if (node->ask == LM_ASK_KEY) return find_key(tree, node, name);
  if (node->ask == LM_ASK_PART) return node->yes;
  span literal = { tree->strings + node->text, node->length };
  bool holds = node->ask == LM_ASK_IS      ? is(name, literal)
               : node->ask == LM_ASK_UNDER ? is_under(name, literal)
                                           : matches(name, literal);
  return holds ? node->yes : node->no;
}

static span span_of(const char *text) {
  return text ? (span){ text, strlen(text) } : (span){ "", 0 };
}

uint32_t lm_class_tree_find(const lm_class_tree *tree, const loam_where *where) {
  lm_assert(tree && where);
  const span field[LM_FIELDS] = { [LM_FIELD_TAG] = span_of(where->tag),
                                  [LM_FIELD_FILE] = span_of(where->file),
                                  [LM_FIELD_FUNC] = span_of(where->func),
                                  [LM_FIELD_MODULE] = span_of(where->module) };
  int32_t at = tree->head.nodes ? 0 : ~0;
  while (at >= 0) {
    int32_t next = follow(tree, &tree->node[at], field);
    lm_assert(is_target(&tree->head, (uint32_t)at, next));
    at = next;
  }
  return (uint32_t)~at;
}
