/* image.h - plan images that a test builds node by node. */
#ifndef IMAGE_H
#define IMAGE_H

#include <string.h>

#include "plan/plan.h"

enum { IMAGE_NODES = 128, IMAGE_CODES = 256, IMAGE_LEAVES = 32, IMAGE_CHAIN = 128 };
#define IMAGE_BYTES ((size_t)32768)

typedef struct image {
  uint32_t nodes, codes, leaves, chains;
  lm_node node[IMAGE_NODES];
  lm_code code[IMAGE_CODES];
  lm_leaf leaf[IMAGE_LEAVES];
  uint32_t chain[IMAGE_CHAIN];
} image;

/* Adds a leaf with a chain of n strategy ids. Returns the leaf as a target for image_node. */
static inline int32_t image_leaf(image *m, uint32_t n, const uint32_t *ids) {
  m->leaf[m->leaves] = (lm_leaf){ m->chains, n, (int32_t)m->leaves + 1 };
  memcpy(&m->chain[m->chains], ids, n * sizeof *ids);
  m->chains += n;
  return ~(int32_t)m->leaves++;
}

static inline lm_node *image_node(image *m, unsigned input, unsigned cmp, double k, int32_t yes,
                                  int32_t no) {
  lm_node *node = &m->node[m->nodes++];
  *node = (lm_node){ .cmp = (uint8_t)cmp, .input = (uint8_t)input, .yes = yes, .no = no, .k = k };
  return node;
}

static inline void image_code(image *m, unsigned op, unsigned input, double k) {
  m->code[m->codes++] = (lm_code){ .op = (uint8_t)op, .input = (uint8_t)input, .k = k };
}

static inline size_t image_put(char *out, size_t at, const void *part, size_t size) {
  memcpy(out + at, part, size);
  return at + size;
}

/* Writes the image, at most IMAGE_BYTES. Returns its size. */
static inline size_t image_write(const image *m, char *out) {
  lm_image head = { LM_PLAN_MAGIC, m->nodes, m->codes, m->leaves, m->chains, 0 };
  size_t at = image_put(out, 0, &head, sizeof head);
  at = image_put(out, at, m->node, m->nodes * sizeof *m->node);
  at = image_put(out, at, m->code, m->codes * sizeof *m->code);
  at = image_put(out, at, m->leaf, m->leaves * sizeof *m->leaf);
  return image_put(out, at, m->chain, m->chains * sizeof *m->chain);
}

static inline loam_status image_make(const image *m, lm_plan **out) {
  static char bytes[IMAGE_BYTES];
  return lm_plan_make(bytes, image_write(m, bytes), out);
}

#endif
