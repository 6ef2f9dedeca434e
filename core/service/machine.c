/* machine.c - describes this machine, for authors of policies, as JSON. */
#include "service/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "device/manager.h"
#include "gpu/gpu.h"
#include "heap/pool.h"
#include "os/available.h"
#include "os/error.h"
#include "os/kernel_support.h"
#include "os/numa.h"
#include "os/sys.h"
#include "os/sys_file.h"
#include "os/version.h"
#include "pages/backing.h"
#include "script/json.h"
#include "script/script.h"

/* Reads a file's first line, without the newline. False: the file cannot be read. */
static bool read_line(const char *path, char *buffer, size_t size) {
  size_t length;
  lm_assert(path && size > 1);
  if (lm_sys_read_file(path, buffer, size, &length)) return false;
  buffer[strcspn(buffer, "\n")] = 0;
  return true;
}

/* Writes the number that a file holds; nothing if the file cannot be read. */
static void write_number(lm_json *out, const char *key, const char *path) {
  char text[64];
  if (read_line(path, text, sizeof text)) lm_json_int(out, key, strtoll(text, NULL, 10));
}

static void write_kernel(lm_json *out) {
  struct utsname name;
  if (uname(&name)) return;
  lm_json_text(out, "kernel", name.release);
  lm_json_text(out, "architecture", name.machine);
}

/* Writes how many huge pages of `page` bytes are set aside on a NUMA node and free. */
static void write_node_pages(lm_json *out, const char *key, unsigned node, size_t page) {
  char path[128];
  lm_assert(node < LM_NODES_MAX && lm_is_pow2(page));
  snprintf(path, sizeof path,
           "/sys/devices/system/node/node%u/hugepages/hugepages-%zukB/free_hugepages", node,
           page / LM_KIB);
  write_number(out, key, path);
}

/* Writes which calls that prepare memory the kernel refuses: 0 or the errno of each. */
static void write_placing(lm_json *out) {
  lm_kernel_support may;
  char text[64];
  lm_json_open(out, "placing", '{');
  if (lm_kernel_support_probe(&may)) {
    lm_json_int(out, "mbind", may.mbind);
    lm_json_int(out, "move_pages", may.move_pages);
    lm_json_int(out, "prefault", may.prefault);
    lm_json_int(out, "huge", may.huge);
    lm_json_int(out, "give_back", may.give_back);
    lm_json_int(out, "lock", may.lock);
  }
  lm_json_bool(out, "weighted", !access("/sys/kernel/mm/mempolicy/weighted_interleave", F_OK));
  if (read_line("/sys/devices/system/node/has_memory", text, sizeof text))
    lm_json_text(out, "has_memory", text);
  lm_json_close(out, '}');
}

/* Writes the memory limit of this process's control groups, if there is one. */
static void write_group(lm_json *out) {
  uint64_t limit, left = lm_available_in_group(&limit);
  if (limit == UINT64_MAX) return;
  lm_json_open(out, "group", '{');
  lm_json_uint(out, "limit", limit);
  lm_json_uint(out, "left", left);
  lm_json_close(out, '}');
}

/* Writes how long tasks of the control group waited for memory, and what the group may still take
 * below memory.high and memory.max. */
static void write_pressure(lm_json *out) {
  uint64_t limit, left = lm_available_below_high(NULL, &limit);
  int stalled = lm_available_stalled(NULL);
  lm_json_open(out, "pressure", '{');
  if (stalled >= 0) lm_json_int(out, "stalled", stalled);
  if (limit != UINT64_MAX) {
    lm_json_uint(out, "limit", limit);
    lm_json_uint(out, "left", left);
  }
  lm_json_close(out, '}');
}

