/* test_policy_image.c - a policy image gives each site the plan that was written for it. Damaged
 * bytes are refused or do no harm. */
#include "policy_bytes.h"

#include "device/handler.h"
#include "os/error.h"
#include "os/hash.h"
#include "test.h"

static lm_plan *plan[BYTES_PLANS];
static char *good;
static size_t size;

static int make_image(void **state) {
  (void)state;
  bytes_plans(plan);
  good = bytes_write(plan, &size);
  return good ? 0 : -1;
}

static int free_image(void **state) {
  (void)state;
  lm_metadata_free(good);
  for (int i = 0; i < BYTES_PLANS; i++) lm_plan_destroy(plan[i]);
  return 0;
}

/* Opens a copy of the bytes. Returns NULL if it is refused. */
static lm_policy_image *open_copy(const char *bytes, size_t n, loam_status *status) {
  lm_policy_image *policy;
  char *copy = bytes_copy(bytes, n);
  *status = lm_policy_image_open(copy, n, true, &policy);
  if (*status) lm_metadata_free(copy);
  else assert_true(lm_policy_image_is_valid(policy));
  return policy;
}

static lm_policy_image *open_good(void) {
  loam_status status;
  lm_policy_image *policy = open_copy(good, size, &status);
  if (!policy) fail_msg("%s", loam_error());
  return policy;
}

static const lm_plan *find(lm_policy_image *policy, const char *tag, const char *file, int line) {
  const lm_plan *found;
  loam_where where = { .tag = tag, .file = file, .module = "", .line = line };
  assert_int_equal(lm_policy_image_find(policy, &where, &found), LOAM_OK);
  return found;
}

/* Changes a copy of the image and opens it. The checksum is correct. */
static void refuses(loam_status want, size_t at, const void *part, size_t n, const char *words) {
  loam_status status;
  char *bytes = bytes_copy(good, size);
  assert_true(at + n <= size);
  memcpy(bytes + at, part, n);
  bytes_seal(bytes, size);
  assert_null(open_copy(bytes, size, &status));
  if (status != want || !strstr(loam_error(), words))
    fail_msg("status %d, \"%s\" is not in: %s", status, words, loam_error());
  lm_metadata_free(bytes);
}

static const lm_policy_image_head *head(void) { return (const lm_policy_image_head *)(void *)good; }

/* ---- What an image gives */

static void gives_each_site_the_plan_that_was_written(void **state) {
  (void)state;
  lm_policy_image *policy = open_good();
  for (int i = 0; i < 4; i++) {
    static const char *const tag[] = { "one", "two.x", "", "none" };
    const lm_plan *found = find(policy, tag[i], "", 0), *wrote = plan[i == 1];
    assert_int_equal(found->hash, wrote->hash); /* so the strategies are equal in every field */
    assert_int_equal(found->chains, wrote->chains);
    assert_memory_equal(found->chain, wrote->chain, wrote->chains * sizeof *wrote->chain);
  }
  const lm_plan *found;
  lm_policy_image_find(policy, &(loam_where){ .module = "m.x" }, &found);
  assert_int_equal(found->hash, plan[3]->hash);
  assert_ptr_equal(find(policy, "one", "", 0), find(policy, "none", "", 0));
  lm_policy_image_close(policy);
}

static void says_what_was_written(void **state) {
  (void)state;
  const char *text;
  size_t length;
  lm_policy_image *policy = open_good();
  assert_string_equal(lm_policy_image_name(policy), "small");
  assert_true(lm_policy_image_applies_live(policy));
  assert_int_equal(lm_policy_image_plans(policy), BYTES_PLANS);
  assert_int_equal(lm_policy_image_hash(policy), lm_hash_bytes(bytes_text, sizeof bytes_text - 1));
  assert_int_equal(lm_policy_image_text(good, size, &text, &length), LOAM_OK);
  assert_int_equal(length, sizeof bytes_text - 1);
  assert_memory_equal(text, bytes_text, length);
  assert_true(lm_policy_image_is(good, size));
  assert_false(lm_policy_image_is("return loam.policy", 18));
  assert_false(lm_policy_image_is("\177loam", 5));
  lm_policy_image_close(policy);
}

