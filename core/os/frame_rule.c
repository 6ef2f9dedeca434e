/* frame_rule.c - reads the rule of a frame from the tables that compilers make for exceptions.
 *
 * A function has a frame description entry (FDE) with a program. The program goes along the
 * instructions of the function, and says what changes at each. Entries that are alike share a
 * common information entry (CIE), whose program runs first. */
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

/* Bytes that are still to be read. Law: next <= end. */
typedef struct bytes {
  const uint8_t *next, *end;
  bool failed; /* the bytes have ended too early, or mean what this file does not know */
} bytes;

LM_INLINE bool bytes_is_valid(const bytes *b) { return b->next <= b->end; }

LM_INLINE uint64_t fail(bytes *b) {
  b->failed = true;
  b->next = b->end;
  return 0;
}

/* Reads an unsigned integer of `size` bytes. */
LM_INLINE uint64_t read_fixed(bytes *b, size_t size) {
  uint64_t value = 0;
  lm_assert(bytes_is_valid(b));
  if ((size_t)(b->end - b->next) < size) return fail(b);
  memcpy(&value, b->next, size);
  b->next += size;
  return value;
}

/* Reads an unsigned number in LEB128. Returns where it ends, or NULL if it does not. */
static LM_NOINLINE const uint8_t *read_long_uleb(const uint8_t *next, const uint8_t *end,
                                                 uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 63 && next < end; shift += 7) {
    *value |= (uint64_t)(*next & 0x7f) << shift;
    if (*next++ < 0x80) return next;
  }
  return NULL;
}

/* Reads an unsigned number in LEB128. Most have one byte. */
LM_INLINE uint64_t read_uleb(bytes *b) {
  uint64_t value;
  if (lm_likely(b->next < b->end && *b->next < 0x80)) return *b->next++;
  const uint8_t *next = read_long_uleb(b->next, b->end, &value);
  if (!next) return fail(b);
  b->next = next;
  return value;
}

LM_INLINE void skip(bytes *b, uint64_t size) {
  lm_assert(bytes_is_valid(b));
  if (size > (uint64_t)(b->end - b->next)) (void)fail(b);
  else b->next += size;
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
  size_t pointer_size; /* of the pointers in its FDEs */
  bool has_more;       /* its FDEs have bytes before their programs, and say how many */
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
    size_t personality;
    switch (*letters) {
      case 'L': skip(&more, 1); break;
      case 'R': out->pointer_size = size_of_pointer((uint8_t)read_fixed(&more, 1)); break;
      case 'P':
        personality = size_of_pointer((uint8_t)read_fixed(&more, 1));
        skip(&more, personality ? personality : SIZE_MAX);
        break;
      default: (void)fail(b); /* 'S', or an unknown letter */
    }
  }
  if (more.failed || !out->pointer_size) (void)fail(b);
}

/* Reads a CIE. In all that is made for x86-64, programs count code by bytes, and the stack by words
 * downwards; -8 has one byte in signed LEB128. */
static bool read_cie(cie *out, const uint8_t *entry) {
  enum { MINUS_WORD = 0x78 };
  bytes b = open_entry(entry);
  skip(&b, sizeof(uint32_t)); /* the CIE's id */
  uint64_t version = read_fixed(&b, 1);
  const char *letters = (const char *)b.next;
  size_t size = strnlen(letters, (size_t)(b.end - b.next));
  skip(&b, size + 1);
  bool is_usual = read_uleb(&b) == 1 && read_uleb(&b) == MINUS_WORD;
  uint64_t where = version == 1 ? read_fixed(&b, 1) : read_uleb(&b);
  is_usual &= (version == 1 || version == 3) && where == RETURN_ADDRESS;
  if (b.failed || !is_usual) return false;
  *out = (cie){ .pointer_size = WORD };
  read_augmentation(out, &b, letters);
  out->program = b;
  return !b.failed;
}

/* Opens the program of an FDE, and reads its CIE. */
static bool open_fde(cie *common, bytes *program, const uint8_t *entry) {
  bytes b = open_entry(entry);
  const uint8_t *from = b.next;
  uint64_t distance = read_fixed(&b, sizeof(uint32_t)); /* back to the CIE */
  if (b.failed || !read_cie(common, from - distance)) return false;
  skip(&b, 2 * common->pointer_size); /* the function's address and size */
  if (common->has_more) skip(&b, read_uleb(&b));
  *program = b;
  return !b.failed;
}

/* ---- Programs ----------------------------------------------------------------------------- */

/* Where a register of the caller is: saved so many words below the CFA, or else one of these. */
enum { UNCHANGED = INT32_MAX - 2, UNDEFINED, ELSEWHERE };
_Static_assert(ELSEWHERE == INT32_MAX, "a number that is too large is read as ELSEWHERE");

/* The row of a table that is for one instruction of the function. */
typedef struct row {
  uint32_t cfa_register; /* whose value the CFA is counted from */
  uint32_t cfa_bytes;    /* how far the CFA is above that value */
  uint32_t rbp, ra;      /* where rbp and the return address of the caller are */
} row;

