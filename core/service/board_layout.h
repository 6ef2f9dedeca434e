/* board_layout.h - the layout of a board: a mapped file in which each process of a program tree has
 * a place, so that `loam ps` and `loam status` read what a process is doing without asking it.
 *
 * core/README.md has the reasons. All numbers have the byte order of the machine; times are
 * nanoseconds since 1970 unless a name says otherwise. A file whose magic, version or size differs
 * is no board to this version of loam.
 *
 *   bytes of the file                  content
 *   0                                  lm_board_head, padded to 4 KiB
 *   4 KiB                              the news: the publications for the tree (3 pages)
 *   16 KiB                             the table of places, 32 bytes each
 *   48 KiB + i * 40 KiB                the slot of place i: two entries
 *   48 KiB + 40 MiB + i * 16 MiB       half i of the images: policy images that were published
 *
 * Publishers write the news and the halves: the watcher (cli/watcher.h), `loam reload`, and `loam
 * profile`, which also writes a wish into the place of a process. They hold a lock (flock) on the
 * file for images, refusals, wishes and the word. They write the gauges, `watcher` and `keeper`
 * without it. The processes of the tree have mapped both readable only, through a descriptor that
 * was open for reading alone. So a process of the tree that gave its rights up cannot publish
 * anything for the others.
 *
 * A place belongs to the process that its `owner` names. Only this process writes the slot. It
 * writes an entry that no reader uses, and then makes the entry current by `seq`. So the current
 * entry is always whole, also while its owner is stopped or was killed in the middle of a write. */
#ifndef LM_BOARD_LAYOUT_H
#define LM_BOARD_LAYOUT_H

#include <stdatomic.h>
#include <string.h>

#include "os/base.h"
#include "os/published.h"

#define LM_BOARD_MAGIC "loam board"

enum {
  LM_BOARD_VERSION = 9,
  LM_BOARD_PLACES = 1024, /* processes that have a place; further ones are counted */
  LM_BOARD_LIMITS = 16,   /* limits in an entry; further ones are counted */
  LM_BOARD_USES = 32, /* strategies and tags with figures in an entry; further ones are counted */
  LM_BOARD_CLASSES = 256, /* size classes of all strategies in an entry; further ones are counted */
  LM_BOARD_PAGE = 4096,   /* on every machine, also where pages are larger */
};

/* A strategy with a limit, and how much of the limit is taken: by the process that writes the
 * entry, and by all processes if they share the limit under the name `shared`. `peak_bytes` is
 * lm_strategy_limit_peak. */
typedef struct lm_board_limit {
  char strategy[64], shared[64]; /* `shared` is "": the limit is of this process */
  uint64_t limit_bytes, used_bytes, shared_used_bytes, peak_bytes;
} lm_board_limit;

#define LM_BOARD_NO_FIGURE UINT64_MAX /* a figure that cannot be known without a walk */

/* The memory of a strategy, as far as counters say without a walk. Blocks that threads cache count
 * as live, and a large block counts with all its slots. */
typedef struct lm_board_use {
  char strategy[64];
  uint64_t live_bytes;   /* about; LM_BOARD_NO_FIGURE for memory that no pool of loam has */
  uint64_t held_bytes;   /* of the pool: slots that may have memory */
  uint64_t small_blocks; /* about: objects of size classes up to 64 KiB */
  uint64_t failed;       /* requests that the strategy could not serve; exact */
} lm_board_use;

/* The small objects of one size class of a strategy. */
typedef struct lm_board_class {
  uint32_t use;    /* index of the strategy in `use` of the entry */
  uint32_t most;   /* the largest request of the class */
  uint64_t blocks; /* about: live objects, and cached ones */
} lm_board_class;

/* The live bytes of a tag. Only tags whose policy reads req.live are counted (engine/live_bytes.h);
 * each other thread may not have added up to 128 KiB. */
typedef struct lm_board_tag {
  char tag[112];
  uint64_t live_bytes;
} lm_board_tag;

/* The figures of a process. Texts are terminated; a text that does not fit is cut. */
typedef struct lm_board_figures {
  uint64_t owner;                 /* equals the place's owner, without LM_BOARD_ENDED */
  uint64_t pid_namespace;         /* inode number of the PID namespace; 0: not known */
  uint64_t exe_device, exe_inode; /* of the program's file; 0: not known */
  int64_t updated_at;             /* when this entry was written */
  /* The fields from here to `watching` are those of loam_policy_info. */
  uint64_t generation, hash;
  int64_t loaded_at;
  uint64_t loads, refused;
  int64_t last_at;
  uint64_t tags_refused;
  int32_t last;
  uint32_t plans, sites, watching;
  uint32_t uid, threads;
  uint32_t limits, limits_left_out; /* limits that are in `limit`, and that had no room there */
  uint32_t error_bytes;             /* of last_error with its terminator; 0: not filled in yet */
  uint32_t follows;                 /* 1: the process obeys the images of this board */
  uint64_t published;               /* the number that it has obeyed or refused last; 0: none */
  uint64_t refused_hash;            /* of the text that its last load refused; 0: there is none */
  /* Figures that are in `use` and `tag` of the entry, the largest first, and how many had no room
   * there. */
  uint32_t uses, uses_left_out, tags, tags_left_out;
  uint32_t classes, classes_left_out; /* size classes of the strategies in `use` */
  char version[16], program[64], name[64], path[1024];
  lm_board_limit limit[LM_BOARD_LIMITS];
} lm_board_figures;

