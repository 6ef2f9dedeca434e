/* policy_image.c - checks and opens policy images, and finds the plan of a site. */
#include "plan/policy_image.h"

#include <stdlib.h>
#include <string.h>

#include "device/handler.h"
#include "device/manager.h"
#include "gpu/gpu.h"
#include "os/error.h"
#include "os/hash.h"
#include "pages/backing.h"

/* A plan that was made for one line from a plan that reads the line. */
typedef struct line_plan {
  const lm_plan *of; /* NULL: this place is free */
  long line;
  const lm_plan *plan;
} line_plan;

/* An open image.
 * Law: head, tree and strategy point into `bytes`, which have not changed since they were checked.
 *      plan[i] is the plan of index i in the tree, for i < tree.head.plans; all are in `set`.
 *      `lines` is a hash table of line_slots places (0, or a power of two and at least 2 * line_n)
 *      with linear probing: each plan of it is in `set` and does not read LM_IN_LINE, and the plan
 *      that it was made of is one of plan[] and reads it. */
struct lm_policy_image {
  char *bytes;
  size_t size;
  const lm_policy_image_head *head;
  const lm_policy_image_strategy *strategy;
  lm_class_tree tree;
  lm_plan_set set;
  const lm_plan **plan;
  line_plan *lines;
  uint32_t line_n, line_slots;
};

static loam_status refuse(const char *what, uint64_t value) {
  return lm_error(LOAM_EINVAL, "policy image: %s: %llu is not valid", what,
                  (unsigned long long)value);
}

/* ---- The frame, which all formats have */

bool lm_policy_image_is(const void *bytes, size_t size) {
  size_t n = strlen(LM_POLICY_IMAGE_MAGIC);
  return size >= n && !memcmp(bytes, LM_POLICY_IMAGE_MAGIC, n);
}

uint64_t lm_policy_image_checksum(const void *bytes, size_t size) {
  const char *from = bytes;
  size_t at = offsetof(lm_policy_image_frame, checksum), behind = at + sizeof(uint64_t);
  lm_assert(size >= behind);
  return lm_hash_words(lm_hash_words(LM_HASH_NONE, from, at), from + behind, size - behind);
}

static bool is_range(const lm_policy_image_range *range, size_t size) {
  return range->at <= size && range->size <= size - range->at;
}

/* Another format may compute the checksum in another way. Only the text of such an image is used,
 * and the text has a hash of its own. */
static loam_status check_frame(const void *bytes, size_t size, lm_policy_image_frame *out) {
  if (size < sizeof *out || !lm_policy_image_is(bytes, size))
    return lm_error(LOAM_EINVAL, "policy image: it has %zu bytes and no head of an image", size);
  memcpy(out, bytes, sizeof *out);
  if (out->size != size)
    return lm_error(LOAM_EINVAL, "policy image: it has %zu bytes, but its head says %llu", size,
                    (unsigned long long)out->size);
  bool is_own = out->format == LM_POLICY_IMAGE_FORMAT;
  uint64_t sum = is_own ? lm_policy_image_checksum(bytes, size) : out->checksum;
  if (sum != out->checksum)
    return lm_error(LOAM_EINVAL, "policy image: its checksum is %016llx, but its head says %016llx",
                    (unsigned long long)sum, (unsigned long long)out->checksum);
  if (!is_range(&out->text, size)) return refuse("offset of the text", out->text.at);
  uint64_t hash = lm_hash_bytes((const char *)bytes + out->text.at, out->text.size);
  return hash == out->text_hash ? LOAM_OK : refuse("hash of the text", out->text_hash);
}

loam_status lm_policy_image_text(const void *bytes, size_t size, const char **text,
                                 size_t *length) {
  lm_policy_image_frame frame;
  loam_status status = check_frame(bytes, size, &frame);
  if (status) return status;
  *text = (const char *)bytes + frame.text.at;
  *length = frame.text.size;
  return LOAM_OK;
}

/* ---- The machine */

static loam_status fail_machine(const char *what, long long has, long long wants) {
  return lm_error(LOAM_EUNSUPPORTED,
                  "policy image: it was compiled for %s %#llx, but this machine has %#llx", what,
                  wants, has);
}

