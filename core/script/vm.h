/* vm.h - a Lua state that cannot harm the host: it has a capped heap of its own, loads text only,
 * runs without the JIT, and has a budget of time and memory for each step. After the budget is
 * exceeded, every further instruction raises an error.
 *
 * All Lua code runs inside lm_vm_call or lm_vm_setup, which run their body protected: a Lua error
 * comes out as a status with words. One thread at a time may use a state. */
#ifndef LM_VM_H
#define LM_VM_H

#include "script/luajit.h"
#include "script/script.h"
#include "script/vm_alloc.h"

typedef enum lm_vm_excess { LM_VM_WITHIN, LM_VM_OVER_TIME, LM_VM_OVER_BYTES } lm_vm_excess;

/* A Lua state with its budget; a zeroed one is closed.
 * Law: `used` is the sum of the sizes of all blocks that the state holds. used <= cap. The cap
 *      grows by 256 KiB when the budget is exceeded, because an error message needs some room.
 *      While L is NULL, the heap is empty. */
typedef struct lm_vm {
  lua_State *L; /* NULL: closed */
  lm_vm_alloc heap;
  const char *name, *text; /* of the policy, for messages; they belong to the caller */
  lm_script_limits limits;
  size_t base;      /* bytes that the trusted modules hold */
  size_t used, cap; /* cap is SIZE_MAX while no step runs */
  size_t noticed; /* above this, the hook remembers the policy's line for a message about memory */
  size_t paced;   /* above this, the hook sets the garbage collector's pause again */
  unsigned hook_every;            /* instructions between two checks of the budget */
  size_t hook_until;              /* when `used` reaches this, hook_every is computed again */
  int64_t began_ns, began_cpu_ns; /* wall clock and thread's processor time when the step began */
  uint64_t instructions;          /* of the step so far, about */
  lm_vm_excess excess;            /* keeps its value until the next lm_vm_call */
  int line;                       /* of the policy, where the budget was exceeded; 0: not known */
  char step[160];                 /* what the step does, in words */
} lm_vm;

/* Makes a Lua state that holds the standard libraries and nothing of loam yet. `vm` must not move
 * until it is closed. On failure `vm` is closed. */
loam_status lm_vm_open(lm_vm *vm, const char *name, const char *text,
                       const lm_script_limits *limits);
/* Frees the Lua state with all its memory. Does nothing to a closed vm. */
void lm_vm_close(lm_vm *vm);

/* Code to run in the state. It may raise a Lua error. */
typedef loam_status (*lm_vm_body)(lua_State *L, void *arg);

/* Runs trusted code without a budget. The memory that the state holds afterwards is the base. */
loam_status lm_vm_setup(lm_vm *vm, lm_vm_body body, void *arg);
/* Runs `body` as one step named `step` and returns its status, unless it raised: then LOAM_EBUDGET
 * (the budget was exceeded, even if the policy caught the error), LOAM_ENOMEM or LOAM_EPOLICY. */
loam_status lm_vm_call(lm_vm *vm, const char *step, lm_vm_body body, void *arg);
/* Begins another step inside lm_vm_call, with a new budget. The name of the current step: that step
 * goes on. */
void lm_vm_step(lm_vm *vm, const char *step);
/* Called with the name of each step that begins. NULL, as in every host: nothing is called. The
 * command sets it while it has one thread. */
extern void (*lm_vm_on_step)(const char *step);

/* The vm of a Lua state, for C functions that Lua calls. */
lm_vm *lm_vm_of(lua_State *L);

/* Writes which limit the step exceeded, in words, without file and line. */
void lm_vm_excess_text(const lm_vm *vm, char *buffer, size_t size);
/* Copies the policy's line where the budget was exceeded; "" if it is not known. */
void lm_vm_excess_source(const lm_vm *vm, char *buffer, size_t size);
/* Words for the author of a policy that exceeded its budget: how to mend it. */
extern const char lm_vm_excess_hint[];

/* Checks the law of lm_vm, as far as it can be seen from outside the Lua state. */
bool lm_vm_is_valid(const lm_vm *vm);

#endif
