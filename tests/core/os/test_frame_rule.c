/* test_frame_rule.c - the frame rules of a library agree with the tables that readelf(1) prints,
 * and each instruction of such tables has the effect that DWARF defines. */
#include "test.h"

#include "frame_tables.h"
#include "os/frame_rule.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of the words, in a line of readelf, that state the CFA, rbp, rsp and the return
 * address. 0: no word states it. */
typedef struct columns {
  int cfa, rbp, rsp, ra;
} columns;

typedef struct library_tables {
  uintptr_t base;   /* where the library is loaded */
  char signals[32]; /* "cie=..." of the CIE for signal frames */
  bool of_signal;   /* whether the current rows are of a signal frame */
  columns at;
  unsigned rules, others, last;
} library_tables;

/* Splits a line into words. Returns their number. After each register readelf prints its name again
 * in brackets; that word is left out. */
static int split(char *line, char *word[24]) {
  int n = 0;
  for (char *w = strtok(line, " \n"); w && n < 24; w = strtok(NULL, " \n"))
    if (*w != '(') word[n++] = w;
  return n;
}

static void read_header(library_tables *t, char **word, int n) {
  t->at = (columns){ .cfa = 1 };
  for (int i = 2; i < n; i++) {
    if (!strcmp(word[i], "rbp")) t->at.rbp = i;
    if (!strcmp(word[i], "rsp")) t->at.rsp = i;
    if (!strcmp(word[i], "ra")) t->at.ra = i;
  }
}

/* Returns how many words below the CFA a place such as "c-16" is. 0: the register is unchanged. -1:
 * the register is saved at another place. */
static long words_below(const char *place) {
  if (!strcmp(place, "u") || !strcmp(place, "s")) return 0;
  long bytes = strncmp(place, "c-", 2) ? 1 : strtol(place + 2, NULL, 10);
  return bytes % 8 ? -1 : bytes / 8;
}

/* Returns the rule that a row states. */
static lm_frame_rule wanted(const library_tables *t, char **word) {
  const char *cfa = word[t->at.cfa], *ra = t->at.ra ? word[t->at.ra] : "u";
  long saved = t->at.rbp ? words_below(word[t->at.rbp]) : 0;
  bool by_rbp = !strncmp(cfa, "rbp+", 4);
  if (t->of_signal) return LM_FRAME_OTHER;
  if (!strcmp(ra, "u")) return LM_FRAME_LAST;
  if (t->at.rsp && strcmp(word[t->at.rsp], "u")) return LM_FRAME_OTHER;
  if (strcmp(ra, "c-8") || (!by_rbp && strncmp(cfa, "rsp+", 4))) return LM_FRAME_OTHER;
  long bytes = strtol(cfa + 4, NULL, 10), words = bytes / 8;
  if (bytes % 8 || words < 1 || words > LM_FRAME_WORDS) return LM_FRAME_OTHER;
  if (saved < 0 || saved > words || saved > LM_FRAME_SAVED) return LM_FRAME_OTHER;
  return (lm_frame_rule)by_rbp << LM_FRAME_RBP_SHIFT |
         (lm_frame_rule)saved << LM_FRAME_SAVED_SHIFT | (lm_frame_rule)words;
}

/* Compares a row, which is valid from its address on. lm_frame_rule_read gets a return address and
 * looks up the byte before it. */
static void compare_row(library_tables *t, char **word) {
  uintptr_t at = strtoul(word[0], NULL, 16);
  lm_frame_rule want = wanted(t, word), rule = lm_frame_rule_read(t->base + at + 1);
  assert_true(lm_frame_rule_is_valid(rule));
  if (rule != want) fail_msg("at %#lx the rule is %#x, and not %#x", (long)at, rule, want);
  if (rule == LM_FRAME_LAST) t->last++;
  else if (rule == LM_FRAME_OTHER) t->others++;
  else t->rules++;
}

/* Reads one line: the start of an entry, the names of the columns, or a row. If a table has several
 * rows for one address, readelf prints only the last, which is the valid one. */
static void read_line(library_tables *t, char *line, bool *in_fde) {
  enum { ADDRESS = 16 }; /* hex digits; the offsets of entries have 8 */
  char *word[24];
  int n = split(line, word);
  if (n >= 4 && !strcmp(word[3], "CIE")) {
    *in_fde = false;
    if (strchr(word[4], 'S')) snprintf(t->signals, sizeof t->signals, "cie=%s", word[0]);
  } else if (n >= 5 && !strcmp(word[3], "FDE")) {
    *in_fde = true;
    t->of_signal = !strcmp(word[4], t->signals);
  } else if (n >= 2 && !strcmp(word[0], "LOC")) read_header(t, word, n);
  else if (n > t->at.cfa && *in_fde && strlen(word[0]) == ADDRESS) compare_row(t, word);
}

static library_tables compare_library(const char *name, const char *symbol) {
  char command[512], line[1024];
  void *library = dlopen(name, RTLD_NOW);
  Dl_info info;
  bool in_fde = false;
  assert_non_null(library);
  assert_int_not_equal(dladdr(dlsym(library, symbol), &info), 0);
  library_tables t = { .base = (uintptr_t)info.dli_fbase, .at = { .cfa = 1 } };
  snprintf(command, sizeof command, "LC_ALL=C readelf --debug-dump=frames-interp '%s' 2> /dev/null",
           info.dli_fname);
  FILE *from = popen(command, "r");
  assert_non_null(from);
  while (fgets(line, sizeof line, from)) read_line(&t, line, &in_fde);
  pclose(from); /* the status of readelf is 1 after a warning too */
  print_message("%s: %u rules, %u for the unwinder, %u ends of stacks\n", name, t.rules, t.others,
                t.last);
  return t;
}

