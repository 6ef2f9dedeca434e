/* policies.h - the policies of the interface fuzzer, in Lua, and their decisions in C. */
#ifndef POLICIES_H
#define POLICIES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "os/base.h"

/* The strategies. END fills the unused places of a chain. */
enum {
  END,
  DEFAULT,
  PLAIN,
  WIDE,
  PAGE,
  NEVER,
  HUGE,
  CLEAN,
  SMALL,
  TIGHT,
  GUARDED,
  SAMPLED,
  SPREAD,
  FRESH,
  SYS,
  BOUNDED,
  LIB,
  LENT,
  NO,
  STRATEGIES
};

typedef struct strategy_spec {
  const char *name, *kind;
  size_t align, limit;
  bool zero;
  const char *options; /* further options */
} strategy_spec;

static const strategy_spec strategies[STRATEGIES] = {
  [DEFAULT] = { .name = "default", .kind = "host" },
  [PLAIN] = { .name = "plain", .kind = "host" },
  [WIDE] = { .name = "wide", .kind = "host", .align = 256 },
  [PAGE] = { .name = "page", .kind = "host", .align = 8192 },
  [NEVER] = { .name = "never", .kind = "host", .options = "huge = false," },
  [HUGE] = { .name = "huge", .kind = "host", .align = 64, .options = "huge = 'thp'," },
  [CLEAN] = { .name = "clean", .kind = "host", .zero = true },
  [SMALL] = { .name = "small", .kind = "host", .limit = 64 * LM_KIB },
  [TIGHT] = { .name = "tight", .kind = "host", .align = 64, .limit = 300 * LM_KIB },
  [GUARDED] = { .name = "guarded", .kind = "host", .options = "guard = true," },
  [SAMPLED] = { .name = "sampled", .kind = "host", .options = "guard = 7," },
  [SPREAD] = { .name = "spread", .kind = "host", .options = "numa = 'interleave'," },
  [FRESH] = { .name = "fresh", .kind = "host", .options = "prefault = true, numa = 'local'," },
  [SYS] = { .name = "sys", .kind = "system" },
  [BOUNDED] = { .name = "bounded", .kind = "system", .limit = 50000 },
  [LIB] = { .name = "lib", .kind = "handler", .options = "'fuzz'," },
  [LENT] = { .name = "lent", .kind = "shared" },
  [NO] = { .name = "no", .kind = "deny" },
};

/* A request, as a policy sees it. */
typedef struct request {
  const char *tag;
  size_t size, align;
  bool zero;
  int64_t live;        /* live bytes under the tag */
  int64_t uncertainty; /* by how much a thread's figure may differ */
} request;

typedef struct chain {
  int member[4];
} chain;

typedef struct policy {
  const char *name, *pick;
  chain (*decide)(const request *r);
  bool is_wrong; /* loam must refuse it */
} policy;

static bool is_under(const char *tag, const char *top) {
  size_t n = strlen(top);
  return !strncmp(tag, top, n) && (tag[n] == 0 || tag[n] == '.');
}

static chain decide_default(const request *r) {
  (void)r;
  return (chain){ { DEFAULT } };
}

#define PICK_BY_SIZE                            \
  "if req.size < 100 then return plain end "    \
  "if req.size < 3000 then return wide end "    \
  "if req.size < 40000 then return never end "  \
  "if req.size < 1000000 then return page end " \
  "return huge"
static chain decide_by_size(const request *r) {
  if (r->size < 100) return (chain){ { PLAIN } };
  if (r->size < 3000) return (chain){ { WIDE } };
  if (r->size < 40000) return (chain){ { NEVER } };
  return r->size < 1000000 ? (chain){ { PAGE } } : (chain){ { HUGE } };
}

#define PICK_WITHIN_LIMITS                                                      \
  "if req.tag:under('cache') then return small:or_else(tight):or_else(no) end " \
  "if req.tag:is('log') then return tight end "                                 \
  "return plain"
static chain decide_within_limits(const request *r) {
  if (is_under(r->tag, "cache")) return (chain){ { SMALL, TIGHT, NO } };
  if (!strcmp(r->tag, "log")) return (chain){ { TIGHT } };
  return (chain){ { PLAIN } };
}

#define PICK_GUARDED                                                                    \
  "if req.tag:under('a') and req.size <= 20000 then return guarded:or_else(plain) end " \
  "if req.tag:is('log') then return sampled end "                                       \
  "return clean"
static chain decide_guarded(const request *r) {
  if (is_under(r->tag, "a") && r->size <= 20000) return (chain){ { GUARDED, PLAIN } };
  return strcmp(r->tag, "log") ? (chain){ { CLEAN } } : (chain){ { SAMPLED } };
}

#define PICK_FOREIGN                                                \
  "if req.tag:is('log') then return sys end "                       \
  "if req.tag:under('a') then return lib:or_else(plain) end "       \
  "if req.tag:under('cache') then return bounded:or_else(lib) end " \
  "return plain"
static chain decide_foreign(const request *r) {
  if (!strcmp(r->tag, "log")) return (chain){ { SYS } };
  if (is_under(r->tag, "a")) return (chain){ { LIB, PLAIN } };
  return is_under(r->tag, "cache") ? (chain){ { BOUNDED, LIB } } : (chain){ { PLAIN } };
}

