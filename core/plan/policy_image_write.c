/* policy_image_write.c - writes policy images. */
#include <stdio.h>
#include <string.h>

#include "os/error.h"
#include "os/hash.h"
#include "plan/policy_image.h"

/* The work on one image. The first three arrays are parts of a block of memory, which `block` owns.
 * Law: plan[i] for i < plans are the different plans of the source, and plan_of[k] is the index of
 *      source->plan[k] among them; strategy[i] for i < strategies are the ids that they name, and
 *      index_of[id] - 1 is the index of an id among them, or index_of[id] is 0. */
typedef struct work {
  const lm_policy_image_source *source;
  lm_class_tree tree;
  uint32_t *block, *plan_of, *strategy, *index_of;
  const lm_plan **plan;
  uint32_t plans, strategies;
  lm_policy_image_head head;
} work;

/* Returns whether the law holds for the plans. */
static inline bool plans_is_valid(const work *w) {
  for (uint32_t k = 0; k < w->source->plans; k++)
    if (w->plan_of[k] >= w->plans || w->plan[w->plan_of[k]] != w->source->plan[k]) return false;
  for (uint32_t i = 0; i < w->plans; i++)
    for (uint32_t k = 0; k < i; k++)
      if (w->plan[k] == w->plan[i]) return false;
  return true;
}

/* Returns whether the law holds for the strategies. */
static inline bool strategies_is_valid(const work *w) {
  uint32_t n = 0;
  for (uint32_t id = 0; id < lm_strategy_count(); id++) {
    if (!w->index_of[id]) continue;
    if (w->index_of[id] > w->strategies || w->strategy[w->index_of[id] - 1] != id) return false;
    n++;
  }
  return n == w->strategies;
}

/* ---- What there is to write */

/* Returns the index of a plan among those that were counted; they are few. */
static uint32_t count_plan(work *w, const lm_plan *plan) {
  for (uint32_t i = w->plans; i-- > 0;)
    if (w->plan[i] == plan) return i;
  w->plan[w->plans] = plan;
  return w->plans++;
}

static void count_strategies(work *w, const lm_plan *plan) {
  for (uint32_t i = 0; i < plan->chains; i++) {
    uint32_t id = plan->chain[i];
    if (w->index_of[id]) continue;
    w->strategy[w->strategies++] = id;
    w->index_of[id] = w->strategies;
  }
}

static loam_status count(work *w) {
  uint32_t plans = w->tree.head.plans, ids = lm_strategy_count();
  w->block = lm_metadata_alloc((plans + 2 * (size_t)ids) * sizeof *w->block);
  w->plan = lm_metadata_alloc(plans * sizeof(lm_plan *));
  if (!w->block || !w->plan) return lm_error(LOAM_ENOMEM, "no memory to write a policy image");
  w->plan_of = w->block;
  w->strategy = w->plan_of + plans;
  w->index_of = w->strategy + ids;
  for (uint32_t i = 0; i < plans; i++) w->plan_of[i] = count_plan(w, w->source->plan[i]);
  for (uint32_t i = 0; i < w->plans; i++) count_strategies(w, w->plan[i]);
  lm_verify(plans_is_valid(w) && strategies_is_valid(w));
  return LOAM_OK;
}

/* ---- Ranges */

static size_t record_size(const lm_plan *plan) {
  return sizeof(uint64_t) + lm_align_up(lm_plan_image_size(plan), 8);
}

static size_t plans_size(const work *w) {
  size_t size = 0;
  for (uint32_t i = 0; i < w->plans; i++) size += record_size(w->plan[i]);
  return size;
}

/* Sets the ranges of the head. Returns the size of the image. */
static size_t lay_out(work *w) {
  const size_t size[LM_PARTS] = {
    [LM_PART_STRATEGIES] = w->strategies * sizeof(lm_policy_image_strategy),
    [LM_PART_PLAN_OF] = w->tree.head.plans * sizeof(uint32_t),
    [LM_PART_TREE] = w->source->tree_size,
    [LM_PART_PLANS] = plans_size(w),
  };
  size_t at = sizeof w->head;
  for (int i = 0; i < LM_PARTS; i++) {
    w->head.part[i] = (lm_policy_image_range){ at, size[i] };
    at = lm_align_up(at + size[i], 8);
  }
  w->head.frame.text = (lm_policy_image_range){ at, w->source->length };
  return at + w->source->length;
}

