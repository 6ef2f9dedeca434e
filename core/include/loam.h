/* loam.h - an embedded engine that decides, by policy, what memory each allocation gets.
 *
 * An operator writes a policy: a Lua file that says, for each call-site tag and size, what memory
 * an allocation gets (its alignment, NUMA node, huge pages, guard pages). loam compiles the policy
 * to decision tables. After that, C code alone decides, serves, counts and frees every allocation.
 * The operator can edit the policy while the program runs.
 *
 *   loam_start(&(loam_config){ .size = sizeof(loam_config), .policy = "prod.lua", .watch = 1 });
 *   loam_site *weights = loam_site_get("tensor.weights");
 *   float *w = loam_malloc(weights, 64 << 20);
 *   loam_free(w);
 *
 * Conventions of this header:
 *   - Sizes are bytes and times are nanoseconds, unless the name says otherwise.
 *   - A function that can fail returns a loam_status (0 is success, failures are negative) or a
 *     pointer (NULL is failure). After a failure, loam_error() says in words what went wrong.
 *     Out-parameters are written last, and only on success.
 *   - A pointer argument may be NULL only where its comment says so. A function that returns a
 *     loam_status fails when another argument is NULL, mostly with LOAM_EINVAL.
 *   - A callback or handler returns to loam: no exception, longjmp or error of Lua may leave it.
 *   - loam owns a `const char *` that it returns; the comment says how long the string lives. loam
 *     copies the strings and structs that it is given, unless the comment says otherwise.
 *   - A struct is plain data of its owner, without a lock, unless its comment says otherwise: loam
 *     reads it or fills it in during the call, and no other thread may write to it at that time.
 *   - "Block" alone means one live allocation. A loam_block owns memory and counts references.
 *
 * Versions are semantic. A program that was compiled with this header runs with every later library
 * of the same major number. So functions, their arguments, values of constants and the layout of
 * structs stay. Functions and constants may be added, and fields at the end of a struct whose first
 * field is `size`. The words of messages, the order of rows and loam's own use of memory may
 * change. core/CHANGELOG.md lists the changes.
 *
 * Threads. Any thread may call any function at any time, also before loam_start, unless its comment
 * says otherwise. Signal handlers may call none of them. Allocating and freeing are no cancellation
 * points. A thread with asynchronous cancellation can be cancelled in the middle of a call; then
 * the memory that it was allocating or freeing is lost.
 *
 * Fork. A thread may fork at any moment, and handlers of pthread_atfork may allocate and free. In a
 * program with one thread, a signal handler may fork too. Calls that allocate or free host memory
 * wait for a fork for 10 ms at most: then memory under no policy serves them, which loam_owner does
 * not know. Other calls wait for the end of the fork, and new tags are refused. A child of vfork,
 * _Fork or clone may use loam only if its parent has one thread. bindings/hosts.md has the limits.
 *
 * Descriptors. If the parent has a service thread, the child starts one when it has allocated or
 * freed 512 times, or with its first such call 100 ms after the fork. A process that closes
 * descriptors of loam, or takes their numbers, gets new ones then, or after one second.
 *
 * This file is the source of every foreign declaration: `cc -E -P -DLOAM_CDEF loam.h` gives text
 * that LuaJIT's ffi.cdef accepts. */
#ifndef LOAM_H
#define LOAM_H

#ifndef LOAM_CDEF
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#ifdef __GNUC__
#pragma GCC diagnostic push /* a struct and its function share a name, as in stat(2) */
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#endif
#ifdef __GNUC__
#define LOAM_API __attribute__((visibility("default"))) LOAM_DIRECT
#else
#define LOAM_API
#endif
/* Callers reach loam's functions through one pointer, without the extra jump of a PLT: some of the
 * functions take no longer than that jump. */
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

#define LOAM_VERSION_MAJOR 1
#define LOAM_VERSION_MINOR 1
#define LOAM_VERSION_PATCH 0

/* ---- Errors and events -----------------------------------------------------------------------
 *
 * A status is one of ten values for programs to compare. The words for people come from
 * loam_error(). loam prints nothing by itself (one exception: loam_block_leaks); it reports to the
 * callback that the host sets with loam_on_event. */

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

/* Returns what went wrong in the last failing call of this thread: one or more lines that name the
 * wrong value, or "" if no call has failed. The string lives until this thread calls loam again. */
LOAM_API const char *loam_error(void);

/* Returns the few words of a status, for a log line. The string is static. */
LOAM_API const char *loam_status_text(loam_status status);

/* The kinds of events. The message of an event gives the details. */
typedef enum loam_event_kind {
  LOAM_EVENT_POLICY_LIVE = 1,    /* a policy was swapped in; `generation` is the new one */
  LOAM_EVENT_POLICY_REFUSED = 2, /* a policy was refused; the live one stays */
  LOAM_EVENT_TAG_REFUSED = 3,    /* no memory for the plan of a new site: it gets default memory */
  LOAM_EVENT_BAD_FREE = 4,       /* a wrong free; `pointer` is the argument */
  LOAM_EVENT_WATCH = 5,          /* watching the policy file degraded or recovered */
  LOAM_EVENT_CONTROL = 6,        /* no control socket or no board: `loam` cannot find the process */
  LOAM_EVENT_FAULT = 7,          /* an access to loam's memory where no block lives: guard_report */
  LOAM_EVENT_LEAK = 8,           /* loam_blocks of a tag are left at exit: see loam_config.leaks */
  LOAM_EVENT_MANAGER = 9,        /* a manager was not taken, because LOAM_MANAGER names another */
  LOAM_EVENT_MOVED = 10,         /* the service thread has moved live memory; how much */
  LOAM_EVENT_SHORTFALL = 11,     /* a strategy did not get the memory it asks for: see loam_got */
  LOAM_EVENT_ENVIRONMENT = 12,   /* a LOAM_* variable has a value without meaning */
  LOAM_EVENT_UNSERVED = 13,      /* a limit or loam.deny refused memory: once in a generation */
  LOAM_EVENT_SOFT_LIMIT = 14,    /* the memory of a strategy has grown past its `soft` limit */
  LOAM_EVENT_LAST_WORDS = 15,    /* memory has run out; which tags and strategies have most of it */
  LOAM_EVENT_REPORT = 16         /* a line of the report at exit that LOAM_REPORT=stderr asks for */
} loam_event_kind;

/* One event. It lives for the duration of the callback, in the thread that called it. */
typedef struct loam_event {
  loam_event_kind kind;
  uint64_t generation;
  const void *pointer; /* NULL, except for BAD_FREE and FAULT */
  const char *message; /* lives for the duration of the callback */
  const void *caller;  /* BAD_FREE: the code that the call returns to, if known; otherwise NULL */
} loam_event;

typedef void (*loam_event_fn)(void *ctx, const loam_event *event);

/* Sets the callback for events: `callback(ctx, event)` is called for each event that a person may
 * want to know about, in the thread where it happened, while no lock of loam is held. A process has
 * one callback; NULL removes it. The callback may allocate. A FAULT event is the exception: its
 * callback runs in a signal handler and may call only the functions that signal-safety(7) lists. */
LOAM_API void loam_on_event(loam_event_fn callback, void *ctx);

/* ---- Start and stop --------------------------------------------------------------------------
 *
 * Starting is optional. If the host does not call loam_start, the first allocation or policy call
 * starts the engine with the defaults and these environment variables: LOAM_POLICY (a path),
 * LOAM_WATCH=1, LOAM_CONTROL=0, LOAM_LEAKS=1. A refused LOAM_POLICY is then an event, not a
 * failure. A value other than 0 and 1 is reported (LOAM_EVENT_ENVIRONMENT) and has no effect.
 *
 * A process with more rights than the user who started it (a set-user-ID or set-group-ID program,
 * or one with file capabilities) ignores every environment variable of loam. */

/* The host's own allocator, which serves strategies of `loam.system{}`. All six functions are
 * required. Any thread may call them, several at the same time. */
typedef struct loam_system {
  void *(*malloc)(size_t size);
  void *(*calloc)(size_t count, size_t size);
  void *(*realloc)(void *ptr, size_t size);
  void (*free)(void *ptr);
  void *(*aligned_alloc)(size_t alignment, size_t size);
  size_t (*usable_size)(void *ptr);
} loam_system;

/* How to start. Set every field that you do not use to zero: zero is the default.
 *
 * With `guard_report`, loam handles SIGSEGV from the moment when a policy first has a strategy with
 * `guard`. An access to loam's memory where no block lives (beyond a guarded block, or in a freed
 * one) is reported as LOAM_EVENT_FAULT; `message` says how far the address is from whose block.
 * After that, as for every fault, the previous SIGSEGV handler runs, or the process ends there. */
typedef struct loam_config {
  size_t size;               /* sizeof(loam_config), so that later versions can append fields */
  const char *policy;        /* the policy file to load; NULL: none, so the built-in default */
  int watch;                 /* 1: reload `policy` whenever the file changes */
  int control;               /* 1: `loam` can ask the process; -1: no; 0: LOAM_CONTROL, or 1 */
  int lenient;               /* 1: a policy refused at start is an event, not a failure */
  const char *control_dir;   /* for the socket; NULL: LOAM_CONTROL_DIR, or else
                              * $XDG_RUNTIME_DIR/loam, or else /tmp/loam-UID */
  unsigned max_leaves;       /* the most leaves of one plan; 0: 1000 */
  unsigned step_ms;          /* the most processor time of one load step; 0: 200 */
  size_t step_bytes;         /* the largest Lua heap of one load step; 0: 4 MiB */
  const loam_system *system; /* NULL: malloc, free and so on as linked */
  int guard_report;          /* 1: a fault in guarded memory is an event; see above */
  int leaks;                 /* 1: list live loam_blocks, and report at exit which are left;
                              * 0: LOAM_LEAKS decides */
  int guest;                 /* 1: no thread or socket; obeys policies published on LOAM_BOARD */
} loam_config;

/* Starts the engine; NULL means all defaults. Fails with LOAM_ESTATE if the engine runs already, as
 * in each program under `loam run`, and with LOAM_EINVAL if `config->size` is too small or
 * `config->system` lacks a function. When the policy fails to load and `lenient` is 0, it returns
 * the status of that load, such as LOAM_EPOLICY, and the engine is not started. */
LOAM_API loam_status loam_start(const loam_config *config);

/* Ends the watching of the policy file and the control socket. Live blocks stay valid and can be
 * freed; allocation continues under the live policy. loam_start may be called again. Does nothing
 * if the engine is not started. */
LOAM_API void loam_stop(void);

/* Returns the library's version as "major.minor.patch". The string is static. */
LOAM_API const char *loam_version(void);

/* ---- Policy ----------------------------------------------------------------------------------
 *
 * A load compiles the policy for every tag that can come, compares the result with the policy run
 * as plain Lua, checks the policy's invariants, runs its tests and checks it against this machine.
 * Only then it swaps the new policy in, for all threads in one step, as a new generation. If any
 * step fails, the live generation stays.
 *
 * A load runs in the calling thread, and takes up to 200 KiB of its stack. Other threads wait for
 * it in two cases only: loads run one after another, and a new tag waits while the swap is made. */