static void rules_are_those_of_readelf(void **state) {
  (void)state;
  if (!LM_FRAME_HAS_RULES) skip();
  library_tables c = compare_library("libc.so.6", "printf");
  library_tables cxx = compare_library("libstdc++.so.6", "__cxa_throw");
  assert_true(c.rules > 10000 && c.others && c.last);
  assert_true(cxx.rules > 10000);
}

static void where_there_are_no_tables_the_stack_ends(void **state) {
  static char data[16];
  (void)state;
  if (!LM_FRAME_HAS_RULES) skip();
  assert_int_equal(lm_frame_rule_read((uintptr_t)data + 8), LM_FRAME_LAST);
}

/* ---- Programs that no library here has ---------------------------------------------------- */

static uint8_t code[64]; /* a function that never runs */

static lm_frame_rule rule(bool by_rbp, uint32_t words, uint32_t saved) {
  return (lm_frame_rule)by_rbp << LM_FRAME_RBP_SHIFT | saved << LM_FRAME_SAVED_SHIFT | words;
}

static void a_rule_obeys_its_law(void **state) {
  (void)state;
  assert_true(lm_frame_rule_is_valid(LM_FRAME_LAST) && lm_frame_rule_is_valid(LM_FRAME_OTHER));
  assert_true(lm_frame_rule_is_valid(rule(true, LM_FRAME_WORDS, LM_FRAME_SAVED)));
  assert_false(lm_frame_rule_is_valid(rule(true, 0, 0)));
  assert_false(lm_frame_rule_is_valid(rule(false, 1, 2)));
  assert_false(lm_frame_rule_is_valid(rule(false, 1, 0) | 1u << LM_FRAME_BITS));
}

static void each_instruction_says_what_dwarf_says(void **state) {
  static frame_tables tables;
  const struct {
    const char *what, *program;
    size_t length;
    lm_frame_rule want;
  } cases[] = {
#define PROGRAM(what, bytes, want) { what, bytes, sizeof bytes - 1, want }
    PROGRAM("nothing", "", rule(false, 1, 0)),
    PROGRAM("def_cfa_offset", "\x0e\x10", rule(false, 2, 0)),
    PROGRAM("def_cfa", "\x0c\x06\x10", rule(true, 2, 0)),
    PROGRAM("def_cfa_register", "\x0d\x06", rule(true, 1, 0)),
    PROGRAM("a CFA by rax", "\x0d\x00", LM_FRAME_OTHER),
    PROGRAM("a CFA between words", "\x0e\x0c", LM_FRAME_OTHER),
    PROGRAM("the largest frame", "\x0e\xf8\xff\x01", rule(false, LM_FRAME_WORDS, 0)),
    PROGRAM("a larger frame", "\x0e\x80\x80\x02", LM_FRAME_OTHER),
    PROGRAM("rbp is saved", "\x0e\x10\x86\x02", rule(false, 2, 2)),
    PROGRAM("by the longer form", "\x0e\x10\x05\x06\x02", rule(false, 2, 2)),
    PROGRAM("rbp is saved at the CFA", "\x0e\x10\x86\x00", LM_FRAME_OTHER),
    PROGRAM("rbp is restored", "\x0e\x10\x86\x02\xc6", rule(false, 2, 0)),
    PROGRAM("rbp is the same", "\x0e\x10\x86\x02\x08\x06", rule(false, 2, 0)),
    PROGRAM("rbp is in a register", "\x09\x06\x03", LM_FRAME_OTHER),
    PROGRAM("rsp is saved", "\x87\x01", LM_FRAME_OTHER),
    PROGRAM("no return address", "\x07\x10", LM_FRAME_LAST),
    PROGRAM("the return address is restored", "\x07\x10\xd0", rule(false, 1, 0)),
    PROGRAM("by the longer form again", "\x07\x10\x06\x10", rule(false, 1, 0)),
    PROGRAM("remember and recall", "\x0a\x0e\x10\x0b", rule(false, 1, 0)),
    PROGRAM("recall without remember", "\x0b", LM_FRAME_OTHER),
    PROGRAM("nine rows", "\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a", LM_FRAME_OTHER),
    PROGRAM("the row at the call", "\x43\x0e\x10\x41\x0e\x18", rule(false, 2, 0)),
    PROGRAM("advance_loc1", "\x02\x04\x0e\x10", rule(false, 1, 0)),
    PROGRAM("advance_loc2", "\x03\x03\x00\x0e\x10", rule(false, 2, 0)),
    PROGRAM("advance_loc4", "\x04\x04\x00\x00\x00\x0e\x10", rule(false, 1, 0)),
    PROGRAM("GNU_args_size", "\x2e\x10\x0e\x10", rule(false, 2, 0)),
    PROGRAM("an unknown instruction", "\x3f", LM_FRAME_OTHER),
    PROGRAM("a block behind the end", "\x0f\x7f", LM_FRAME_OTHER),
#undef PROGRAM
  };
  (void)state;
  if (!LM_FRAME_HAS_RULES) skip();
  for (size_t i = 0; i < LM_COUNT(cases); i++) {
    make_tables(&tables, code, sizeof code, cases[i].program, cases[i].length);
    lm_frame_rule got = lm_frame_rule_read((uintptr_t)code + 4);
    __deregister_frame(&tables);
    if (got != cases[i].want)
      fail_msg("%s: the rule is %#x, and not %#x", cases[i].what, got, cases[i].want);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(rules_are_those_of_readelf),
    cmocka_unit_test(a_rule_obeys_its_law),
    cmocka_unit_test(each_instruction_says_what_dwarf_says),
    cmocka_unit_test(where_there_are_no_tables_the_stack_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