static void describe(work *w, size_t size) {
  const lm_policy_image_source *s = w->source;
  lm_policy_image_frame *frame = &w->head.frame;
  memcpy(frame->magic, LM_POLICY_IMAGE_MAGIC, sizeof frame->magic);
  frame->size = size;
  frame->text_hash = lm_hash_bytes(s->text, s->length);
  frame->format = LM_POLICY_IMAGE_FORMAT;
  frame->version = LM_POLICY_IMAGE_VERSION;
  w->head.nodes = s->nodes;
  w->head.nodes_hash = lm_policy_image_nodes_hash(s->nodes);
  w->head.page = (uint32_t)LM_PAGE;
  w->head.devices = s->devices;
  w->head.plans = w->plans;
  w->head.applies_live = s->applies_live;
  snprintf(w->head.name, sizeof w->head.name, "%s", s->name);
}

/* ---- Parts */

static void put_strategy(lm_policy_image_strategy *out, const lm_desc *d) {
  lm_assert(!d->asked);
  *out = (lm_policy_image_strategy){ .align = d->align,
                                     .limit = d->limit,
                                     .soft = d->soft,
                                     .nodes = d->placement.nodes,
                                     .guard = d->guard,
                                     .kind = (uint8_t)d->kind,
                                     .mode = (uint8_t)d->placement.mode,
                                     .huge = (uint8_t)d->huge,
                                     .supply = (uint8_t)d->supply,
                                     .device = d->device,
                                     .prefer = d->prefer,
                                     .zero = d->zero,
                                     .prefault = d->prefault,
                                     .lock = d->lock,
                                     .mapped = d->mapped,
                                     .portable = d->portable,
                                     .write_combined = d->write_combined };
  memcpy(out->name, d->name, sizeof d->name);
  memcpy(out->handler, d->handler, sizeof d->handler);
  memcpy(out->dir, d->dir, sizeof d->dir);
  memcpy(out->shared, d->shared, sizeof d->shared);
  memcpy(out->weight, d->placement.weight, sizeof out->weight);
}

static void put_plans(const work *w, char *out) {
  for (uint32_t i = 0; i < w->plans; i++) {
    uint64_t size = lm_plan_image_size(w->plan[i]);
    memcpy(out, &size, sizeof size);
    uint32_t *chain = lm_plan_write(w->plan[i], out + sizeof size);
    for (uint32_t k = 0; k < w->plan[i]->chains; k++) chain[k] = w->index_of[chain[k]] - 1;
    out += record_size(w->plan[i]);
  }
}

/* Writes everything into `image`, which is zeroed. */
static void put(const work *w, char *image) {
  const lm_policy_image_range *part = w->head.part;
  memcpy(image, &w->head, sizeof w->head);
  lm_policy_image_strategy *strategy = (void *)(image + part[LM_PART_STRATEGIES].at);
  for (uint32_t i = 0; i < w->strategies; i++)
    put_strategy(&strategy[i], &lm_strategy_at(w->strategy[i])->desc);
  memcpy(image + part[LM_PART_PLAN_OF].at, w->plan_of, part[LM_PART_PLAN_OF].size);
  memcpy(image + part[LM_PART_TREE].at, w->source->tree, w->source->tree_size);
  put_plans(w, image + part[LM_PART_PLANS].at);
  memcpy(image + w->head.frame.text.at, w->source->text, w->source->length);
  uint64_t checksum = lm_policy_image_checksum(image, w->head.frame.size);
  memcpy(image + offsetof(lm_policy_image_frame, checksum), &checksum, sizeof checksum);
}

static loam_status write_image(work *w, void **bytes, size_t *size) {
  loam_status status = count(w);
  if (status) return status;
  *size = lay_out(w);
  if (*size > LM_POLICY_IMAGE_MAX)
    return lm_error(LOAM_EBUDGET, "policy image: it has %zu bytes; at most %zu are possible", *size,
                    LM_POLICY_IMAGE_MAX);
  describe(w, *size);
  *bytes = lm_metadata_alloc(*size);
  if (!*bytes) return lm_error(LOAM_ENOMEM, "policy image: no memory for %zu bytes", *size);
  put(w, *bytes);
  return LOAM_OK;
}

loam_status lm_policy_image_write(const lm_policy_image_source *source, void **bytes,
                                  size_t *size) {
  work w = { .source = source };
  lm_assert(source && bytes && size);
  *bytes = NULL;
  loam_status status = lm_class_tree_check(source->tree, source->tree_size, &w.tree);
  if (status) return status;
  if (w.tree.head.plans != source->plans)
    return lm_error(LOAM_EINVAL, "policy image: %u plans for a class tree of %u", source->plans,
                    w.tree.head.plans);
  status = write_image(&w, bytes, size);
  lm_metadata_free(w.block);
  lm_metadata_free(w.plan);
  return status;
}
