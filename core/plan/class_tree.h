/* class_tree.h - the class tree of a policy: which plan a call site gets.
 *
 * A policy asks questions about the strings of a site: "is the tag under tensor?". Sites that give
 * equal answers to all questions are a class, and have one plan. The compiler in Lua writes all
 * classes as one decision tree, in the format below; lm_class_tree_check checks every index of it.
 * Then a site's class is found without Lua, without a lock and without allocating.
 *
 * The bytes of a tree are the head, the nodes, the keys and the strings, in this order. A tree
 * without nodes gives plan 0 to every site. LuaJIT's ffi.cdef reads the first part of this file
 * (LOAM_CDEF). */
#ifndef LM_CLASS_TREE_H
#define LM_CLASS_TREE_H

#ifndef LOAM_CDEF
#include "loam.h"
#include "os/base.h"
#endif

/* The questions. A question is about a whole field of the site or about one part of it. It compares
 * the field with its literal, a string of the policy. Parts are what the dots of a field separate,
 * counted from 1; a field that is "" has no part. A part that does not exist answers no to every
 * question. The answers are exactly those of lua/loam/symbolic/tag.lua. */
enum {
  LM_ASK_IS,    /* is it equal to the literal? */
  LM_ASK_UNDER, /* is it the literal, or the literal, a dot and more; is the literal empty? */
  LM_ASK_GLOB,  /* does it match the literal, in which * is any characters and ? is one? */
  LM_ASK_PART,  /* does the part exist? */
  LM_ASK_KEY,   /* which of the node's keys is it? */
  LM_ASKS
};
enum { LM_FIELD_TAG, LM_FIELD_FILE, LM_FIELD_FUNC, LM_FIELD_MODULE, LM_FIELDS };
/* A literal or a key has at most LM_CLASS_TEXT_MAX bytes, which bounds the time of a check. */
enum { LM_CLASS_MAGIC = 0x6c637431, LM_CLASS_TEXT_MAX = 4096 };

/* A node of the tree. `yes`, `no` and `next` of its keys are the index of a node, higher than this
 * node's, or ~index of a plan. */
typedef struct lm_class_node {
  uint8_t ask, field; /* LM_ASK_*, LM_FIELD_* */
  uint16_t part;      /* 0: the whole field; else this part of it. LM_ASK_PART: not 0 */
  uint32_t text;      /* offset of the literal in the strings; LM_ASK_KEY: the first key */
  uint32_t length;    /* bytes of the literal; LM_ASK_KEY: number of keys */
  int32_t yes, no;    /* LM_ASK_KEY: `yes` is unused, and `no` is the way of all other strings */
} lm_class_node;

/* A key of a node that asks LM_ASK_KEY. The keys of a node are different and sorted by their bytes
 * (memcmp; of a key and its beginning, the beginning comes first). */
typedef struct lm_class_key {
  uint32_t text, length; /* offset and bytes in the strings */
  int32_t next;          /* the way of strings that are equal to the key */
} lm_class_key;

/* The head of a tree. The nodes together have at most `keys` keys. */
typedef struct lm_class_head {
  uint32_t magic;
  uint32_t nodes, keys; /* lengths of the arrays */
  uint32_t plans;       /* plans have indices below this; at least 1 */
  uint32_t strings;     /* bytes */
  uint32_t unused;
} lm_class_head;

#ifndef LOAM_CDEF

/* A checked tree. It points into the bytes that were checked, and owns nothing.
 * Law: there is at least one plan.
 *      Every index and every range of the nodes and the keys is in range.
 *      `yes`, `no` and `next` lead to plans or to nodes with a higher index, so a search ends.
 *      The keys of a node are sorted, without duplicates. */
typedef struct lm_class_tree {
  lm_class_head head;
  const lm_class_node *node;
  const lm_class_key *key;
  const char *strings;
} lm_class_tree;

/* Checks a tree of `size` bytes, whose address is a multiple of 4, and sets *out. The bytes have to
 * stay where they are, unchanged, while *out is used. Fails with LOAM_EINVAL if the bytes are no
 * valid tree; the error words name the wrong value. Takes time in proportion to `size`. */
loam_status lm_class_tree_check(const void *bytes, size_t size, lm_class_tree *out);
/* Returns whether the law of a checked tree holds. Sets the error words if it does not. */
bool lm_class_tree_is_valid(const lm_class_tree *tree);
/* Returns the index of the plan of a site. A NULL string in `where` is "". Any thread. */
uint32_t lm_class_tree_find(const lm_class_tree *tree, const loam_where *where);

#endif
#endif