static loam_status fail_nodes(uint64_t nodes) {
  char wanted[256], mine[256];
  return lm_error(
      LOAM_EUNSUPPORTED,
      "policy image: it was compiled for the NUMA nodes %s, but this process may use nodes %s",
      lm_numa_text(nodes, wanted, sizeof wanted), lm_numa_text(lm_numa_nodes(), mine, sizeof mine));
}

/* Returns whether the machine has exactly these nodes. They may have come or gone since loam asked
 * for them. */
static bool has_nodes(uint64_t nodes) {
  if (!nodes || lm_numa_nodes() == nodes) return true;
  lm_numa_refresh();
  return lm_numa_nodes() == nodes;
}

uint64_t lm_policy_image_nodes_hash(uint64_t nodes) {
  uint64_t hash = LM_HASH_NONE;
  for (uint64_t left = nodes; left; left &= left - 1) {
    unsigned node = (unsigned)__builtin_ctzll(left);
    uint64_t words[] = { node, lm_numa_total(node), lm_numa_has_cpus(node) };
    hash = lm_hash_more(hash, words, sizeof words);
  }
  return nodes ? hash : 0;
}

static loam_status check_format(const lm_policy_image_frame *frame) {
  if (frame->format == LM_POLICY_IMAGE_FORMAT && frame->version == LM_POLICY_IMAGE_VERSION)
    return LOAM_OK;
  return lm_error(
      LOAM_EUNSUPPORTED,
      "policy image: it has format %u of loam %u.%u.%u, but this is format %d of %d.%d.%d",
      frame->format, frame->version >> 16, frame->version >> 8 & 255, frame->version & 255,
      LM_POLICY_IMAGE_FORMAT, LOAM_VERSION_MAJOR, LOAM_VERSION_MINOR, LOAM_VERSION_PATCH);
}

static loam_status check_machine(const lm_policy_image_head *head) {
  if (head->page != LM_PAGE) return fail_machine("pages of bytes", LM_PAGE, head->page);
  if (!has_nodes(head->nodes)) return fail_nodes(head->nodes);
  uint64_t hash = lm_policy_image_nodes_hash(head->nodes);
  if (hash != head->nodes_hash)
    return fail_machine("NUMA nodes with memory and CPUs of hash", (long long)hash,
                        (long long)head->nodes_hash);
  if (head->devices < -1 || head->devices > LM_DEVICES_MAX)
    return refuse("number of devices", (uint64_t)head->devices);
  if (head->devices >= 0 && head->devices != lm_gpu_count())
    return fail_machine("a number of GPUs of", lm_gpu_count(), head->devices);
  return LOAM_OK;
}

/* ---- Ranges of the parts */

static loam_status check_layout(const lm_policy_image_head *head) {
  uint64_t at = sizeof *head, size = head->frame.size;
  for (int i = 0; i < LM_PARTS; i++) {
    if (head->part[i].at != at) return refuse("offset of a part", head->part[i].at);
    if (!is_range(&head->part[i], size)) return refuse("size of a part", head->part[i].size);
    at = lm_align_up(at + head->part[i].size, 8);
  }
  if (head->frame.text.at != at) return refuse("offset of the text", head->frame.text.at);
  if (size - at != head->frame.text.size) return refuse("size of the text", head->frame.text.size);
  if (!memchr(head->name, 0, sizeof head->name)) return refuse("end of the name", 0);
  return head->applies_live <= 1 ? LOAM_OK : refuse("apply", head->applies_live);
}

static const void *part_of(const lm_policy_image *image, lm_policy_image_part part) {
  return image->bytes + image->head->part[part].at;
}

static uint32_t strategies_of(const lm_policy_image *image) {
  return (uint32_t)(image->head->part[LM_PART_STRATEGIES].size / sizeof *image->strategy);
}

/* ---- Strategies */

static bool are_texts(const lm_policy_image_strategy *s) {
  return memchr(s->name, 0, sizeof s->name) && memchr(s->handler, 0, sizeof s->handler) &&
         memchr(s->dir, 0, sizeof s->dir) && memchr(s->shared, 0, sizeof s->shared);
}

