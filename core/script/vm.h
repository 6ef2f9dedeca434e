/* vm.h - a Lua state that cannot hurt its host: its own capped heap, text only, JIT off, and a
 * budget of time and memory for each step, after which every further instruction raises.
 *
 * All that happens in the state happens in lm_vm_call, whose body runs protected: whatever it
 * raises comes out as a status with words. A state is used by one thread at a time. */
#ifndef LM_VM_H
#define LM_VM_H

#include "script/luajit.h"
#include "script/script.h"
#include "script/vm_alloc.h"

typedef enum lm_vm_excess { LM_VM_WITHIN, LM_VM_OVER_TIME, LM_VM_OVER_BYTES } lm_vm_excess;

/* Law: used is the sum of the sizes of all blocks the state holds; used <= cap while a step runs,
 *      except for LM_VM_SLACK once the budget is exceeded (an error message needs some room). */
typedef struct lm_vm {
  lua_State *L;
  lm_vm_alloc heap;
  const char *name, *text; /* of the policy, for messages; the owner's */
  lm_script_limits limits;
  size_t base;      /* what the trusted modules hold */
  size_t used, cap; /* SIZE_MAX: no step runs */
  size_t noticed;   /* above this the hook remembers the line, for the error */
  size_t paced;     /* above this it sets anew when garbage is looked for */
  int64_t began_ns, began_cpu_ns;
  uint64_t instructions;
  lm_vm_excess excess; /* latched until the next call */
  int line;            /* of the policy, where the budget went; 0 not known */
  char step[160];      /* what is being done, in words */
} lm_vm;

/* Makes a state that holds the standard libraries and nothing of ours yet. `vm` must stay where it
 * is until closed. */
loam_status lm_vm_open(lm_vm *vm, const char *name, const char *text,
                       const lm_script_limits *limits);
void lm_vm_close(lm_vm *vm); /* a zeroed one, too */

typedef loam_status (*lm_vm_body)(lua_State *L, void *arg);

/* Runs trusted set-up, without a budget; what it leaves in memory is the base. */
loam_status lm_vm_setup(lm_vm *vm, lm_vm_body body, void *arg);
/* Runs `body` as one step named `step`. Its status comes back, unless it raised: LOAM_EBUDGET when
 * the budget was exceeded, even if the error was caught on the way; LOAM_ENOMEM; LOAM_EPOLICY. */
loam_status lm_vm_call(lm_vm *vm, const char *step, lm_vm_body body, void *arg);
/* Another step begins, within a call; the same name goes on with the present one. */
void lm_vm_step(lm_vm *vm, const char *step);

/* The vm of a state, for functions called from Lua. */
lm_vm *lm_vm_of(lua_State *L);

/* What was exceeded, in words without the file and line. */
void lm_vm_excess_text(const lm_vm *vm, char *buffer, size_t size);
/* The line of the policy where it was, "" if that is not known. */
void lm_vm_excess_source(const lm_vm *vm, char *buffer, size_t size);
extern const char lm_vm_excess_hint[];

#endif