enum { ROWS = 8, NO_REGISTER = INT32_MAX };
typedef struct machine {
  uint64_t target; /* the offset in the function of the instruction whose row is looked for */
  row now, first;  /* `first`: the row of the first instruction */
  row remembered[ROWS];
  uint32_t rows; /* that are remembered */
} machine;

/* Reads a number in LEB128. INT32_MAX stands for any larger number. */
LM_INLINE uint32_t read_number(bytes *b) {
  uint64_t value = read_uleb(b);
  return value < INT32_MAX ? (uint32_t)value : INT32_MAX;
}

/* Sets where a register of the caller is. The caller's rsp is the CFA; where the tables say
 * something else of it, no rule holds. */
LM_INLINE void set_register(row *now, uint32_t reg, uint32_t where) {
  if (reg == RBP) now->rbp = where;
  if (reg == RETURN_ADDRESS) now->ra = where;
  if (reg == RSP) now->ra = ELSEWHERE;
}

LM_INLINE void restore(machine *m, uint32_t reg) {
  if (reg == RBP) m->now.rbp = m->first.rbp;
  if (reg == RETURN_ADDRESS) m->now.ra = m->first.ra;
}

LM_INLINE void remember(machine *m, bytes *b) {
  if (m->rows == ROWS) (void)fail(b);
  else m->remembered[m->rows++] = m->now;
}

LM_INLINE void recall(machine *m, bytes *b) {
  if (!m->rows) (void)fail(b);
  else m->now = m->remembered[--m->rows];
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
    case REMEMBER: remember(m, b); break;
    case RECALL: recall(m, b); break;
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
      set_register(now, reg, read_number(b));
      break;
    case IN_REGISTER:
    case OFFSET_SIGNED: /* only of hand-written code, for other registers or above the CFA */
      set_register(now, read_number(b), ELSEWHERE);
      (void)read_uleb(b);
      break;
    case RESTORE: restore(m, read_number(b)); break;
    case SET_UNDEFINED: set_register(now, read_number(b), UNDEFINED); break;
    case SAME_VALUE: set_register(now, read_number(b), UNCHANGED); break;
    case EXPRESSION:
    case VALUE_EXPRESSION:
      set_register(now, read_number(b), ELSEWHERE);
      skip(b, read_uleb(b));
      break;
    case GNU_ARGUMENTS_SIZE: (void)read_uleb(b); break;
    default: (void)fail(b);
  }
  return 0;
}

/* Runs a program up to the row of the target. Returns false if the program cannot be read. */
static bool run(machine *m, bytes b) {
  for (uint64_t offset = 0; b.next < b.end && offset <= m->target;) {
    uint8_t op = *b.next++, operand = op & 0x3f;
    switch (op >> 6) {
      case ADVANCE_BY: offset += operand; break;
      case OFFSET_OF: set_register(&m->now, operand, read_number(&b)); break;
      case RESTORE_OF: restore(m, operand); break;
      default: offset += step(m, &b, op);
    }
  }
  return !b.failed;
}

/* ---- Rules -------------------------------------------------------------------------------- */

static lm_frame_rule rule_of_row(row now) {
  bool by_rbp = now.cfa_register == RBP;
  uint32_t words = now.cfa_bytes / WORD, saved = now.rbp == UNCHANGED ? 0 : now.rbp;
  if (now.ra == UNDEFINED) return LM_FRAME_LAST;
  if (now.ra != 1 || (!by_rbp && now.cfa_register != RSP)) return LM_FRAME_OTHER;
  if (!words || words > LM_FRAME_WORDS || now.cfa_bytes % WORD) return LM_FRAME_OTHER;
  if (!now.rbp || saved > words || saved > LM_FRAME_SAVED) return LM_FRAME_OTHER;
  return (lm_frame_rule)by_rbp << LM_FRAME_RBP_SHIFT | saved << LM_FRAME_SAVED_SHIFT | words;
}

/* A call may be the last instruction of a function. Then the return address is the first byte of
 * another function, so the byte before it is looked for. */
lm_frame_rule lm_frame_rule_read(uintptr_t ra) {
  struct dwarf_eh_bases bases;
  cie common;
  bytes program;
  if (!LM_FRAME_HAS_RULES) return LM_FRAME_OTHER;
  const uint8_t *fde = _Unwind_Find_FDE((void *)(ra - 1), &bases);
  if (!fde) return LM_FRAME_LAST;
  if (!open_fde(&common, &program, fde)) return LM_FRAME_OTHER;
  machine m;
  m.target = ra - 1 - (uintptr_t)bases.function;
  m.now = (row){ NO_REGISTER, 0, UNCHANGED, UNCHANGED };
  m.rows = 0;
  m.first = m.now;
  if (!run(&m, common.program)) return LM_FRAME_OTHER;
  m.first = m.now;
  lm_frame_rule rule = run(&m, program) ? rule_of_row(m.now) : LM_FRAME_OTHER;
  lm_assert(lm_frame_rule_is_valid(rule));
  return rule;
}
