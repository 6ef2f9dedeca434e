/* frame_rule.h - how a frame of the stack leads to the frame of its caller.
 *
 * Compilers write tables for exceptions. For each instruction they say where the canonical frame
 * address (CFA) is, and where the registers of the caller are saved. That is the call frame
 * information of DWARF 5, section 6.4, in the form of .eh_frame (Linux Standard Base 5.0, chapter
 * 10.6). An lm_frame_rule holds the part of it that nearly all code needs. libgcc finds the table
 * of a function; lm_frame_rule_read reads it.
 *
 * On x86-64 the CFA is the caller's rsp before its call. So the return address stands in the word
 * below the CFA. */
#ifndef LM_FRAME_RULE_H
#define LM_FRAME_RULE_H

#include "os/base.h"

/* The rule of a frame at one of its calls, in 17 bits. LM_FRAME_LAST: the stack ends with it.
 * LM_FRAME_OTHER: the tables say what a rule cannot hold, so the unwinder of libgcc has to read the
 * stack. Law of any other rule: saved <= words, and words is not 0. */
typedef uint32_t lm_frame_rule;
enum {
  LM_FRAME_SAVED_SHIFT = 12,
  LM_FRAME_RBP_SHIFT = 16,
  LM_FRAME_BITS = 17,
  LM_FRAME_WORDS = (1 << LM_FRAME_SAVED_SHIFT) - 1, /* words at most */
  LM_FRAME_SAVED = (1 << (LM_FRAME_RBP_SHIFT - LM_FRAME_SAVED_SHIFT)) - 1,
  LM_FRAME_LAST = 0,
  LM_FRAME_OTHER = LM_FRAME_SAVED << LM_FRAME_SAVED_SHIFT
};

/* Returns whether the CFA is counted from rbp, or else from rsp. */
LM_INLINE bool lm_frame_by_rbp(lm_frame_rule rule) { return rule >> LM_FRAME_RBP_SHIFT; }
/* Returns how many words of 8 bytes the CFA is above that register. */
LM_INLINE uint32_t lm_frame_words(lm_frame_rule rule) { return rule & LM_FRAME_WORDS; }
/* Returns how many words below the CFA the caller's rbp is saved. 0: rbp is still the caller's. */
LM_INLINE uint32_t lm_frame_saved(lm_frame_rule rule) {
  return rule >> LM_FRAME_SAVED_SHIFT & LM_FRAME_SAVED;
}

/* Returns whether the law of a rule holds. */
LM_INLINE bool lm_frame_rule_is_valid(lm_frame_rule rule) {
  if (rule == LM_FRAME_LAST || rule == LM_FRAME_OTHER) return true;
  return lm_frame_words(rule) && lm_frame_saved(rule) <= lm_frame_words(rule) &&
         !(rule >> LM_FRAME_BITS);
}

/* Whether there are rules: on x86-64. Elsewhere every frame has LM_FRAME_OTHER. */
#ifdef __x86_64__
enum { LM_FRAME_HAS_RULES = 1 };
#else
enum { LM_FRAME_HAS_RULES = 0 };
#endif

/* Reads the rule of the frame to which a call returns at the return address `ra`. The stack ends
 * where there are no tables. Takes no lock with glibc 2.35 and libgcc 12, or later ones. */
lm_frame_rule lm_frame_rule_read(uintptr_t ra);

#endif