/* Loads the policy file at `path` and makes it live. The file holds the text of a policy, or an
 * image that `loam compile` has made of one. Fails with LOAM_EIO if the file cannot be read,
 * LOAM_EPOLICY if the policy is refused, LOAM_EBUDGET if a step exceeds its time, its Lua heap or a
 * size limit, and LOAM_ENOMEM. In a process of root it fails with LOAM_EIO also if another user can
 * change the file: loam_policy_watch has the rule. */
LOAM_API loam_status loam_policy_load(const char *path);

/* Loads a policy from `text`, of which it takes a copy, and makes it live; messages show `name` in
 * place of a file name (NULL: "text"). Fails like loam_policy_load, without errors of a file. */
LOAM_API loam_status loam_policy_load_text(const char *name, const char *text);

/* Loads the policy file at `path` and follows it: the file is loaded again after it is saved in
 * place, replaced by a rename, or its symbolic link is switched. The file is followed even if the
 * first load fails; that load's status is returned. NULL ends this. LOAM_ESTATE: loam_stop runs.
 *
 * A file is followed only if no user but root and the effective user of the process can change it.
 * So the file, its folder, and each symbolic link on the way with its folder must belong to one of
 * them, and neither the file nor a folder may be writable by group or others. Accepted are a folder
 * with the sticky bit, a folder on a read-only mount, and a group with the number of a user other
 * than root. A file that breaks this rule gives LOAM_EIO and LOAM_EVENT_POLICY_REFUSED, and the
 * words name the path to mend; the last good policy stays. */
LOAM_API loam_status loam_policy_watch(const char *path);

/* Receives text in pieces. `text` is not terminated; it lives for the duration of the call. */
typedef void (*loam_write_fn)(void *ctx, const char *text, size_t length);

/* Answers a question about a policy file without making it live: `loam check`, `explain`, `plan`
 * and `test` show the answers. `query` is lines of `key value`; line 1 is `verb check` (or
 * explain, plan, test). Others are tag (may be repeated), size, align, zero, node, live, pressure,
 * device, file, func, module, line, batch (a path), `nodefree N BYTES` and `devicefree N BYTES`. A
 * tag of two lines is `hex tag h610a62`. The answer is a JSON object, or for a batch one a line.
 *
 * Returns LOAM_OK if there is an answer, even one that says that the policy is refused;
 * LOAM_EINVAL for a wrong query, LOAM_EIO without a readable file, LOAM_EPOLICY for a bad image. */
LOAM_API loam_status loam_policy_inspect(const char *path, const char *query, loam_write_fn write,
                                         void *ctx);

/* The live policy, and the last attempt to change it. The function that fills it has its name. */
struct loam_policy_info {
  uint64_t generation;   /* of the live policy; 0 is the built-in default */
  uint64_t hash;         /* of the live policy's text */
  int64_t loaded_at;     /* Unix time in ns when the policy went live; 0 for generation 0 */
  uint64_t loads;        /* attempts so far */
  uint64_t refused;      /* attempts that failed */
  int64_t last_at;       /* Unix time in ns of the last attempt */
  loam_status last;      /* the result of the last attempt */
  uint64_t tags_refused; /* new sites for whose plan there was no memory; nearly always 0 */
  uint32_t plans;        /* distinct plans of the live generation */
  uint32_t sites;        /* known sites */
  int watching;          /* 1 while a file is followed */
  char name[64];         /* the live policy's name */
  char path[1024];       /* the live policy's file; "" if it was loaded from text */
  char last_error[4096]; /* the full error of the last attempt; "" if it succeeded */
};

/* Fills `out` with a consistent snapshot. Fails only if `out` is NULL (LOAM_EINVAL). */
LOAM_API loam_status loam_policy_info(struct loam_policy_info *out);

/* ---- Sites -----------------------------------------------------------------------------------
 *
 * A site says what an allocation is for: a tag and, if known, the place in the program. Sites are
 * interned and live as long as the process, so look a site up once and keep the pointer.
 *
 * Each thread has a stack of scopes. Where a function takes a site, NULL means the site of the
 * innermost scope, and outside any scope the tag "", unless a comment says otherwise. */

/* A site is immutable; any number of threads may use it. */
typedef struct loam_site loam_site;

/* The description of a site. */
typedef struct loam_where {
  const char *tag;  /* at most 255 bytes; NULL is "" */
  const char *file; /* file, func and module may be NULL */
  const char *func;
  const char *module;
  int line; /* 0: not known */
} loam_where;

/* Returns the site of a tag; equal tags have the same site. Returns NULL if the tag is longer than
 * 255 bytes or there is no memory for the site. */
LOAM_API loam_site *loam_site_get(const char *tag);

/* Returns the site of a tag at a place in the program; equal descriptions have the same site. NULL
 * as for loam_site_get, and if `where` is NULL. */
LOAM_API loam_site *loam_site_at(const loam_where *where);

/* Begins a scope of this thread: until the matching loam_scope_leave, the thread's calls with a
 * NULL site use `site`. Scopes nest up to 64 deep; deeper scopes keep the site of the 64th. */
LOAM_API void loam_scope_enter(loam_site *site);

/* Ends this thread's innermost scope. Does nothing outside any scope. */
LOAM_API void loam_scope_leave(void);

/* Returns the site of this thread's innermost scope, or NULL outside any scope. */
LOAM_API loam_site *loam_scope_get(void);

/* ---- Memory ----------------------------------------------------------------------------------
 *
 * These functions work like malloc and its family, under the live policy and the site of each call.
 * A block is aligned to 16 bytes or more. A block of size 0 is a unique pointer that can be freed.
 * Any thread may free a block that another thread has allocated.
 *
 * A function that cannot serve returns NULL, sets errno to ENOMEM (EINVAL for an alignment or flags
 * that are not valid) and leaves the reason in loam_error(). Success keeps errno unchanged. */

/* Returns a new block of `size` bytes, or NULL. */
LOAM_API void *loam_malloc(loam_site *site, size_t size);

/* The loam_code_* functions are for libraries that replace malloc. They identify a request by the
 * code that the call returns to. Each thread remembers the decision for the code and size class. */

/* Called when a thread has no decision for `code`. It finds the code's site and returns the result
 * of loam_code_learn or loam_code_learn_zeroed, or memory of another allocator. */
typedef void *(*loam_code_fn)(size_t size, const void *code);

/* Returns a new block of `size` bytes for a call that returns to `code`. Uses the decision that
 * this thread has learnt for `code` and the size class. Without one, or when that decision gives no
 * memory without further work, it returns what `miss(size, code)` returns. */
LOAM_API void *loam_code_malloc(size_t size, const void *code, loam_code_fn miss);

/* Allocates like loam_malloc(site, size), and makes this thread remember the decision for `code`.
 * If the thread is in a scope with a site, that site is used instead and nothing is remembered. */
LOAM_API void *loam_code_learn(size_t size, const void *code, loam_site *site);

/* Makes all threads forget every `code`. Call it after code was unloaded: addresses are reused. */
LOAM_API void loam_code_forget(void);

/* Like loam_code_malloc, but the memory is zeroed. Both functions share their decisions; `miss`
 * calls loam_code_learn_zeroed. */
LOAM_API void *loam_code_calloc(size_t size, const void *code, loam_code_fn miss);

/* Like loam_code_learn, but the memory is zeroed. */
LOAM_API void *loam_code_learn_zeroed(size_t size, const void *code, loam_site *site);

/* Returns a new zeroed block of count × size bytes, or NULL, also if the product overflows. */
LOAM_API void *loam_calloc(loam_site *site, size_t count, size_t size);

/* Returns a new block of `size` bytes at a multiple of `alignment`, or NULL. NULL also if
 * `alignment` is not a power of two. `size` need not be a multiple of `alignment`. */
LOAM_API void *loam_aligned_alloc(loam_site *site, size_t alignment, size_t size);

/* Gives the block at `ptr` a new size and returns its address, which may be a new one. The contents
 * are kept up to the smaller size; an alignment above 16 may be lost. The live policy decides for
 * the new size: the block moves if the policy now gives another strategy, if the block cannot grow
 * where it is, or if a block half as large would do. A NULL `site` means the block's own site. With
 * a NULL `ptr` the call is loam_malloc. Size 0 gives a block of size 0 and frees nothing.
 *
 * Returns NULL on failure, and the block stays unchanged. A block that is to shrink stays in its
 * place when there is no memory to move it; that is a success. A `ptr` that is not the start of a
 * live block is an event (BAD_FREE) and a failure. */
LOAM_API void *loam_realloc(loam_site *site, void *ptr, size_t size);

/* Frees the block at `ptr`; NULL does nothing. A `ptr` that is not the start of a live block is an
 * event (BAD_FREE), unless the function of loam_on_foreign frees it. loam changes nothing then: it
 * checks the pointer first. */
LOAM_API void loam_free(void *ptr);

/* Like loam_free, and checks `size`, which should be the requested size. If it cannot be that size,
 * the call is an event (BAD_FREE), and the block is freed nevertheless. loam does not store
 * requested sizes. In its own pools it accepts a size that is at most the block's capacity and,
 * when rounded up to the strategy's alignment (for large blocks, to pages), more than half of it.
 * In a block of at most 64 bytes, and in blocks of handlers and the system, it accepts any size up
 * to the capacity. It does so for all blocks after an allocation whose alignment was at least twice
 * its size, and after a block could not shrink because memory was short. */
LOAM_API void loam_free_sized(void *ptr, size_t size);

/* Like loam_free, for programs that may give a wrong size without knowing it, such as C++ programs
 * that delete an object through a pointer to its base. A wrong size is an event (BAD_FREE) only if
 * the block is guarded; it is then wrong if the request cannot have had it. */
LOAM_API void loam_free_claimed(void *ptr, size_t size);

/* Sets a function that loam_free calls for a pointer that is not loam's, also before the engine is
 * started; it is for a library that serves beside another allocator. `free_it(ptr)` returns 1 if it
 * freed the pointer; otherwise the free is an event (BAD_FREE). A process has one such function;
 * NULL removes it. Any thread may call it. */
LOAM_API void loam_on_foreign(int (*free_it)(void *ptr));

/* Returns the bytes that may be used at `ptr`: the requested size or more. Returns 0 if `ptr` is
 * not the start of a live block. */
LOAM_API size_t loam_usable_size(const void *ptr);

/* Like loam_usable_size, but faster, because it does not check that the block is live. `ptr` must
 * be a live block or not loam's (then it returns 0). The result for a freed block is undefined. */
LOAM_API size_t loam_live_size(const void *ptr);

/* Returns 1 if loam has to free `ptr`: it is in loam's address range, or in a block that a handler,
 * the system or a driver made for loam; else 0. Cheap; for libraries beside another allocator. */
LOAM_API int loam_owns(const void *ptr);

/* Returns 1 if the policy forbids huge pages for the block at `ptr` (`huge = false`), else 0. */
LOAM_API int loam_forbids_huge(const void *ptr);

/* Gives the system all memory of loam's pools that holds no live block now, including memory
 * that is kept for reuse and memory that threads cache. Pinned memory is not included (see
 * loam_device_trim). Returns the bytes given back, in multiples of 64 KiB, touched or not.
 * While the service thread runs, memory that has been unused for about a second goes back without
 * this call. Without that thread, most memory goes back while the program frees it. */
LOAM_API size_t loam_trim(void);

/* Tells loam that the limit on the process's address space has changed: a host that calls
 * setrlimit(RLIMIT_AS) after loam's first allocation calls this afterwards. If loam has reserved
 * more than the limit, it gives back unused addresses, so that the host itself can map memory.
 * Under `loam run`, setrlimit and prlimit do this. Any thread may call it. It reads /proc. */
