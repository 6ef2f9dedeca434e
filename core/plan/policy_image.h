/* policy_image.h - a policy image: a whole compiled policy as bytes.
 *
 * An image holds everything that serving memory under a policy needs: the class tree, which gives a
 * site its plan, the plans, and the strategies that they name. So a process that has an image needs
 * no Lua. The bytes contain no address: any process can open them. They also
 * hold the policy's text, and what the image assumes of the machine: on another machine, or for
 * another version of loam, the policy is compiled again from that text.
 *
 * Numbers are little-endian. The parts of an image stand in the order of lm_policy_image_part, each
 * at the next multiple of 8 behind the end of the part before it. */
#ifndef LM_POLICY_IMAGE_H
#define LM_POLICY_IMAGE_H

#include "heap/strategy.h"
#include "plan/class_tree.h"
#include "plan/plan_set.h"

#define LM_POLICY_IMAGE_MAGIC "\177loamimg" /* 8 bytes, without a NUL */
enum {
  LM_POLICY_IMAGE_FORMAT = 4,
  LM_POLICY_IMAGE_NAME = 64,
  LM_POLICY_IMAGE_VERSION = LOAM_VERSION_MAJOR * 65536 + LOAM_VERSION_MINOR * 256 +
                            LOAM_VERSION_PATCH
};
/* An image has at most this many bytes. */
#define LM_POLICY_IMAGE_MAX (64 * LM_MIB)

/* A range of an image: offset and bytes. */
typedef struct lm_policy_image_range {
  uint64_t at, size;
} lm_policy_image_range;

typedef enum lm_policy_image_part {
  LM_PART_STRATEGIES, /* lm_policy_image_strategy[] */
  LM_PART_PLAN_OF,    /* uint32_t[]: by the index in the class tree, the index of the plan */
  LM_PART_TREE,       /* the class tree: class_tree.h */
  LM_PART_PLANS, /* by index: uint64_t, the size of the plan; then the plan (plan.h), which names
                         strategies by their index in LM_PART_STRATEGIES; then zeros up to the next
                         multiple of 8 */
  LM_PARTS       /* behind them comes the text, up to the end of the image */
} lm_policy_image_part;

/* The beginning of an image. No later format changes it except for how the checksum is computed, so
 * every version of loam can read the text of an image. */
typedef struct lm_policy_image_frame {
  char magic[8];
  uint64_t size;      /* of the whole image, in bytes */
  uint64_t checksum;  /* lm_hash_words of all other bytes of the image */
  uint64_t text_hash; /* FNV-1a of the text */
  lm_policy_image_range text;
  uint32_t format;
  uint32_t version; /* of loam: major * 65536 + minor * 256 + patch */
} lm_policy_image_frame;

typedef struct lm_policy_image_head {
  lm_policy_image_frame frame;
  uint64_t nodes;        /* mask of the NUMA nodes with memory; 0 if the policy did not ask */
  uint64_t nodes_hash;   /* of their bytes, and of which of them have CPUs; 0 if `nodes` is 0 */
  uint32_t page;         /* bytes */
  int32_t devices;       /* number of GPUs; -1 if the policy does not depend on them */
  uint32_t plans;        /* different ones */
  uint32_t applies_live; /* 1: apply = "live" */
  char name[LM_POLICY_IMAGE_NAME]; /* of the policy, terminated; "" if it has none */
  lm_policy_image_range part[LM_PARTS];
} lm_policy_image_head;

/* A strategy: the fields of lm_desc, except for `asked`, which policies cannot set. */
typedef struct lm_policy_image_strategy {
  char name[64], handler[128], dir[256], shared[64]; /* terminated */
  uint64_t align, limit, soft, nodes;
  uint32_t guard;
  uint8_t kind, mode, huge, supply, device, prefer;
  uint8_t zero, prefault, lock, mapped, portable, write_combined; /* 0 or 1 */
  uint8_t weight[LM_NODES_MAX];
} lm_policy_image_strategy;

/* ---- Writing */

/* The contents of an image to be written. All pointers belong to the caller. */
typedef struct lm_policy_image_source {
  const lm_plan *const *plan; /* by the index in the class tree; equal pointers are written once */
  uint32_t plans;             /* entries of `plan`: as many as the tree's head says */
  const void *tree;
  size_t tree_size;
  const char *name;
  bool applies_live;
  const char *text;
  size_t length;
  uint64_t nodes; /* of the head */
  int devices;    /* of the head */
} lm_policy_image_source;

