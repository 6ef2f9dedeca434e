/* loam.h - memory whose kind a policy decides.
 *
 * An operator writes a Lua file that says, for each call-site tag and size, what memory an
 * allocation gets: alignment, NUMA node, huge pages, guard pages. loam compiles that file to
 * decision tables; from then on every allocation is decided, served, counted and freed in C, and
 * the file can be edited while the program runs.
 *
 *   loam_start(&(loam_config){ .size = sizeof(loam_config), .policy = "prod.lua", .watch = 1 });
 *   loam_site *weights = loam_site_get("tensor.weights");
 *   float *w = loam_malloc(weights, 64 << 20);
 *   loam_free(w);
 *
 * Conventions, for the whole header:
 *   - Sizes are bytes, times are nanoseconds, unless the name says otherwise.
 *   - What can fail returns a loam_status (0 is success, failures are negative) or a pointer that
 *     is NULL on failure; loam_error() then says in words what was wrong. Out-parameters are
 *     written last, and only on success.
 *   - A `const char *` that comes back is owned by loam. How long it lives is said where it is
 *     returned. What is passed in is copied unless said otherwise.
 *   - Every function may be called from any thread at any time, also before loam_start, unless
 *     said otherwise. None may be called from a signal handler. A thread may fork at any moment;
 *     the child gets a service thread, with what it serves, once it has allocated or freed a few
 *     hundred times, or does so 100 ms after the fork. So does a process that closes descriptors
 *     of loam's, or puts its own in their place; without that, after a second.
 *     Allocating and freeing are no cancellation points; a thread that lets itself be cancelled at
 *     any instruction may be amid them: what it then was about to get or free is lost.
 *
 * This file is the source of every foreign declaration: `cc -E -P -DLOAM_CDEF loam.h` gives
 * text that LuaJIT's ffi.cdef accepts. */
#ifndef LOAM_H
#define LOAM_H

#ifndef LOAM_CDEF
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#ifdef __GNUC__
#pragma GCC diagnostic push /* a struct and the function that fills it share a name, as stat does */
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#endif
#ifdef __GNUC__
#define LOAM_API __attribute__((visibility("default"))) LOAM_DIRECT
#else
#define LOAM_API
#endif
/* Calls go by way of one pointer, without the jump of a PLT: some take no longer than that. */
#if defined(__GNUC__) && defined(__has_attribute)
#if __has_attribute(noplt)
#define LOAM_DIRECT __attribute__((noplt))
#endif
#endif
#ifndef LOAM_DIRECT
#define LOAM_DIRECT
#endif
#else
#define LOAM_API
#endif

#define LOAM_VERSION_MAJOR 0
#define LOAM_VERSION_MINOR 1
#define LOAM_VERSION_PATCH 0

/* ---- Errors ---------------------------------------------------------------------------------
 *
 * Ten words for what can go wrong; the words for people come from loam_error(). */

#define LOAM_STATUS_LIST(X)                                         \
  X(LOAM_OK, 0, "success")                                          \
  X(LOAM_EINVAL, -1, "an argument is not valid")                    \
  X(LOAM_ENOMEM, -2, "no memory")                                   \
  X(LOAM_EPOLICY, -3, "the policy was refused")                     \
  X(LOAM_EIO, -4, "a file or socket could not be used")             \
  X(LOAM_ESTATE, -5, "not possible at this moment")                 \
  X(LOAM_EBADPTR, -6, "the pointer is not a live block")            \
  X(LOAM_EUNSUPPORTED, -7, "this machine or build cannot do it")    \
  X(LOAM_EBUDGET, -8, "a time, memory or size budget was exceeded") \
  X(LOAM_EINTERNAL, -9, "an error in loam itself")

typedef enum loam_status {
#define LOAM_STATUS_ENUM(name, value, words) name = value,
  LOAM_STATUS_LIST(LOAM_STATUS_ENUM)
#undef LOAM_STATUS_ENUM
} loam_status;

/* What went wrong in the last failing call of this thread: one or more lines, naming the value
 * that was wrong. "" if nothing has. Lives until this thread's next call into loam. */
LOAM_API const char *loam_error(void);

/* The few words of a status, for a log line. Static. */
LOAM_API const char *loam_status_text(loam_status status);

typedef enum loam_event_kind {
  LOAM_EVENT_POLICY_LIVE = 1,    /* a policy was swapped in; generation is its number */
  LOAM_EVENT_POLICY_REFUSED = 2, /* a policy was refused, the live one stays; message is why */
  LOAM_EVENT_TAG_REFUSED = 3,    /* a tag seen late could not be compiled; it has the default */
  LOAM_EVENT_BAD_FREE = 4,       /* a double, foreign or interior free; pointer is the argument */
  LOAM_EVENT_WATCH = 5,          /* watching the file degraded or recovered */
  LOAM_EVENT_CONTROL = 6,        /* there is no control socket; `loam status` will not find us */
  LOAM_EVENT_FAULT = 7,          /* guarded memory was touched where no block lives; see below */
  LOAM_EVENT_LEAK = 8,           /* blocks of a tag are live at exit, where that was asked for */
  LOAM_EVENT_MANAGER = 9,        /* a manager was not taken, as LOAM_MANAGER names another */
  LOAM_EVENT_MOVED = 10,         /* the service thread has moved live memory; message is how much */
  LOAM_EVENT_SHORTFALL = 11,     /* a strategy did not get what it asks for; see loam_got */
  LOAM_EVENT_ENVIRONMENT = 12    /* a LOAM_* variable means nothing so; message is which */
} loam_event_kind;

typedef struct loam_event {
  loam_event_kind kind;
  uint64_t generation;
  const void *pointer; /* NULL unless BAD_FREE or FAULT */
  const char *message; /* lives for the call */
  const void *caller;  /* of BAD_FREE: the code to which the call returns, if known; else NULL */
} loam_event;

typedef void (*loam_event_fn)(void *ctx, const loam_event *event);

/* Calls `callback(ctx, event)` for what a person may want to know, from the thread where it
 * happened, with no lock of loam held. One callback a process; NULL for none; core itself never
 * prints. The callback may allocate; but that of FAULT is in a signal handler, where it may call
 * only what signal-safety(7) lists. */
LOAM_API void loam_on_event(loam_event_fn callback, void *ctx);

/* ---- Life ------------------------------------------------------------------------------------
 *
 * Starting is optional: the first call starts the engine with defaults and the environment
 * (LOAM_POLICY, LOAM_WATCH=1, LOAM_CONTROL=0, LOAM_LEAKS=1). What is neither 0 nor 1 is told by
 * LOAM_EVENT_ENVIRONMENT, and is as if it were not set. A process with more rights than the user
 * who started it (a set-user-ID or set-group-ID program, or one with file capabilities) ignores
 * every environment variable of loam: LOAM_POLICY, LOAM_CUDA_DRIVER and all others. */

/* The host's own allocator, for `loam.system{}`. All six are required. */
typedef struct loam_system {
  void *(*malloc)(size_t size);
  void *(*calloc)(size_t count, size_t size);
  void *(*realloc)(void *ptr, size_t size);
  void (*free)(void *ptr);
  void *(*aligned_alloc)(size_t alignment, size_t size);
  size_t (*usable_size)(void *ptr);
} loam_system;

/* Zero every field that you do not set: zero means the default.
 *
 * `guard_report`: from when a policy first has a strategy with `guard`, loam handles SIGSEGV. What
 * touches loam's memory where no block lives (beyond a guarded block, in a freed one) is told as
 * LOAM_EVENT_FAULT: `message` says how far it is from whose block. Then, as for every other fault,
 * the handler that was there before has its turn, or the process ends at that instruction. */
typedef struct loam_config {
  size_t size;               /* sizeof(loam_config), so that later fields can be appended */
  const char *policy;        /* file to load; NULL: none, the built-in default */
  int watch;                 /* 1: follow edits of `policy` */
  int control;               /* 1: answer `loam status`; -1: do not; 0: as LOAM_CONTROL, else 1 */
  int lenient;               /* 1: a policy refused at start is an event, not a failure */
  const char *control_dir;   /* where the socket is; NULL: $XDG_RUNTIME_DIR/loam or /tmp/loam-UID */
  unsigned max_leaves;       /* of one plan; 0: 1000 */
  unsigned step_ms;          /* wall clock of one load step; 0: 200 */
  size_t step_bytes;         /* Lua heap of one load step; 0: 4 MiB */
  const loam_system *system; /* NULL: malloc, free and so on as linked */
  int guard_report;          /* 1: a fault in guarded memory is an event; see below */
  int leaks;                 /* 1: list live blocks, and tell at exit which are left */
} loam_config;

