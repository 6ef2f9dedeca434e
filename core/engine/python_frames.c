/* python_frames.c - reads frames of CPython 3.11.
 *
 * The structures below are the beginnings of those of CPython 3.11: Include/cpython/pystate.h,
 * Include/internal/pycore_frame.h, Include/cpython/code.h, Include/cpython/unicodeobject.h. */
#include "engine/python_frames.h"

#include <string.h>

typedef struct py_object {
  intptr_t references;
  const void *type;
} py_object;

typedef struct py_text {
  py_object object;
  intptr_t length, hash;
  uint32_t state; /* bit 5: the characters follow the structure; bit 6: they are ASCII */
  const void *wide;
  char ascii[];
} py_text;

typedef struct py_code {
  py_object object;
  intptr_t size;
  const void *constants, *names, *exceptions;
  int flags;
  short warmup, line_size;
  int arguments, positional, keyword, stack_size, first_line;
  int locals_plus, locals, plain_cells, cells, free;
  const void *local_names, *local_kinds;
  const py_text *file, *name, *qualified_name;
  const void *line_table, *weak, *copy;
  const char *lines;
  int first_traceable;
  const void *extra;
  uint16_t instruction[];
} py_code;

typedef struct py_frame {
  const void *function, *globals, *builtins, *locals;
  const py_code *code;
  const void *object;
  const struct py_frame *previous;
  const uint16_t *instruction; /* the one before the next */
  int stack_top;
  bool is_entry;
} py_frame;

typedef struct py_c_frame {
  uint8_t is_traced;
  const py_frame *current;
} py_c_frame;

typedef struct py_thread {
  const void *previous, *next, *interpreter;
  int is_initialized, is_static, recursion[3], tracing, traced;
  const py_c_frame *c_frame;
} py_thread;

_Static_assert(offsetof(py_thread, c_frame) == 56 && offsetof(py_frame, is_entry) == 68 &&
                   offsetof(py_code, first_line) == 72 && offsetof(py_code, file) == 112 &&
                   offsetof(py_code, instruction) == 184 && offsetof(py_text, ascii) == 48,
               "the offsets of CPython 3.11");

/* Functions and data of the interpreter; all NULL: there is none that is known. Written before the
 * program's main function runs. */
static struct {
  const py_thread *(*holder)(void); /* of the GIL: may be another thread's */
  const py_thread *(*mine)(void);
  int (*line_of)(const py_code *, int);
  const void *code_type;
} python;

/* Symbols that CPython exports. The references are weak, so the dynamic loader resolves them
 * when it loads loam, and an object that no library exports has the address NULL. A dlsym(3)
 * that finds nothing would allocate the words of its error, with the C library's malloc, in
 * every program. */
extern const unsigned long Py_Version __attribute__((weak));
extern const char PyCode_Type[] __attribute__((weak));
extern int PyCode_Addr2Line(const py_code *code, int at) __attribute__((weak));
extern const py_thread *PyGILState_GetThisThreadState(void) __attribute__((weak));
extern const py_thread *_PyThreadState_UncheckedGet(void) __attribute__((weak));

/* Chooses the interpreter here and not when a sample is taken: a constructor runs before the
 * program has other threads. */
__attribute__((constructor)) static void look_for_python(void) {
  enum { VERSION = 0x030b }; /* 3.11 */
  if (!&Py_Version || Py_Version >> 16 != VERSION) return;
  if (!PyCode_Type || !PyCode_Addr2Line || !PyGILState_GetThisThreadState ||
      !_PyThreadState_UncheckedGet)
    return;
  python.mine = PyGILState_GetThisThreadState;
  python.holder = _PyThreadState_UncheckedGet;
  python.line_of = PyCode_Addr2Line;
  python.code_type = PyCode_Type;
}

/* Lines that were looked up: the interpreter reads the table of a function from its start, which
 * takes about a microsecond. The interpreter's lock guards them. `lines` tells most later code at
 * that address from the code whose line is known. */
enum { KNOWN_LINES = 1024 };
static LM_SPARSE struct {
  const uint16_t *instruction;
  const void *lines;
  int line;
} known_line[KNOWN_LINES];

static int look_up_line(const py_code *code, const uint16_t *instruction) {
  uint64_t hash = (uintptr_t)instruction * 0x9e3779b97f4a7c15u >> 54;
  _Static_assert(KNOWN_LINES == 1 << (64 - 54), "the hash is a place");
  if (known_line[hash].instruction == instruction && known_line[hash].lines == code->line_table)
    return known_line[hash].line;
  ptrdiff_t at = (const char *)instruction - (const char *)code->instruction;
  known_line[hash].instruction = instruction;
  known_line[hash].lines = code->line_table;
  return known_line[hash].line = python.line_of(code, (int)at);
}

static uint32_t line_of(const py_frame *frame) {
  const py_code *code = frame->code;
  bool has_begun = frame->instruction >= code->instruction;
  int line = has_begun ? look_up_line(code, frame->instruction) : code->first_line;
  return line > 0 ? (uint32_t)line : 0;
}

uint32_t lm_python_frames_read(lm_python_frame out[LM_PYTHON_FRAMES]) {
  if (lm_likely(!python.code_type)) return 0;
  const py_thread *thread = python.mine();
  uint32_t n = 0;
  if (!thread || thread != python.holder() || !thread->c_frame) return 0;
  const py_frame *frame = thread->c_frame->current;
  for (; frame && n < LM_PYTHON_FRAMES; frame = frame->previous) {
    const py_code *code = frame->code;
    if (!code || code->object.type != python.code_type) break;
    out[n++] = (lm_python_frame){ code, line_of(frame), frame->is_entry };
  }
  return n;
}

static const char *ascii_of(const py_text *text) {
  enum { COMPACT_ASCII = 3 << 5 };
  return text && (text->state & COMPACT_ASCII) == COMPACT_ASCII ? text->ascii : "?";
}

const char *lm_python_code_name(const void *code) {
  return ascii_of(((const py_code *)code)->qualified_name);
}
const char *lm_python_code_file(const void *code) {
  return ascii_of(((const py_code *)code)->file);
}