static void marks_the_strategies_of_its_plans(void **state) {
  (void)state;
  uint8_t used[LM_STRATEGIES_MAX] = { 0 };
  uint32_t id[3];
  lm_strategy *other;
  bytes_strategies(id);
  assert_int_equal(lm_strategy_intern(&(lm_desc){ .name = "other" }, &other), LOAM_OK);
  lm_policy_image *policy = open_good();
  lm_policy_image_mark_used(policy, used, lm_strategy_count());
  for (int i = 0; i < 3; i++) assert_true(used[id[i]]);
  assert_true(used[0]);
  assert_false(used[other->id]);
  lm_policy_image_close(policy);
}

static void makes_a_plan_for_each_line(void **state) {
  (void)state;
  lm_policy_image *policy = open_good();
  const lm_plan *first[300];
  for (int line = 0; line < 300; line++) {
    first[line] = find(policy, "x", "a.py", line);
    assert_false(first[line]->reads & 1u << LM_IN_LINE);
    for (size_t bytes = 0; bytes < 300; bytes += 50) {
      lm_inputs r = { .size = bytes, .align = 16, .line = line };
      const lm_leaf *want = &plan[2]->leaf[lm_plan_decide(plan[2], &r)];
      assert_int_equal(first[line]->leaf[lm_plan_decide(first[line], &r)].line, want->line);
    }
  }
  assert_true(lm_policy_image_is_valid(policy));
  for (int line = 0; line < 300; line++)
    assert_ptr_equal(find(policy, "x", "a.py", line), first[line]);
  assert_ptr_equal(first[0], first[99]); /* equal plans become one plan */
  assert_ptr_not_equal(first[100], first[101]);
  assert_int_equal(lm_policy_image_plans(policy), BYTES_PLANS + 1 + 200);
  lm_policy_image_close(policy);
}

/* ---- Damage */

#define AT(field) offsetof(lm_policy_image_head, field)

static void refuses_every_changed_byte(void **state) {
  (void)state;
  loam_status status;
  for (size_t at = 0; at < size; at++) {
    bool is_format = at - AT(frame.format) < sizeof(uint32_t);
    good[at] ^= 1;
    assert_null(open_copy(good, size, &status));
    assert_int_equal(status, is_format ? LOAM_EUNSUPPORTED : LOAM_EINVAL);
    good[at] ^= 1;
  }
}

static void refuses_every_shorter_image(void **state) {
  (void)state;
  loam_status status;
  for (size_t n = 0; n < size; n++) {
    assert_null(open_copy(good, n, &status));
    assert_int_equal(status, LOAM_EINVAL);
    const char *text;
    size_t length;
    assert_int_equal(lm_policy_image_text(good, n, &text, &length), LOAM_EINVAL);
  }
  char *longer = bytes_copy(good, size);
  assert_null(open_copy(longer, size + 1, &status));
  lm_metadata_free(longer);
}

/* Uses an image in all ways. */
static void use(lm_policy_image *policy) {
  static const char *const names[] = { "", "one", "two", "two.x", "a.py", "m", "n.m" };
  const double fixed[LM_INPUTS] = { 0 };
  for (size_t i = 0; i < LM_COUNT(names); i++) {
    const lm_plan *found;
    loam_where where = { names[i], names[i], names[i], names[i], (int)i * 40 };
    assert_int_equal(lm_policy_image_find(policy, &where, &found), LOAM_OK);
    lm_inputs r = { .size = i * 50, .align = 16, .fixed = fixed };
    assert_true(lm_plan_decide(found, &r) < found->leaves);
    assert_false(found->reads & 1u << LM_IN_LINE);
  }
  assert_true(strlen(lm_policy_image_name(policy)) < LM_POLICY_IMAGE_NAME);
  assert_true(lm_policy_image_is_valid(policy));
}