LOAM_API void loam_limits_changed(void);

/* The owner of a block. */
typedef struct loam_owner_info {
  const char *tag; /* the strings from tag to kind live as long as the process; "": not known */
  const char *file;
  const char *func;
  const char *module;
  const char *strategy; /* the strategy's name */
  const char *kind;     /* the strategy's kind: "host", "system", "handler", ... */
  const char *handler;  /* what made the block: a handler's name, "system", "driver", or "loam" for
                         * loam's own pools; a handler's name lives as long as the handler */
  int line;
  uint64_t generation; /* of the policy that decided */
  void *base;          /* where the block starts */
  size_t size;         /* usable bytes of the block */
  int device;          /* the device that has, pins or manages the memory; -1: none */
  void *stream;        /* the allocation's stream; NULL: the default stream, or no device memory */
  unsigned handler_version; /* the version of the handler that made the block; 0: no handler did */
} loam_owner_info;

/* Finds the block that `ptr` points into, at its start or inside it, and fills in its owner. Fails
 * with LOAM_EBADPTR if no live block is there. */
LOAM_API loam_status loam_owner(const void *ptr, loam_owner_info *out);

typedef void (*loam_memory_fn)(void *ctx, void *from, void *to, size_t size);

/* A callback for blocks, and its argument. */
typedef struct loam_memory_hook {
  loam_memory_fn callback; /* NULL: none */
  void *ctx;
} loam_memory_hook;

/* Sets a callback for blocks and returns the previous one. `callback(ctx, from, to, size)` is
 * called after each block that the functions of this header and its handlers allocate (`from` is
 * NULL), resize (`size` is the new size; `from` and `to` may be equal) or free (`to` is NULL,
 * `size` is 0). A call that fails, or whose pointer starts no live block, is not reported.
 *
 * The callback runs in the thread that made the call, while no lock of loam is held; so after a
 * free, another thread may already have a new block at the address. The callback may call loam. The
 * blocks that it allocates and frees are not reported, and a hook that it sets is used from the
 * next call on.
 *
 * A process has one hook. NULL removes it; without a hook there is no cost. When this function
 * returns, the previous callback may still be running in other threads. */
LOAM_API loam_memory_hook loam_on_memory(loam_memory_fn callback, void *ctx);

/* ---- Device memory ---------------------------------------------------------------------------
 *
 * Memory of GPUs, and host memory for GPUs, under the same policy. The called function limits what
 * the policy may give, so that no edit of a policy can crash a host. loam_malloc and its family get
 * memory that the CPU can touch (loam.host, system, handler, pinned, managed). loam_device_alloc
 * gets memory that the device can use (loam.device, managed, pinned with `mapped`). Members of an
 * or_else chain that do not fit the call are skipped. If no member fits, a default strategy of
 * loam.device{} (or managed, or pinned) serves, and the request counts as a fallback. On a machine
 * without any device all these functions give host memory, so that programs still run.
 *
 *   loam_site *weights = loam_site_get("model.weights");
 *   void *w = loam_device_alloc(weights, 64 << 20, stream);
 *   ... kernels on `stream` ...
 *   loam_device_free(w, stream);
 *
 * Addresses of device memory are pointers that the CPU must not touch; they are aligned to 256
 * bytes. `stream` holds a CUstream; NULL is the default stream. The device is the strategy's `id`,
 * or else the device of the context that is current in the calling thread, or else device 0. If no
 * context is current, loam uses the device's primary context; loam never resets that context. A
 * process that forks after it has used a device cannot use it in the child: the child's requests
 * fail, and loam_error() says why.
 *
 * Streams. Memory that is freed on a stream can be allocated on that stream again immediately, and
 * elsewhere when the stream's work has ended; so the work of a stream has to be done before the
 * stream is destroyed. Pinned memory that is freed with loam_free can be allocated again
 * immediately, like all host memory. If a stream may still read it, free it with loam_device_free
 * instead. Pinned blocks of up to 32 KiB are objects of host memory pools, as cheap as those of
 * loam_malloc. Larger blocks, write-combined blocks, and all blocks of a manager with a
 * memhostalloc of its own are cut in the same way as device memory.
 *
 * Graphs. While a stream is captured for a graph, its memory can be allocated and freed as usual.
 * If the device has no more memory, the call fails and does not wait. A wait for the whole device
 * would end the capture, so loam does not wait while a blocking stream is captured. It cannot know
 * this of streams with CU_STREAM_NON_BLOCKING: do not trim, reset or use up the device then. A
 * graph uses its memory at each launch, unknown to loam; so keep that memory as long as the graph.
 *
 * loam_owner, loam_usable_size, loam_realloc and the figures know these blocks like all others. */

/* Returns a new block of device memory for work that is put on `stream` from now on, or NULL like
 * loam_malloc. The memory is not zeroed. */
LOAM_API void *loam_device_alloc(loam_site *site, size_t size, void *stream);

/* Frees a block on a stream: work that was put on `stream` before this call may still use the
 * memory. Work on other streams has to be finished, or `stream` has to wait for it. loam_free does
 * the same on the stream of the block's allocation; with pool = "driver" that stream has to exist.
 * Any thread may call this function, and no context need be current. It accepts all memory of loam;
 * NULL: nothing is done. A wrong pointer is an event (BAD_FREE), as for loam_free. */
LOAM_API void loam_device_free(void *ptr, void *stream);

/* Returns a new block of managed memory, which the CPU and devices can touch and which moves
 * between them; or NULL like loam_malloc. */
LOAM_API void *loam_managed_alloc(loam_site *site, size_t size);

/* How to pin memory. */
enum {
  LOAM_PINNED_MAPPED = 1,        /* devices can use the memory where it is */
  LOAM_PINNED_PORTABLE = 2,      /* for all contexts */
  LOAM_PINNED_WRITE_COMBINED = 4 /* fast for devices to read, slow for the CPU to read */
};

/* Returns a new block of pinned host memory, from and to which devices copy directly; or NULL like
 * loam_malloc. `flags` is a sum of LOAM_PINNED_*; the strategy may add to them. A reallocated block
 * stays pinned. A forked child keeps its parent's blocks as plain memory and gets no new ones. */
LOAM_API void *loam_pinned_alloc(loam_site *site, size_t size, unsigned flags);

/* Returns the number of devices of this machine. If no device can be used, returns 0, and
 * loam_error() says why. Like all functions here that need the driver, it starts the driver. */
LOAM_API int loam_device_count(void);

/* One device. */
struct loam_device_info {
  char name[128];
  size_t total;    /* bytes of the device */
  size_t reserved; /* bytes that loam has from the driver, in use or kept for reuse */
  size_t used;     /* bytes of `reserved` in live blocks */
  int node;        /* the device's NUMA node; -1: not known */
  int has_ranges;  /* 1: a pool grows in one address range, so no fragments lie between pieces */
  int has_pools;   /* 1: pool = "driver" can be served */
  int has_managed; /* 1: loam.managed{} can be served */
};

/* Fills in the properties of a device; devices are numbered from 0. Fails with LOAM_EINVAL if this
 * device does not exist, and with LOAM_EUNSUPPORTED if there are no devices. */
LOAM_API loam_status loam_device_info(int device, struct loam_device_info *out);

/* Reads how many bytes of the device are free and how many there are, for all processes: from the
 * driver, or from get_memory_info of the manager that loam uses, inside which it asks the driver.
 * Either pointer may be NULL. Fails like loam_device_info, and with the manager's status. */
LOAM_API loam_status loam_device_memory(int device, size_t *free, size_t *total);

/* Device memory can sleep: it is given up for a while, and taken back at the same addresses. The
 * policy has to give loam.device{ pool = "sleep" }: then each block has memory of its own, in
 * multiples of the driver's granularity, mostly 2 MiB. While a block sleeps, its address stays its
 * own, limits count it, and it can be freed, but not reallocated. Work that uses it is a mistake of
 * the host, and the driver ends the context.
 *
 * loam_sleep waits for the work of the device, saves the contents of the blocks whose tag is `tag`
 * or under it (NULL: of all tags), and gives their memory back to the driver. `where` is "pinned"
 * or NULL (pinned host memory), the path of a folder, from / on (a file there, without a name), or
 * "discard" (the contents are lost). loam_wake gives the blocks under a tag memory and their saved
 * contents again; discarded contents may be anything. Both set *bytes, if not NULL, to the bytes
 * given back or taken. No stream may be captured then. If they fail, all blocks are as before.
 * LOAM_ENOMEM: no memory, or no room on the disk. LOAM_ESTATE: a stream is captured, a context is
 * broken, or a forked child calls. LOAM_EINVAL: bad `where`. LOAM_EUNSUPPORTED: none can sleep. */
LOAM_API loam_status loam_sleep(const char *tag, const char *where, size_t *bytes);
LOAM_API loam_status loam_wake(const char *tag, size_t *bytes);

/* Returns the bytes of the blocks that are asleep under a tag; NULL: under all tags. */
LOAM_API size_t loam_asleep(const char *tag);

/* Gives the driver the device and pinned memory that loam keeps for reuse; -1 means all devices.
 * Waits for work that may use freed memory. Returns the bytes given back; 0 without the device. */
LOAM_API size_t loam_device_trim(int device);

/* Sets how many bytes each pool of a device keeps for reuse; SIZE_MAX keeps all. The initial value
 * is 0. Memory beyond that, unused for about half a second, goes back to the driver without a call;
 * if there is no service thread, while threads allocate or free. It goes back once loam knows that
 * the work which used it has ended, and no thread waits for that. loam learns it soon for a default
 * stream, and in the next call on the stream for a stream that the host created. */
LOAM_API void loam_device_keep(size_t bytes);

/* Ends all memory of a device: waits for its work, frees every block on it, ends pins and opened
 * handles, and returns memory to the driver. No thread may be using any of it. Call it before the
 * host resets the device; to end one context, call `reset` of loam_manager_get there. Fails like
 * loam_device_info. LOAM_ESTATE: it cannot wait (a stream is captured). LOAM_ENOMEM: no memory. */
LOAM_API loam_status loam_device_reset(int device);

/* ---- Handlers --------------------------------------------------------------------------------
 *
 * A handler carries out a strategy: it is four functions that allocate and free. The structs have
 * the layout of NumPy's NEP 49, byte for byte, so a PyDataMem_Handler can be passed in place of a
 * loam_handler. Two ways lead to a handler:
 *
 *   - The policy chooses a registered handler by its name, for any request of host memory.
 *   - The host sets a handler for a thread. It then makes the data of each block, arena and array
 *     that the thread makes, and the policy is not asked about these data. Code that sets a handler
 *     relies on its memory (its alignment, its registration with a device), so the handler goes
 *     before the policy, also before loam.deny and limits.
 *
 * A set handler serves nothing else: loam_malloc and its family, and the headers of blocks and
 * arrays, stay with the policy. NEP 49 replaces an array's data alone, and a handler itself is
 * written with functions such as loam_malloc.
 *
 * A block, arena or array keeps the handler that made its data, which reallocates and frees them,
 * in any thread. loam_owner, loam_on_memory and the figures know these data under the block's tag
 * and the strategy "handler:NAME", unless the host calls a function of its handler directly. */

