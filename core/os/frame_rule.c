/* frame_rule.c - reads the rule of a frame from the tables that compilers make for exceptions.
 *
 * A function has a frame description entry (FDE) with a program. The program runs along the code of
 * the function, and says what changes at each place. Entries that are alike share a common
 * information entry (CIE), whose program comes first. */
#include "os/frame_rule.h"

#include <string.h>

/* Finds the FDE of the function that has the byte `pc`, or returns NULL. Of libgcc; unwind.h does
 * not declare it. */
struct dwarf_eh_bases {
  void *text, *data, *function; /* `function`: where the code of the function begins */
};
const void *_Unwind_Find_FDE(void *pc, struct dwarf_eh_bases *bases);

enum { WORD = 8, RBP = 6, RSP = 7, RETURN_ADDRESS = 16 };

/* ---- Reading bytes ------------------------------------------------------------------------ */

/* Bytes that are still to be read. Law: at <= end. */
typedef struct bytes {
  const uint8_t *at, *end;
  bool failed; /* more was asked for than there is, or what was read is not known here */
} bytes;

LM_INLINE uint64_t fail(bytes *b) {
  b->failed = true;
  b->at = b->end;
  return 0;
}

/* Reads an unsigned integer of `size` bytes. */
LM_INLINE uint64_t read_fixed(bytes *b, size_t size) {
  uint64_t value = 0;
  if ((size_t)(b->end - b->at) < size) return fail(b);
  memcpy(&value, b->at, size);
  b->at += size;
  return value;
}

/* Reads an unsigned number in LEB128. Returns where it ends, or NULL if it does not. */
static LM_NOINLINE const uint8_t *read_long_uleb(const uint8_t *at, const uint8_t *end,
                                                 uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 63 && at < end; shift += 7) {
    *value |= (uint64_t)(*at & 0x7f) << shift;
    if (*at++ < 0x80) return at;
  }
  return NULL;
}

/* Reads an unsigned number in LEB128. Most have one byte. */
LM_INLINE uint64_t read_uleb(bytes *b) {
  uint64_t value;
  if (lm_likely(b->at < b->end && *b->at < 0x80)) return *b->at++;
  const uint8_t *at = read_long_uleb(b->at, b->end, &value);
  if (!at) return fail(b);
  b->at = at;
  return value;
}

LM_INLINE void skip(bytes *b, uint64_t size) {
  if (size > (uint64_t)(b->end - b->at)) (void)fail(b);
  else b->at += size;
}

/* Returns the contents of an entry behind its length. An entry of 4 GiB is not read. */
static bytes open_entry(const uint8_t *entry) {
  uint32_t length;
  memcpy(&length, entry, sizeof length);
  bytes b = { entry + sizeof length, entry + sizeof length + length, false };
  if (length == UINT32_MAX) b = (bytes){ entry, entry, true };
  return b;
}

/* ---- Entries ------------------------------------------------------------------------------ */

/* A pointer has its size in the low bits of its encoding. Returns 0 for an encoding of another
 * kind. */
static size_t size_of_pointer(uint8_t encoding) {
  static const uint8_t size[16] = { 8, 0, 2, 4, 8, 0, 0, 0, 0, 0, 2, 4, 8, 0, 0, 0 };
  enum { ALIGNED = 0x50 };
  return encoding == ALIGNED ? 0 : size[encoding & 15];
}

/* A common information entry. */
typedef struct cie {
  size_t pointer; /* the size of the pointers in its FDEs */
  bool has_more;  /* its FDEs have bytes before their programs, and say how many */
  bytes program;
} cie;

/* Reads what the letters of an augmentation stand for. A frame of a signal is refused. */
static void read_augmentation(cie *out, bytes *b, const char *letters) {
  if (*letters != 'z') {
    if (*letters) (void)fail(b);
    return;
  }
  out->has_more = true;
  uint64_t size = read_uleb(b);
  bytes more = *b;
  skip(b, size);
  while (*++letters && !b->failed && !more.failed) {
    size_t pointer;
    switch (*letters) {
      case 'L': skip(&more, 1); break;
      case 'R': out->pointer = size_of_pointer((uint8_t)read_fixed(&more, 1)); break;
      case 'P':
        pointer = size_of_pointer((uint8_t)read_fixed(&more, 1));
        skip(&more, pointer ? pointer : SIZE_MAX);
        break;
      default: (void)fail(b); /* 'S', or an unknown letter */
    }
  }
  if (more.failed || !out->pointer) (void)fail(b);
}