/* The checksum protects against accidents only, since an attacker can compute it too. */
static void follows_no_changed_byte_under_a_good_checksum(void **state) {
  (void)state;
  static const unsigned char change[] = { 1, 2, 4, 8, 16, 32, 64, 128, 255 };
  unsigned opened = 0;
  for (size_t at = 0; at < size; at += THREAD_SANITIZED ? 7 : 1) {
    for (size_t i = 0; i < LM_COUNT(change); i++) {
      loam_status status;
      char *bytes = bytes_copy(good, size);
      bytes[at] = (char)(bytes[at] ^ change[i]);
      bytes_seal(bytes, size);
      lm_policy_image *policy = open_copy(bytes, size, &status);
      if (policy) use(policy);
      opened += policy != NULL;
      lm_policy_image_close(policy);
      lm_metadata_free(bytes);
    }
  }
  assert_true(opened > 100);
}

static void follows_no_shorter_image_under_a_good_checksum(void **state) {
  (void)state;
  loam_status status;
  for (size_t n = sizeof(lm_policy_image_frame); n < size; n++) {
    char *bytes = bytes_copy(good, n);
    ((lm_policy_image_frame *)(void *)bytes)->size = n;
    bytes_seal(bytes, n);
    assert_null(open_copy(bytes, n, &status));
    lm_metadata_free(bytes);
  }
}

/* ---- Each part */

#define AT_STRATEGY(field) \
  (head()->part[LM_PART_STRATEGIES].at + offsetof(lm_policy_image_strategy, field))

static void refuses_u64(loam_status want, size_t at, uint64_t value, const char *words) {
  refuses(want, at, &value, sizeof value, words);
}

static void refuses_u8(size_t at, uint8_t value, const char *words) {
  refuses(LOAM_EINVAL, at, &value, sizeof value, words);
}

static void refuses_an_image_of_another_machine_but_gives_its_text(void **state) {
  (void)state;
  uint32_t other = 8192;
  refuses(LOAM_EUNSUPPORTED, AT(page), &other, sizeof other, "0x2000");
  refuses_u64(LOAM_EUNSUPPORTED, AT(nodes), 1ull << 63, "the NUMA nodes 63, but this process");
  refuses_u64(LOAM_EUNSUPPORTED, AT(nodes_hash), 1, "NUMA nodes with memory and CPUs");
  refuses(LOAM_EUNSUPPORTED, AT(frame.format), &other, sizeof other, "format 8192");
  refuses(LOAM_EUNSUPPORTED, AT(frame.version), &other, sizeof other, "0.32.0");
  other = 32;
  refuses(LOAM_EUNSUPPORTED, AT(devices), &other, sizeof other, "GPUs");
  char *bytes = bytes_copy(good, size);
  lm_policy_image_frame *frame = &((lm_policy_image_head *)(void *)bytes)->frame;
  frame->format++;
  frame->checksum++; /* it may be computed in another way there */
  const char *text;
  size_t length;
  assert_int_equal(lm_policy_image_text(bytes, size, &text, &length), LOAM_OK);
  assert_memory_equal(text, bytes_text, length);
  bytes[frame->text.at] ^= 1;
  assert_int_equal(lm_policy_image_text(bytes, size, &text, &length), LOAM_EINVAL);
  lm_metadata_free(bytes);
}

/* An image may state anything about a machine that the policy does not depend on. */
static void accepts_nodes_that_the_policy_does_not_depend_on(void **state) {
  (void)state;
  lm_policy_image *policy;
  static _Alignas(8) char tree_bytes[TREE_BYTES];
  lm_plan *made;
  image m = { 0 };
  void *bytes;
  size_t n;
  image_leaf(&m, 1, (uint32_t[]){ 0 });
  assert_int_equal(image_make(&m, &made), LOAM_OK);
  const lm_plan *only = made;
  tree t = { .plans = 1 };
  lm_policy_image_source source = { .plan = &only,
                                    .plans = 1,
                                    .tree = tree_bytes,
                                    .tree_size = tree_write(&t, tree_bytes),
                                    .name = "",
                                    .text = "",
                                    .devices = -1 };
  assert_int_equal(lm_policy_image_write(&source, &bytes, &n), LOAM_OK);
  assert_int_equal(((lm_policy_image_head *)bytes)->nodes_hash, 0);
  assert_int_equal(lm_policy_image_open(bytes, n, true, &policy), LOAM_OK);
  lm_policy_image_close(policy);
  source.plans = 2;
  assert_int_equal(lm_policy_image_write(&source, &bytes, &n), LOAM_EINVAL);
  lm_plan_destroy(made);
}