/* Writes an image into lm_metadata memory, which the caller frees. Fails with LOAM_ENOMEM; with
 * LOAM_EINVAL if the tree is not valid or has another number of plans; and with LOAM_EBUDGET if the
 * image would have more than LM_POLICY_IMAGE_MAX bytes. */
loam_status lm_policy_image_write(const lm_policy_image_source *source, void **bytes, size_t *size);

/* Returns the nodes_hash of a mask of nodes on this machine. */
uint64_t lm_policy_image_nodes_hash(uint64_t nodes);
/* Returns the checksum that belongs into an image of `size` bytes. */
uint64_t lm_policy_image_checksum(const void *bytes, size_t size);

/* ---- Reading */

/* Returns whether bytes begin like an image. The text of a policy does not. */
bool lm_policy_image_is(const void *bytes, size_t size);
/* Finds the text in an image of any format. Checks the beginning, the hash of the text, and in an
 * image of the present format the checksum. LOAM_EINVAL: one of them is wrong, as in damaged bytes.
 * *text stays part of the bytes. */
loam_status lm_policy_image_text(const void *bytes, size_t size, const char **text, size_t *length);

typedef struct lm_policy_image lm_policy_image;

/* Opens an image after a check of every number in it. `bytes` is lm_metadata memory, which the
 * image frees from then on; after a failure the caller still has to free it. `is_host`: this
 * process will serve memory with it, so a strategy that ends a chain has to be usable here: its
 * handler is registered, or the folder of its files can be used.
 *
 * Fails with LOAM_EINVAL for bytes that are no valid image, and LOAM_EUNSUPPORTED for an image for
 * another machine or version, or one with powers where LuaJIT is not open (lm_plan_power);
 * LOAM_ESTATE if a handler or a folder is missing; and as lm_strategy_intern and lm_plan_make. The
 * error words name the wrong value. */
loam_status lm_policy_image_open(void *bytes, size_t size, bool is_host, lm_policy_image **out);
/* Frees an image and all its plans, which no thread may evaluate any more; NULL does nothing. */
void lm_policy_image_close(lm_policy_image *image);

/* Finds the plan of a site. Needs no Lua and little stack. One thread at a time may call it for an
 * image: a plan that reads the line of the site is made for the line when it is first needed, and
 * kept. Only that can fail, with LOAM_ENOMEM: *out is then the default plan. */
loam_status lm_policy_image_find(lm_policy_image *image, const loam_where *where,
                                 const lm_plan **out);

/* The built-in default, and images that are opened from now on, guard at least one block in n of
 * their host strategies, also if the policy guards fewer or none; 0: as the policies say. Call it
 * before the first block is made and a policy is loaded. */
void lm_policy_image_guard_every(uint32_t n);
/* Calls lm_policy_image_guard_every with the number in a text, the value of LOAM_GUARD; NULL or ""
 * does nothing. If the text is no such number, loam reports an event and does not use it. */
void lm_policy_image_guard_as(const char *text);

/* Returns the bytes that the image was opened with. */
const void *lm_policy_image_bytes(const lm_policy_image *image, size_t *size);
const char *lm_policy_image_name(const lm_policy_image *image);
/* Returns whether a load shall also move live memory: apply = "live". */
bool lm_policy_image_applies_live(const lm_policy_image *image);
/* Returns whether a strategy of the image has a limit that processes share. */
bool lm_policy_image_shares(const lm_policy_image *image);
/* Returns whether a strategy of the image guards blocks, as the policy says. */
bool lm_policy_image_guards(const lm_policy_image *image);
/* Returns whether compiling the policy asked about the machine: about its NUMA nodes, its devices,
 * or a folder for files. */
bool lm_policy_image_asks_about_machine(const lm_policy_image *image);
/* Returns a bit for each LM_IN_* that a plan of the image reads. */
uint32_t lm_policy_image_reads(const lm_policy_image *image);
/* Returns the hash of the policy's text. */
uint64_t lm_policy_image_hash(const lm_policy_image *image);
/* Returns the number of different plans; those that were made for lines count too. */
uint32_t lm_policy_image_plans(const lm_policy_image *image);
/* Sets used[id] to 1 for each strategy id below `n` that a plan of the image names. */
void lm_policy_image_mark_used(const lm_policy_image *image, uint8_t *used, uint32_t n);
/* Starts what fills the gauges of devices that the plans read: the GPU's driver, and a thread that
 * reads free memory (lm_manager_watch). */
void lm_policy_image_watch_devices(const lm_policy_image *image);
/* Returns whether the image obeys the law of lm_policy_image (policy_image.c). */
bool lm_policy_image_is_valid(const lm_policy_image *image);

#endif