/* Reads a CIE. In all that is made for x86-64, programs count code by bytes, and the stack by words
 * downwards; -8 has one byte in signed LEB128. */
static bool read_cie(cie *out, const uint8_t *entry) {
  enum { MINUS_WORD = 0x78 };
  bytes b = open_entry(entry);
  skip(&b, sizeof(uint32_t)); /* what tells it from an FDE */
  uint64_t version = read_fixed(&b, 1);
  const char *letters = (const char *)b.at;
  size_t size = strnlen(letters, (size_t)(b.end - b.at));
  skip(&b, size + 1);
  bool is_usual = read_uleb(&b) == 1 && read_uleb(&b) == MINUS_WORD;
  uint64_t where = version == 1 ? read_fixed(&b, 1) : read_uleb(&b);
  is_usual &= (version == 1 || version == 3) && where == RETURN_ADDRESS;
  if (b.failed || !is_usual) return false;
  *out = (cie){ .pointer = WORD };
  read_augmentation(out, &b, letters);
  out->program = b;
  return !b.failed;
}

/* Opens the program of an FDE, and reads its CIE. */
static bool open_fde(cie *common, bytes *program, const uint8_t *entry) {
  bytes b = open_entry(entry);
  const uint8_t *from = b.at;
  uint64_t back = read_fixed(&b, sizeof(uint32_t)); /* from here to the CIE */
  if (b.failed || !read_cie(common, from - back)) return false;
  skip(&b, 2 * common->pointer); /* the function's address and size */
  if (common->has_more) skip(&b, read_uleb(&b));
  *program = b;
  return !b.failed;
}

/* ---- Programs ----------------------------------------------------------------------------- */

/* Where a register of the caller is: saved so many words below the CFA, or else one of these. */
enum { UNCHANGED = 0, UNDEFINED = INT32_MAX - 1, ELSEWHERE = INT32_MAX };

/* What holds at a place in the code. A number that is too large is read as INT32_MAX. */
typedef struct row {
  uint32_t cfa_register; /* whose value the CFA is counted from */
  uint32_t cfa_bytes;    /* how far the CFA is above that value */
  uint32_t base, back;   /* where rbp and the return address of the caller are */
} row;

enum { ROWS = 8, NO_REGISTER = INT32_MAX };
typedef struct machine {
  uint64_t target; /* bytes from the function's first one to the place whose row is looked for */
  row now, first;  /* `first`: what holds where the function begins */
  row kept[ROWS];
  uint32_t kept_rows;
} machine;

LM_INLINE uint32_t read_number(bytes *b) {
  uint64_t value = read_uleb(b);
  return value < INT32_MAX ? (uint32_t)value : INT32_MAX;
}

LM_INLINE void set_place(row *now, uint32_t reg, uint32_t place) {
  if (reg == RBP) now->base = place;
  if (reg == RETURN_ADDRESS) now->back = place;
}

LM_INLINE void restore(machine *m, uint32_t reg) {
  if (reg == RBP) m->now.base = m->first.base;
  if (reg == RETURN_ADDRESS) m->now.back = m->first.back;
}

LM_INLINE void keep_row(machine *m, bytes *b) {
  if (m->kept_rows == ROWS) (void)fail(b);
  else m->kept[m->kept_rows++] = m->now;
}

LM_INLINE void recall_row(machine *m, bytes *b) {
  if (!m->kept_rows) (void)fail(b);
  else m->now = m->kept[--m->kept_rows];
}

/* The instructions of a program: DWARF 5, section 7.24. The first three have an operand in the
 * first byte. Those that compilers do not use on x86-64 are left out. */
enum {
  ADVANCE_BY = 1, /* the two upper bits of the byte, and so the next two */
  OFFSET_OF = 2,
  RESTORE_OF = 3,
  NOP = 0x00,
  ADVANCE_1 = 0x02,
  ADVANCE_2 = 0x03,
  ADVANCE_4 = 0x04,
  OFFSET = 0x05,
  RESTORE = 0x06,
  SET_UNDEFINED = 0x07,
  SAME_VALUE = 0x08,
  IN_REGISTER = 0x09,
  REMEMBER = 0x0a,
  RECALL = 0x0b,
  CFA = 0x0c,
  CFA_REGISTER = 0x0d,
  CFA_OFFSET = 0x0e,
  CFA_EXPRESSION = 0x0f,
  EXPRESSION = 0x10,
  OFFSET_SIGNED = 0x11,
  VALUE_EXPRESSION = 0x16,
  GNU_ARGUMENTS_SIZE = 0x2e
};

