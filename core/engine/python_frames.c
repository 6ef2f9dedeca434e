/* python_frames.c - reads frames of CPython 3.11.
 *
 * The structures below are the beginnings of those of CPython 3.11: Include/cpython/pystate.h,
 * Include/internal/pycore_frame.h, Include/cpython/code.h, Include/cpython/unicodeobject.h. */
#include "engine/python_frames.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

typedef struct py_object {
  intptr_t references;
  const void *type;
} py_object;

typedef struct py_text {
  py_object object;
  intptr_t length, hash;
  /* Bits 2 to 4: bytes of a character; bit 5: the characters follow the structure, or py_wide if
   * bit 6 is not set; bit 6: they are ASCII. */
  uint32_t state;
  const void *wide;
  char ascii[];
} py_text;

typedef struct py_wide {
  py_text text;
  intptr_t utf8_length;
  const char *utf8;
  intptr_t wide_length;
  char characters[];
} py_wide;

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
                   offsetof(py_code, instruction) == 184 && offsetof(py_text, ascii) == 48 &&
                   offsetof(py_wide, characters) == 72,
               "the offsets of CPython 3.11");

/* Functions and data of the interpreter; all NULL: there is none that is known. Written when this
 * library is loaded, `code_type` last. */
static struct {
  const py_thread *(*holder)(void); /* of the GIL: may be another thread's */
  const py_thread *(*mine)(void);
  int (*line_of)(const py_code *, int);
  int (*is_ending)(void); /* NULL: not known */
  const void *code_type;
  bool has_main_thread; /* this library was loaded in the main thread, so `main_thread` is known */
  pthread_t main_thread;
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
extern int _Py_IsFinalizing(void) __attribute__((weak));

/* Chooses the interpreter here and not when a sample is taken. A preloaded library is loaded before
 * the program has other threads. A package of Python may be loaded in any thread. */
__attribute__((constructor)) static void look_for_python(void) {
  enum { VERSION = 0x030b }; /* 3.11 */
  if (!&Py_Version || Py_Version >> 16 != VERSION) return;
  if (!PyCode_Type || !PyCode_Addr2Line || !PyGILState_GetThisThreadState ||
      !_PyThreadState_UncheckedGet)
    return;
  python.mine = PyGILState_GetThisThreadState;
  python.holder = _PyThreadState_UncheckedGet;
  python.line_of = PyCode_Addr2Line;
  python.is_ending = _Py_IsFinalizing;
  python.has_main_thread = gettid() == getpid();
  python.main_thread = pthread_self();
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
  ptrdiff_t at = (const char *)instruction - (const char *)code->instruction;
  return python.line_of(code, (int)at);
}

static int cached_line(const py_code *code, const uint16_t *instruction) {
  uint64_t hash = (uintptr_t)instruction * 0x9e3779b97f4a7c15u >> 54;
  _Static_assert(KNOWN_LINES == 1 << (64 - 54), "the hash is a place");
  if (known_line[hash].instruction == instruction && known_line[hash].lines == code->line_table)
    return known_line[hash].line;
  known_line[hash].instruction = instruction;
  known_line[hash].lines = code->line_table;
  return known_line[hash].line = look_up_line(code, instruction);
}

static uint32_t line_of(const py_frame *frame, bool is_locked) {
  const py_code *code = frame->code;
  int line = frame->instruction < code->instruction ? code->first_line
             : is_locked                            ? cached_line(code, frame->instruction)
                                                    : look_up_line(code, frame->instruction);
  return line > 0 ? (uint32_t)line : 0;
}

/* Returns whether the calling thread may read its frames while it does not hold the lock. */
static bool may_read_unlocked(void) {
  return python.has_main_thread && pthread_equal(pthread_self(), python.main_thread) &&
         python.is_ending && !python.is_ending();
}

uint32_t lm_python_frames_read(lm_python_frame out[LM_PYTHON_FRAMES]) {
  if (lm_likely(!python.code_type)) return 0;
  const py_thread *thread = python.mine();
  uint32_t n = 0;
  if (!thread || !thread->c_frame) return 0;
  bool is_locked = thread == python.holder();
  if (!is_locked && !may_read_unlocked()) return 0;
  const py_frame *frame = thread->c_frame->current;
  for (; frame && n < LM_PYTHON_FRAMES; frame = frame->previous) {
    const py_code *code = frame->code;
    if (!code || code->object.type != python.code_type) break;
    out[n++] = (lm_python_frame){ code, line_of(frame, is_locked), frame->is_entry };
  }
  return n;
}

const void *lm_python_code_name(const void *code) {
  return ((const py_code *)code)->qualified_name;
}
const void *lm_python_code_file(const void *code) { return ((const py_code *)code)->file; }

/* ---- Texts -------------------------------------------------------------------------------- */

/* Returns a character of a text; 0 at its end, and for a text that is not known. */
static uint32_t character_at(const py_text *text, intptr_t at) {
  enum { BYTES = 7 << 2, COMPACT = 1 << 5, ASCII = 1 << 6 };
  if (at >= text->length || !(text->state & COMPACT)) return 0;
  if (text->state & ASCII) return (uint8_t)text->ascii[at];
  const void *characters = ((const py_wide *)text)->characters;
  switch ((text->state & BYTES) >> 2) {
    case 1: return ((const uint8_t *)characters)[at];
    case 2: return ((const uint16_t *)characters)[at];
    case 4: return ((const uint32_t *)characters)[at];
    default: return 0;
  }
}

/* Writes a character as UTF-8 and returns its length. Python has a byte that it could not decode as
 * one of the characters U+DC80 to U+DCFF. */
static size_t put_character(uint32_t c, char out[4]) {
  if (c < 0x80 || (c >= 0xdc80 && c <= 0xdcff)) return out[0] = (char)c, 1;
  size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
  out[0] = (char)(0xf00 >> length | c);
  return length;
}

size_t lm_python_text(const void *text, char out[LM_PYTHON_TEXT]) {
  size_t used = 0;
  char one[4];
  uint32_t c;
  for (intptr_t at = 0; text && (c = character_at(text, at)); at++) {
    size_t length = put_character(c, one);
    if (used + length >= LM_PYTHON_TEXT) break;
    memcpy(out + used, one, length);
    used += length;
  }
  if (!used) out[used++] = '?';
  out[used] = 0;
  return used + 1;
}
