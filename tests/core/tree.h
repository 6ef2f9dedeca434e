/* tree.h - class trees written by a test, node by node. */
#ifndef TREE_H
#define TREE_H

#include <string.h>

#include "image.h"
#include "plan/class_tree.h"

enum { TREE_NODES = 64, TREE_KEYS = 64, TREE_STRINGS = 8192 };
#define TREE_BYTES ((size_t)32768)

typedef struct tree {
  uint32_t nodes, keys, plans, strings;
  lm_class_node node[TREE_NODES];
  lm_class_key key[TREE_KEYS];
  char string[TREE_STRINGS];
} tree;

/* Adds `length` bytes to the strings. Returns their offset. */
static inline uint32_t tree_text(tree *t, const char *text, size_t length) {
  uint32_t at = t->strings;
  memcpy(t->string + at, text, length);
  t->strings += (uint32_t)length;
  return at;
}

/* Adds a node that asks about a literal, or about a part if `ask` is LM_ASK_PART. */
static inline lm_class_node *tree_node(tree *t, unsigned ask, unsigned field, unsigned part,
                                       const char *literal, int32_t yes, int32_t no) {
  lm_class_node *node = &t->node[t->nodes++];
  *node = (lm_class_node){ .ask = (uint8_t)ask,
                           .field = (uint8_t)field,
                           .part = (uint16_t)part,
                           .length = (uint32_t)strlen(literal),
                           .yes = yes,
                           .no = no };
  if (ask == LM_ASK_KEY) node->text = t->keys;
  else node->text = tree_text(t, literal, node->length);
  return node;
}

/* Adds a key to the newest node, which asks LM_ASK_KEY and was made with the literal "". */
static inline void tree_key(tree *t, const char *text, int32_t next) {
  size_t length = strlen(text);
  t->key[t->keys++] = (lm_class_key){ tree_text(t, text, length), (uint32_t)length, next };
  t->node[t->nodes - 1].length++;
}

/* Writes the tree, at most TREE_BYTES. Returns its size. */
static inline size_t tree_write(const tree *t, char *out) {
  lm_class_head head = { LM_CLASS_MAGIC, t->nodes, t->keys, t->plans, t->strings, 0 };
  size_t at = image_put(out, 0, &head, sizeof head);
  at = image_put(out, at, t->node, t->nodes * sizeof *t->node);
  at = image_put(out, at, t->key, t->keys * sizeof *t->key);
  return image_put(out, at, t->string, t->strings);
}

#endif