/* Starts the engine. NULL: all defaults. LOAM_ESTATE if it is already started; LOAM_EPOLICY with
 * the engine not started if the policy is refused and `lenient` is 0. */
LOAM_API loam_status loam_start(const loam_config *config);

/* Ends watching and the control socket. Live blocks stay valid and can be freed; allocation goes
 * on under the live policy. loam_start may be called again. */
LOAM_API void loam_stop(void);

/* "major.minor.patch". Static. */
LOAM_API const char *loam_version(void);

/* ---- Policy ----------------------------------------------------------------------------------
 *
 * A load compiles for every known tag, compares with plain Lua, decides the invariants, runs the
 * policy's tests, checks against this machine, and only then swaps, for all threads at once. Any
 * failure leaves the live generation as it was. A load runs in the calling thread; other threads
 * do not wait for it. Loads of several threads are done one after the other. */

/* LOAM_EIO if the file cannot be read, LOAM_EPOLICY if it is refused. In a process whose effective
 * user is root, LOAM_EIO also for a file that another user can change: loam_policy_watch has the
 * rule. A file that LOAM_POLICY names is read in the same way. */
LOAM_API loam_status loam_policy_load(const char *path);

/* The same for text; `name` stands for the file in messages. */
LOAM_API loam_status loam_policy_load_text(const char *name, const char *text);

/* Loads `path` and then follows it: in-place saves, renames over it and symbolic link swaps. The
 * failure of the first load is returned, and the file is followed all the same. NULL: stop.
 *
 * Only root and the effective user of the process may be able to change a followed file. So the
 * file, its folder, and each symbolic link on the way with its folder must belong to one of them,
 * and neither the file nor a folder may be writable by group or others. Exceptions: a folder with
 * the sticky bit, a folder on a read-only mount, and the group of a user other than root that has
 * the number of that user. A file that breaks this rule is LOAM_EIO and LOAM_EVENT_POLICY_REFUSED,
 * with the path to mend in the words; the last good policy stays until the path is mended. */
LOAM_API loam_status loam_policy_watch(const char *path);

/* A reader of text that comes in pieces. `text` is not terminated and lives for the call. */
typedef void (*loam_write_fn)(void *ctx, const char *text, size_t length);

/* Answers a question about a policy without making it live: what `loam check`, `explain`, `plan`
 * and `test` print. `query` is lines of `key value`, the first being `verb check` (or explain,
 * plan, test); keys: tag (may be repeated), size, align, zero, node, live, device, file, func,
 * module, line, batch (a path); a value runs to the end of its line. The answer is one JSON object
 * (for a batch: one a line). LOAM_OK if there is an answer, even one that says the policy is
 * refused; LOAM_EINVAL if the query makes no sense, LOAM_EIO if the file cannot be read. */
LOAM_API loam_status loam_policy_inspect(const char *path, const char *query, loam_write_fn write,
                                         void *ctx);

/* As with stat(2), the struct and the function that fills it share a name. */
struct loam_policy_info {
  uint64_t generation;   /* of the live policy; 0 is the built-in default */
  uint64_t hash;         /* of the live policy's text */
  int64_t loaded_at;     /* Unix time in ns when it went live; 0 for generation 0 */
  uint64_t loads;        /* attempts so far */
  uint64_t refused;      /* attempts that failed */
  int64_t last_at;       /* Unix time in ns of the last attempt */
  loam_status last;      /* how the last attempt ended */
  uint64_t tags_refused; /* tags that could not be compiled when first seen */
  uint32_t plans;        /* distinct plans of the live generation */
  uint32_t sites;        /* sites known */
  int watching;          /* 1 while a file is followed */
  char name[64];         /* the live policy's name */
  char path[1024];       /* its file; "" for text */
  char last_error[4096]; /* full error of the last attempt; "" if it succeeded */
};

/* Writes a consistent picture of the live policy and of the last attempt to change it. */
LOAM_API loam_status loam_policy_info(struct loam_policy_info *out);

/* ---- Sites -----------------------------------------------------------------------------------
 *
 * A site says what an allocation is for: a tag, and where in the program, as far as known. Sites
 * are interned and live as long as the process; look one up once and keep it. */

typedef struct loam_site loam_site;

typedef struct loam_where {
  const char *tag;  /* at most 255 bytes; NULL is "" */
  const char *file; /* these three may be NULL */
  const char *func;
  const char *module;
  int line; /* 0: not known */
} loam_where;

/* The site of a tag: same tag, same pointer. NULL if the tag is longer than 255 bytes or there is
 * no memory for it; NULL is a valid site everywhere. */
LOAM_API loam_site *loam_site_get(const char *tag);

/* The site of a tag at a place in the program: equal descriptions, same pointer. */
LOAM_API loam_site *loam_site_at(const loam_where *where);

/* Until the matching leave, calls of this thread with a NULL site use `site`. Scopes nest, 64 deep;
 * deeper ones keep the site of the 64th. */
LOAM_API void loam_scope_enter(loam_site *site);
LOAM_API void loam_scope_leave(void);

/* The site of the innermost scope of this thread, NULL outside any. */
LOAM_API loam_site *loam_scope_get(void);

/* ---- Memory ----------------------------------------------------------------------------------
 *
 * A NULL site is the current scope's, else the tag "". Blocks are aligned to 16 bytes at least.
 * Size 0 gives a unique pointer that can be freed. What cannot be served is NULL, with
 * LOAM_ENOMEM's words in loam_error(). Any thread may free what another allocated. */

LOAM_API void *loam_malloc(loam_site *site, size_t size);

/* For libraries that stand in for malloc, and know a request by the code that it returns to.
 * loam_code_malloc gives what this thread got of loam_code_learn for that code and a size of the
 * same class; where there is no such, or nothing can be had at once, it gives what `miss` does,
 * which finds the code's site and calls loam_code_learn. The scope that the thread is in, if any,
 * wins over `site`. After loam_code_forget no thread knows of any code: where code was that is
 * gone, there may be other code. */
typedef void *(*loam_code_fn)(size_t size, const void *code);
LOAM_API void *loam_code_malloc(size_t size, const void *code, loam_code_fn miss);
LOAM_API void *loam_code_learn(size_t size, const void *code, loam_site *site);
LOAM_API void loam_code_forget(void);
/* The same for zeroed memory, by loam_code_learn_zeroed in `miss`. What is known of a code, both
 * know. */
LOAM_API void *loam_code_calloc(size_t size, const void *code, loam_code_fn miss);
LOAM_API void *loam_code_learn_zeroed(size_t size, const void *code, loam_site *site);

/* Zeroed; count × size that overflows is NULL. */
LOAM_API void *loam_calloc(loam_site *site, size_t count, size_t size);

/* `alignment` is a power of two, or NULL is returned. `size` need not be a multiple of it. */
LOAM_API void *loam_aligned_alloc(loam_site *site, size_t alignment, size_t size);

/* The policy is asked again for the new size: the block moves when its answer differs or when it
 * cannot grow where it is. NULL `site`: the block's own. NULL `ptr`: loam_malloc. On failure the
 * block is as it was. One that is to be smaller, for which there is no memory, stays as it is and
 * is no failure. Size 0 gives a block of size 0, not a free. */
LOAM_API void *loam_realloc(loam_site *site, void *ptr, size_t size);

/* NULL is nothing. A pointer that is not the start of a live block is an event (BAD_FREE) and
 * otherwise nothing: it is found before anything is changed. */
LOAM_API void loam_free(void *ptr);

/* The same; a `size` that cannot be what was asked for is told as an event, and the block is freed.
 * What was asked for is not remembered: a size can be that is at most what the block has, and more
 * than half of it, or any in a block of 64 bytes. Once an alignment of at least twice the size was
 * asked for, or memory lacked for a shrink, any that is not too large can be. */
LOAM_API void loam_free_sized(void *ptr, size_t size);

/* For those who serve beside another allocator: asked by loam_free about a pointer that is not
 * loam's, also before anything was started. 1: it freed it; else the free is told as an event.
 * One a process; NULL: none. */
LOAM_API void loam_on_foreign(int (*free_it)(void *ptr));

/* Bytes that may be used at `ptr`, at least what was asked for; 0 for a pointer that is not the
 * start of a live block. */
LOAM_API size_t loam_usable_size(const void *ptr);
/* The same for who knows that the block lives, or that it is none of loam's; a little faster, since
 * it is not looked at. Of one that was freed it may tell anything. */