/* What a process says of itself: a page of figures, a page for the error of its last load, and a
 * page each for the memory of strategies, of tags and of size classes. Pages without contents are
 * not written. The bytes in a file may be anything, since other programs can write them: a reader
 * makes its copy valid.
 *
 * Law, of an entry of zeros too: each text of the figures, of `use` and of `tag` ends with a NUL.
 * limits <= LM_BOARD_LIMITS. uses and tags <= LM_BOARD_USES. classes <= LM_BOARD_CLASSES, and each
 * class names a strategy below `uses`. error_bytes <= LM_BOARD_PAGE, and the last of these bytes of
 * last_error is a NUL. */
typedef struct lm_board_entry {
  union {
    lm_board_figures figures;
    uint64_t figures_page[LM_BOARD_PAGE / 8];
  };
  union {
    char last_error[LM_BOARD_PAGE];
    uint64_t error_page[LM_BOARD_PAGE / 8];
  };
  union {
    lm_board_use use[LM_BOARD_USES];
    uint64_t use_page[LM_BOARD_PAGE / 8];
  };
  union {
    lm_board_tag tag[LM_BOARD_USES];
    uint64_t tag_page[LM_BOARD_PAGE / 8];
  };
  union {
    lm_board_class of_class[LM_BOARD_CLASSES];
    uint64_t class_page[LM_BOARD_PAGE / 8];
  };
} lm_board_entry;

/* Returns whether the law of an entry holds. */
static inline bool lm_board_entry_is_valid(const lm_board_entry *e) {
  const lm_board_figures *f = &e->figures;
  bool has_texts = memchr(f->version, 0, sizeof f->version) &&
                   memchr(f->program, 0, sizeof f->program) && memchr(f->name, 0, sizeof f->name) &&
                   memchr(f->path, 0, sizeof f->path);
  if (!has_texts || f->limits > LM_BOARD_LIMITS || f->error_bytes > sizeof e->last_error)
    return false;
  for (uint32_t i = 0; i < f->limits; i++)
    if (!memchr(f->limit[i].strategy, 0, sizeof f->limit[i].strategy) ||
        !memchr(f->limit[i].shared, 0, sizeof f->limit[i].shared))
      return false;
  if (f->uses > LM_BOARD_USES || f->tags > LM_BOARD_USES) return false;
  for (uint32_t i = 0; i < f->uses; i++)
    if (!memchr(e->use[i].strategy, 0, sizeof e->use[i].strategy)) return false;
  for (uint32_t i = 0; i < f->tags; i++)
    if (!memchr(e->tag[i].tag, 0, sizeof e->tag[i].tag)) return false;
  if (f->classes > LM_BOARD_CLASSES) return false;
  for (uint32_t i = 0; i < f->classes; i++)
    if (e->of_class[i].use >= f->uses) return false;
  return !f->error_bytes || !e->last_error[f->error_bytes - 1];
}

/* An owner is one word, so that a process takes a place by one atomic operation: the process id,
 * whether the process has said that it ends, and the time in milliseconds since boot at which it
 * took the place. A process that started later than that time only has the same id. 0: no process
 * has had the place yet. */
#define LM_BOARD_PID ((UINT64_C(1) << 22) - 1)
#define LM_BOARD_ENDED (UINT64_C(1) << 22)
#define LM_BOARD_MS_SHIFT 23

/* A place. Each field is whole when it is read. */
typedef struct lm_board_place {
  _Atomic uint64_t owner;
  _Atomic int64_t ended_at; /* when the owner ended, or when a reader noticed it; 0: not known */
  _Atomic uint32_t seq;     /* entries written so far; entry[seq & 1] is current, none while 0 */
  uint32_t unused;
  /* What `loam profile` wishes of the owner: the mean bytes between samples (engine/sample.h) plus
   * 1, so 1 switches sampling off; 0: no wish yet. Written by a publisher before the word on the
   * first page of news changes. */
  _Atomic uint64_t sample_wish;
} lm_board_place;