static bool are_flags(const lm_policy_image_strategy *s) {
  return s->zero <= 1 && s->prefault <= 1 && s->lock <= 1 && s->mapped <= 1 && s->portable <= 1 &&
         s->write_combined <= 1;
}

/* Returns whether a strategy places memory only on nodes that the machine has. */
static bool is_placed(const lm_policy_image_strategy *s, uint64_t nodes) {
  for (unsigned i = 0; i < LM_NODES_MAX; i++)
    if (s->weight[i] && !(nodes >> i & 1)) return false;
  bool needs_nodes = s->mode != LM_BIND_DEFAULT && s->mode != LM_BIND_LOCAL;
  return s->mode <= LM_BIND_WEIGHTED && !(s->nodes & ~nodes) && (s->nodes || !needs_nodes);
}

/* Returns whether the devices that a strategy names exist. */
static bool has_devices(const lm_policy_image_strategy *s, int32_t devices) {
  if (s->kind != LM_KIND_DEVICE && s->kind != LM_KIND_MANAGED) return true;
  return devices >= 0 && s->device <= devices && s->prefer <= devices + 1;
}

static loam_status check_strategy(const lm_policy_image *image, uint32_t i) {
  const lm_policy_image_strategy *s = &image->strategy[i];
  if (!are_texts(s)) return refuse("end of a text of strategy", i);
  if (s->kind >= LM_KINDS) return refuse("kind of a strategy", s->kind);
  if (s->huge > LM_HUGE_1GIB) return refuse("huge of a strategy", s->huge);
  if (s->supply >= LM_DEVICE_POOL_KINDS) return refuse("pool of a strategy", s->supply);
  if (s->limit > LM_SIZE_MAX) return refuse("limit of a strategy", s->limit);
  if (!are_flags(s)) return refuse("flags of strategy", i);
  if (!is_placed(s, image->head->nodes)) return refuse("nodes of strategy", i);
  return has_devices(s, image->head->devices) ? LOAM_OK : refuse("devices of strategy", i);
}

/* Refuses a strategy that this process cannot use. That is a fault only where the strategy ends a
 * chain: elsewhere the next member of the chain serves. */
static loam_status check_host(const lm_policy_image_strategy *s) {
  char words[256];
  if (s->kind == LM_KIND_HANDLER && !lm_handler_find(s->handler))
    return lm_error(LOAM_ESTATE, "strategy \"%s\": no handler \"%s\" is registered", s->name,
                    s->handler);
  if (s->kind != LM_KIND_FILE) return LOAM_OK;
  const char *why = lm_backing_refusal(s->dir, words, sizeof words);
  return why ? lm_error(LOAM_ESTATE, "strategy \"%s\": dir %s: %s", s->name, s->dir, why) : LOAM_OK;
}

static loam_status check_strategies(const lm_policy_image *image) {
  loam_status status = LOAM_OK;
  uint64_t size = image->head->part[LM_PART_STRATEGIES].size;
  if (size % sizeof *image->strategy || size / sizeof *image->strategy > LM_STRATEGIES_MAX)
    return refuse("size of the strategies", size);
  for (uint32_t i = 0; !status && i < strategies_of(image); i++) status = check_strategy(image, i);
  return status;
}

static _Atomic uint32_t guard_every; /* see lm_policy_image_guard_every; relaxed, it stands alone */

void lm_policy_image_guard_every(uint32_t n) {
  atomic_store_explicit(&guard_every, n, memory_order_relaxed);
  lm_strategy_builtin.desc.guard = n;
}

void lm_policy_image_guard_as(const char *text) {
  if (!text || !*text) return;
  unsigned long long every = 0;
  bool is_number = strspn(text, "0123456789") == strlen(text) && strlen(text) <= 10;
  if (is_number) every = strtoull(text, NULL, 10);
  if (is_number && every <= UINT32_MAX) return lm_policy_image_guard_every((uint32_t)every);
  lm_error_event(LOAM_EVENT_ENVIRONMENT, 0, NULL,
                 "LOAM_GUARD=%.100s: it may be N, from 0 to 4294967295, to guard one block in N; "
                 "only the policy decides",
                 text);
}