LOAM_API size_t loam_live_size(const void *ptr);

/* 1 if `ptr` is loam's to free: it is in loam's own address range or in a block that a handler or
 * the system made for it. For those who serve beside another allocator; cheap. */
LOAM_API int loam_owns(const void *ptr);

/* Gives back to the system, now, all memory of loam's pools that holds no live block: what is kept
 * warm for reuse, and what threads cache; pinned memory is for loam_device_trim. The bytes given
 * back, in pieces of 64 KiB, touched or not. Where the service thread runs (it answers `loam
 * status` and follows the policy's file), what nobody needed for about a second goes back without a
 * call. */
LOAM_API size_t loam_trim(void);

typedef struct loam_owner_info {
  const char *tag; /* these six live as long as the process; "" where not known */
  const char *file;
  const char *func;
  const char *module;
  const char *strategy; /* its name */
  const char *kind;     /* "host", "system", "handler", ... */
  const char *handler;  /* name of the handler that made it; "loam" for loam's own pools */
  int line;
  uint64_t generation; /* of the policy that decided it */
  void *base;          /* where the block starts */
  size_t size;         /* its usable bytes */
  int device;          /* whose memory it is, or for whom it is pinned or managed; -1: none */
  void *stream;        /* that it was allocated on; NULL: the default one, or no device's */
} loam_owner_info;

/* Whose memory `ptr` is; it may point into the block. LOAM_EBADPTR if it is in no live block. */
LOAM_API loam_status loam_owner(const void *ptr, loam_owner_info *out);

typedef void (*loam_memory_fn)(void *ctx, void *from, void *to, size_t size);

typedef struct loam_memory_hook {
  loam_memory_fn callback; /* NULL: none */
  void *ctx;
} loam_memory_hook;

/* Calls `callback(ctx, from, to, size)` after each block that this header's functions and handlers
 * make (`from` is NULL), resize (`size` is the new one, the two may be equal) or free (`to` is
 * NULL, `size` 0), in the thread that asked, with no lock of loam held; so after a free another
 * thread may have the address already. What fails, and what is not the start of a live block, is
 * not told. The callback may call loam: what it allocates and frees is not told either, and a hook
 * it sets counts from the next call. One hook a process, NULL for none, which costs nothing;
 * returns the previous one. A callback may still be running in other threads when this returns. */
LOAM_API loam_memory_hook loam_on_memory(loam_memory_fn callback, void *ctx);

/* ---- Device memory ---------------------------------------------------------------------------
 *
 * Memory of GPUs, and of the host for them, under the same policy. What a call asks for bounds what
 * the policy may give, so that no edit of one can crash a host: loam_malloc and its family get what
 * the CPU can touch (loam.host, system, handler, pinned, managed), loam_device_alloc what the
 * device can use (loam.device, managed, pinned with `mapped`). Members of an or_else chain that do
 * not fit the call are passed over; where none fits, loam.device{} (managed, pinned) serves, which
 * counts as a fallback. On a machine without any device all of them give memory of the host, so
 * that a program runs there.
 *
 *   loam_site *weights = loam_site_get("model.weights");
 *   void *w = loam_device_alloc(weights, 64 << 20, stream);
 *   ... kernels on `stream` ...
 *   loam_device_free(w, stream);
 *
 * Addresses of devices are pointers that the CPU must not touch. They are aligned to 256 bytes.
 * `stream` holds a CUstream; NULL is the default stream. The device is that of the context which is
 * current in the calling thread, else 0, unless the strategy's `id` says otherwise; where no
 * context is current, the device's primary one is used, and never reset. A process that forks after
 * it has used a device cannot use it in the child: what is asked there fails with these words.
 *
 * What is freed on a stream is had again on it at once, and elsewhere when its work has ended; so a
 * stream that is destroyed has to be done with its work before. Pinned memory that loam_free ends
 * is had again at once, as all memory of the host: where a stream may still read it,
 * loam_device_free says so. Of pinned memory blocks up to 32 KiB are objects of pools of the host's
 * memory, as cheap as loam_malloc's; larger ones, and those that are write-combined, are cut as
 * memory of devices is, and so are all where a manager has a memhostalloc of its own.
 *
 * While a stream is captured for a graph, memory for it comes and goes as ever, and no call of
 * loam's spoils the capture; where the device has no more, the call fails rather than wait. (For
 * memory on another stream loam may have to wait for the device, which the driver forbids while any
 * stream is captured.) A graph uses its memory each time it is launched, of which loam does not
 * know: the memory has to stay allocated as long as the graph is there.
 *
 * loam_owner, loam_usable_size, loam_realloc and the figures know these blocks as all others. */

/* Memory that is ready for work put on `stream` from now on; not zeroed. NULL as loam_malloc. */
LOAM_API void *loam_device_alloc(loam_site *site, size_t size, void *stream);

/* Work that was put on `stream` before may still use the memory; other streams have to be done with
 * it, or `stream` to wait for them. loam_free does the same on the stream where the block was
 * allocated, which then has to exist. Any thread, and no context need be current; NULL is nothing.
 * For any memory of loam's; what is wrong is told as loam_free tells it. */
LOAM_API void loam_device_free(void *ptr, void *stream);

/* Memory that CPU and devices can touch, and that moves between them. */
LOAM_API void *loam_managed_alloc(loam_site *site, size_t size);

enum {
  LOAM_PINNED_MAPPED = 1,        /* devices can use it where it is */
  LOAM_PINNED_PORTABLE = 2,      /* for all contexts */
  LOAM_PINNED_WRITE_COMBINED = 4 /* fast for devices to read, slow for the CPU to */
};

/* Memory of the host that devices copy from and to directly. `flags` is a sum of LOAM_PINNED_*,
 * beside what the strategy says. It stays pinned when it is reallocated. A forked child keeps what
 * its parent had, as plain memory, and gets none. */
LOAM_API void *loam_pinned_alloc(loam_site *site, size_t size, unsigned flags);

/* Devices of this machine. 0: there is none that can be used, and loam_error() says why. Starts
 * their driver, as does all else here. */
LOAM_API int loam_device_count(void);

struct loam_device_info {
  char name[128];
  size_t total;    /* bytes */
  size_t reserved; /* bytes that loam has from the driver, in use or kept for reuse */
  size_t used;     /* bytes of them in live blocks */
  int node;        /* NUMA node that it is on; -1: not known */
  int has_ranges;  /* 1: pools grow in one address range, without fragments between pieces */
  int has_pools;   /* 1: pool = "driver" can be served */
  int has_managed; /* 1: so can loam.managed{} */
};

/* LOAM_EINVAL if there is no such device, LOAM_EUNSUPPORTED if there is none at all. */
LOAM_API loam_status loam_device_info(int device, struct loam_device_info *out);

/* Bytes free on the device, for everyone, and in all. Either may be NULL. */
LOAM_API loam_status loam_device_memory(int device, size_t *free, size_t *total);

/* Gives back to the driver, now, what loam keeps of the device's memory for reuse; -1: of all
 * devices. Waits for work under way that may use what was freed. The bytes given back. */
LOAM_API size_t loam_device_trim(int device);

/* What was not used for half a second or so goes back to the driver by itself, where there is a
 * service thread (control, watch), as soon as the work that used it is known to have ended; nobody
 * waits for that. Of a default stream it is known soon, of one of the host's own after the next
 * call on it. Each pool of a device keeps `bytes` nevertheless; SIZE_MAX: all. At first 0. */
LOAM_API void loam_device_keep(size_t bytes);

/* Ends all memory of a device: every block of it is freed, whoever has it, and all goes back to the
 * driver. Waits for all its work; nobody may be using its memory. To be called before a host resets
 * a device or destroys a context of its own in which there was memory. */
LOAM_API loam_status loam_device_reset(int device);

/* ---- Handlers --------------------------------------------------------------------------------
 *
 * NumPy's NEP 49, byte for byte: a PyDataMem_Handler can be passed where a loam_handler is asked.
 * A block keeps the handler that made it until it is freed. */

typedef struct loam_allocator {
  void *ctx;
  void *(*malloc)(void *ctx, size_t size);
  void *(*calloc)(void *ctx, size_t count, size_t size);
  void *(*realloc)(void *ctx, void *ptr, size_t new_size);
  void (*free)(void *ctx, void *ptr, size_t size); /* `size` is a best guess */
} loam_allocator;