static void refuses_ranges_that_are_not_those_of_the_parts(void **state) {
  (void)state;
  for (int i = 0; i < LM_PARTS; i++) {
    size_t at = AT(part) + (size_t)i * sizeof(lm_policy_image_range);
    refuses_u64(LOAM_EINVAL, at, head()->part[i].at + 8, "offset of a part");
    refuses_u64(LOAM_EINVAL, at + 8, UINT64_MAX, "size of a part");
    refuses_u64(LOAM_EINVAL, at + 8, UINT64_MAX - head()->part[i].at - 7, "size of a part");
    refuses_u64(LOAM_EINVAL, at + 8, head()->part[i].size + 8, "offset of");
  }
  refuses_u64(LOAM_EINVAL, AT(frame.text.at), 0, "hash of the text");
  refuses_u64(LOAM_EINVAL, AT(frame.text.at), UINT64_MAX, "offset of the text");
  refuses_u64(LOAM_EINVAL, AT(frame.text.size), head()->frame.text.size - 1, "hash of the text");
  refuses_u64(LOAM_EINVAL, AT(frame.text_hash), 0, "hash of the text");
}

static void refuses_bytes_behind_the_text(void **state) {
  (void)state;
  lm_policy_image_frame frame = head()->frame;
  frame.text.size--;
  frame.text_hash = lm_hash_bytes(bytes_text, sizeof bytes_text - 2);
  refuses(LOAM_EINVAL, 0, &frame, sizeof frame, "size of the text");
}

static void refuses_a_damaged_head(void **state) {
  (void)state;
  refuses_u64(LOAM_EINVAL, AT(frame.size), size + 8, "but its head says");
  refuses_u64(LOAM_EINVAL, AT(frame.size), size - 8, "but its head says");
  char name[LM_POLICY_IMAGE_NAME];
  memset(name, 'a', sizeof name);
  refuses(LOAM_EINVAL, AT(name), name, sizeof name, "name");
  uint32_t number = 2;
  refuses(LOAM_EINVAL, AT(applies_live), &number, sizeof number, "apply: 2");
  refuses(LOAM_EINVAL, AT(plans), &number, sizeof number, "size of the plans");
  number = UINT32_MAX;
  refuses(LOAM_EINVAL, AT(plans), &number, sizeof number, "number of plans");
  number = BYTES_PLANS + 1;
  refuses(LOAM_EINVAL, AT(plans), &number, sizeof number, "size of plan: 4");
  number = (uint32_t)-2;
  refuses(LOAM_EINVAL, AT(devices), &number, sizeof number, "devices");
  number = BYTES_PLANS;
  refuses(LOAM_EINVAL, head()->part[LM_PART_PLAN_OF].at + 4, &number, 4, "index of a plan: 4");
}

static void refuses_a_damaged_strategy(void **state) {
  (void)state;
  char text[256];
  memset(text, '/', sizeof text);
  refuses(LOAM_EINVAL, AT_STRATEGY(name), text, 64, "text of strategy: 0");
  refuses(LOAM_EINVAL, AT_STRATEGY(handler), text, 128, "text of strategy: 0");
  refuses(LOAM_EINVAL, AT_STRATEGY(dir), text, 256, "text of strategy: 0");
  refuses(LOAM_EINVAL, AT_STRATEGY(shared), text, 64, "text of strategy: 0");
  refuses_u8(AT_STRATEGY(kind), LM_KINDS, "kind of a strategy");
  refuses_u8(AT_STRATEGY(huge), 5, "huge of a strategy");
  refuses_u8(AT_STRATEGY(supply), LM_DEVICE_POOL_KINDS, "pool of a strategy");
  refuses_u64(LOAM_EINVAL, AT_STRATEGY(limit), LM_SIZE_MAX + 1, "limit of a strategy");
  refuses_u64(LOAM_EINVAL, AT_STRATEGY(soft), LM_SIZE_MAX, "it is above the limit");
  refuses_u64(LOAM_EINVAL, AT_STRATEGY(align), 3, "align 3");
  refuses_u8(AT_STRATEGY(mode), LM_BIND_WEIGHTED + 1, "nodes of strategy");
  refuses_u64(LOAM_EINVAL, AT_STRATEGY(nodes), 1ull << 63, "nodes of strategy");
  refuses_u64(LOAM_EINVAL, AT_STRATEGY(nodes), 0, "nodes of strategy");
  refuses_u8(AT_STRATEGY(weight) + 63, 1, "nodes of strategy");
  refuses_u8(AT_STRATEGY(kind), LM_KIND_DEVICE, "devices of strategy");
  for (int i = 0; i < 6; i++) refuses_u8(AT_STRATEGY(zero) + (size_t)i, 2, "flags of strategy");
}

