/* vet.h - checks a policy for a program that the command is about to start. */
#ifndef LM_VET_H
#define LM_VET_H

#include "plan/image_text.h"
#include "script/script.h"

/* The hash of a text in hexadecimal, a colon, and a policy image as text. */
enum { LM_VET_SIZE = LM_IMAGE_TEXT_SIZE + 24 };

/* The needs of a policy. The first two need the service thread of the program. */
typedef struct lm_vet_needs {
  bool moves_memory;  /* apply = "live" */
  bool reads_devices; /* the free memory of devices, which the GPU's driver tells the process */
  bool needs_watcher; /* it reads the free memory of NUMA nodes or memory pressure, or shares limits
                          with other processes: a process beside the tree keeps these figures
                          (cli/watcher.h) */
} lm_vet_needs;

/* Tells whether a program that starts now would accept the policy file: reads, opens, compiles and
 * tests it as a load does, or finds the image that an earlier call kept (cli/image_cache.h).
 * Handlers need not be registered, because they belong to the program. On success `vetted` is the
 * value of LOAM_VETTED for the program (service/policy.c reads it), so that the program need not
 * repeat the work. *needs then has the needs of the policy, and *image its image, which the caller
 * closes (`image` may be NULL). On failure loam_error() has the reason. */
loam_status lm_vet(const char *path, char vetted[LM_VET_SIZE], lm_vet_needs *needs,
                   lm_policy_image **image);

#endif