typedef struct loam_handler {
  char name[127];  /* terminated */
  uint8_t version; /* 1; later ones only append fields, so that they are read as 1 */
  loam_allocator allocator;
} loam_handler;

/* Makes `handler` known to policies as loam.handler"name". It is kept by reference and must outlive
 * every block it makes; all four functions are required. A second one of the same name replaces
 * the first for allocations to come. */
LOAM_API loam_status loam_handler_register(const loam_handler *handler);

/* A handler whose allocations are those of `site` under the live policy. Lives as long as the
 * process; same site, same handler. */
LOAM_API const loam_handler *loam_handler_of(loam_site *site);

/* Sets this thread's current handler and returns the previous one. NULL sets the default, which
 * is loam_handler_of(NULL). What loam_handler_register would refuse is refused: NULL is returned,
 * and the handler stays what it was. */
LOAM_API const loam_handler *loam_handler_set(const loam_handler *handler);
LOAM_API const loam_handler *loam_handler_get(void);

/* ---- Managers --------------------------------------------------------------------------------
 *
 * A manager is who device memory and pinned memory come from: NBEP 7, Numba's interface of external
 * memory managers, as a table of C functions. It works in two directions.
 *
 * Below: a table given to loam_manager_set, or brought by the library that LOAM_MANAGER names,
 * makes what loam's pools cut up. It need bring no more than it does better: an entry that is NULL
 * is served by loam's own, which asks the driver.
 *
 * Above: loam_manager_get gives a table through which a host that knows NBEP 7 gets its memory from
 * loam, under the live policy and from its pools.
 *
 * The names are NBEP 7's; what Python has as a finalizer is a function beside, and a context
 * manager is two. `device` is a number from 0; addresses of device memory are pointers that the CPU
 * must not touch. Functions may be called from any thread, and at the same time. They return
 * LOAM_OK, or LOAM_ENOMEM where there is no memory, or what else is fitting. Those that end
 * something may be called when no context is current, and after a reset. */

/* Memory of another process, as plain bytes that can be sent there. */
typedef struct loam_ipc {
  unsigned char handle[64]; /* of what the memory is in: the driver's of an allocation, or loam's */
  uint64_t offset;          /* of the memory, from there */
  uint64_t size;            /* of the memory */
  int32_t device;           /* of the process that shares it */
  int32_t pid;
} loam_ipc;

typedef struct loam_manager {
  size_t size;           /* sizeof(loam_manager), so that later fields can be appended */
  int interface_version; /* 1 */
  const char *name;      /* for people */
  void *ctx;

  /* Gets ready for a device: before anything else is asked for it, any number of times, and again
   * after a reset. */
  loam_status (*initialize)(void *ctx, int device);
  /* Memory of the device, aligned to 256 bytes, and its end, which waits for work that may still
   * use it, as cuMemFree does. */
  loam_status (*memalloc)(void *ctx, int device, size_t size, void **out);
  void (*memfree)(void *ctx, int device, void *ptr, size_t size);
  /* Pinned memory of the host; `flags` is a sum of LOAM_PINNED_*. */
  loam_status (*memhostalloc)(void *ctx, int device, size_t size, unsigned flags, void **out);
  void (*memhostfree)(void *ctx, int device, void *ptr, size_t size);
  /* Pins memory that there is, page by page, until it is unpinned, which is never put off. */
  loam_status (*mempin)(void *ctx, int device, void *ptr, size_t size, unsigned flags);
  void (*memunpin)(void *ctx, int device, void *ptr, size_t size);
  /* Bytes; neither pointer is NULL. */
  loam_status (*get_memory_info)(void *ctx, int device, size_t *free, size_t *total);
  /* For another process. `ptr` may point into what memalloc gave. */
  loam_status (*get_ipc_handle)(void *ctx, int device, void *ptr, loam_ipc *out);
  loam_status (*open_ipc_handle)(void *ctx, int device, const loam_ipc *handle, void **out);
  void (*close_ipc_handle)(void *ctx, int device, void *ptr);
  /* Ends all that was made on the device, and what is put off; also before initialize. */
  loam_status (*reset)(void *ctx, int device);
  /* From `enter` to `leave`, nested, nothing may wait for a device: frees are put off. */
  void (*defer_enter)(void *ctx);
  void (*defer_leave)(void *ctx);

  /* Beyond NBEP 7: in the order of a stream (a CUstream; NULL is the default one), and memory that
   * moves between CPU and devices. */
  loam_status (*memalloc_async)(void *ctx, int device, size_t size, void *stream, void **out);
  void (*memfree_async)(void *ctx, int device, void *ptr, size_t size, void *stream);
  loam_status (*memalloc_managed)(void *ctx, int device, size_t size, void **out);
  void (*memfree_managed)(void *ctx, int device, void *ptr, size_t size);
} loam_manager;

/* Makes `manager` the one that device and pinned memory come from; NULL: the driver. It is kept by
 * reference, as long as the process lives. Before first use: once memory of a device was asked for,
 * LOAM_ESTATE. LOAM_EUNSUPPORTED if its interface_version is not 1, LOAM_EINVAL if of two entries
 * that belong together only one is there. Where LOAM_MANAGER names a library, that one's manager
 * stays: the call is told as an event (MANAGER), does nothing, and is LOAM_OK. */
LOAM_API loam_status loam_manager_set(const loam_manager *manager);

/* What a library that LOAM_MANAGER names has to export, as `loam_manager_plugin`. It returns a
 * manager that lives as long as the process, or NULL. `driver` is the driver as a manager, for one
 * that adds something to it: a limit, a log, a cache. Called once, by whoever needs it first. */
typedef const loam_manager *(*loam_manager_plugin_fn)(const loam_manager *driver);

/* A manager that is loam: its memory is that of the scope's site under the live policy. What is
 * freed without a stream may still be in use by any, so it is collected, as loam_defer_limit says,
 * and given back to the pools together, after one wait for the device. Its memfree and the like do
 * nothing with what a reset has ended. All entries are there. Static. */
LOAM_API const loam_manager *loam_manager_get(void);

/* Freeing device memory makes the driver wait for all work, so what loam gives back to it is
 * collected until there are more than `count` pieces, or more than `ratio` of the device's memory
 * in them; or until memory is wanted. -1 leaves either as it is. At first: 10 and 0.2. */
LOAM_API void loam_defer_limit(int count, double ratio);

/* From enter to leave nothing is given back to a driver, also where memory is wanting. Of the whole
 * process; nested. A `leave` too many is LOAM_ESTATE. */
LOAM_API void loam_defer_enter(void);
LOAM_API loam_status loam_defer_leave(void);

/* Pins memory that there is, whoever made it, so that devices copy from and to it directly. `flags`
 * is a sum of LOAM_PINNED_MAPPED and _PORTABLE. The same range may be pinned again; each time is
 * ended by an unpin. It has to be unpinned before it is freed. LOAM_EINVAL with the driver's words
 * if a part of it is pinned otherwise. */
LOAM_API loam_status loam_pin(void *ptr, size_t size, unsigned flags);

/* LOAM_EBADPTR if no range begins there that loam_pin has pinned. */
LOAM_API loam_status loam_unpin(void *ptr);

/* What another process needs to use device memory of loam's; `ptr` may point into a block. The
 * memory has to live until the other process has closed it. What the driver allocated by itself
 * (pool = "chunks" and "none", and all that NBEP 7's memalloc gives unless a policy says "cache")
 * has a handle of the driver's, that other libraries can open as well. What is mapped to a range of
 * addresses has one of loam's: loam_ipc_open asks this process for it, over the control socket;
 * LOAM_ESTATE if that is not there. LOAM_EUNSUPPORTED where the driver cannot share what the block
 * was made of. Of what shares its pages with the block, the other process sees those as well. */
LOAM_API loam_status loam_ipc_get(const void *ptr, loam_ipc *out);

/* The memory of another process, on a device of this one; where the same is opened again, the same
 * address. Of loam's handles: LOAM_EBADPTR if the block is not there any more, LOAM_EIO if its
 * owner is not, or does not answer for 5 s. */
LOAM_API loam_status loam_ipc_open(const loam_ipc *handle, int device, void **out);

/* Once for each open. LOAM_EBADPTR for what was not opened. */
LOAM_API loam_status loam_ipc_close(void *ptr);