static void refuses_a_damaged_plan(void **state) {
  (void)state;
  size_t at = head()->part[LM_PART_PLANS].at;
  refuses_u64(LOAM_EINVAL, at, UINT64_MAX, "size of plan: 0");
  refuses_u64(LOAM_EINVAL, at, UINT64_MAX - 7, "size of plan: 0");
  refuses_u64(LOAM_EINVAL, at, 0, "size of a plan: 0");
  refuses_u64(LOAM_EINVAL, at, 1, "size of a plan: 1");
  at += sizeof(uint64_t);
  uint32_t number = UINT32_MAX;
  refuses(LOAM_EINVAL, at, &number, 4, "begins with");
  refuses(LOAM_EINVAL, at + offsetof(lm_image, chains), &number, 4, "chains of a plan");
  size_t chain = at + lm_plan_image_size(plan[0]) - plan[0]->chains * sizeof(uint32_t);
  number = 4;
  refuses(LOAM_EINVAL, chain, &number, 4, "strategy of a plan: 4");
}

static void refuses_a_damaged_tree(void **state) {
  (void)state;
  uint32_t number = BYTES_PLANS;
  size_t at = head()->part[LM_PART_TREE].at;
  refuses(LOAM_EINVAL, at + offsetof(lm_class_head, plans), &number, 4, "is not valid");
  number++;
  refuses(LOAM_EINVAL, at, &number, 4, "class tree");
  number++;
  refuses(LOAM_EINVAL, at + offsetof(lm_class_head, plans), &number, 4, "indices of plans");
}

/* Opens the image with one strategy replaced, either for a host or only to look at it. */
static loam_status open_with(size_t at, const lm_policy_image_strategy *s, bool is_host) {
  char *bytes = bytes_copy(good, size);
  memcpy(bytes + at, s, sizeof *s);
  bytes_seal(bytes, size);
  lm_policy_image *policy;
  loam_status status = lm_policy_image_open(bytes, size, is_host, &policy);
  if (status) lm_metadata_free(bytes);
  else lm_policy_image_close(policy);
  return status;
}

/* The strategies "wide" and "shares" have a fallback in each chain. */
static void a_host_needs_the_handlers_that_end_a_chain(void **state) {
  (void)state;
  size_t refused = 0, n = head()->part[LM_PART_STRATEGIES].size / sizeof(lm_policy_image_strategy);
  for (size_t i = 0; i < n; i++) {
    size_t at = AT_STRATEGY(name) + i * sizeof(lm_policy_image_strategy);
    lm_policy_image_strategy s = *(const lm_policy_image_strategy *)(void *)(good + at);
    bool is_last = strcmp(s.name, "wide") && strcmp(s.name, "shares");
    refused += is_last;
    s.kind = LM_KIND_HANDLER;
    strcpy(s.handler, "absent");
    assert_int_equal(open_with(at, &s, true), is_last ? LOAM_ESTATE : LOAM_OK);
    if (is_last) assert_non_null(strstr(loam_error(), "no handler \"absent\" is registered"));
    s.kind = LM_KIND_FILE;
    strcpy(s.dir, "/absent");
    assert_int_equal(open_with(at, &s, true), is_last ? LOAM_ESTATE : LOAM_OK);
    if (is_last) assert_non_null(strstr(loam_error(), "/absent"));
    assert_int_equal(open_with(at, &s, false), LOAM_OK);
  }
  assert_true(refused > 0 && refused < n);
}

/* Opens the image with its first strategy replaced by one with this name, kind and guard. Returns
 * the guard of the strategy that the process made from it. */