/* The functions of a handler. Any thread may call them, several at the same time. Their memory is
 * aligned to 16, as malloc's is. While they run, pools of loam serve their calls of loam_malloc. */
typedef struct loam_allocator {
  void *ctx;
  void *(*malloc)(void *ctx, size_t size);
  void *(*calloc)(void *ctx, size_t count, size_t size);
  void *(*realloc)(void *ctx, void *ptr, size_t new_size);
  void (*free)(void *ctx, void *ptr, size_t size); /* `size` is a best guess */
} loam_allocator;

/* A handler. It must not change while loam or a block refers to it. */
typedef struct loam_handler {
  char name[127];  /* terminated, not empty */
  uint8_t version; /* 1; later versions only append fields and are read as version 1 */
  loam_allocator allocator;
} loam_handler;

/* Makes `handler` known to policies as loam.handler"name". loam keeps the pointer; the handler must
 * outlive every block that it makes. A new handler replaces an earlier one of the same name for
 * future allocations. Fails with LOAM_EINVAL if the name is empty or not terminated, if `version`
 * is 0 or if one of the four functions is missing; and with LOAM_ENOMEM. */
LOAM_API loam_status loam_handler_register(const loam_handler *handler);

/* Returns a handler that allocates for `site` under the live policy; a NULL site means the scope at
 * each allocation. Equal sites have the same handler. It lives as long as the process and any
 * thread may use it. Returns NULL if there is no memory. */
LOAM_API const loam_handler *loam_handler_of(loam_site *site);

/* Sets the calling thread's current handler and returns the previous one. It makes the data of the
 * thread's new blocks, arenas and arrays, as described above. A handler of loam_handler_of gives
 * these requests back to the policy, under the handler's site. NULL restores the default,
 * loam_handler_of(NULL). loam keeps the pointer. A handler that loam_handler_register would refuse
 * is refused here too: then NULL is returned, and the current handler stays.
 *
 * All coroutines of a thread share its current handler, because loam cannot see a switch of
 * coroutines. So the code that stops a coroutine saves the handler (loam_handler_get), and sets it
 * when it resumes that coroutine. */
LOAM_API const loam_handler *loam_handler_set(const loam_handler *handler);

/* Returns the calling thread's current handler; loam_handler_of(NULL) if none was set. */
LOAM_API const loam_handler *loam_handler_get(void);

/* ---- Managers --------------------------------------------------------------------------------
 *
 * A manager provides device memory and pinned memory. It is NBEP 7, Numba's interface of external
 * memory managers, as a table of C functions. It is used in two directions:
 *
 *   - Below loam: a manager given to loam_manager_set, or exported by the library that LOAM_MANAGER
 *     names, provides the memory that loam's pools cut up. It need only have the entries that it
 *     does better: for an entry that is NULL, loam's own entry asks the driver.
 *   - Above loam: loam_manager_get returns a manager through which a host that knows NBEP 7 gets
 *     its memory from loam, under the live policy and from loam's pools.
 *
 * The names are NBEP 7's. Where Python has a finalizer, this table has a second function; a context
 * manager is two functions. `device` counts from 0. The CPU must not touch device memory. */

/* Memory of another process, as plain bytes that can be sent to it. */
typedef struct loam_ipc {
  unsigned char handle[64]; /* of the allocation that contains the memory: the driver's or loam's */
  uint64_t offset;          /* from the start of that allocation to the memory */
  uint64_t size;            /* bytes of the memory */
  int32_t device;           /* the device's number in the process that shares the memory */
  int32_t pid;              /* the process that shares the memory */
  unsigned char uuid[16];   /* of the device, for every process; zeros: not known */
} loam_ipc;

/* A table of functions. Any thread may call them, several at the same time. They return LOAM_OK,
 * LOAM_ENOMEM if there is no memory, or another fitting status. Entries that end something may be
 * called when no context is current, and after a reset. A manager below loam must not allocate,
 * free, pin, trim or sleep memory for devices by loam: its caller holds the locks of that. */
typedef struct loam_manager {
  size_t size;           /* sizeof(loam_manager), so that later versions can append fields */
  int interface_version; /* 1 */
  const char *name;      /* for messages */
  void *ctx;             /* the first argument of each function */

  /* Prepares for a device. Called before any other entry for the device, any number of times, and
   * again after a reset. */
  loam_status (*initialize)(void *ctx, int device);
  /* Allocates device memory, aligned to 256 bytes. */
  loam_status (*memalloc)(void *ctx, int device, size_t size, void **out);
  /* Frees device memory. Waits for work that may still use it, as cuMemFree does. */
  void (*memfree)(void *ctx, int device, void *ptr, size_t size);
  /* Allocates pinned host memory; `flags` is a sum of LOAM_PINNED_*. */
  loam_status (*memhostalloc)(void *ctx, int device, size_t size, unsigned flags, void **out);
  void (*memhostfree)(void *ctx, int device, void *ptr, size_t size);
  /* Pins existing memory, in whole pages, until memunpin. Unpinning is never deferred. */
  loam_status (*mempin)(void *ctx, int device, void *ptr, size_t size, unsigned flags);
  void (*memunpin)(void *ctx, int device, void *ptr, size_t size);
  /* Bytes of the device, free and in total; neither pointer is NULL. Where a policy reads
   * loam.device(n).free, a thread of loam calls this every 80 ms. */
  loam_status (*get_memory_info)(void *ctx, int device, size_t *free, size_t *total);
  /* A handle for another process. `ptr` may point into memory of memalloc. */
  loam_status (*get_ipc_handle)(void *ctx, int device, void *ptr, loam_ipc *out);
  /* Opens a handle of another process. */
  loam_status (*open_ipc_handle)(void *ctx, int device, const loam_ipc *handle, void **out);
  void (*close_ipc_handle)(void *ctx, int device, void *ptr);
  /* Ends the memory of the device's current context, deferred frees included; in loam's own entry,
   * small pinned blocks are of the primary context. May be called before initialize. */
  loam_status (*reset)(void *ctx, int device);
  /* From defer_enter to defer_leave, which nest, frees are deferred: no free waits for a device. */
  void (*defer_enter)(void *ctx);
  void (*defer_leave)(void *ctx);

  /* Beyond NBEP 7: memory in the order of a stream (a CUstream; NULL is the default stream). */
  loam_status (*memalloc_async)(void *ctx, int device, size_t size, void *stream, void **out);
  void (*memfree_async)(void *ctx, int device, void *ptr, size_t size, void *stream);
  /* Beyond NBEP 7: memory that moves between the CPU and devices. */
  loam_status (*memalloc_managed)(void *ctx, int device, size_t size, void **out);
  void (*memfree_managed)(void *ctx, int device, void *ptr, size_t size);
} loam_manager;

/* Makes `manager` provide device memory and pinned memory; NULL means the driver. loam keeps the
 * pointer, so the manager must live as long as the process. Call it before the first use: after the
 * first request for device memory it fails with LOAM_ESTATE. It fails with LOAM_EUNSUPPORTED if
 * interface_version is not 1. It fails with LOAM_EINVAL if only one of two entries that belong
 * together is set, and for the manager of loam_manager_get. If LOAM_MANAGER names a library, that
 * manager stays: the call is an event (LOAM_EVENT_MANAGER), does nothing and returns LOAM_OK. */
LOAM_API loam_status loam_manager_set(const loam_manager *manager);

/* The function that a library named by LOAM_MANAGER has to export as `loam_manager_plugin`. It
 * returns a manager that lives as long as the process, or NULL on failure. `driver` is the driver
 * as a manager, to be extended. It is called once, in the thread that needs the manager first. */
typedef const loam_manager *(*loam_manager_plugin_fn)(const loam_manager *driver);

/* Returns loam itself as a manager; all its entries are set, and the table is static. Its memory is
 * allocated for the site of the thread's scope under the live policy. Memory that is freed without
 * a stream may still be in use by any stream; so loam collects it, up to the limits of
 * loam_defer_limit, and gives it back to the pools together, after one wait for the device. Its
 * memfree and similar entries ignore memory that a reset has ended. */
LOAM_API const loam_manager *loam_manager_get(void);

/* Sets how many frees are collected. When the driver frees device memory, it waits for all work; so
 * loam collects the memory that it gives back, until there are more than `count` pieces of a
 * device, or until they are more than `ratio` of the device's memory, or until memory is needed. A
 * value of -1 keeps the current limit. The initial limits are 10 and 0.2. */
LOAM_API void loam_defer_limit(int count, double ratio);

/* Begins a section in which loam frees no allocation of a driver, even if memory is short. Mapped
 * and pinned memory may still go back. Such sections concern the whole process, and they nest. */
LOAM_API void loam_defer_enter(void);

/* Ends the innermost such section of the process. Fails with LOAM_ESTATE outside any. */
LOAM_API loam_status loam_defer_leave(void);

/* Pins existing memory, whoever made it, so that devices copy from and to it directly. `flags` is a
 * sum of LOAM_PINNED_MAPPED and LOAM_PINNED_PORTABLE. The same range may be pinned several times;
 * each needs its own loam_unpin. Unpin memory before you free it. Fails with LOAM_EINVAL if the
 * range is empty, if it is pinned with another size or with fewer flags, or, with the driver's
 * words, if a part of it is pinned otherwise; with LOAM_EUNSUPPORTED without a device; with
 * LOAM_ESTATE in a forked child that cannot use the device. */
LOAM_API loam_status loam_pin(void *ptr, size_t size, unsigned flags);

/* Ends one loam_pin of the range that begins at `ptr`. Fails with LOAM_EBADPTR if loam_pin has
 * pinned no range that begins there. */
LOAM_API loam_status loam_unpin(void *ptr);

/* Fills in the handle by which another process can use device memory of loam. `ptr` may point into
 * a block. Keep the memory alive until the other process has closed it. The other process also sees
 * any other memory in the pages that the block shares.
 *
 * Memory that the driver allocated as one piece (pool = "chunks" and "none", and everything from
 * NBEP 7's memalloc unless the policy says "cache") has a handle of the driver, which other
 * libraries can open too. Memory that is mapped to a range of addresses has a handle of loam:
 * loam_ipc_open requests the memory from this process over its control socket.
 *
 * Fails with LOAM_EBADPTR if `ptr` is in no live block, LOAM_EINVAL for host memory, LOAM_ESTATE if
 * the control socket is needed and does not exist, and LOAM_EUNSUPPORTED if the driver cannot share
 * this kind of memory. */
LOAM_API loam_status loam_ipc_get(const void *ptr, loam_ipc *out);

/* Returns 1 if a handle is the driver's, or of the manager in its place: other libraries can open
 * it, and the memory is at `offset` from there. Returns 0 for a handle of loam, which only
 * loam_ipc_open can open, and for NULL. */
LOAM_API int loam_ipc_is_plain(const loam_ipc *handle);

/* Returns the number that the device of a handle's memory has in this process. It is found by its
 * UUID, because CUDA_VISIBLE_DEVICES gives a device other numbers in other processes; without a
 * UUID it is handle->device. -1: this process does not have the device, or `handle` is NULL. */
LOAM_API int loam_ipc_device(const loam_ipc *handle);

/* Opens memory of another process on a device of this process; `*out` becomes its address here.
 * Opening the same memory again gives the same address. `device` is the memory's own device
 * (loam_ipc_device) or one that can access it: otherwise it fails with the driver's words, and
 * loam_ipc_open_staged can make a copy. For handles of loam it fails with LOAM_EBADPTR if the block
 * is gone, LOAM_EINVAL beyond it, LOAM_EIO if its owner has ended or does not answer for 5 s. */