/* Returns the guard of a strategy: the policy asks for one and the process for another, and the one
 * that guards more blocks holds. */
static uint32_t guard_of(const lm_policy_image_strategy *s) {
  uint32_t every = atomic_load_explicit(&guard_every, memory_order_relaxed);
  if (s->kind != LM_KIND_HOST || !every) return s->guard;
  return s->guard && s->guard < every ? s->guard : every;
}

static loam_status intern(const lm_policy_image_strategy *s, uint32_t *id) {
  lm_strategy *made;
  lm_desc d = { .kind = s->kind,
                .align = s->align,
                .limit = s->limit,
                .soft = s->soft,
                .placement = { .mode = s->mode, .nodes = s->nodes },
                .huge = s->huge,
                .zero = s->zero,
                .prefault = s->prefault,
                .lock = s->lock,
                .guard = guard_of(s),
                .device = s->device,
                .prefer = s->prefer,
                .supply = s->supply,
                .mapped = s->mapped,
                .portable = s->portable,
                .write_combined = s->write_combined };
  memcpy(d.name, s->name, sizeof d.name);
  memcpy(d.handler, s->handler, sizeof d.handler);
  memcpy(d.dir, s->dir, sizeof d.dir);
  memcpy(d.shared, s->shared, sizeof d.shared);
  memcpy(d.placement.weight, s->weight, sizeof d.placement.weight);
  loam_status status = lm_strategy_intern(&d, &made);
  if (!status) *id = made->id;
  return status;
}

/* Returns the ids of the strategies, in lm_metadata memory; NULL with error words. */
static loam_status intern_all(const lm_policy_image *image, uint32_t **out) {
  uint32_t n = strategies_of(image);
  loam_status status = LOAM_OK;
  uint32_t *id = lm_metadata_alloc((n + 1) * sizeof *id);
  if (!id) return lm_error(LOAM_ENOMEM, "policy image: no memory for %u strategies", n);
  for (uint32_t i = 0; !status && i < n; i++) status = intern(&image->strategy[i], &id[i]);
  *out = id;
  return status;
}

/* ---- Plans */

/* A plan in the image. */
typedef struct record {
  const char *plan;
  uint64_t size;
} record;

/* Reads the record at *at and moves *at behind it. Returns false if it is not within the part. */
static bool next_record(const lm_policy_image *image, uint64_t *at, record *out) {
  lm_policy_image_range part = image->head->part[LM_PART_PLANS];
  if (part.size - *at < sizeof out->size) return false;
  const char *from = image->bytes + part.at + *at;
  memcpy(&out->size, from, sizeof out->size);
  out->plan = from + sizeof out->size;
  if (out->size > part.size - *at - sizeof out->size) return false;
  uint64_t padded = sizeof out->size + lm_align_up(out->size, 8);
  if (padded > part.size - *at) return false;
  *at += padded;
  return true;
}

/* Replaces the indices of strategies at the end of a plan's image by their ids. */
static loam_status renumber(char *plan, size_t size, const uint32_t *id, uint32_t strategies) {
  lm_image head;
  if (size < sizeof head || size % sizeof(uint32_t)) return refuse("size of a plan", size);
  memcpy(&head, plan, sizeof head);
  if (head.chains > (size - sizeof head) / sizeof(uint32_t))
    return refuse("chains of a plan", head.chains);
  uint32_t *chain = (uint32_t *)(void *)(plan + size) - head.chains;
  for (uint32_t i = 0; i < head.chains; i++) {
    if (chain[i] >= strategies) return refuse("strategy of a plan", chain[i]);
    chain[i] = id[chain[i]];
  }
  return LOAM_OK;
}

/* The facts about each strategy of the image that read_plans needs, by its index. */
typedef struct strategies {
  uint32_t *id;     /* in this process */
  uint8_t *is_last; /* 1: a chain of a plan ends with it */
} strategies;