/* ---- Blocks ----------------------------------------------------------------------------------
 *
 * A block is memory with owners, who are counted: it ends when the last of them releases it, in
 * the thread that does. Each loam_block * that a function returns as new is one reference, to be
 * released once. Who holds a reference may make more and pass them to any thread; counting is
 * atomic, the data is the owners' own to guard. Sites are as for memory.
 *
 *   loam_block *b = loam_block_new(LOAM_SITE("frame.pixels"), 1920 * 1080 * 4);
 *   loam_block *row = loam_block_slice(b, 7 * 1920 * 4, 1920 * 4);
 *   loam_block_release(b);      (the row keeps it alive)
 *   loam_block_release(row);
 *
 * A header takes 64 bytes. Data of at most 1 KiB stand right after it, in the same allocation
 * under the block's site, and are aligned as the strategy says, to 64 at most. All other headers
 * are allocated under the tag "loam.block", so that what a tag has live is its data. */

typedef struct loam_block loam_block;

typedef enum loam_block_kind {
  LOAM_BLOCK_EMBEDDED = 1, /* header and data in one allocation */
  LOAM_BLOCK_OWNED = 2,    /* data apart, allocated and freed by loam */
  LOAM_BLOCK_EXTERNAL = 3, /* somebody else's memory, with a destructor */
  LOAM_BLOCK_SLICE = 4,    /* part of another block, which it keeps alive */
  LOAM_BLOCK_POOLED = 5    /* many small pieces, freed together: see Arenas */
} loam_block_kind;

/* Ends what a block wrapped. It may call loam; the block itself is gone for it. */
typedef void (*loam_block_dtor)(void *ptr, size_t size, void *ctx);

/* A new block of `size` bytes; zeroed; aligned to a power of two at least. NULL as loam_malloc. */
LOAM_API loam_block *loam_block_new(loam_site *site, size_t size);
LOAM_API loam_block *loam_block_zeroed(loam_site *site, size_t size);
LOAM_API loam_block *loam_block_aligned(loam_site *site, size_t alignment, size_t size);

/* A block of memory that loam did not make: `dtor(ptr, size, ctx)` is called once, when its last
 * owner releases it; NULL: nothing is. `ptr` may be NULL. If this fails, NULL, nothing is called
 * and the memory stays the caller's. */
LOAM_API loam_block *loam_block_wrap(loam_site *site, void *ptr, size_t size, loam_block_dtor dtor,
                                     void *ctx);

/* `size` bytes of `parent` from `offset` on, with no copy. The new block holds a reference to the
 * block whose memory it is (for a slice of a slice, to the first). NULL if it does not fit. */
LOAM_API loam_block *loam_block_slice(loam_block *parent, size_t offset, size_t size);

/* One reference more; returns its argument. NULL is nothing. */
LOAM_API loam_block *loam_block_retain(loam_block *block);

/* One less; the last one ends the block. NULL is nothing. A release too many is an event (BAD_FREE)
 * where it can be seen: while nobody else has got the header's memory. */
LOAM_API void loam_block_release(loam_block *block);

/* Where its data is; NULL for a pooled block, whose pieces are asked for one by one. */
LOAM_API void *loam_block_data(const loam_block *block);

/* Bytes of data, as asked for; of a pooled block, those of its pieces together. */
LOAM_API size_t loam_block_size(const loam_block *block);

/* Owners at this moment: a number to look at; only 1 in the hands of the owner can be relied on. */
LOAM_API size_t loam_block_refcount(const loam_block *block);

/* 0 for NULL. */
LOAM_API loam_block_kind loam_block_kind_of(const loam_block *block);

/* The tag of its site. Lives as long as the process. */
LOAM_API const char *loam_block_tag(const loam_block *block);

/* ---- Arenas ----------------------------------------------------------------------------------
 *
 * A pooled block: many small pieces, allocated under the block's site by the chunk, freed together
 * when the block ends. In a plain arena pieces stand one after the other and only the last one can
 * be resized: for what is written once, from front to back. In a resizable one any piece can be, as
 * often as one likes: for strings and ragged arrays. There a piece takes 8 bytes more, rounded up
 * to a power of two, and to 16; the place it leaves is for others. So however often pieces are
 * resized, the arena stops growing: of each power of two it holds what its pieces of that size took
 * when they took most. What is above 4 KiB stands alone, and leaves nothing.
 *
 * References may be counted in any thread, pieces asked for by one thread at a time. */

enum { LOAM_ARENA_ZEROED = 1, LOAM_ARENA_RESIZABLE = 2 };

/* A new arena; `flags` is a sum of LOAM_ARENA_*. Its first chunk has room for `first` bytes, 0:
 * 4 KiB with what loam needs; later ones are larger, to 1 MiB. No chunk is there before a piece. */
LOAM_API loam_block *loam_arena_new(loam_site *site, int flags, size_t first);

/* A piece of `size` bytes, aligned to a power of two. It lives until the arena ends or is reset;
 * size 0 has an address of its own. NULL without memory, or when the arena is
 * finished. */
LOAM_API void *loam_arena_alloc(loam_block *arena, size_t alignment, size_t size);

/* The piece with another size, perhaps elsewhere, with its alignment and what it held; what is new
 * is zero if the arena is zeroed. NULL, and the piece as it was, without memory; or if it is not
 * the last one, unless the arena is resizable; or if the arena is finished. NULL `piece`: a new
 * one, aligned to 16. */
LOAM_API void *loam_arena_resize(loam_block *arena, void *piece, size_t size);

/* Frees all pieces at once and keeps a chunk for new ones. LOAM_ESTATE if there is a second owner,
 * whose pieces they are too. */
LOAM_API loam_status loam_arena_reset(loam_block *arena);

/* There will be no more pieces, and none is resized, until a reset. A chunk that holds nothing goes
 * back; pieces stay where they are, so what is left of their chunks does not. */
LOAM_API loam_status loam_arena_finalize(loam_block *arena);

/* ---- Blocks: figures and debugging ----------------------------------------------------------- */

/* Blocks ever made and ended, by loam_block_kind. As with stat(2), struct and function share a
 * name. Memory for data was allocated, and is freed, for each embedded and each owned block. */
struct loam_block_stats {
  uint64_t made[6], ended[6];
};
LOAM_API loam_status loam_block_stats(struct loam_block_stats *out);

typedef enum loam_block_verb {
  LOAM_BLOCK_MADE = 1,
  LOAM_BLOCK_RETAINED = 2,
  LOAM_BLOCK_RELEASED = 3, /* told before it is done, so that the block is whole */
  LOAM_BLOCK_ENDED = 4     /* told before its memory goes */
} loam_block_verb;

typedef void (*loam_block_fn)(void *ctx, loam_block_verb verb, const loam_block *block,
                              size_t references);

typedef struct loam_block_hook {
  loam_block_fn callback; /* NULL: none */
  void *ctx;
} loam_block_hook;

/* Calls `callback(ctx, verb, block, references)` for each block made, retained, released and ended,
 * in the thread that does, with no lock of loam held; `references` is what there are then, but for
 * what other threads do meanwhile. What the callback itself does with blocks is not told. One hook
 * a process, NULL for none; returns the previous one. For debugging: each call becomes slower. */
LOAM_API loam_block_hook loam_on_block(loam_block_fn callback, void *ctx);

typedef void (*loam_leak_fn)(void *ctx, const char *tag, uint64_t blocks, uint64_t bytes);

/* Calls back for each tag that has live blocks, of those made since `leaks` of loam_config or
 * LOAM_LEAKS=1 was seen; LOAM_ESTATE if neither was. With either, each such tag that is left when
 * the process exits is an event (LEAK), and a line on standard error if there is no callback for
 * events. Bytes are those of data; a slice has none of its own. Small blocks take up to 15 times as
 * long so, other small memory five times. */
LOAM_API loam_status loam_block_leaks(loam_leak_fn callback, void *ctx);

/* ---- Numba's runtime -------------------------------------------------------------------------
 *
 * Blocks by the names of Numba's NRT (numba/core/runtime/nrt_external.h): a table of six functions,
 * laid out as NRT_api_functions is, so that what is written against one works with the other; a
 * block is what NRT calls a MemInfo. Sites are the scope's. */

/* Laid out as NRT_ExternalAllocator. It must outlive what it allocates. `realloc` is never called
 * and may be NULL. */
typedef struct loam_nrt_allocator {
  void *(*malloc)(size_t size, void *opaque_data);
  void *(*realloc)(void *ptr, size_t new_size, void *opaque_data);
  void (*free)(void *ptr, void *opaque_data);
  void *opaque_data;
} loam_nrt_allocator;