LOAM_API loam_status loam_ipc_open(const loam_ipc *handle, int device, void **out);

/* Copies memory of another process to a new block on a device of this process, through its own
 * device, and waits for the copy. The block is like memory of loam_manager_get's memalloc: free it
 * with loam_device_free. Fails like loam_ipc_open and that memalloc, and with LOAM_EUNSUPPORTED if
 * this process does not have the memory's own device. */
LOAM_API loam_status loam_ipc_open_staged(const loam_ipc *handle, int device, void **out);

/* Closes memory that loam_ipc_open opened, once for each open. LOAM_EBADPTR: `ptr` is in none. */
LOAM_API loam_status loam_ipc_close(void *ptr);

/* ---- Blocks ----------------------------------------------------------------------------------
 *
 * A loam_block is memory with counted owners. Each function that returns a new loam_block * gives
 * the caller one reference, which is to be released once. The owner of a reference may make more
 * and pass them to any thread. The block ends when its last reference is released, in the thread
 * that releases it. Sites have the same meaning as for memory.
 *
 *   loam_block *b = loam_block_new(LOAM_SITE("frame.pixels"), 1920 * 1080 * 4);
 *   loam_block *row = loam_block_slice(b, 7 * 1920 * 4, 1920 * 4);
 *   loam_block_release(b);      (the row keeps it alive)
 *   loam_block_release(row);
 *
 * The header of a block takes 64 bytes. Data of at most 1 KiB follow the header in one allocation
 * under the block's site; they are aligned as the strategy says, to 64 bytes at most. Every other
 * header is allocated under the tag "loam.block", not the data's tag. */

/* Counting references is atomic, so any thread may retain and release; owners guard the data. */
typedef struct loam_block loam_block;

typedef enum loam_block_kind {
  LOAM_BLOCK_EMBEDDED = 1, /* header and data are one allocation */
  LOAM_BLOCK_OWNED = 2,    /* the data are apart; loam has allocated and will free them */
  LOAM_BLOCK_EXTERNAL = 3, /* memory that loam did not make, with a destructor */
  LOAM_BLOCK_SLICE = 4,    /* a part of another block, which it keeps alive */
  LOAM_BLOCK_POOLED = 5    /* many small pieces that are freed together: see Arenas */
} loam_block_kind;

/* Ends wrapped memory. The destructor may call loam, but must not use the block that ends. */
typedef void (*loam_block_dtor)(void *ptr, size_t size, void *ctx);

/* Returns a new block of `size` bytes, or NULL like loam_malloc. */
LOAM_API loam_block *loam_block_new(loam_site *site, size_t size);

/* Returns a new block of `size` zero bytes, or NULL like loam_malloc. */
LOAM_API loam_block *loam_block_zeroed(loam_site *site, size_t size);

/* Returns a new block of `size` bytes whose data begin at a multiple of `alignment`, a power of
 * two; or NULL like loam_aligned_alloc. */
LOAM_API loam_block *loam_block_aligned(loam_site *site, size_t alignment, size_t size);

/* Returns a new block over memory that loam did not make. `dtor(ptr, size, ctx)` is called once,
 * when the last reference is released; a NULL `dtor`: nothing is called. `ptr` may be NULL. loam
 * does not look at the protection of the memory: loam_array_readonly makes an array read-only. NULL
 * without memory for the header; then `dtor` is never called, and the memory is the caller's. */
LOAM_API loam_block *loam_block_wrap(loam_site *site, void *ptr, size_t size, loam_block_dtor dtor,
                                     void *ctx);

/* Returns a new block over `size` bytes of `parent`, beginning at `offset`; nothing is copied. It
 * holds a reference to the block that has the memory (for a slice of a slice, to the original
 * block). Returns NULL if the range does not fit, if `parent` is NULL or an arena, which has pieces
 * and no data, or without memory. */
LOAM_API loam_block *loam_block_slice(loam_block *parent, size_t offset, size_t size);

/* Adds one reference and returns `block`. NULL does nothing. */
LOAM_API loam_block *loam_block_retain(loam_block *block);

/* Releases one reference; releasing the last one ends the block. NULL does nothing. One release too
 * many is an event (BAD_FREE), until the memory of the header is allocated again. */
LOAM_API void loam_block_release(loam_block *block);

/* Returns the address of the data; it is valid as long as the block. NULL for NULL and for a pooled
 * block: the pieces of an arena have addresses of their own. */
LOAM_API void *loam_block_data(const loam_block *block);

/* Returns the bytes of the data, as requested; of a pooled block, of all pieces. 0 for NULL. */
LOAM_API size_t loam_block_size(const loam_block *block);

/* Returns the number of references at this moment, 0 for NULL. Other threads can change it at any
 * time; only the answer 1, to the thread that has this one reference, can be relied on. */
LOAM_API size_t loam_block_refcount(const loam_block *block);

/* Returns the kind of a block, or 0 for NULL. */
LOAM_API loam_block_kind loam_block_kind_of(const loam_block *block);

/* Returns the tag of the block's site, or "" for NULL. The string lives as long as the process. */
LOAM_API const char *loam_block_tag(const loam_block *block);

/* ---- Arenas ----------------------------------------------------------------------------------
 *
 * An arena is a pooled block: many small pieces that are allocated in chunks under the block's site
 * and freed together when the block ends. There are two kinds:
 *
 *   - In a plain arena, pieces stand one after another, and only the last piece can be resized. It
 *     suits data that is written once, from front to back.
 *   - In a resizable arena, every piece can be resized as often as needed. It suits strings and
 *     ragged arrays. A piece takes 8 bytes more than its size, rounded up to a power of two and to
 *     at least 16. A piece that moves leaves its place to other pieces. So the arena stops growing
 *     however often pieces are resized: for each power of two it holds the most that its pieces of
 *     that size ever took together. A piece that takes more than 4 KiB, or whose alignment is above
 *     16, has a chunk of its own, which is freed when the piece moves.
 *
 * References to an arena may be counted in any thread. All other functions of this family are for
 * one thread at a time. */

enum { LOAM_ARENA_ZEROED = 1, LOAM_ARENA_RESIZABLE = 2 };

/* Returns a new arena, or NULL. `flags` is a sum of LOAM_ARENA_*. The first chunk is allocated with
 * the first piece. It has room for `first` bytes, or, if `first` is at most 4 KiB, takes 4 KiB in
 * total. Each later chunk is twice as large as the one before, up to 1 MiB. */
LOAM_API loam_block *loam_arena_new(loam_site *site, int flags, size_t first);

/* Returns a new piece of `size` bytes at a multiple of `alignment`, a power of two. The piece lives
 * until the arena ends or is reset. A piece of size 0 has an address of its own. Returns NULL
 * without memory, for an alignment that is not valid, and after loam_arena_finalize. */
LOAM_API void *loam_arena_alloc(loam_block *arena, size_t alignment, size_t size);

/* Resizes a piece and returns its address, which may be a new one. Alignment and contents are kept;
 * in a zeroed arena the new bytes are zero. A NULL `piece` means a new piece, aligned to 16 bytes.
 * Returns NULL, and the piece stays unchanged, in these cases: there is no memory; the arena is
 * plain and the piece is not its last; the arena is finalized. */
LOAM_API void *loam_arena_resize(loam_block *arena, void *piece, size_t size);

/* Frees all pieces together, so that the arena can be used again. Keeps one chunk for that if the
 * arena is not finalized. LOAM_ESTATE: it has several references; other owners may use pieces. */
LOAM_API loam_status loam_arena_reset(loam_block *arena);

/* Ends allocating and resizing in an arena, until a reset. A plain arena gives an empty chunk back.
 * Pieces stay where they are, so the unused ends of other chunks stay too. */
LOAM_API loam_status loam_arena_finalize(loam_block *arena);

/* ---- Blocks: figures and debugging ----------------------------------------------------------- */

/* How many blocks were ever made and ended; the index is a loam_block_kind. Memory for data is
 * allocated, and freed, for each embedded and each owned block. The struct and the function that
 * fills it share a name, as in stat(2). */
struct loam_block_stats {
  uint64_t made[6], ended[6];
};

/* Fills in the counts of all threads. Fails only if `out` is NULL (LOAM_EINVAL). */
LOAM_API loam_status loam_block_stats(struct loam_block_stats *out);

typedef enum loam_block_verb {
  LOAM_BLOCK_MADE = 1,
  LOAM_BLOCK_RETAINED = 2,
  LOAM_BLOCK_RELEASED = 3, /* reported before the release, while the block is whole */
  LOAM_BLOCK_ENDED = 4     /* reported before the block's memory is freed */
} loam_block_verb;

typedef void (*loam_block_fn)(void *ctx, loam_block_verb verb, const loam_block *block,
                              size_t references);

/* A callback for loam_blocks, and its argument. */
typedef struct loam_block_hook {
  loam_block_fn callback; /* NULL: none */
  void *ctx;
} loam_block_hook;

/* Sets a callback for loam_blocks and returns the previous one. `callback(ctx, verb, block,
 * references)` is called for each block that is made, retained, released or ended, in the thread
 * that does it, while no lock of loam is held. `references` is the count after that; other threads
 * may be changing it. The callback's own operations on blocks are not reported. A process has one
 * hook; NULL removes it. It is for debugging: with a hook, each operation on a block is slower. */
LOAM_API loam_block_hook loam_on_block(loam_block_fn callback, void *ctx);

typedef void (*loam_leak_fn)(void *ctx, const char *tag, uint64_t blocks, uint64_t bytes);

/* Calls `callback` for each tag that has live loam_blocks, with their number and the bytes of their
 * data (a slice has no bytes of its own). It counts blocks that were made after loam saw `leaks` of
 * loam_config or LOAM_LEAKS=1; without either it fails with LOAM_ESTATE. With either, each tag that
 * has live blocks when the process exits is an event (LEAK); if there is no callback for events, it
 * is a line on standard error. With either, small blocks take up to 15 times as long, and other
 * small memory up to five times. */
LOAM_API loam_status loam_block_leaks(loam_leak_fn callback, void *ctx);

/* ---- Numba's runtime -------------------------------------------------------------------------
 *
 * Blocks by the names of Numba's runtime, NRT (numba/core/runtime/nrt_external.h). The table has
 * six functions in the layout of NRT_api_functions, so that code which is written for one works
 * with the other. An NRT MemInfo is a loam_block here. The site of each call is the scope's. */

/* An allocator in the layout of NRT_ExternalAllocator. It must outlive the memory that it
 * allocates, and any thread may call it. `realloc` is never called and may be NULL. */
typedef struct loam_nrt_allocator {
  void *(*malloc)(size_t size, void *opaque_data);
  void *(*realloc)(void *ptr, size_t new_size, void *opaque_data);
  void (*free)(void *ptr, void *opaque_data);
  void *opaque_data;
} loam_nrt_allocator;