/* Sets is_last of the strategies that end the chains of a plan. */
static void mark_last(const record *r, const lm_plan *plan, uint8_t *is_last) {
  const uint32_t *chain = (const uint32_t *)(const void *)(r->plan + r->size) - plan->chains;
  for (uint32_t i = 0; i < plan->leaves; i++)
    is_last[chain[plan->leaf[i].first + plan->leaf[i].n - 1]] = 1;
}

/* Makes a plan and adds it to the set. */
static loam_status make_plan(lm_policy_image *image, const record *r, const strategies *known,
                             const lm_plan **out) {
  lm_plan *plan = NULL;
  char *copy = lm_metadata_alloc(r->size + 1);
  if (!copy) return lm_error(LOAM_ENOMEM, "policy image: no memory for a plan");
  memcpy(copy, r->plan, r->size);
  loam_status status = renumber(copy, r->size, known->id, strategies_of(image));
  if (!status) status = lm_plan_make(copy, r->size, &plan);
  lm_metadata_free(copy);
  if (status) return status;
  mark_last(r, plan, known->is_last);
  *out = lm_plan_set_add(&image->set, plan);
  return *out ? LOAM_OK : LOAM_ENOMEM;
}

/* Makes all plans of the image into `plan`, by their index in the image. */
static loam_status make_plans(lm_policy_image *image, const strategies *known,
                              const lm_plan **plan) {
  uint64_t at = 0;
  record r;
  for (uint32_t i = 0; i < image->head->plans; i++) {
    if (!next_record(image, &at, &r)) return refuse("size of plan", i);
    loam_status status = make_plan(image, &r, known, &plan[i]);
    if (status) return status;
  }
  uint64_t size = image->head->part[LM_PART_PLANS].size;
  return at == size ? LOAM_OK : refuse("size of the plans", size);
}

/* Gives the indices of the tree their plans. `plan` is by the index in the image. */
static loam_status assign_plans(lm_policy_image *image, const lm_plan *const *plan) {
  const uint32_t *index = part_of(image, LM_PART_PLAN_OF);
  for (uint32_t i = 0; i < image->tree.head.plans; i++) {
    if (index[i] >= image->head->plans) return refuse("index of a plan", index[i]);
    image->plan[i] = plan[index[i]];
  }
  return LOAM_OK;
}

static loam_status read_plans(lm_policy_image *image, bool is_host) {
  uint32_t n = image->head->plans, count = strategies_of(image);
  strategies known = { .is_last = lm_metadata_alloc(count + 1) };
  loam_status status = intern_all(image, &known.id);
  const lm_plan **plan = status ? NULL : lm_metadata_alloc((n + 1) * sizeof(lm_plan *));
  if (!status && (!plan || !known.is_last))
    status = lm_error(LOAM_ENOMEM, "policy image: no memory for %u plans", n);
  if (!status) status = make_plans(image, &known, plan);
  if (!status) status = assign_plans(image, plan);
  for (uint32_t i = 0; !status && is_host && i < count; i++)
    if (known.is_last[i]) status = check_host(&image->strategy[i]);
  lm_metadata_free(plan);
  lm_metadata_free(known.id);
  lm_metadata_free(known.is_last);
  return status;
}

/* ---- Opening */

/* Checks the numbers of plans, which decide how much memory the image needs. */
static loam_status check_counts(const lm_policy_image *image) {
  const lm_policy_image_range *part = image->head->part;
  uint32_t plans = image->tree.head.plans;
  if (part[LM_PART_PLAN_OF].size != plans * sizeof(uint32_t))
    return refuse("size of the indices of plans", part[LM_PART_PLAN_OF].size);
  bool fits = image->head->plans <= part[LM_PART_PLANS].size / sizeof(uint64_t);
  return fits ? LOAM_OK : refuse("number of plans", image->head->plans);
}

