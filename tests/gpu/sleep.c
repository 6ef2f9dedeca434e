/* sleep.c - device memory sleeps and wakes: it keeps its addresses and contents. Compares the time
 * with plain copies.
 *
 *   sleep [--quick] [KERNELS]
 *
 * Takes 10 GiB of a GPU in blocks of 512 MiB (with --quick, 256 MiB in blocks of 64 MiB), which
 * kernels write and check. Prints Markdown. Without a kernel file it uses the stand-in for the
 * driver, whose times mean nothing. Exit status 0: no fault was found. */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "loam.h"

enum { MIB = 1024 * 1024, MOST = 64 };

static driver cu;
static void *block[MOST];
static size_t size = (size_t)512 * MIB, count = 20;
static int failures;

static void fail(const char *what, const char *words) {
  fprintf(stderr, "FAILED: %s: %s\n", what, words);
  failures++;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void row(const char *what, double seconds, size_t bytes) {
  printf("| %s | %.1f | %.1f |\n", what, seconds * 1e3, (double)bytes / seconds * 1e-9);
  fflush(stdout);
}

/* ---- Plain copies: the least possible time */

/* Copies all blocks to pinned memory, or, if `back`, from it. Waits until that is done. */
static void copy_all(void **host, bool back) {
  for (size_t i = 0; i < count; i++) {
    CUdeviceptr at = (uintptr_t)block[i];
    if (back) MUST(cu.MemcpyHtoDAsync(at, host[i], size, NULL));
    else MUST(cu.MemcpyDtoHAsync(host[i], at, size, NULL));
  }
  MUST(cu.CtxSynchronize());
}

static void measure_copies(void) {
  void *host[MOST];
  double begin = now();
  for (size_t i = 0; i < count; i++) MUST(cu.MemHostAlloc(&host[i], size, 0));
  double pinned = now();
  copy_all(host, false);
  double out = now();
  copy_all(host, true);
  double in = now();
  row("cuMemHostAlloc of the host's part", pinned - begin, size * count);
  row("bare copies to pinned memory", out - pinned, size * count);
  row("bare copies from pinned memory", in - out, size * count);
  for (size_t i = 0; i < count; i++) MUST(cu.MemFreeHost(host[i]));
}

/* ---- Sleep */

static void write_all(int first) {
  for (size_t i = 0; i < count; i++) driver_write(&cu, NULL, block[i], first + (int)i, size);
}

static void check_all(int first, const char *what) {
  for (size_t i = 0; i < count; i++) driver_check(&cu, NULL, block[i], first + (int)i, size);
  if (driver_wrong(&cu)) fail(what, "contents are not equal");
}

static size_t free_bytes(void) {
  size_t left, total;
  MUST(cu.MemGetInfo(&left, &total));
  return left;
}

/* Allocates and frees other memory in the space that the sleeping blocks have left. */
static void use_the_room(void) {
  loam_site *site = loam_site_get("check.other");
  void *other = loam_device_alloc(site, size * count, NULL);
  if (!other) fail("memory in place of what sleeps", loam_error());
  else driver_write(&cu, NULL, other, 255, size * count);
  loam_device_free(other, NULL);
}

/* Puts all blocks to sleep, wakes them and checks them. `what` names the round in the table. */
static void round_of(const char *what, const char *where, bool keeps) {
  char text[200];
  size_t given = 0, taken = 0, before = free_bytes();
  write_all(1);
  MUST(cu.CtxSynchronize());
  double begin = now();
  if (loam_sleep("check.sleep", where, &given)) fail(what, loam_error());
  double asleep = now();
  if (given != size * count || loam_asleep("check.sleep") != given) fail(what, "bytes are missing");
  if (free_bytes() < before + given / 100 * 99) fail(what, "the device has no more room");
  use_the_room();
  double middle = now();
  if (loam_wake("check.sleep", &taken)) fail(what, loam_error());
  double awake = now();
  if (taken != given || loam_asleep(NULL)) fail(what, "blocks sleep on");
  for (size_t i = 0; i < count; i++) {
    loam_owner_info owner;
    if (loam_owner(block[i], &owner) || owner.base != block[i]) fail(what, "an address is lost");
  }
  if (!keeps) write_all(1);
  check_all(1, what);
  snprintf(text, sizeof text, "loam_sleep, %s", what);
  row(text, asleep - begin, given);
  snprintf(text, sizeof text, "loam_wake, %s", what);
  row(text, awake - middle, taken);
}

static const char policy[] = "local sleep = loam.device { name = \"sleep\", pool = \"sleep\" }\n"
                             "local rest = loam.device {}\n"
                             "return loam.policy { pick = function(req)\n"
                             "  if req.tag:is \"check.sleep\" then return sleep end\n"
                             "  return rest end }\n";

static void take_blocks(void) {
  if (loam_policy_load_text("sleep", policy)) fail("policy", loam_error());
  for (size_t i = 0; i < count; i++) {
    block[i] = loam_device_alloc(loam_site_get("check.sleep"), size, NULL);
    if (block[i]) continue;
    fail("loam_device_alloc", loam_error());
    exit(1);
  }
}

int main(int argc, char **argv) {
  const char *kernels = NULL, *folder = getenv("TMPDIR");
  bool is_quick = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--quick") == 0) is_quick = true;
    else kernels = argv[i];
  }
  driver_open(&cu, kernels);
  if (is_quick) size = (size_t)64 * MIB, count = 4;
  if (cu.stand_in_write) size = (size_t)4 * MIB;
  take_blocks();
  write_all(1);
  printf("\n| %zu MiB in %zu blocks | ms | GB/s |\n|---|--:|--:|\n", size * count / MIB, count);
  measure_copies();
  check_all(1, "bare copies");
  round_of("pinned memory", "pinned", true);
  round_of("pinned memory, again", "pinned", true);
  round_of("a file", folder && *folder == '/' ? folder : "/tmp", true);
  round_of("discarded", "discard", false);
  for (size_t i = 0; i < count; i++) loam_device_free(block[i], NULL);
  if (driver_wrong(&cu)) fail("at the end", "bytes are wrong");
  return failures ? 1 : 0;
}