/* The table. Any thread may call its functions, several at the same time. */
typedef struct loam_nrt {
  /* loam_block_new. */
  loam_block *(*allocate)(size_t size);
  /* Returns a new block over memory from `allocator`: calls its malloc once now, and its free once
   * when the block ends. NULL means `allocate`. Returns NULL if malloc does, also for size 0. */
  loam_block *(*allocate_external)(size_t size, const loam_nrt_allocator *allocator);
  /* Returns a new block of size 0 over memory that loam did not make. `dtor(data)` is called when
   * the block ends; a NULL `dtor` means that nothing is called. */
  loam_block *(*manage_memory)(void *data, void (*dtor)(void *data));
  void (*acquire)(loam_block *block);   /* loam_block_retain */
  void (*release)(loam_block *block);   /* loam_block_release */
  void *(*get_data)(loam_block *block); /* loam_block_data */
} loam_nrt;

/* Returns the table, which is static. */
LOAM_API const loam_nrt *loam_nrt_api(void);

/* ---- Types -----------------------------------------------------------------------------------
 *
 * The type of an array's elements, written as a datashape:
 *
 *   3 * var * {x: float64, y: ?int32}
 *
 * A number and a star are a dimension of that many elements. `var *` is a dimension whose length
 * stands in the data, so that each row has a length of its own. `fixed *` is a dimension of any
 * size: such a type is a pattern (loam_type_sized), and no array has it. `{name: type, ...}` is a
 * struct, and the tuple `(type, ...)` is a struct with the field names 0, 1 and so on;
 * `string[10]` is text of at most 10 bytes that stands in its place, padded with zeros;
 * `pointer[type]` is a value that stands elsewhere; `?type` is an option, a value that may be
 * missing. A name that is not an identifier stands in quotes. The list below has the scalars;
 * `int`, `real` and `complex` are int32, float64 and complex128, `intptr` and `uintptr` int64 and
 * uint64. A date is an int32, the days since 1970-01-01; a time is an int64, the microseconds since
 * midnight; a datetime is an int64, the microseconds since 1970-01-01 without a time zone, and a
 * timedelta those between two datetimes; both have other units ('s', 'ms', 'ns'). `decimal[10, 2]`
 * is an integer of 128 bits, in hundredths, of at most 10 digits. `categorical[['low', 'high']]`
 * is a uint8, the number of a name (a uint16 from 257 names on). `#` begins a comment.
 *
 * The data mark a missing value: an integer (a decimal, date or time too) by the smallest value of
 * its bytes, an unsigned one or a categorical by the largest, a bool by 2, a float by one NaN
 * (payload 1954, as in R), a string or bytes by a NULL `begin`; any other by a byte behind it. */

#define LOAM_TYPE_LIST(X)                            \
  X(LOAM_TYPE_BOOL, "bool", 1, 1)                    \
  X(LOAM_TYPE_INT8, "int8", 1, 1)                    \
  X(LOAM_TYPE_INT16, "int16", 2, 2)                  \
  X(LOAM_TYPE_INT32, "int32", 4, 4)                  \
  X(LOAM_TYPE_INT64, "int64", 8, 8)                  \
  X(LOAM_TYPE_UINT8, "uint8", 1, 1)                  \
  X(LOAM_TYPE_UINT16, "uint16", 2, 2)                \
  X(LOAM_TYPE_UINT32, "uint32", 4, 4)                \
  X(LOAM_TYPE_UINT64, "uint64", 8, 8)                \
  X(LOAM_TYPE_FLOAT16, "float16", 2, 2)              \
  X(LOAM_TYPE_FLOAT32, "float32", 4, 4)              \
  X(LOAM_TYPE_FLOAT64, "float64", 8, 8)              \
  X(LOAM_TYPE_COMPLEX64, "complex64", 8, 4)          \
  X(LOAM_TYPE_COMPLEX128, "complex128", 16, 8)       \
  X(LOAM_TYPE_DATE, "date", 4, 4)                    \
  X(LOAM_TYPE_TIME, "time", 8, 8)                    \
  X(LOAM_TYPE_DATETIME, "datetime", 8, 8)            \
  X(LOAM_TYPE_DATETIME_S, "datetime['s']", 8, 8)     \
  X(LOAM_TYPE_DATETIME_MS, "datetime['ms']", 8, 8)   \
  X(LOAM_TYPE_DATETIME_NS, "datetime['ns']", 8, 8)   \
  X(LOAM_TYPE_TIMEDELTA, "timedelta", 8, 8)          \
  X(LOAM_TYPE_TIMEDELTA_S, "timedelta['s']", 8, 8)   \
  X(LOAM_TYPE_TIMEDELTA_MS, "timedelta['ms']", 8, 8) \
  X(LOAM_TYPE_TIMEDELTA_NS, "timedelta['ns']", 8, 8) \
  X(LOAM_TYPE_STRING, "string", 16, 8)               \
  X(LOAM_TYPE_BYTES, "bytes", 16, 8)

typedef enum loam_type_kind {
#define LOAM_TYPE_ENUM(kind, name, size, align) kind,
  LOAM_TYPE_LIST(LOAM_TYPE_ENUM)
#undef LOAM_TYPE_ENUM
      LOAM_TYPE_OPTION, /* the kinds from here on have parts */
  LOAM_TYPE_POINTER,
  LOAM_TYPE_FIXED,
  LOAM_TYPE_VAR,
  LOAM_TYPE_STRUCT,
  LOAM_TYPE_FIXED_STRING, /* string[count] */
  LOAM_TYPE_DECIMAL,      /* decimal[count, scale] */
  LOAM_TYPE_CATEGORICAL
} loam_type_kind;

/* A type is immutable and counted by reference; any number of threads may use one. */
typedef struct loam_type loam_type;

/* Parses a datashape; `*out` is a type with one reference for the caller. Fails with LOAM_EINVAL if
 * `text` is no datashape (the words name column and expected token), and LOAM_ENOMEM. */
LOAM_API loam_status loam_type_parse(const char *text, loam_type **out);

/* Adds one reference and returns `type`. NULL does nothing. */
LOAM_API loam_type *loam_type_retain(const loam_type *type);

/* Releases one reference; releasing the last one ends the type. NULL does nothing. */
LOAM_API void loam_type_release(loam_type *type);

/* Returns the type's datashape, equal for equal types, while the type lives. "" for NULL. */
LOAM_API const char *loam_type_text(const loam_type *type);

/* Returns 1 if both types have the same datashape, otherwise 0. */
LOAM_API int loam_type_equal(const loam_type *a, const loam_type *b);

/* The number of elements of a dimension of any size, `fixed *`. */
#define LOAM_ANY SIZE_MAX

/* Makes a type from one with dimensions of any size (`fixed * fixed * float64`): they get the
 * `count` sizes at `shape`, the outermost first. `*out` has one reference for the caller. Fails
 * with LOAM_EINVAL if `count` differs, or such a dimension is in a struct; with LOAM_ENOMEM. */
LOAM_API loam_status loam_type_sized(const loam_type *type, size_t count, const size_t *shape,
                                     loam_type **out);

/* The properties of a type. */
struct loam_type_info {
  loam_type_kind kind;
  size_t size, align;       /* of one value, laid out as C does; a var dimension takes 16 bytes */
  size_t count;             /* elements of a fixed dimension (LOAM_ANY: `fixed *`), struct fields,
                             * bytes of a fixed string, digits of a decimal, categories, or 0 */
  const loam_type *element; /* of a dimension, pointer or option; else NULL. Lives like the type */
  size_t scale;             /* digits of a decimal behind its point, otherwise 0 */
};

/* Fills in the properties of a type. Fails only if an argument is NULL (LOAM_EINVAL). */
LOAM_API loam_status loam_type_info(const loam_type *type, struct loam_type_info *out);

/* A field of a struct type. `name` and `type` live as long as the struct type. */
struct loam_type_field {
  const char *name;
  const loam_type *type;
  size_t offset; /* where C would put the field */
};

/* Fills in field number `index` of a struct type, or the name of category number `index`, whose
 * type is string and whose offset is 0. Fails with LOAM_EINVAL if there is none. */
LOAM_API loam_status loam_type_field(const loam_type *type, size_t index,
                                     struct loam_type_field *out);

/* ---- Arrays ----------------------------------------------------------------------------------
 *
 * An array consists of a type, metadata in the shape of the type (sizes and strides, offsets of
 * fields, the blocks that own values which stand elsewhere), a pointer to the data, and the block
 * that owns the data. A part is another array, a view: nothing is copied, and the data stay alive.
 *
 *   loam_type *type;
 *   loam_array *rows, *row, *x;
 *   loam_type_parse("3 * var * {x: float64, y: ?int32}", &type);
 *   loam_array_new(LOAM_SITE("samples"), type, &rows);
 *   loam_array_index(rows, 1, (loam_index[]){ LOAM_AT(1) }, &row);
 *   loam_array_append(row, &(struct sample){ 0.5, 7 });
 *   loam_array_field(rows, "x", &x);                        (3 * var * float64)
 *
 * Data are laid out as C does, and zeroed. A row of a var dimension, a string and bytes each take
 * 16 bytes in the data, { char *begin; size_t size; }, and their elements stand in an arena of the
 * array. A pointer is an address in the data. Data up to 1 KiB stand in the array's allocation. */

/* An array does not change once it is made, and any thread may count its references; owners guard
 * the data. Resizing rows and setting text, of an array and views, is for one thread at a time. */
typedef struct loam_array loam_array;

/* Makes a new array under a site; `*out` has one reference for the caller. Fails with LOAM_ENOMEM,
 * and with LOAM_EINVAL for a type with a dimension of any size. */
LOAM_API loam_status loam_array_new(loam_site *site, const loam_type *type, loam_array **out);

/* Like loam_array_new, and chooses the arenas of rows, text and pointer targets by `arenas`, a sum
 * of LOAM_ARENA_* (loam_array_new uses both). Without LOAM_ARENA_RESIZABLE they take less time and
 * memory, but only the row or text that was made last can grow, and others fail with LOAM_ESTATE.
 * Without LOAM_ARENA_ZEROED, new numbers have any value. LOAM_EINVAL: there is no such flag. */
LOAM_API loam_status loam_array_new_in(loam_site *site, const loam_type *type, int arenas,
                                       loam_array **out);

/* Makes an array over the data of a block, beginning at `offset`, which keeps the block alive.
 * `strides` has, for each fixed dimension in turn, the bytes from one element to the next; NULL
 * means C's layout. The array is read-only if loam_share_open has mapped the block for reading.
 * Fails with LOAM_EINVAL if the array would reach beyond the block, if an element would not be
 * aligned, for an arena, and for types whose values stand partly elsewhere (var, pointer, text). */
LOAM_API loam_status loam_array_wrap(loam_block *block, size_t offset, const loam_type *type,
                                     const int64_t *strides, loam_array **out);

/* Adds one reference and returns `array`. NULL does nothing. */
LOAM_API loam_array *loam_array_retain(const loam_array *array);

/* Releases one reference; NULL: none. The last one ends the array, and the last view its data. */
LOAM_API void loam_array_release(loam_array *array);

/* Returns the array's type; it lives as long as the array. NULL for NULL. */
LOAM_API const loam_type *loam_array_type(const loam_array *array);

/* Returns the address of the array's data; they live as long as the array. NULL for NULL. */
LOAM_API void *loam_array_data(const loam_array *array);

/* Returns the number of fixed dimensions at the front of the type, and fills in the size and the
 * stride in bytes of the first `most` of them. `shape` and `strides` may be NULL. 0 for NULL. */
LOAM_API size_t loam_array_dims(const loam_array *array, size_t most, size_t *shape,
                                int64_t *strides);