/* Reads the bytes into an image that holds nothing else yet. */
static loam_status read_image(lm_policy_image *image, bool is_host) {
  lm_policy_image_frame frame;
  const lm_policy_image_head *head = image->head = (const void *)image->bytes;
  loam_status status = check_frame(image->bytes, image->size, &frame);
  if (!status) status = check_format(&frame);
  if (!status && image->size < sizeof *head) status = refuse("size of the head", image->size);
  if (!status) status = check_layout(head);
  if (!status) status = check_machine(head);
  if (status) return status;
  image->strategy = part_of(image, LM_PART_STRATEGIES);
  status = check_strategies(image);
  if (!status)
    status = lm_class_tree_check(part_of(image, LM_PART_TREE), head->part[LM_PART_TREE].size,
                                 &image->tree);
  if (!status) status = check_counts(image);
  if (status) return status;
  image->plan = lm_metadata_alloc(image->tree.head.plans * sizeof(lm_plan *));
  if (!image->plan) return lm_error(LOAM_ENOMEM, "policy image: no memory to open it");
  return read_plans(image, is_host);
}

loam_status lm_policy_image_open(void *bytes, size_t size, bool is_host, lm_policy_image **out) {
  lm_assert(bytes && out && (uintptr_t)bytes % 8 == 0);
  *out = NULL;
  lm_policy_image *image = lm_metadata_alloc(sizeof *image);
  if (!image) return lm_error(LOAM_ENOMEM, "policy image: no memory to open it");
  image->bytes = bytes;
  image->size = size;
  loam_status status = read_image(image, is_host);
  if (status) {
    image->bytes = NULL; /* it stays the caller's */
    lm_policy_image_close(image);
    return status;
  }
  lm_verify(lm_policy_image_is_valid(image));
  *out = image;
  return LOAM_OK;
}

void lm_policy_image_close(lm_policy_image *image) {
  if (!image) return;
  lm_plan_set_clear(&image->set);
  lm_metadata_free(image->lines);
  lm_metadata_free(image->plan);
  lm_metadata_free(image->bytes);
  lm_metadata_free(image);
}

/* ---- Finding */

/* Returns the place of a plan and a line, or the free place where they belong. There is one, since
 * the table is at most half full. */
static line_plan *line_place(line_plan *lines, uint32_t slots, const lm_plan *of, long line) {
  uint64_t i = (of->hash ^ (uint64_t)line) * 0x9e3779b97f4a7c15u >> 32;
  lm_assert(lm_is_pow2(slots));
  for (;; i++) {
    line_plan *place = &lines[i & (slots - 1)];
    if (!place->of || (place->of == of && place->line == line)) return place;
  }
}

static bool make_line_room(lm_policy_image *image) {
  if (image->line_n * 2 < image->line_slots) return true;
  uint32_t slots = image->line_slots ? image->line_slots * 2 : 16;
  line_plan *lines = lm_metadata_alloc(slots * sizeof *lines);
  if (!lines) return false;
  for (uint32_t i = 0; i < image->line_slots; i++) {
    const line_plan *old = &image->lines[i];
    if (old->of) *line_place(lines, slots, old->of, old->line) = *old;
  }
  lm_metadata_free(image->lines);
  image->lines = lines;
  image->line_slots = slots;
  return true;
}

/* Returns the plan of one line; NULL, with error words, if there is no memory for it. */
static const lm_plan *at_line(lm_policy_image *image, const lm_plan *of, long line) {
  lm_plan *made;
  if (!make_line_room(image))
    return lm_error_null("policy image: no memory for the plan of line %ld", line);
  line_plan *place = line_place(image->lines, image->line_slots, of, line);
  if (place->of) return place->plan;
  if (lm_plan_at_line(of, line, &made)) return NULL;
  const lm_plan *plan = lm_plan_set_add(&image->set, made);
  if (!plan) return NULL;
  *place = (line_plan){ of, line, plan };
  image->line_n++;
  return plan;
}

loam_status lm_policy_image_find(lm_policy_image *image, const loam_where *where,
                                 const lm_plan **out) {
  *out = image->plan[lm_class_tree_find(&image->tree, where)];
  if (lm_likely(!((*out)->reads & 1u << LM_IN_LINE))) return LOAM_OK;
  *out = at_line(image, *out, where->line);
  if (*out) return LOAM_OK;
  *out = lm_plan_default();
  return LOAM_ENOMEM;
}

/* ---- What an image says */

const void *lm_policy_image_bytes(const lm_policy_image *image, size_t *size) {
  *size = image->size;
  return image->bytes;
}