typedef struct loam_nrt {
  /* loam_block_new. */
  loam_block *(*allocate)(size_t size);
  /* A block whose data is what `allocator` gives for `size`: one malloc now, one free at its end.
   * NULL `allocator`: allocate. NULL where malloc gives NULL, also for size 0. */
  loam_block *(*allocate_external)(size_t size, const loam_nrt_allocator *allocator);
  /* A block, of size 0, of memory that is somebody else's; `dtor(data)` at its end, unless NULL. */
  loam_block *(*manage_memory)(void *data, void (*dtor)(void *data));
  void (*acquire)(loam_block *block);   /* loam_block_retain */
  void (*release)(loam_block *block);   /* loam_block_release */
  void *(*get_data)(loam_block *block); /* loam_block_data */
} loam_nrt;

/* The table. Static. */
LOAM_API const loam_nrt *loam_nrt_api(void);

/* ---- Types -----------------------------------------------------------------------------------
 *
 * What an array is made of, written as a datashape:
 *
 *   3 * var * {x: float64, y: ?int32}
 *
 * A number and a star are a dimension of that many elements, `var *` is one whose length stands in
 * the data, so that each row has its own. `{name: type, ...}` is a struct, `pointer[type]` a value
 * that stands somewhere else, `?type` one that may be missing (a scalar, string or bytes). A name
 * that is not an identifier stands in quotes. Scalars are those of the list below; `int`, `real`
 * and `complex` are int32, float64 and complex128. `#` begins a comment.
 *
 * What is missing is marked in the data: an integer by the smallest value of its type, an unsigned
 * one by the largest, a bool by 2, a float by one NaN (its payload is 1954, as in R), a string and
 * bytes by a NULL `begin`.
 *
 * Types are immutable and counted by reference; any number of threads may use one. */

#define LOAM_TYPE_LIST(X)                      \
  X(LOAM_TYPE_BOOL, "bool", 1, 1)              \
  X(LOAM_TYPE_INT8, "int8", 1, 1)              \
  X(LOAM_TYPE_INT16, "int16", 2, 2)            \
  X(LOAM_TYPE_INT32, "int32", 4, 4)            \
  X(LOAM_TYPE_INT64, "int64", 8, 8)            \
  X(LOAM_TYPE_UINT8, "uint8", 1, 1)            \
  X(LOAM_TYPE_UINT16, "uint16", 2, 2)          \
  X(LOAM_TYPE_UINT32, "uint32", 4, 4)          \
  X(LOAM_TYPE_UINT64, "uint64", 8, 8)          \
  X(LOAM_TYPE_FLOAT16, "float16", 2, 2)        \
  X(LOAM_TYPE_FLOAT32, "float32", 4, 4)        \
  X(LOAM_TYPE_FLOAT64, "float64", 8, 8)        \
  X(LOAM_TYPE_COMPLEX64, "complex64", 8, 4)    \
  X(LOAM_TYPE_COMPLEX128, "complex128", 16, 8) \
  X(LOAM_TYPE_STRING, "string", 16, 8)         \
  X(LOAM_TYPE_BYTES, "bytes", 16, 8)

typedef enum loam_type_kind {
#define LOAM_TYPE_ENUM(kind, name, size, align) kind,
  LOAM_TYPE_LIST(LOAM_TYPE_ENUM)
#undef LOAM_TYPE_ENUM
      LOAM_TYPE_OPTION, /* these have parts */
  LOAM_TYPE_POINTER,
  LOAM_TYPE_FIXED,
  LOAM_TYPE_VAR,
  LOAM_TYPE_STRUCT
} loam_type_kind;

typedef struct loam_type loam_type;

/* The type that `text` describes, with one reference for the caller. LOAM_EINVAL where it is no
 * datashape: the words name the column and what was expected there. */
LOAM_API loam_status loam_type_parse(const char *text, loam_type **out);

/* One reference more; returns `type`. NULL stays NULL. */
LOAM_API loam_type *loam_type_retain(const loam_type *type);

/* One reference less. NULL is nothing. */
LOAM_API void loam_type_release(loam_type *type);

/* Its datashape, the same for equal types. Lives as long as the type. */
LOAM_API const char *loam_type_text(const loam_type *type);

/* 1 if they describe the same. */
LOAM_API int loam_type_equal(const loam_type *a, const loam_type *b);

struct loam_type_info {
  loam_type_kind kind;
  size_t size, align;       /* of one value, laid out as C does; a var dimension is 16 bytes */
  size_t count;             /* elements of a fixed dimension, fields of a struct, else 0 */
  const loam_type *element; /* of a dimension, pointer, option, else NULL; lives as the type does */
};

LOAM_API loam_status loam_type_info(const loam_type *type, struct loam_type_info *out);

struct loam_type_field {
  const char *name; /* these two live as long as the struct */
  const loam_type *type;
  size_t offset; /* where C would put it */
};

/* Field `index` of a struct. */
LOAM_API loam_status loam_type_field(const loam_type *type, size_t index,
                                     struct loam_type_field *out);

/* ---- Arrays ----------------------------------------------------------------------------------
 *
 * An array is a type, metadata of the type's shape (sizes and strides, offsets of fields, the
 * blocks that own what stands elsewhere), a pointer to data, and the block that owns them. What
 * cuts a part out of it makes another array, a view: nothing is copied, and it keeps alive what it
 * shows.
 *
 *   loam_type *type;
 *   loam_array *rows, *row, *x;
 *   loam_type_parse("3 * var * {x: float64, y: ?int32}", &type);
 *   loam_array_new(LOAM_SITE("samples"), type, &rows);
 *   loam_array_index(rows, 1, (loam_index[]){ LOAM_AT(1) }, &row);
 *   loam_array_append(row, &(struct sample){ 0.5, 7 });
 *   loam_array_field(rows, "x", &x);                        (3 * var * float64)
 *
 * Data are laid out as C does and zeroed. A var dimension, a string and bytes have 16 bytes in the
 * data, { char *begin; size_t size; }, and their elements in an arena of the array's; a pointer has
 * an address. Small data stand in the array itself.
 *
 * References may be counted in any thread; an array does not change once it is made. The data are
 * the owners' own to guard, and with them the rows: resizing and setting text, of an array and of
 * all views of it, is for one thread at a time. */

typedef struct loam_array loam_array;

/* A new array. Memory is `site`'s; LOAM_ENOMEM. */
LOAM_API loam_status loam_array_new(loam_site *site, const loam_type *type, loam_array **out);

/* An array over the data of a block, from `offset` on, which it keeps alive. `strides`: bytes from
 * one element to the next, for each fixed dimension in turn; NULL: as C lays them out. LOAM_EINVAL
 * if it would reach beyond the block, if elements would not be aligned, and for types some of which
 * stands elsewhere. */
LOAM_API loam_status loam_array_wrap(loam_block *block, size_t offset, const loam_type *type,
                                     const int64_t *strides, loam_array **out);

/* One reference more; returns `array`. NULL stays NULL. */
LOAM_API loam_array *loam_array_retain(const loam_array *array);

/* One reference less; the last one ends the array, and its data when no view is left. */
LOAM_API void loam_array_release(loam_array *array);

/* Its type and its data, which live as long as the array. */
LOAM_API const loam_type *loam_array_type(const loam_array *array);
LOAM_API void *loam_array_data(const loam_array *array);

/* How many fixed dimensions come first, and the size and stride in bytes of each, of `most` at
 * most; `shape` and `strides` may be NULL. */
LOAM_API size_t loam_array_dims(const loam_array *array, size_t most, size_t *shape,
                                int64_t *strides);

struct loam_array_info {
  const loam_type *type; /* these three live as long as the array */
  void *data;
  loam_block *block; /* the owner of the data */
  size_t references; /* at this moment */
  int embedded;      /* 1: the data stand in the array itself, and `block` is the array's own */
  int readonly;      /* 1: memory of others, not to be written */
};

LOAM_API loam_status loam_array_info(const loam_array *array, struct loam_array_info *out);

/* ---- Views */

/* What is taken of a dimension, counted as Python counts: from the end where negative, a range cut
 * off at the ends. */
typedef struct loam_index {
  int64_t start, stop; /* of a range; INT64_MIN: left out */
  int64_t step;        /* 0: the one element at `start` */
} loam_index;

/* A view: the first dimensions, pointers to them followed, at an index or over a range each. An
 * index takes its dimension away. A range over a row of a var dimension is fixed:
 *
 *   3 * var * float64   at 1              var * float64, a row that can be resized
 *                       at 1, over 0:2    2 * float64
 *                       over all, at 0    3 * pointer[float64]; every row has to have that element
 *                       over all, 0:2     3 * pointer[2 * float64]
 *                       over all, all     3 * var * float64
 *
 * LOAM_EINVAL if there is no such element or dimension, LOAM_ESTATE if a pointer is NULL. What a
 * view shows of a row may move when the row is resized: take another then. */