/* The parts of an array. `type`, `data` and `block` live as long as the array. */
struct loam_array_info {
  const loam_type *type;
  void *data;
  loam_block *block; /* the owner of the data */
  size_t references; /* at this moment */
  int embedded;      /* 1: the data stand in the array itself, and `block` is the array's own */
  int readonly;      /* 1: the memory must not be written */
};

/* Fills in the parts of an array. Fails only if an argument is NULL (LOAM_EINVAL). */
LOAM_API loam_status loam_array_info(const loam_array *array, struct loam_array_info *out);

/* Returns the bytes that an array shows or owns: of its values in place, and of all rows, text and
 * pointer targets in its arenas or in its copies of Arrow's, which views share. 0 for NULL. */
LOAM_API size_t loam_array_bytes(const loam_array *array);

/* ---- Views */

/* Selects from one dimension, as Python does: negatives count from the end, ranges are cut off. */
typedef struct loam_index {
  int64_t start, stop; /* of a range; INT64_MIN: left out */
  int64_t step;        /* 0: the one element at `start` */
} loam_index;

/* Makes a view of the first `count` dimensions, each at an index or over a range; pointers to
 * dimensions are followed. An index removes its dimension. A range over a row of a var dimension is
 * a fixed dimension:
 *
 *   3 * var * float64   at 1              var * float64, a row that can be resized
 *                       at 1, over 0:2    2 * float64
 *                       over all, at 0    3 * pointer[float64]; every row needs that element
 *                       over all, 0:2     3 * pointer[2 * float64]; equally many of every row
 *                       over all, all     3 * var * float64
 *
 * Fails with LOAM_EINVAL if an element or a dimension does not exist, LOAM_ESTATE if a pointer is
 * NULL, and LOAM_ENOMEM. When a row is resized, its elements may move: views of its elements are
 * then no longer valid, and the caller has to take new ones. */
LOAM_API loam_status loam_array_index(const loam_array *array, size_t count,
                                      const loam_index *index, loam_array **out);

/* Makes a view of one field of the struct within the dimensions: the field x of 3 * var * {x:
 * float64} is 3 * var * float64. Fails with LOAM_EINVAL if there is no such field. */
LOAM_API loam_status loam_array_field(const loam_array *array, const char *name, loam_array **out);

/* Makes a view of `count` fields of the struct within the dimensions: its elements are structs of
 * these fields in this order. Fails with LOAM_EINVAL if a field does not exist or `count` is 0. */
LOAM_API loam_status loam_array_fields(const loam_array *array, size_t count,
                                       const char *const *names, loam_array **out);

/* Makes a view of a pointer's target, or of the value of an optional dimension or struct. Fails
 * with LOAM_EINVAL for other types, LOAM_ESTATE if the pointer is NULL or the value is missing. */
LOAM_API loam_status loam_array_follow(const loam_array *array, loam_array **out);

/* Makes a view whose fixed dimensions at the front are in reverse: the transpose of a 2 * 3 *
 * float64 is a 3 * 2 * float64. Fails with LOAM_ENOMEM. */
LOAM_API loam_status loam_array_transpose(const loam_array *array, loam_array **out);

/* Makes a view of the whole array through which the memory must not be written, and with it all
 * views of that view. `array` itself is unchanged. Fails with LOAM_ENOMEM. */
LOAM_API loam_status loam_array_readonly(const loam_array *array, loam_array **out);

/* Returns the address of an element without making a view, by an index for each dimension, or of a
 * row, by fewer indices. Returns NULL if it does not exist or a pointer on the way is NULL. */
LOAM_API void *loam_array_at(const loam_array *array, size_t count, const int64_t *index);

/* ---- Filling
 *
 * These functions write to the data of an array. They fail with LOAM_ESTATE if the array is
 * read-only, or if its rows and text do not stand in an arena of loam. */

/* Gives a row (an array of type `var * ...`) `count` elements. New elements are zero; the others
 * keep their values but may move. A `count` of 1 makes the target of a NULL pointer (an array of
 * type `pointer[...]`), or a missing dimension or struct present. Fails with LOAM_EINVAL for other
 * types, LOAM_ESTATE for rows and targets of which a view shows a part, and LOAM_ENOMEM. */
LOAM_API loam_status loam_array_resize(loam_array *array, size_t count);

/* Appends one element to a row: a copy of the element at `element`, laid out as C does. Fails like
 * loam_array_resize, and with LOAM_EINVAL if parts of the element type stand elsewhere. */
LOAM_API loam_status loam_array_append(loam_array *array, const void *element);

/* Sets a string, a fixed string or bytes (an array without dimensions) to a copy of `size` bytes,
 * which must not be part of its present text, and a categorical to the category of that name. Fails
 * with LOAM_EINVAL for other types, other names and too long fixed strings, and LOAM_ENOMEM. */
LOAM_API loam_status loam_array_set_text(loam_array *array, const char *bytes, size_t size);

/* Makes an option (an array without dimensions) missing. Fails with LOAM_EINVAL for other types. */
LOAM_API loam_status loam_array_omit(loam_array *array);

/* Returns 1 for an option that is missing, and 0 for anything else. */
LOAM_API int loam_array_is_missing(const loam_array *array);

/* ---- Printing */

/* Writes the contents of an array as JSON: dimensions are arrays, structs are objects, dates and
 * times are text as in ISO 8601, complex numbers are pairs, missing values and NULL pointers are
 * null, bytes are Latin-1 text; NaN and Infinity stand as these words; a category stands as its
 * name, or as its number if there is no such category. Fails with LOAM_ENOMEM. */
LOAM_API loam_status loam_array_json(const loam_array *array, loam_write_fn write, void *ctx);

/* Describes an array for debugging: its type, metadata and data, and each block with its
 * references. The lines are for people to read, and their format may change. */
LOAM_API loam_status loam_array_repr(const loam_array *array, loam_write_fn write, void *ctx);

/* ---- Exchange --------------------------------------------------------------------------------
 *
 * Arrays for other libraries, and arrays from other libraries, without copying. DLPack and Arrow
 * define the structs: include their headers, or declare the structs, to look inside. */

struct DLManagedTensor;

/* Makes a DLPack tensor (version 0.x, in host memory) of an array of scalars. The tensor keeps the
 * data alive until its deleter is called, in any thread. Pointers and a var dimension at the front
 * are followed. Fails with LOAM_EUNSUPPORTED for what a tensor cannot express: structs, text, inner
 * rows, missing values other than floats, strides of parts of elements, read-only memory. */
LOAM_API loam_status loam_array_to_dlpack(const loam_array *array, struct DLManagedTensor **out);

/* Makes an array over a tensor's memory and takes the tensor over: its deleter is called when the
 * last view is gone, perhaps in another thread. On failure the tensor stays the caller's. Fails
 * with LOAM_EUNSUPPORTED for memory that is not host memory and for element types that loam does
 * not have, and with LOAM_EINVAL for a shape or strides that are not valid. */
LOAM_API loam_status loam_array_from_dlpack(struct DLManagedTensor *tensor, loam_array **out);

struct ArrowSchema;
struct ArrowArray;

/* Exports an array through Arrow's C data interface, into two structs of the caller. The first
 * dimension is Arrow's array, further dimensions are lists, structs are structs, the names of a
 * categorical are a dictionary; a struct of dimensions of one length is a table. Contiguous numbers
 * are shared. Values that Arrow orders in another way need a copy (fields of structs, text and rows
 * that stand apart, and bools, which are bits in Arrow): with `may_copy` 1 they are copied, with 0
 * they fail with LOAM_EUNSUPPORTED, as complex numbers, NULL pointers and codes without a category
 * always do. While others read the exported array, no thread may write to this one. */
LOAM_API loam_status loam_array_to_arrow(const loam_array *array, int may_copy,
                                         struct ArrowSchema *schema, struct ArrowArray *out);

/* Makes a read-only array over the memory of an Arrow array: numbers become n * type, text becomes
 * n * string, a dictionary of text n * categorical, lists become n * var * type or n * size * type,
 * a table becomes {name: pointer[n * type], ...}; missing values make options. It takes over both
 * structs: it releases the schema, and the array when the last view is gone. On failure both stay
 * the caller's. With `may_copy` 1 it copies bools, numbers with missing values or not aligned, and
 * indices of another size than codes; with 0 they fail with LOAM_EUNSUPPORTED, as other types
 * do that loam does not have. Fails with LOAM_EINVAL if the structs contradict themselves or were
 * released. */
LOAM_API loam_status loam_array_from_arrow(struct ArrowSchema *schema, struct ArrowArray *array,
                                           int may_copy, loam_array **out);

/* ---- Figures ---------------------------------------------------------------------------------
 *
 * Live figures are exact, because loam reads them off the memory itself. While other threads
 * allocate, a block counts in its state at some moment of the call. Bytes are usable bytes. */

/* The figures of the process. A forked child counts `denied` to `bad_frees` from the fork on. */
struct loam_stats {
  uint64_t generation;
  uint64_t live_bytes, live_blocks;
  uint64_t total_bytes, total_blocks; /* ever allocated */
  uint64_t reserved_bytes;            /* address space that loam has reserved */
  uint64_t region_bytes;              /* the part of reserved_bytes that pools have */
  uint64_t metadata_bytes;            /* loam's own bookkeeping */
  uint64_t denied;                    /* requests that loam.deny answered with NULL */
  uint64_t fallbacks;                 /* requests served by a later member of an or_else chain */
  uint64_t failed;                    /* requests answered with NULL because memory was short */
  uint64_t bad_frees;                 /* double, foreign and interior frees */
  uint32_t threads, sites, strategies;
};

/* Fills in the figures of the process. Fails only if `out` is NULL (LOAM_EINVAL). */
LOAM_API loam_status loam_stats(struct loam_stats *out);

enum { LOAM_BY_TAG = 1, LOAM_BY_STRATEGY = 2, LOAM_BY_GENERATION = 4 };

/* A row of figures. It lives until the callback returns; its strings live for ever. */
typedef struct loam_stats_row {
  const char *tag;      /* "" when not grouped by tag */
  const char *strategy; /* "" when not grouped by strategy */
  const char *kind;     /* the strategy's kind; "" when not grouped by strategy */
  uint64_t generation;  /* 0 when not grouped by generation */
  uint64_t live_bytes, live_blocks;
  uint64_t total_bytes, total_blocks; /* ever allocated; 0 when grouped by generation */
  uint64_t limit, limit_used; /* the strategy's limit under the live policy, or 0; of all tags */
} loam_stats_row;

typedef void (*loam_row_fn)(void *ctx, const loam_stats_row *row);

/* Calls `callback` with a row for each pair of tag and strategy, the largest live_bytes first.
 * Strategies that differ only in their limit share a row. The callback may allocate. Fails with
 * LOAM_ENOMEM if there is no memory for all rows; the callback may then have seen some. */
LOAM_API loam_status loam_stats_each(loam_row_fn callback, void *ctx);

/* Like loam_stats_each, by `keys`, a sum of LOAM_BY_*. LOAM_EINVAL also for other keys. */
LOAM_API loam_status loam_stats_by(int keys, loam_row_fn callback, void *ctx);