static void write_nodes(lm_json *out) {
  uint64_t nodes = lm_numa_nodes();
  char text[256];
  lm_json_text(out, "nodes_text", lm_numa_text(nodes, text, sizeof text));
  lm_json_open(out, "nodes", '[');
  for (unsigned n = 0; n < LM_NODES_MAX; n++) {
    if (!(nodes >> n & 1)) continue;
    lm_json_open(out, NULL, '{');
    lm_json_uint(out, "node", n);
    lm_json_uint(out, "total", lm_numa_total(n));
    lm_json_uint(out, "free", lm_numa_free(n));
    write_node_pages(out, "huge_free", n, 2 * LM_MIB);
    write_node_pages(out, "giant_free", n, LM_GIB);
    lm_json_open(out, "distance", '[');
    for (unsigned to = 0; to < LM_NODES_MAX; to++)
      if (nodes >> to & 1) lm_json_uint(out, NULL, lm_numa_distance(n, to));
    lm_json_close(out, ']');
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
}

/* Writes how many huge pages of `page` bytes the administrator has set aside. */
static void write_pool(lm_json *out, const char *name, size_t page) {
  static const char *const counts[] = { "total", "free", "reserved", "surplus" };
  static const char *const files[] = { "nr", "free", "resv", "surplus" };
  char path[128];
  lm_assert(lm_is_pow2(page) && LM_COUNT(files) == LM_COUNT(counts));
  lm_json_open(out, name, '{');
  for (size_t i = 0; i < LM_COUNT(files); i++) {
    snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%zukB/%s_hugepages",
             page / LM_KIB, files[i]);
    write_number(out, counts[i], path);
  }
  lm_json_close(out, '}');
}

static void write_huge_pages(lm_json *out) {
  static const struct {
    const char *name;
    size_t size;
  } sizes[] = { { "2MiB", 2 * LM_MIB }, { "1GiB", LM_GIB } };
  char path[128];
  lm_json_open(out, "hugepages", '{');
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%zukB", sizes[i].size / LM_KIB);
    if (!access(path, F_OK)) write_pool(out, sizes[i].name, sizes[i].size);
  }
  lm_json_close(out, '}');
}

/* Writes the chosen one of several words: the kernel's file lists all words in a line and puts the
 * chosen one in brackets. */
static void write_chosen(lm_json *out, const char *key, const char *path) {
  char text[128];
  char *from = read_line(path, text, sizeof text) ? strchr(text, '[') : NULL;
  lm_json_text_n(out, key, from ? from + 1 : "", from ? strcspn(from + 1, "]") : 0);
}

/* Writes a resource limit, unless it is unlimited. */
static void write_limit(lm_json *out, const char *key, int what) {
  struct rlimit limit;
  if (!getrlimit(what, &limit) && limit.rlim_cur != RLIM_INFINITY)
    lm_json_uint(out, key, limit.rlim_cur);
}

static void write_limits(lm_json *out) {
  write_limit(out, "memlock", RLIMIT_MEMLOCK);
  write_limit(out, "address_space", RLIMIT_AS);
  write_number(out, "overcommit", "/proc/sys/vm/overcommit_memory");
  write_number(out, "max_map_count", "/proc/sys/vm/max_map_count");
}

/* Writes a version of CUDA, which is 1000 * major + 10 * minor; 0: not known, nothing
 * is written. */
static void write_version(lm_json *out, const char *key, int version) {
  char text[16];
  lm_assert(version >= 0);
  if (!version) return;
  snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
  lm_json_text(out, key, text);
}

/* Writes a GPU, with the memory that loam_device_memory tells. To read it, the driver makes the
 * primary context of the device if the process has none yet, and a manager is initialized. */
