/* gate.h - the questions of a plan, made ready to be asked at each allocation.
 *
 * What a thread remembers in its lanes cannot hold what depends on gauges. But it can hold where
 * in the tree they are first asked; from there on the tree is gates, one a node, at its index: one
 * subtraction and one comparison of whole numbers each. A condition that reckons is one as well
 * where it comes to a sum of few numbers, each times a small whole number. */
#ifndef LM_GATE_H
#define LM_GATE_H

#include "pages/class.h"

struct lm_plan;

enum {
  LM_GATE_SHUT = 255,
  LM_GATE_FAR = 254,
  LM_GATE_SUM = 253,
  LM_GATE_NUMBERS = 16,
  LM_GATE_TERMS = 4
};

/* Of a sum. */
typedef struct lm_term {
  uint8_t input; /* LM_IN_* */
  uint8_t arg;
  int8_t factor;
  uint8_t number; /* of what is read, as a gate's */
} lm_term;

/* Law: for a request with align <= 16 and zero = 0, the number that the node reads, or what its
 *      terms and `sizes` times the size come to, is one of the `span` whole numbers from `from` on
 *      if and only if the node's condition holds. Then `yes`, else `no`: so many gates on, past
 *      nodes whose answer is known for such requests; or, below 0, lm_gate_to of the strategy that
 *      lm_plan_first names, further where the node asks what lives. Two gates that read the same
 *      number, or the same sum, have the same `number`, and no others: so each need be read but
 *      once on a way. Where `ask` is not LM_GATE_FAR, what it reads is not in `behind`: nothing of
 *      it need be remembered. */
typedef struct lm_gate {
  int64_t from;
  uint64_t span;
  int64_t yes, no;
  lm_term term[LM_GATE_TERMS]; /* where `input` is LM_GATE_SUM: */
  uint8_t terms;               /* so many, of other than the size; and */
  int8_t sizes;
  uint8_t input;  /* LM_IN_*, LM_GATE_SUM; LM_GATE_SHUT: only the tree can tell */
  uint8_t number; /* < LM_GATE_NUMBERS, unless it is shut */
  uint8_t ask;    /* `input` where that is the size, live bytes, the node or what is free there, or
                     a sum of such */
  uint8_t arg;    /* < LM_NODES_MAX */
  /* By number: what it and those that it leads to read; the same less those at once behind it that
   * read the same as it. Not the size, which stays what it is; of a sum, what that is of. */
  uint16_t reads, behind;
} lm_gate;

/* Where gates lead that name a strategy; of LM_STRATEGIES_MAX: none. In the key of a lane a
 * strategy lies above the site, and moves the lane (engine.h). Where what lives was asked last,
 * whose tag so is counted, they lead LM_GATE_COUNTED further, to the lanes of that. */
enum { LM_GATE_SHIFT = 32 };
#define LM_GATE_COUNTED ((int64_t)1 << 52)
#define LM_GATE_UNIT (((int64_t)1 << LM_GATE_SHIFT) + 37 * LM_LANE_STEP)
LM_INLINE int64_t lm_gate_to(uint32_t strategy) { return -(int64_t)(strategy + 1) * LM_GATE_UNIT; }
LM_INLINE uint32_t lm_gate_strategy(int64_t leads) {
  return (uint32_t)(uint16_t)((uint64_t)-leads >> LM_GATE_SHIFT) - 1;
}

/* Yes or no. By a branch, which is foreseen, so that what follows need not wait for the number. */
LM_INLINE int64_t lm_gate_leads(const lm_gate *gate, uint64_t number) {
  int64_t leads = gate->no;
  if (number - (uint64_t)gate->from < gate->span) {
    leads = gate->yes;
    lm_settle(leads);
  }
  return leads;
}

/* The same; and past those at once behind it that read the same. *gate is the last. */
LM_INLINE int64_t lm_gate_lead_past(const lm_gate **gate, uint64_t number) {
  int64_t leads = lm_gate_leads(*gate, number);
  while (lm_unlikely(leads >= 0)) {
    bool is_same = (*gate)[leads].number == (*gate)->number;
    *gate += leads;
    if (!is_same) break;
    leads = lm_gate_leads(*gate, number);
  }
  return leads;
}

/* Those of a plan that reads gauges; NULL: of another, or there is no memory. */
lm_gate *lm_gates_make(const struct lm_plan *plan);
void lm_gates_destroy(const lm_gate *gates);

#endif