/* ---- Shared memory ---------------------------------------------------------------------------
 *
 * Other processes of the same user can open a block that a policy's `loam.shared{}` made. The owner
 * makes a handle of the block; a handle is plain bytes, which go to the other process in any way (a
 * pipe, a file). loam_share_open sends the handle to the owner's control socket and maps the
 * block's pages, and no others, at any address. Pointers in the block mean nothing there.
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
 * An opened block stays valid until it is released, also when the owner frees the block or ends:
 * the memory goes back after that. New opens fail once the owner has freed the block. A forked
 * child keeps the blocks that its parent had opened. Of the parent's own blocks in shared memory or
 * files the child has a private view: only the child sees its stores; and in pages that the child
 * has not written to, it may or may not see later stores of the parent. */

/* A handle of a shared block: plain bytes, valid in every process of the user. */
typedef struct loam_share {
  int64_t pid;  /* of the owner */
  uint64_t key; /* tells the block from later blocks in its place */
  uint64_t offset, size;
} loam_share;

enum { LOAM_SHARE_READONLY = 1 };

/* Makes the handle of the block that begins at `ptr`. After that, the block is no longer resized in
 * place. Fails with LOAM_EINVAL for memory of other kinds and for a pointer inside a block,
 * LOAM_EBADPTR if `ptr` is in no live block of loam's pools, and LOAM_ESTATE without a control
 * socket and, in a forked child, for blocks of its parent. */
LOAM_API loam_status loam_share_get(const void *ptr, loam_share *out);

/* Opens a block of another process and returns a loam_block over it; its size is the size of the
 * owner's block in whole pages. `flags` is 0 or LOAM_SHARE_READONLY, which makes a store a fault.
 * Returns NULL if the block no longer exists, or if its owner has ended or does not answer for 5 s;
 * loam_error() says which. */
LOAM_API loam_block *loam_share_open(loam_site *site, const loam_share *share, int flags);

/* ---- Moving live memory ----------------------------------------------------------------------
 *
 * A policy decides for future allocations. The functions of this family move live memory to where
 * the live policy would put it now, or demote it. The memory keeps its address, and the program can
 * use and free it during the move: pages are moved between nodes, huge pages are made or split,
 * pages are locked or unlocked. After that the block belongs to its new strategy, in every figure
 * and limit, and its memory goes to that strategy's pool when it is freed. A realloc of a block
 * that is being moved copies it.
 *
 * A block that cannot be moved stays unchanged, and the report gives the reason. These are: blocks
 * of handlers and of the system; shared memory and files; device, managed and pinned memory;
 * guarded blocks; memory of exact huge pages; small objects whose page also has objects that want
 * another strategy; pages that a forked process shares, until it ends or writes to them; a new
 * strategy that is at its limit or needs more alignment than the address has; and everything that
 * the kernel refuses. loam remembers only the usable size and the tag of a request. If a policy
 * decides by something else, the answer for a live block may be unknown: it is not moved then. */

/* The progress so far, in bytes of live blocks. */
typedef struct loam_progress {
  uint64_t bytes; /* to be examined in total, approximately */
  uint64_t done;  /* examined so far */
  uint64_t moved, right, refused;
  int running; /* 0: the job has ended */
} loam_progress;

/* Called between the pieces of a job, while no lock of loam is held. A result other than 0 ends the
 * job: the blocks that are half moved are moved back, and moved blocks stay moved. */
typedef int (*loam_progress_fn)(void *ctx, const loam_progress *now);

/* A row of the report. `what` and `why` are static; `tag` lives as long as the process. */
typedef struct loam_placed {
  const char *tag;
  const char *what; /* "moved", "right" (already where the policy wants it), or "refused" */
  const char *why;  /* the reason of a refusal, otherwise "" */
  uint64_t bytes, blocks;
} loam_placed;

typedef void (*loam_placed_fn)(void *ctx, const loam_placed *row);

/* Options of loam_rebalance. */
typedef struct loam_rebalance_options {
  size_t size;     /* sizeof(loam_rebalance_options) */
  const char *tag; /* only blocks of this tag and of the tags under it; NULL: all blocks */
  uint64_t rate;   /* the most bytes a second; 0: 1 GiB; UINT64_MAX: no limit */
} loam_rebalance_options;

/* Moves every live block to the strategy that the live policy gives it now, and moves pages that
 * spilled over (elsewhere_bytes of loam_got) back to the nodes of their strategy. Works in the
 * calling thread for about as long as the rate requires; other threads go on. At the end it calls
 * `placed` for each row of the report. NULL options are the defaults; both callbacks may be NULL.
 *
 * Fails with LOAM_ESTATE if another such job is in progress, and with LOAM_EINVAL if options->size
 * is wrong. A reload with apply = "live" ends this job (the report says "it was stopped") and
 * begins its own. On a kernel without membarrier(2), every move is refused. */
LOAM_API loam_status loam_rebalance(const loam_rebalance_options *options,
                                    loam_progress_fn progress, loam_placed_fn placed, void *ctx);

/* The target of a demotion. */
typedef enum loam_demote_to {
  LOAM_TO_NODE = 0,   /* a slower NUMA node */
  LOAM_TO_COLD = 1,   /* stays in place, to be reclaimed first when memory is short (MADV_COLD) */
  LOAM_TO_PAGEOUT = 2 /* swapped out immediately (MADV_PAGEOUT) */
} loam_demote_to;

/* Options of loam_demote. */
typedef struct loam_demote_options {
  size_t size;     /* sizeof(loam_demote_options) */
  const char *tag; /* blocks of this tag and of the tags under it; not NULL */
  uint64_t rate;   /* the most bytes a second; 0: 1 GiB; UINT64_MAX: no limit */
  loam_demote_to to;
  int node;         /* LOAM_TO_NODE: the node; -1: the nearest node without CPUs */
  unsigned older_s; /* only blocks that have lived this many seconds; 0: all */
} loam_demote_options;

/* Demotes the live blocks of a tag. Memory that goes to a node gets a strategy of its own, named
 * "NAME@nodeN", whose free memory goes back to the system; loam_rebalance moves it back.
 *
 * `older_s` is the time since the block got its memory (a realloc in place keeps it). It is not the
 * time since the last use, which loam does not know. For blocks above 64 KiB the age is exact to 10
 * seconds and never too high; small objects have no age and are refused. The service thread dates
 * blocks; without it, ages count from the first call.
 *
 * Fails with LOAM_EINVAL if an option is not valid, and with LOAM_EUNSUPPORTED if `node` is -1 and
 * the machine has no node without CPUs. Otherwise it works and fails like loam_rebalance. */
LOAM_API loam_status loam_demote(const loam_demote_options *options, loam_progress_fn progress,
                                 loam_placed_fn placed, void *ctx);

/* The memory that a strategy requested for its live blocks, compared with the memory that the
 * kernel gave. When memory is not available at all, loam knows it at the request, and the next
 * member of an or_else chain serves. But a preferred node may be full by the time that the memory
 * is touched, and pages may be small where huge pages were requested. Bytes count whole pages. */
typedef struct loam_got {
  const char *strategy;      /* its name; lives as long as the process */
  uint64_t failed;           /* requests that it could not serve */
  uint64_t served_late;      /* requests that earlier members of a chain could not serve */
  uint64_t live_bytes;       /* pages of its live blocks */
  uint64_t checked_bytes;    /* the part examined now: all up to 64 MiB, beyond that a sample */
  uint64_t untouched_bytes;  /* the part of checked_bytes that has no memory so far */
  uint64_t elsewhere_bytes;  /* the part of checked_bytes on nodes that were not requested */
  uint64_t node_bytes[64];   /* the part of checked_bytes on each node */
  uint64_t huge_asked_bytes; /* all of live_bytes when the strategy has huge = "thp", otherwise 0 */
  uint64_t huge_bytes;       /* bytes of them on huge pages; with huge = false of all live_bytes */
  uint64_t unknown_bytes;    /* bytes whose node the kernel does not tell (a container's filter) */
  uint64_t at_limit;         /* the part of `failed` because of its limit */
  uint64_t limit, limit_used; /* like loam_stats_row */
} loam_got;

typedef void (*loam_got_fn)(void *ctx, const loam_got *got);

/* Examines live memory and calls `callback` with a row for each strategy that requests nodes or
 * transparent huge pages, or that could not serve every request. It queries the kernel page by
 * page: this takes some milliseconds a strategy and, where there are huge pages, as long as reading
 * /proc/self/smaps. Allocations pay nothing for these figures. If the kernel does not tell,
 * checked_bytes is 0. Fails with LOAM_ENOMEM. The callback must not call loam_got_each.
 *
 * There are two kinds of LOAM_EVENT_SHORTFALL, each reported once for a strategy and generation.
 * The first request that a strategy cannot serve is reported during the request, with its size, tag
 * and reason. loam_got_each reports a strategy when it finds pages on nodes that were not
 * requested, or mostly small pages where huge ones were requested. */
LOAM_API loam_status loam_got_each(loam_got_fn callback, void *ctx);

/* ---- Other processes -------------------------------------------------------------------------
 *
 * A process with a control socket is a host. Commands such as `loam reload` send it requests. `loam
 * ps` and `loam status` send none: they read the board of a program, from outside. */

/* Sends a request to the host `pid` over its control socket: `status`, `stats`, or `reload [path]`.
 * The answer is a JSON object, with "ok":false if the host refuses. Fails with LOAM_EIO if no host
 * answers within `timeout_ms`, and with LOAM_EINVAL if the request is too long or not one line. */
LOAM_API loam_status loam_ask(int pid, const char *request, unsigned timeout_ms,
                              loam_write_fn write, void *ctx);

typedef void (*loam_pid_fn)(void *ctx, int pid);

/* Calls `callback` for each host of this user in the folder that a NULL control_dir of loam_config
 * means. It waits up to a second for a busy one. LOAM_EIO: the folder cannot be read. */
LOAM_API loam_status loam_hosts(loam_pid_fn callback, void *ctx);

/* Writes what this machine offers to policies, as one JSON object. */
LOAM_API loam_status loam_machine(loam_write_fn write, void *ctx);

#ifndef LOAM_CDEF

/* The site of the place, in a function, where the macro stands: LOAM_SITE("tensor.weights"). The
 * first use looks the site up and keeps it in a static variable. Acquire and release pair up, so
 * that a thread which reads the pointer sees the whole site. */
#define LOAM_SITE(name)                                                     \
  (__extension__({                                                          \
    static loam_site *loam_here_;                                           \
    loam_site *loam_now_ = __atomic_load_n(&loam_here_, __ATOMIC_ACQUIRE);  \
    if (!loam_now_) {                                                       \
      loam_where loam_at_ = { (name), __FILE__, __func__, NULL, __LINE__ }; \
      loam_now_ = loam_site_at(&loam_at_);                                  \
      __atomic_store_n(&loam_here_, loam_now_, __ATOMIC_RELEASE);           \
    }                                                                       \
    loam_now_;                                                              \
  }))

/* Values of a loam_index: LOAM_AT(i) selects element i, LOAM_RANGE(start, stop) a range, in which
 * LOAM_OPEN leaves an end out, and LOAM_ALL the whole dimension. */
#define LOAM_OPEN INT64_MIN
#define LOAM_AT(i) (__extension__(loam_index){ (i), 0, 0 })
#define LOAM_RANGE(start, stop) (__extension__(loam_index){ (start), (stop), 1 })
#define LOAM_ALL LOAM_RANGE(LOAM_OPEN, LOAM_OPEN)

#ifdef __cplusplus
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
}
#endif
#endif
#endif
