/* numa_string.c - strings that name NUMA nodes as numactl(8) does: "0-3", "!1", "+0", "all".
 *
 * libnuma says which nodes a string names. loam opens libnuma for each such string and closes it
 * afterwards. A process that was linked with libnuma would pay for it at each start, and a libnuma
 * that stays open would not notice that nodes or cpusets have changed.
 *
 * libnuma writes its complaints to standard error, and each of them once only. So loam refuses in
 * its own words what libnuma would complain about: bad syntax, and nodes that are not there. It
 * also refuses what would make libnuma look at files or networks, such as "netdev:eth0". */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "os/error.h"
#include "os/numa.h"
#include "os/sys.h"

enum { MOST_DIGITS = 4 }; /* libnuma's own masks end at 4096 nodes or before */

/* The functions of libnuma that loam calls: numa(3). */
typedef struct libnuma {
  void *library;
  int (*available)(void);
  void *(*parse)(const char *text);
  int (*has_bit)(const void *mask, unsigned bit);
  void (*free)(void *mask);
} libnuma;

static const char *library_name = "libnuma.so.1";

#if LOAM_CHECKS >= 1
void lm_numa_pretend_library(const char *name) { library_name = name; }
#endif

/* Returns the text behind a decimal number, or NULL if there is none. Writes the number to *out.
 * Leading zeros are refused: libnuma would read the number as octal. */
static const char *skip_number(const char *text, unsigned *out) {
  size_t digits = strspn(text, "0123456789");
  if (!digits || digits > MOST_DIGITS || (digits > 1 && *text == '0')) return NULL;
  *out = (unsigned)strtoul(text, NULL, 10);
  return text + digits;
}

/* Returns the text behind "3" or "0-3", or NULL if there is no such text. Writes the numbers to
 * *first and *last. */
static const char *skip_range(const char *text, unsigned *first, unsigned *last) {
  text = skip_number(text, first);
  if (!text) return NULL;
  *last = *first;
  if (*text == '-') text = skip_number(text + 1, last);
  return text && *first <= *last ? text : NULL;
}

/* Checks that the process may use a node. A relative number counts the nodes that it may use. */
static loam_status check_number(unsigned number, bool is_relative) {
  char words[320];
  unsigned count = (unsigned)__builtin_popcountll(lm_numa_nodes());
  if (is_relative ? number < count : lm_numa_has(number)) return LOAM_OK;
  if (!is_relative)
    return lm_error(LOAM_EUNSUPPORTED, "node %u: %s", number,
                    lm_numa_why_absent(number, words, sizeof words));
  lm_numa_text(lm_numa_nodes(), words, sizeof words);
  if (count == 1)
    return lm_error(LOAM_EUNSUPPORTED, "+%u: this process may use node %s alone, which is +0",
                    number, words);
  return lm_error(LOAM_EUNSUPPORTED, "+%u: this process may use nodes %s, which are +0 to +%u",
                  number, words, count - 1);
}

/* Checks every number that is written in a list such as "0,2-3", and returns LOAM_EINVAL if it is
 * no such list. Nodes inside a range are not checked: those that are not there are left out. */
static loam_status check_list(const char *text, bool is_relative) {
  loam_status status = LOAM_OK;
  for (const char *end;; text = end + 1) {
    unsigned first, last;
    end = skip_range(text, &first, &last);
    if (!end || (*end && *end != ','))
      return lm_error(LOAM_EINVAL, "nodes are written as 0-3, 0,2, !1, +0 or all");
    if (!status) status = check_number(first, is_relative);
    if (!status) status = check_number(last, is_relative);
    if (!*end) return status;
  }
}

static loam_status check(const char *text) {
  if (!strcmp(text, "all")) return LOAM_OK;
  bool is_relative = *text == '+';
  return check_list(text + is_relative, is_relative);
}

static loam_status find_functions(libnuma *numa) {
#define FIND(field, name)                                                            \
  if (!(numa->field = (__typeof__(numa->field))dlsym(numa->library, "numa_" #name))) \
    return lm_error(LOAM_EUNSUPPORTED, "%s has no numa_" #name, library_name);
  FIND(available, available)
  FIND(parse, parse_nodestring)
  FIND(has_bit, bitmask_isbitset)
  FIND(free, bitmask_free)
#undef FIND
  if (numa->available() < 0)
    return lm_error(LOAM_EUNSUPPORTED,
                    "libnuma finds no NUMA, because get_mempolicy(2) is missing here; numbers "
                    "outside quotes need no libnuma");
  return LOAM_OK;
}

/* Adds to *out the first LM_NODES_MAX nodes that libnuma finds in the text. */
static loam_status ask(const libnuma *numa, const char *text, uint64_t *out) {
  void *mask = numa->parse(text);
  if (!mask) return lm_error(LOAM_EUNSUPPORTED, "libnuma refuses it");
  for (unsigned node = 0; node < LM_NODES_MAX; node++)
    if (numa->has_bit(mask, node)) *out |= (uint64_t)1 << node;
  numa->free(mask);
  return LOAM_OK;
}

/* Opens libnuma. The caller closes numa->library if it is not NULL, also after a failure. This
 * function turns the cancellation of the thread off: a thread that is cancelled in a constructor of
 * libnuma would keep the dynamic linker's lock. */
static loam_status open_library(libnuma *numa) {
  numa->library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (numa->library) return find_functions(numa);
  return lm_error(LOAM_EUNSUPPORTED,
                  "a string of nodes needs libnuma (Debian package libnuma1): %s", dlerror());
}

static loam_status open_and_ask(const char *text, uint64_t *out) {
  libnuma numa = { 0 };
  lm_sys_cancel_off();
  loam_status status = open_library(&numa);
  if (!status) status = ask(&numa, text, out);
  if (numa.library) dlclose(numa.library);
  lm_sys_cancel_restore();
  return status;
}

bool lm_numa_can_parse(void) {
  libnuma numa = { 0 };
  lm_sys_cancel_off();
  loam_status status = open_library(&numa);
  if (numa.library) dlclose(numa.library);
  lm_sys_cancel_restore();
  return status == LOAM_OK;
}

/* The inversion is loam's own: libnuma's goes over all nodes of the machine, with those that this
 * process may not use. */
loam_status lm_numa_parse(const char *text, uint64_t *out) {
  char words[256];
  uint64_t found = 0, nodes = lm_numa_nodes();
  bool is_inverted = *text == '!';
  lm_assert(out && nodes);
  loam_status status = check(text + is_inverted);
  if (!status) status = open_and_ask(text + is_inverted, &found);
  if (status) return status;
  found = (is_inverted ? ~found : found) & nodes;
  if (!found)
    return lm_error(LOAM_EUNSUPPORTED, "it names none of the nodes that this process may use: %s",
                    lm_numa_text(nodes, words, sizeof words));
  *out = found;
  return LOAM_OK;
}