LOAM_API loam_status loam_array_index(const loam_array *array, size_t count,
                                      const loam_index *index, loam_array **out);

/* A view of a field of the struct within the dimensions: of 3 * var * {x: float64}, the x are
 * 3 * var * float64. */
LOAM_API loam_status loam_array_field(const loam_array *array, const char *name, loam_array **out);

/* The same of several, as a struct of these fields in this order. */
LOAM_API loam_status loam_array_fields(const loam_array *array, size_t count,
                                       const char *const *names, loam_array **out);

/* A view of the target of a pointer. */
LOAM_API loam_status loam_array_follow(const loam_array *array, loam_array **out);

/* Where the element is at an index a dimension, without a view: for loops. Fewer indices than
 * dimensions lead to a row. NULL if there is none. */
LOAM_API void *loam_array_at(const loam_array *array, size_t count, const int64_t *index);

/* ---- Filling */

/* Gives a row of a var dimension, which is an array of type `var * ...`, as many elements; new ones
 * are zero, and what the others hold is kept, perhaps elsewhere. Of an array of type `pointer[...]`
 * whose pointer is NULL, 1 makes the target. LOAM_ESTATE where the memory is another's, or the row
 * one of selected fields. */
LOAM_API loam_status loam_array_resize(loam_array *array, size_t count);

/* One element more at the end of a row: a copy of what stands at `element` as C lays it out. For
 * types all of which stands in one place. */
LOAM_API loam_status loam_array_append(loam_array *array, const void *element);

/* A string or bytes, an array of no dimension, becomes a copy of `size` bytes, which are not its
 * own. */
LOAM_API loam_status loam_array_set_text(loam_array *array, const char *bytes, size_t size);

/* An option, an array of no dimension, becomes one that is missing. */
LOAM_API loam_status loam_array_omit(loam_array *array);

/* 1 for an option that is missing; 0 for anything else. */
LOAM_API int loam_array_is_missing(const loam_array *array);

/* ---- Looking */

/* What the array holds, as JSON: dimensions are arrays, structs are objects, complex numbers pairs,
 * what is missing and NULL pointers null; bytes as Latin-1, NaN and Infinity as such. */
LOAM_API loam_status loam_array_json(const loam_array *array, loam_write_fn write, void *ctx);

/* What the array is, for one who looks for a fault: type, metadata, data, and each block with its
 * references. Lines of text, made for eyes: they may change. */
LOAM_API loam_status loam_array_repr(const loam_array *array, loam_write_fn write, void *ctx);

/* ---- Exchange --------------------------------------------------------------------------------
 *
 * Arrays for other libraries, and theirs as arrays, with nothing copied. The structures are those
 * libraries' own: include their header, or declare them, to look inside. */

struct DLManagedTensor;

/* An array of scalars as a DLPack tensor (version 0.x) in host memory, which holds what it shows
 * until its deleter is called. Pointers and a var dimension that come first are followed.
 * LOAM_EUNSUPPORTED for what a tensor cannot say: structs, text, rows further on, missing values
 * that are not floats, strides that are not whole elements, read-only memory. */
LOAM_API loam_status loam_array_to_dlpack(const loam_array *array, struct DLManagedTensor **out);

/* An array over a tensor's memory. The tensor is the array's from then on, and its deleter is
 * called when the last view is gone, perhaps by another thread; on failure it stays the caller's.
 * LOAM_EUNSUPPORTED for memory that is not the host's and for types that loam has not. */
LOAM_API loam_status loam_array_from_dlpack(struct DLManagedTensor *tensor, loam_array **out);

struct ArrowSchema;
struct ArrowArray;

/* An array through Arrow's C data interface, into two structures of the caller's: its first
 * dimension is Arrow's array, further ones are lists, structs are structs; a struct of dimensions
 * of one length is a table. Numbers that follow one another are passed as they are. Where something
 * has to be written in another order (fields of structs, text and rows that stand apart, bools,
 * which are bits), `may_copy` 0 is LOAM_EUNSUPPORTED and 1 makes the copy. So are complex numbers
 * and NULL pointers in any case. Nothing may be written to the array while others read it. */
LOAM_API loam_status loam_array_to_arrow(const loam_array *array, int may_copy,
                                         struct ArrowSchema *schema, struct ArrowArray *out);

/* An array, read-only, over the memory of Arrow's: numbers are n * type, text n * string, lists
 * n * var * type or n * size * type, a table {name: pointer[n * type], ...}, options where values
 * are missing. Both structures are taken: the schema is released, the array when the last view is
 * gone. On failure they stay the caller's. `may_copy` is for bools and for numbers that are
 * missing. */
LOAM_API loam_status loam_array_from_arrow(struct ArrowSchema *schema, struct ArrowArray *array,
                                           int may_copy, loam_array **out);

/* ---- Figures ---------------------------------------------------------------------------------
 *
 * Live figures are exact: they are read off the memory itself. While other threads allocate, each
 * block is seen as it was at some moment of the call. Bytes are usable bytes. */

struct loam_stats {
  uint64_t generation;
  uint64_t live_bytes, live_blocks;
  uint64_t total_bytes, total_blocks; /* ever allocated */
  uint64_t reserved_bytes;            /* address space taken */
  uint64_t region_bytes;              /* of it, handed to pools */
  uint64_t metadata_bytes;            /* loam's own bookkeeping */
  uint64_t denied;                    /* requests answered NULL by loam.deny */
  uint64_t fallbacks;                 /* requests served by a later member of an or_else chain */
  uint64_t failed;                    /* requests answered NULL for want of memory */
  uint64_t bad_frees;                 /* double, foreign, interior */
  uint32_t threads, sites, strategies;
};

LOAM_API loam_status loam_stats(struct loam_stats *out);

enum { LOAM_BY_TAG = 1, LOAM_BY_STRATEGY = 2, LOAM_BY_GENERATION = 4 };

typedef struct loam_stats_row {
  const char *tag;      /* "" when not grouped by tag */
  const char *strategy; /* "" when not grouped by strategy */
  const char *kind;
  uint64_t generation; /* 0 when not grouped by generation */
  uint64_t live_bytes, live_blocks;
  uint64_t total_bytes, total_blocks; /* ever allocated; 0 when grouped by generation */
} loam_stats_row;

typedef void (*loam_row_fn)(void *ctx, const loam_stats_row *row);

/* A row per tag × strategy. The callback may allocate; the row lives for the call. */
LOAM_API loam_status loam_stats_each(loam_row_fn callback, void *ctx);

/* The same grouped by a sum of LOAM_BY_*. */
LOAM_API loam_status loam_stats_by(int keys, loam_row_fn callback, void *ctx);

/* ---- Shared memory ---------------------------------------------------------------------------
 *
 * A block that a policy's `loam.shared{}` made can be opened by other processes of the same user.
 * The owner makes a handle of it, plain bytes that go to the other in any way (a pipe, a file); who
 * opens it asks the owner's control socket, and has the block's pages, and no others, somewhere in
 * its own memory. Pointers in it mean nothing there.
 *
 *   loam_share share;                                (the owner)
 *   loam_share_get(frame, &share);
 *   write(fd, &share, sizeof share);
 *
 *   read(fd, &share, sizeof share);                  (the other)
 *   loam_block *b = loam_share_open(NULL, &share, LOAM_SHARE_READONLY);
 *   show(loam_block_data(b));
 *   loam_block_release(b);
 *
 * What is open stays as it is until it is released, also when the owner frees the block or ends:
 * the memory goes back after that. Handles of such a block are dead. A forked child has what its
 * parent has open; of blocks that the parent allocated in shared memory or in files it has a view
 * of its own: stores of the child are seen by the child alone, and those of the parent may or may
 * not be seen in pages that the child has not written to. */

typedef struct loam_share {
  int64_t pid;  /* of the owner */
  uint64_t key; /* tells the block from others that are in its place later */
  uint64_t offset, size;
} loam_share;

enum { LOAM_SHARE_READONLY = 1 };

/* The handle of the block that begins at `ptr`. While others may open the block it is not resized
 * where it is. LOAM_EINVAL for memory of other kinds, LOAM_EBADPTR if no block lives there,
 * LOAM_ESTATE without a control socket, and in a forked child for blocks of its parent. */
LOAM_API loam_status loam_share_get(const void *ptr, loam_share *out);