const char *lm_policy_image_name(const lm_policy_image *image) { return image->head->name; }
bool lm_policy_image_applies_live(const lm_policy_image *image) {
  return image->head->applies_live;
}
bool lm_policy_image_shares(const lm_policy_image *image) {
  for (uint32_t i = 0; i < strategies_of(image); i++)
    if (image->strategy[i].shared[0]) return true;
  return false;
}
bool lm_policy_image_guards(const lm_policy_image *image) {
  for (uint32_t i = 0; i < strategies_of(image); i++)
    if (image->strategy[i].guard) return true;
  return false;
}
bool lm_policy_image_asks_about_machine(const lm_policy_image *image) {
  for (uint32_t i = 0; i < strategies_of(image); i++)
    if (image->strategy[i].kind == LM_KIND_FILE) return true;
  return image->head->nodes || image->head->devices >= 0;
}
uint64_t lm_policy_image_hash(const lm_policy_image *image) { return image->head->frame.text_hash; }
uint32_t lm_policy_image_plans(const lm_policy_image *image) { return image->set.count; }

void lm_policy_image_mark_used(const lm_policy_image *image, uint8_t *used, uint32_t n) {
  lm_plan_set_mark_used(&image->set, used, n);
}

static void watch_plan(const lm_plan *plan) {
  uint32_t devices = 1u << LM_IN_DEVICE | 1u << LM_IN_DEVICE_FREE;
  if (!(plan->reads & devices)) return;
  (void)lm_gpu();
  for (uint32_t i = 0; i < plan->nodes; i++)
    if (plan->node[i].code_n == 0 && plan->node[i].input == LM_IN_DEVICE_FREE)
      lm_manager_watch(plan->node[i].arg);
  for (uint32_t i = 0; i < plan->codes; i++)
    if (plan->code[i].op == LM_OP_INPUT && plan->code[i].input == LM_IN_DEVICE_FREE)
      lm_manager_watch(plan->code[i].arg);
}

uint32_t lm_policy_image_reads(const lm_policy_image *image) {
  uint32_t reads = 0;
  for (uint32_t i = 0; i < image->tree.head.plans; i++) reads |= image->plan[i]->reads;
  return reads;
}

void lm_policy_image_watch_devices(const lm_policy_image *image) {
  for (uint32_t i = 0; i < image->tree.head.plans; i++) watch_plan(image->plan[i]);
}

/* ---- The law */

static bool are_lines_valid(const lm_policy_image *image) {
  uint32_t found = 0, line = 1u << LM_IN_LINE;
  if (!image->line_slots) return !image->lines && !image->line_n;
  if (!lm_is_pow2(image->line_slots) || image->line_n * 2 > image->line_slots) return false;
  for (uint32_t i = 0; i < image->line_slots; i++) {
    line_plan *l = &image->lines[i];
    if (!l->of) continue;
    if (line_place(image->lines, image->line_slots, l->of, l->line) != l) return false;
    if (!(l->of->reads & line) || l->plan->reads & line) return false;
    if (!lm_plan_set_has(&image->set, l->of) || !lm_plan_set_has(&image->set, l->plan))
      return false;
    found++;
  }
  return found == image->line_n;
}

/* Returns whether the pointers into the bytes lead to the parts that they are named for. */
static bool are_parts_valid(const lm_policy_image *image) {
  const char *tree = part_of(image, LM_PART_TREE);
  return (const char *)image->head == image->bytes && image->head->frame.size == image->size &&
         (const void *)image->strategy == part_of(image, LM_PART_STRATEGIES) &&
         (const char *)image->tree.node == tree + sizeof image->tree.head;
}

bool lm_policy_image_is_valid(const lm_policy_image *image) {
  if (!are_parts_valid(image) || !lm_class_tree_is_valid(&image->tree)) return false;
  if (lm_policy_image_checksum(image->bytes, image->size) != image->head->frame.checksum)
    return false;
  for (uint32_t i = 0; i < image->tree.head.plans; i++)
    if (!lm_plan_set_has(&image->set, image->plan[i])) return false;
  return lm_plan_set_is_valid(&image->set) && are_lines_valid(image);
}
