/* record.c - counts calls, makes them fail as a test asks, and refuses them in a forked child.
 * Records violations, and writes the report at exit. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "state.h"

enum { FUNCTIONS = 256, NAME = 48, VIOLATED = 86 };

si_state si;
pthread_mutex_t si_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
  char name[NAME];
  unsigned long calls;
} functions[FUNCTIONS];

static unsigned violations;
static char last[256];
static _Thread_local bool in_callback;

static struct {
  char function[NAME]; /* "": any */
  unsigned nth, times;
  CUresult code;
} failing;

static struct {
  char function[NAME];
  void (*call)(void *ctx); /* NULL: none */
  void *ctx;
} before_call;

/* Copies the name of a function without its suffix: "cuMemAlloc" for "cuMemAlloc_v2". */
static void base_name(const char *function, char out[NAME]) {
  snprintf(out, NAME, "%s", function);
  char *suffix = strchr(out, '_');
  if (suffix) *suffix = '\0';
}

static unsigned long *calls_of(const char *name) {
  for (int i = 0; i < FUNCTIONS; i++) {
    if (!functions[i].name[0]) snprintf(functions[i].name, NAME, "%s", name);
    if (strcmp(functions[i].name, name) == 0) return &functions[i].calls;
  }
  abort();
}

static void say(const char *text) {
  const char *path = getenv("STANDIN_LOG");
  int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  char line[320];
  int length = snprintf(line, sizeof line, "standin[%d]: %s\n", (int)getpid(), text);
  if (write(fd < 0 ? STDERR_FILENO : fd, line, (size_t)length) < 0) return;
  if (fd >= 0) close(fd);
}

void si_violate(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last, sizeof last, format, arguments);
  va_end(arguments);
  violations++;
  char line[280];
  snprintf(line, sizeof line, "violation: %s", last);
  say(line);
}

static CUresult fail_if_asked(const char *name) {
  if (failing.nth == 0 || (failing.function[0] && strcmp(failing.function, name) != 0)) {
    return CUDA_SUCCESS;
  }
  if (failing.nth > 1) {
    failing.nth--;
    return CUDA_SUCCESS;
  }
  if (--failing.times == 0) failing.nth = 0;
  return failing.code;
}