static void write_device(lm_json *out, const lm_gpu_ops *ops, int device) {
  lm_gpu_info info;
  size_t free, total;
  lm_assert(ops && device >= 0);
  bool is_known = lm_manager_memory(device, &free, &total) == LOAM_OK;
  lm_json_open(out, NULL, '{');
  lm_json_int(out, "device", device);
  if (!is_known) lm_json_text(out, "reason", loam_error());
  if (ops->info(device, &info) == LM_GPU_OK) {
    lm_json_text(out, "name", info.name);
    lm_json_uint(out, "total", is_known ? total : info.total);
    lm_json_int(out, "node", info.node);
    lm_json_bool(out, "ranges", info.has_vmm);
    lm_json_bool(out, "pools", info.has_pools);
    lm_json_bool(out, "managed", info.has_managed);
  }
  if (is_known) lm_json_uint(out, "free", free);
  lm_json_close(out, '}');
}

static void write_cuda(lm_json *out) {
  const lm_gpu_ops *ops = lm_gpu();
  const lm_gpu_machine *found = lm_gpu_found();
  lm_json_open(out, "cuda", '{');
  lm_json_bool(out, "present", ops);
  if (!ops) lm_json_text(out, "reason", lm_gpu_why());
  if (*found->library) lm_json_text(out, "library", found->library);
  write_version(out, "driver", found->driver);
  write_version(out, "toolkit", found->toolkit);
  lm_json_open(out, "devices", '[');
  for (int i = 0; ops && i < found->count; i++) write_device(out, ops, i);
  lm_json_close(out, ']');
  lm_json_close(out, '}');
}

/* Tells whether the kernel makes files in memory (memfd_create). */
static bool has_memory_files(void) {
  int fd;
  if (lm_sys_file_memfd(&fd)) return false;
  lm_sys_file_close(fd);
  return true;
}

/* Writes whether files in /var/tmp can hold memory. A policy may place memory there that is larger
 * than the machine's (loam.file). */
static void write_file(lm_json *out) {
  static const char dir[] = "/var/tmp";
  char words[160];
  lm_filesystem fs;
  lm_json_open(out, "file", '{');
  lm_json_text(out, "dir", dir);
  if (!lm_sys_filesystem(dir, &fs)) {
    lm_json_text(out, "type", fs.name);
    lm_json_uint(out, "free", fs.free);
  }
  const char *why = lm_backing_refusal(dir, words, sizeof words);
  if (why) lm_json_text(out, "reason", why);
  lm_json_close(out, '}');
}

static void write_machine(lm_json *out) {
  lm_pool_figures figures;
  lm_json_open(out, NULL, '{');
  lm_json_text(out, "loam", LM_VERSION);
  write_kernel(out);
  lm_json_int(out, "cpus", sysconf(_SC_NPROCESSORS_ONLN));
  lm_json_int(out, "page", sysconf(_SC_PAGESIZE));
  write_nodes(out);
  write_placing(out);
  write_pressure(out);
  write_group(out);
  write_huge_pages(out);
  write_chosen(out, "thp", "/sys/kernel/mm/transparent_hugepage/enabled");
  lm_json_bool(out, "thp_disabled", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0);
  write_chosen(out, "thp_defrag", "/sys/kernel/mm/transparent_hugepage/defrag");
  write_limits(out);
  lm_metadata_free(
      lm_metadata_alloc(1)); /* makes loam reserve its address range, whose size is written next */
  lm_pool_figures_get(&figures);
  lm_json_uint(out, "range", figures.reserved);
  lm_json_bool(out, "memfd", has_memory_files());
  write_chosen(out, "thp_shared", "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  write_file(out);
  lm_json_bool(out, "membarrier", !lm_sys_membarrier());
  lm_json_bool(out, "rseq", __rseq_size != 0);
  lm_json_bool(out, "luajit", lm_script_is_available());
  lm_json_bool(out, "libnuma", lm_numa_can_parse());
  write_cuda(out);
  lm_json_close(out, '}');
}

loam_status lm_machine_write(loam_write_fn write, void *ctx) {
  lm_json out = { 0 };
  write_machine(&out);
  loam_status status = LOAM_OK;
  if (out.failed) status = lm_error(LOAM_ENOMEM, "no memory to describe the machine");
  else write(ctx, out.text, out.length);
  lm_json_finish(&out);
  return status;
}