/* Does an instruction whose first byte has no operand in it. Returns by how many bytes of code it
 * advances. */
LM_INLINE uint64_t step(machine *m, bytes *b, uint8_t op) {
  row *now = &m->now;
  uint32_t reg;
  switch (op) {
    case NOP: break;
    case ADVANCE_1: return read_fixed(b, 1);
    case ADVANCE_2: return read_fixed(b, 2);
    case ADVANCE_4: return read_fixed(b, 4);
    case REMEMBER: keep_row(m, b); break;
    case RECALL: recall_row(m, b); break;
    case CFA_OFFSET: now->cfa_bytes = read_number(b); break;
    case CFA_REGISTER: now->cfa_register = read_number(b); break;
    case CFA:
      now->cfa_register = read_number(b);
      now->cfa_bytes = read_number(b);
      break;
    case CFA_EXPRESSION:
      now->cfa_register = NO_REGISTER;
      skip(b, read_uleb(b));
      break;
    case OFFSET:
      reg = read_number(b);
      set_place(now, reg, read_number(b));
      break;
    case IN_REGISTER:
    case OFFSET_SIGNED: /* only of hand-written code, for other registers or above the CFA */
      set_place(now, read_number(b), ELSEWHERE);
      (void)read_uleb(b);
      break;
    case RESTORE: restore(m, read_number(b)); break;
    case SET_UNDEFINED: set_place(now, read_number(b), UNDEFINED); break;
    case SAME_VALUE: set_place(now, read_number(b), UNCHANGED); break;
    case EXPRESSION:
    case VALUE_EXPRESSION:
      set_place(now, read_number(b), ELSEWHERE);
      skip(b, read_uleb(b));
      break;
    case GNU_ARGUMENTS_SIZE: (void)read_uleb(b); break;
    default: (void)fail(b);
  }
  return 0;
}

/* Runs a program up to the row that holds at the target. Returns false if it cannot be read. */
static bool run(machine *m, bytes b) {
  for (uint64_t at = 0; b.at < b.end && at <= m->target;) {
    uint8_t op = *b.at++, operand = op & 0x3f;
    switch (op >> 6) {
      case ADVANCE_BY: at += operand; break;
      case OFFSET_OF: set_place(&m->now, operand, read_number(&b)); break;
      case RESTORE_OF: restore(m, operand); break;
      default: at += step(m, &b, op);
    }
  }
  return !b.failed;
}

/* ---- Rules -------------------------------------------------------------------------------- */

static lm_frame_rule rule_of(row now) {
  bool by_base = now.cfa_register == RBP;
  uint32_t words = now.cfa_bytes / WORD;
  if (now.back == UNDEFINED) return LM_FRAME_LAST;
  if (now.back != 1 || (!by_base && now.cfa_register != RSP)) return LM_FRAME_OTHER;
  if (!words || words > LM_FRAME_WORDS || now.cfa_bytes % WORD) return LM_FRAME_OTHER;
  if (now.base > words || now.base > LM_FRAME_SAVED) return LM_FRAME_OTHER;
  return (lm_frame_rule)by_base << LM_FRAME_BASE_SHIFT | now.base << LM_FRAME_SAVED_SHIFT | words;
}

/* A return address may be behind the last instruction of a function, so the byte before it is
 * looked for. */
lm_frame_rule lm_frame_rule_read(uintptr_t at) {
  struct dwarf_eh_bases bases;
  cie common;
  bytes program;
  const uint8_t *fde = _Unwind_Find_FDE((void *)(at - 1), &bases);
  if (!fde) return LM_FRAME_LAST;
  if (!open_fde(&common, &program, fde)) return LM_FRAME_OTHER;
  machine m;
  m.target = at - 1 - (uintptr_t)bases.function;
  m.now = (row){ NO_REGISTER, 0, UNCHANGED, UNCHANGED };
  m.kept_rows = 0;
  m.first = m.now;
  if (!run(&m, common.program)) return LM_FRAME_OTHER;
  m.first = m.now;
  return run(&m, program) ? rule_of(m.now) : LM_FRAME_OTHER;
}