typedef struct lm_board_slot {
  lm_board_entry entry[2];
} lm_board_slot;

/* An image in a half. A publisher writes it, and the half, while the other half is current. */
typedef struct lm_board_image {
  uint64_t number;     /* of the publication */
  uint64_t size, hash; /* bytes of the image, and lm_hash_words of them */
  uint64_t text_hash;  /* of the policy's text */
  uint64_t reads;      /* a bit for each LM_IN_* (plan/plan.h) that a plan of the image reads */
  uint64_t guards;     /* 1: a strategy of the image guards blocks */
  uint64_t moves;      /* 1: live memory is to follow the policy (apply = "live") */
  uint64_t shares;     /* 1: a strategy of the image has a limit that processes share */
  int64_t published_at;
  char path[1024]; /* of the policy file */
} lm_board_image;

/* A policy that was refused by a publisher, so that no process has seen it. Publication n is in
 * half n & 1; refusal n is in refusal[n & 1]. */
typedef struct lm_board_refusal {
  int64_t refused_at;
  uint64_t text_hash; /* of the policy's text; 0: it could not be read */
  char words[2032];   /* terminated; the words of the error, cut where they do not fit */
} lm_board_refusal;

/* The publications for the tree. The first page is the one that processes map over lm_published
 * (os/published.h). All fields except `policy` are zero when the board is made. */
typedef struct lm_board_news {
  lm_published_page published;
  union {
    struct {
      lm_board_image image[2];
      char policy[1024]; /* LOAM_POLICY of the tree: a process with another one does not follow */
      /* The process that watches the policy file, as an owner; 0: none was started. */
      _Atomic uint64_t watcher;
      _Atomic uint64_t refusals; /* how many policies publishers have refused */
      _Atomic uint64_t wishes;   /* how many wishes publishers have written in places */
      /* The process that keeps published.gauges while the live policy reads them, as an owner; it
       * is the watcher where there is one. 0: none was started. */
      _Atomic uint64_t keeper;
    };
    char image_page[LM_BOARD_PAGE];
  };
  lm_board_refusal refusal[2];
} lm_board_news;

typedef struct lm_board_head {
  char magic[16];
  uint32_t version, places;
  uint32_t prepared; /* slots that have room in the file since the board was made */
  uint32_t unused;
  uint64_t maker;             /* as an owner: the process that made the board */
  uint64_t pid_namespace;     /* of the maker */
  char boot_id[40];           /* of the kernel; a board of an earlier boot is dead */
  _Atomic uint32_t is_closed; /* 1: the file is being removed; no process may take a place */
  _Atomic uint32_t left_out;  /* processes that found no place */
  _Atomic uint32_t hand;      /* the place at which the next search for a dead owner begins */
  _Atomic uint32_t expected;  /* children that are being forked and have no place yet */
  /* When a reader first saw that no process of the tree lives; 0: some do, or none looked. */
  _Atomic int64_t ended_at;
} lm_board_head;

typedef struct lm_board {
  union {
    lm_board_head head;
    char head_page[LM_BOARD_PAGE];
  };
  lm_board_news news;
  lm_board_place place[LM_BOARD_PLACES];
  lm_board_slot slot[LM_BOARD_PLACES];
} lm_board;

_Static_assert(sizeof(lm_board_entry) == 5 * LM_BOARD_PAGE, "figures, error, and three more");
_Static_assert(sizeof(lm_board_figures) % 8 == 0, "it is copied in words");
_Static_assert(sizeof(lm_board_place) == 32, "fixed-width fields");
_Static_assert(offsetof(lm_board, slot) % LM_BOARD_PAGE == 0, "slots begin at a page");

_Static_assert(sizeof(lm_board_news) == 3 * LM_BOARD_PAGE, "the news are three pages");
_Static_assert(sizeof(lm_published_page) == LM_BOARD_PAGE, "a page of the board is a page");

/* Bytes of the head, the news and the table of places. */
#define LM_BOARD_INDEX offsetof(lm_board, slot)
/* A half has room for one image. The halves are at the end of the file and are no part of
 * lm_board. */
#define LM_BOARD_HALF (16 * LM_MIB)
#define LM_BOARD_HALVES_AT sizeof(lm_board)
#define LM_BOARD_FILE (LM_BOARD_HALVES_AT + 2 * LM_BOARD_HALF)

LM_INLINE int lm_board_pid(uint64_t owner) { return (int)(owner & LM_BOARD_PID); }
LM_INLINE int64_t lm_board_since_ms(uint64_t owner) {
  return (int64_t)(owner >> LM_BOARD_MS_SHIFT);
}
/* Tells whether a process may take the place without asking whether its owner lives. */
LM_INLINE bool lm_board_is_free(uint64_t owner) { return !owner || owner & LM_BOARD_ENDED; }

#endif