static uint32_t guard_made(const char *name, lm_kind kind, uint32_t guard) {
  lm_policy_image_strategy s;
  memcpy(&s, good + AT_STRATEGY(name), sizeof s);
  snprintf(s.name, sizeof s.name, "%s", name);
  s.kind = kind;
  s.guard = guard;
  assert_int_equal(open_with(AT_STRATEGY(name), &s, true), LOAM_OK);
  uint32_t id = lm_strategy_count() - 1;
  while (strcmp(lm_strategy_at(id)->desc.name, name) != 0) assert_true(id--);
  return lm_strategy_at(id)->desc.guard;
}

static void a_process_guards_more_blocks_than_its_policy(void **state) {
  (void)state;
  lm_policy_image_guard_every(5);
  assert_int_equal(guard_made("asks for none", LM_KIND_HOST, 0), 5);
  assert_int_equal(guard_made("asks for fewer", LM_KIND_HOST, 100), 5);
  assert_int_equal(guard_made("asks for more", LM_KIND_HOST, 1), 1);
  assert_int_equal(guard_made("cannot guard", LM_KIND_SYSTEM, 0), 0);
  lm_policy_image_guard_every(0);
  assert_int_equal(guard_made("is of the policy", LM_KIND_HOST, 0), 0);
  assert_int_equal(guard_made("is of the policy too", LM_KIND_HOST, 100), 100);
}

/* ---- Memory */

static void open_one(bool refused) {
  loam_status status;
  lm_policy_image *policy = open_copy(good, size, &status);
  const lm_plan *found = NULL;
  loam_where where = { .file = "a.py", .line = 150 };
  if (!policy) {
    assert_true(refused && status == LOAM_ENOMEM);
    return;
  }
  status = lm_policy_image_find(policy, &where, &found);
  if (status) assert_true(refused && status == LOAM_ENOMEM && found == lm_plan_default());
  assert_true(lm_policy_image_is_valid(policy));
  lm_policy_image_close(policy);
}

static void survives_each_refusal_of_memory(void **state) {
  (void)state;
  refuse_each(open_one);
}

static void a_byte_that_changes_breaks_the_checksum(void **state) {
  (void)state;
  lm_policy_image *policy;
  char *bytes = bytes_copy(good, size);
  assert_int_equal(lm_policy_image_open(bytes, size, true, &policy), LOAM_OK);
  assert_true(lm_policy_image_is_valid(policy));
  bytes[size - 1] ^= 1;
  assert_false(lm_policy_image_is_valid(policy));
  bytes[size - 1] ^= 1;
  assert_true(lm_policy_image_is_valid(policy));
  lm_policy_image_close(policy);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(gives_each_site_the_plan_that_was_written),
    cmocka_unit_test(says_what_was_written),
    cmocka_unit_test(marks_the_strategies_of_its_plans),
    cmocka_unit_test(makes_a_plan_for_each_line),
    cmocka_unit_test(refuses_every_changed_byte),
    cmocka_unit_test(refuses_every_shorter_image),
    cmocka_unit_test(follows_no_changed_byte_under_a_good_checksum),
    cmocka_unit_test(follows_no_shorter_image_under_a_good_checksum),
    cmocka_unit_test(refuses_an_image_of_another_machine_but_gives_its_text),
    cmocka_unit_test(accepts_nodes_that_the_policy_does_not_depend_on),
    cmocka_unit_test(refuses_ranges_that_are_not_those_of_the_parts),
    cmocka_unit_test(refuses_bytes_behind_the_text),
    cmocka_unit_test(refuses_a_damaged_head),
    cmocka_unit_test(refuses_a_damaged_strategy),
    cmocka_unit_test(refuses_a_damaged_plan),
    cmocka_unit_test(refuses_a_damaged_tree),
    cmocka_unit_test(a_host_needs_the_handlers_that_end_a_chain),
    cmocka_unit_test(a_process_guards_more_blocks_than_its_policy),
    cmocka_unit_test(survives_each_refusal_of_memory),
    cmocka_unit_test(a_byte_that_changes_breaks_the_checksum),
  };
  return cmocka_run_group_tests(tests, make_image, free_image);
}