/* A block over another process's; `flags` is 0 or LOAM_SHARE_READONLY, where a store is a fault.
 * Its size is that of the owner's block, in whole pages. NULL, with words, if the handle is dead,
 * or the owner has gone or does not answer for 5 s. */
LOAM_API loam_block *loam_share_open(loam_site *site, const loam_share *share, int flags);

/* ---- Memory that lives -----------------------------------------------------------------------
 *
 * A policy decides for memory to come. These bring what lives already to where the live policy
 * would put it now, or demote it, at its address and while the program uses and frees it: pages are
 * moved between nodes, huge pages made or split, pages locked or let go; the block is then its new
 * strategy's, in every figure and limit, and its memory goes to that strategy's pool when it is
 * freed. A reallocation of a block that is being moved copies it.
 *
 * What is refused stays as it was, and is told with the reason: blocks of handlers and of the
 * system; shared memory and files; memory of devices, managed and pinned memory; guarded ones;
 * memory of exact huge pages; small objects whose page has others that want something else; pages
 * that a forked process has too, until it ends or writes to them; a new strategy that is at its
 * limit or asks for more alignment than the address has; what the kernel refuses. Of a request only
 * the usable size and the tag are remembered: a policy that tells apart what a block cannot tell
 * any more leaves it where it is. */

/* What has been done so far, in bytes of live blocks. */
typedef struct loam_progress {
  uint64_t bytes; /* to be looked at, about */
  uint64_t done;  /* looked at */
  uint64_t moved, right, refused;
  int running; /* 0: it has ended */
} loam_progress;

/* Called between the pieces, with no lock of loam held; other than 0 ends it: what is half moved is
 * brought back, what has been moved stays. */
typedef int (*loam_progress_fn)(void *ctx, const loam_progress *now);

/* A row of the report. The words are static, the tag lives as long as the process. */
typedef struct loam_placed {
  const char *tag;
  const char *what; /* "moved", "right" (where the policy wants it), "refused" */
  const char *why;  /* of what was refused; else "" */
  uint64_t bytes, blocks;
} loam_placed;

typedef void (*loam_placed_fn)(void *ctx, const loam_placed *row);

typedef struct loam_rebalance_options {
  size_t size;     /* sizeof(loam_rebalance_options) */
  const char *tag; /* only blocks of this tag and of those under it; NULL: all */
  uint64_t rate;   /* bytes a second at most; 0: 1 GiB; UINT64_MAX: as fast as it goes */
} loam_rebalance_options;

/* Brings every live block to the strategy that the live policy has for it, and pages that spilled
 * over (loam_got: elsewhere_bytes) back to the nodes their strategy asks for. Works in the calling
 * thread, about as long as the rate says; others go on. Then calls `placed` for each row of the
 * report. Options NULL: defaults; either callback may be NULL. LOAM_ESTATE if one is under way. A
 * reload with apply = "live" ends it ("it was stopped") and begins its own. Where the kernel has no
 * membarrier(2) all that would have to move is refused. */
LOAM_API loam_status loam_rebalance(const loam_rebalance_options *options,
                                    loam_progress_fn progress, loam_placed_fn placed, void *ctx);

/* To a slower node; marked as what goes first when memory is short (MADV_COLD); to swap, at once
 * (MADV_PAGEOUT). */
typedef enum loam_demote_to {
  LOAM_TO_NODE = 0,
  LOAM_TO_COLD = 1,
  LOAM_TO_PAGEOUT = 2
} loam_demote_to;

typedef struct loam_demote_options {
  size_t size;     /* sizeof(loam_demote_options) */
  const char *tag; /* of this tag and of those under it; not NULL */
  uint64_t rate;   /* as loam_rebalance_options */
  loam_demote_to to;
  int node;         /* LOAM_TO_NODE: which; -1: the nearest without CPUs */
  unsigned older_s; /* only blocks that have lived so long; 0: all */
} loam_demote_options;

/* Demotes the live blocks of a tag. What goes to a node becomes a strategy's of its own, named
 * "NAME@nodeN", whose free memory goes back to the system; loam_rebalance brings it back. `older_s`
 * is time since the block got its memory (a realloc in place keeps it), not since it was used: that
 * nobody knows. Of blocks above 64 KiB, to within 10 seconds and never more than the truth; small
 * objects have no age and are refused. Blocks are dated by the service thread; where none runs, age
 * counts from the first call. Otherwise as loam_rebalance. */
LOAM_API loam_status loam_demote(const loam_demote_options *options, loam_progress_fn progress,
                                 loam_placed_fn placed, void *ctx);

/* What a strategy asked for and what the kernel gave, of its live memory. What cannot be had at all
 * is known when it is asked for, and the next of an or_else chain serves; but a preferred node may
 * be full by the time that memory is touched, and pages small where huge ones were wanted. Bytes
 * are of whole pages. */
typedef struct loam_got {
  const char *strategy;     /* its name; lives as long as the process */
  uint64_t failed;          /* requests that it could not serve */
  uint64_t served_late;     /* requests that it served after others of their chain could not */
  uint64_t live_bytes;      /* pages of its live blocks */
  uint64_t checked_bytes;   /* of them, looked at now: all up to 64 MiB, else evenly spread */
  uint64_t untouched_bytes; /* of those, without memory so far */
  uint64_t elsewhere_bytes; /* and on nodes that were not asked for */
  uint64_t node_bytes[64];  /* and on each node */
  uint64_t
      huge_asked_bytes;   /* of live_bytes, whole pages of 2 MiB where huge = "thp" asks for them */
  uint64_t huge_bytes;    /* of them, on huge pages; as far as they have been touched */
  uint64_t unknown_bytes; /* looked at: where they are is not told (a container's filter) */
} loam_got;

typedef void (*loam_got_fn)(void *ctx, const loam_got *got);

/* The first request of a generation that a strategy cannot serve is told as LOAM_EVENT_SHORTFALL,
 * amid the request: its size and tag, and why. So is what loam_got_each first finds on nodes that
 * the strategy did not ask for, or on small pages for the most part where it asked for huge ones.
 *
 * A row for each strategy that asks for nodes or transparent huge pages, or that could not serve
 * all it was asked for. The kernel is asked page by page, now: some milliseconds a strategy, and
 * where there are huge pages as long as reading /proc/self/smaps takes. Nothing is counted while
 * memory is allocated. Where the kernel does not tell, checked_bytes is 0. The callback must not
 * call loam_got_each. */
LOAM_API loam_status loam_got_each(loam_got_fn callback, void *ctx);

/* ---- Other processes -------------------------------------------------------------------------
 *
 * What `loam ps`, `status`, `stats`, `reload` and `doctor` are made of. */

/* Asks the host `pid` over its socket: `status`, `stats`, or `reload [path]`. The answer is one
 * JSON object. LOAM_EIO if there is no such host or it does not answer in `timeout_ms`. */
LOAM_API loam_status loam_ask(int pid, const char *request, unsigned timeout_ms,
                              loam_write_fn write, void *ctx);

typedef void (*loam_pid_fn)(void *ctx, int pid);

/* Calls back for each host of this user; one that is busy may be long in answering. */
LOAM_API loam_status loam_hosts(loam_pid_fn callback, void *ctx);

/* What this machine offers, as one JSON object. */
LOAM_API loam_status loam_machine(loam_write_fn write, void *ctx);

#ifndef LOAM_CDEF

/* A site of the place where it is written, looked up once: LOAM_SITE("tensor.weights"). */
#define LOAM_SITE(name)                                                    \
  (__extension__({                                                         \
    static loam_site *loam_here_;                                          \
    loam_site *loam_now_ = __atomic_load_n(&loam_here_, __ATOMIC_ACQUIRE); \
    if (!loam_now_) {                                                      \
      loam_where loam_at_ = { (name), __FILE__, __func__, 0, __LINE__ };   \
      loam_now_ = loam_site_at(&loam_at_);                                 \
      __atomic_store_n(&loam_here_, loam_now_, __ATOMIC_RELEASE);          \
    }                                                                      \
    loam_now_;                                                             \
  }))

/* For loam_index. */
#define LOAM_OPEN INT64_MIN
#define LOAM_AT(i) ((loam_index){ (i), 0, 0 })
#define LOAM_RANGE(start, stop) ((loam_index){ (start), (stop), 1 })
#define LOAM_ALL LOAM_RANGE(LOAM_OPEN, LOAM_OPEN)

#ifdef __cplusplus
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
}
#endif
#endif
#endif