/* A forked child gets no new shared memory. */
#define PICK_LENT                                              \
  "if req.tag:under('a') then return lent:or_else(plain) end " \
  "return req.size > 7000 and req.live < 60000 and lent:or_else(wide) or never"
static chain decide_lent(const request *r) {
  if (is_under(r->tag, "a")) return (chain){ { LENT, PLAIN } };
  return r->size > 7000 && r->live < 60000 ? (chain){ { LENT, WIDE } } : (chain){ { NEVER } };
}

#define PICK_AS_ASKED                       \
  "if req.zero then return clean end "      \
  "if req.align > 64 then return page end " \
  "return req.size % 4096 == 0 and spread or wide"
static chain decide_as_asked(const request *r) {
  if (r->zero) return (chain){ { CLEAN } };
  if (r->align > 64) return (chain){ { PAGE } };
  return r->size % 4096 == 0 ? (chain){ { SPREAD } } : (chain){ { WIDE } };
}

#define PICK_BY_LIVE                                           \
  "if req.live >= 60000 then return tight:or_else(fresh) end " \
  "return plain"
static chain decide_by_live(const request *r) {
  return r->live >= 60000 ? (chain){ { TIGHT, FRESH } } : (chain){ { PLAIN } };
}

/* Conditions on gauges come after conditions on sizes and on other gauges. Two of the sizes lie
 * within a size class, and within 16 bytes of it. */
enum { LIVE_SOME = 60000, LIVE_MUCH = 200000 };
#define PICK_BY_GAUGES                                                   \
  "if req.size < 99 then return req.live < 60000 and wide or plain end " \
  "if req.size >= 40000 then "                                           \
  "  if req.live >= 200000 then return never end "                       \
  "  return req.node > 4000 and no or huge "                             \
  "end "                                                                 \
  "if req.live < 60000 then return plain end "                           \
  "if req.size < 403 then return page end "                              \
  "if req.node > 4000 or loam.node(0).free < 0 then return no end "      \
  "return req.live >= 200000 and wide or never"
static chain decide_by_gauges(const request *r) {
  if (r->size < 99) return r->live < LIVE_SOME ? (chain){ { WIDE } } : (chain){ { PLAIN } };
  if (r->size >= 40000) return r->live >= LIVE_MUCH ? (chain){ { NEVER } } : (chain){ { HUGE } };
  if (r->live < LIVE_SOME) return (chain){ { PLAIN } };
  if (r->size < 403) return (chain){ { PAGE } };
  return r->live >= LIVE_MUCH ? (chain){ { WIDE } } : (chain){ { NEVER } };
}

/* Conditions on sums of gauges and sizes. One request may read free memory twice. */
#define PICK_BY_SUMS                                           \
  "local room = loam.node(0).free - req.size * 2 "             \
  "if room < -32 * loam.TiB then return no end "               \
  "if req.live + 2 * req.size < 100000 then return plain end " \
  "if room + 3 * req.size < 1204 + loam.node(0).free then "    \
  "  return page:or_else(plain) "                              \
  "end "                                                       \
  "return 5 - req.size * 3 < -60000 and huge or never"
static chain decide_by_sums(const request *r) {
  if (r->live < 100000 - 2 * (int64_t)r->size) return (chain){ { PLAIN } };
  if (r->size < 1204) return (chain){ { PAGE, PLAIN } };
  return r->size * 3 > 60005 ? (chain){ { HUGE } } : (chain){ { NEVER } };
}

enum { FIRST_POLICY = 1 };
/* Number 0 is the built-in default. */
static const policy policies[] = {
  { "default", NULL, decide_default, false },
  { "by-size", PICK_BY_SIZE, decide_by_size, false },
  { "within-limits", PICK_WITHIN_LIMITS, decide_within_limits, false },
  { "guarded", PICK_GUARDED, decide_guarded, false },
  { "foreign", PICK_FOREIGN, decide_foreign, false },
  { "lent", PICK_LENT, decide_lent, false },
  { "as-asked", PICK_AS_ASKED, decide_as_asked, false },
  { "by-live", PICK_BY_LIVE, decide_by_live, false },
  { "by-gauges", PICK_BY_GAUGES, decide_by_gauges, false },
  { "by-sums", PICK_BY_SUMS, decide_by_sums, false },
  { "without-an-answer", "if req.size > 7 then return plain end", NULL, true },
  { "random", "return math.random() > 0.5 and plain or wide", NULL, true },
};

/* Writes the Lua text of a policy to `out`. */
static void write_policy(const policy *p, char *out, size_t room) {
  size_t used = 0;
#define ADD(...) used += (size_t)snprintf(out + used, used < room ? room - used : 0, __VA_ARGS__)
  for (int i = PLAIN; i < STRATEGIES; i++) {
    const strategy_spec *s = &strategies[i];
    ADD("local %s = loam.%s { %s name = '%s',", s->name, s->kind, s->options ? s->options : "",
        s->name);
    if (s->align) ADD(" align = %zu,", s->align);
    if (s->limit) ADD(" limit = %zu,", s->limit);
    ADD("%s }\n", s->zero ? " zero = true" : "");
  }
  ADD("return loam.policy { name = '%s', pick = function(req) %s end }\n", p->name, p->pick);
#undef ADD
  lm_require(used < room);
}

#endif