static CUresult refuse(const char *name) {
  if (si.forked) {
    si_violate("%s is called in a child of the process that called cuInit", name);
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (in_callback) return CUDA_ERROR_NOT_PERMITTED;
  if (si.ended) return CUDA_ERROR_DEINITIALIZED;
  bool before = strcmp(name, "cuInit") == 0 || strcmp(name, "cuDriverGetVersion") == 0 ||
                strcmp(name, "cuGetProcAddress") == 0 || strcmp(name, "cuGetErrorName") == 0 ||
                strcmp(name, "cuGetErrorString") == 0;
  if (!si.started && !before) return CUDA_ERROR_NOT_INITIALIZED;
  return CUDA_SUCCESS;
}

/* Calls the function of standin_call_before, with no lock held, because it may call the driver. */
static void call_before_locked(const char *name) {
  void (*call)(void *ctx) = before_call.call;
  if (!call || strcmp(before_call.function, name) != 0) return;
  before_call.call = NULL;
  pthread_mutex_unlock(&si_lock);
  call(before_call.ctx);
  pthread_mutex_lock(&si_lock);
}

CUresult si_enter(const char *function) {
  char name[NAME];
  base_name(function, name);
  pthread_mutex_lock(&si_lock);
  call_before_locked(name);
  si.calls++;
  ++*calls_of(name);
  CUresult result = refuse(name);
  if (result == CUDA_SUCCESS) result = fail_if_asked(name);
  if (result == CUDA_SUCCESS) result = si_capture_check(name);
  if (result != CUDA_SUCCESS) {
    pthread_mutex_unlock(&si_lock);
  } else if (si.delay) {
    si_run();
  }
  return result;
}

CUresult si_leave(CUresult result) {
  pthread_mutex_unlock(&si_lock);
  return result;
}

void si_in_callback(bool in) { in_callback = in; }

/* ---- The environment ---- */

static size_t bytes_of(const char *text) {
  char *end;
  unsigned long long bytes = strtoull(text, &end, 10);
  if (*end == 'K') bytes <<= 10;
  if (*end == 'M') bytes <<= 20;
  if (*end == 'G') bytes <<= 30;
  return (size_t)bytes;
}

static const char *setting(const char *name, const char *otherwise) {
  const char *text = getenv(name);
  return text && *text ? text : otherwise;
}

static void read_failing(void) {
  unsigned nth = 0;
  int code = CUDA_ERROR_OUT_OF_MEMORY;
  char function[NAME] = "";
  sscanf(setting("STANDIN_FAIL", ""), "%u:%d:%47s", &nth, &code, function);
  failing.nth = nth;
  failing.times = 1;
  failing.code = (CUresult)code;
  memcpy(failing.function, function, NAME);
}

void si_read_environment(void) {
  int count = atoi(setting("STANDIN_DEVICES", "1"));
  si.count = count < 0 ? 0 : count > DEVICES_MAX ? DEVICES_MAX : count;
  size_t bytes = bytes_of(setting("STANDIN_MEMORY", "1G"));
  const char *nodes = setting("STANDIN_NODES", "");
  const char *numbers = setting("STANDIN_NUMBERS", "");
  for (int i = 0; i < si.count; i++) {
    si.devices[i].number = *numbers ? atoi(numbers) : i;
    const char *next = strchr(numbers, ',');
    numbers = next ? next + 1 : "";
    si.devices[i].total = bytes;
    si.devices[i].node = atoi(nodes);
    const char *comma = strchr(nodes, ',');
    nodes = comma ? comma + 1 : "";
  }
  si.version = atoi(setting("STANDIN_VERSION", "13000"));
  si.delay = (unsigned)atoi(setting("STANDIN_DELAY", "0"));
  si.strict = getenv("STANDIN_STRICT") != NULL;
  si.lockable = bytes_of(setting("STANDIN_LOCKABLE", "0"));
  const char *lacks = setting("STANDIN_LACKS", "");
  si.lacks_vmm = strstr(lacks, "vmm");
  si.lacks_pools = strstr(lacks, "pools");
  si.lacks_managed = strstr(lacks, "managed");
  si.lacks_peers = strstr(lacks, "peers");
  si.lacks_exports = strstr(lacks, "exports");
  read_failing();
}

void si_record_reset(void) {
  memset(functions, 0, sizeof functions);
  violations = 0;
  last[0] = '\0';
}

/* ---- Life of the process ---- */

static void in_child(void) {
  si.forked = si.started;
  pthread_mutex_init(&si_lock, NULL);
}

/* Like the real driver, the stand-in ends at exit before the exit handlers that were registered
 * before cuInit. */
static void end(void) {
  pthread_mutex_lock(&si_lock);
  si.ended = true;
  pthread_mutex_unlock(&si_lock);
}

static int start(void) {
  const char *text = getenv("STANDIN_INIT");
  si_read_environment();
  if (text && *text) return atoi(text);
  if (si.count == 0) return CUDA_ERROR_NO_DEVICE;
  static bool is_registered;
  if (!is_registered) {
    pthread_atfork(NULL, NULL, in_child);
    atexit(end);
    is_registered = true;
  }
  si.started = true;
  return CUDA_SUCCESS;
}

API cuInit(unsigned flags) {
  ENTER();
  if (flags) LEAVE(CUDA_ERROR_INVALID_VALUE);
  LEAVE(si.started ? CUDA_SUCCESS : (CUresult)start());
}

API cuDriverGetVersion(int *out) {
  ENTER();
  if (!out) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (!si.version) si.version = atoi(setting("STANDIN_VERSION", "13000"));
  *out = si.version;
  LEAVE(CUDA_SUCCESS);
}

static void report(void) {
  char line[128];
  for (int i = 0; i < FUNCTIONS && functions[i].name[0]; i++) {
    snprintf(line, sizeof line, "calls: %.90s %lu", functions[i].name, functions[i].calls);
    say(line);
  }
  snprintf(line, sizeof line, "live: %u blocks, %u handles", standin_blocks(), standin_handles());
  say(line);
  snprintf(line, sizeof line, "violations: %u", violations);
  say(line);
}

__attribute__((destructor)) static void finish(void) {
  if (si.forked || !si.calls) return;
  si_memory_end();
  if (getenv("STANDIN_LEAKS") && (standin_blocks() || standin_handles())) {
    si_violate("%u blocks and %u handles are live at exit", standin_blocks(), standin_handles());
  }
  if (getenv("STANDIN_LOG")) report();
  if (violations) {
    fflush(NULL);
    _exit(VIOLATED);
  }
}

/* ---- Functions for tests ---- */

CONTROL unsigned standin_violations(void) { return violations; }
CONTROL const char *standin_violation(void) { return last; }

CONTROL void standin_forgive(void) {
  violations = 0;
  last[0] = '\0';
}

CONTROL void standin_fail(const char *function, unsigned nth, unsigned times, CUresult code) {
  pthread_mutex_lock(&si_lock);
  snprintf(failing.function, NAME, "%s", function ? function : "");
  failing.nth = times ? nth : 0;
  failing.times = times;
  failing.code = code;
  pthread_mutex_unlock(&si_lock);
}

CONTROL void standin_call_before(const char *function, void (*call)(void *ctx), void *ctx) {
  pthread_mutex_lock(&si_lock);
  snprintf(before_call.function, NAME, "%s", function);
  before_call.call = call;
  before_call.ctx = ctx;
  pthread_mutex_unlock(&si_lock);
}

CONTROL unsigned long standin_calls(const char *function) {
  pthread_mutex_lock(&si_lock);
  unsigned long calls = function ? *calls_of(function) : si.calls;
  pthread_mutex_unlock(&si_lock);
  return calls;
}

CONTROL void standin_break(int device, CUresult code) { si.devices[device].broken = code; }
CONTROL void standin_limit(int device, size_t bytes) { si.devices[device].total = bytes; }
CONTROL size_t standin_used(int device) { return si.devices[device].used; }
CONTROL unsigned standin_handles(void) { return si.handles; }
CONTROL void standin_lockable(size_t bytes) { si.lockable = bytes; }
CONTROL void standin_strict(bool strict) { si.strict = strict; }
CONTROL unsigned standin_late_frees(void) { return si.late_frees; }
CONTROL void standin_version(int version) { si.version = version; }

CONTROL void standin_reset(void) {
  pthread_mutex_lock(&si_lock);
  si_stream_reset();
  si_capture_reset();
  si_pool_reset();
  si_memory_reset();
  si_vmm_reset();
  si_context_reset();
  si_record_reset();
  for (int i = 0; i < DEVICES_MAX; i++) {
    if (si.devices[i].fd > 0) close(si.devices[i].fd);
  }
  memset(&si, 0, sizeof si);
  si_read_environment();
  pthread_mutex_unlock(&si_lock);
}
