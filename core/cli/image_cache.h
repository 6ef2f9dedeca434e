/* image_cache.h - images of policies that `loam run` has compiled, which it keeps for the next
 * time.
 *
 * `loam run` would take longer to compile a policy than for all its other work. So it writes the
 * image into the folder of the control sockets and boards, and finds it there when it runs a
 * program under an equal text again. There are LM_IMAGE_CACHE_PLACES places in the folder, so it
 * does not grow: the hash of the text gives the place, and a later image replaces the one that is
 * there.
 *
 * An image decides what memory a program gets. So it is used only if no user other than the user of
 * this process or root can have written it: the folder passes lm_control_socket_folder, and the
 * file passes the checks of a policy file that is followed (script/policy_file.h). The text in the
 * image must be equal to the text of the policy, byte for byte; a hash alone could be met on
 * purpose. Then lm_policy_image_open checks every number in the image.
 *
 * An image is kept only if the policy has asked nothing about the machine, because memory, CPUs,
 * GPUs and limits may change. An image that is older than the file of this command is not used,
 * because another build of loam may have made it. */
#ifndef LM_IMAGE_CACHE_H
#define LM_IMAGE_CACHE_H

#include "plan/policy_image.h"

/* LM_IMAGE_CACHE_BYTES_MAX: larger images are not kept, in bytes. The folder is often in memory. */
enum { LM_IMAGE_CACHE_PLACES = 16, LM_IMAGE_CACHE_BYTES_MAX = 768 << 10 };

/* Opens the image that is kept of a text. The caller closes it. Returns false if there is none that
 * may be used; then loam_error() is of no interest. Nothing is kept where LOAM_CONTROL is 0. */
bool lm_image_cache_find(const char *text, size_t length, lm_policy_image **out);
/* Keeps the image if it can be written. A program that comes later compiles the policy if not. */
void lm_image_cache_put(const lm_policy_image *image);

#endif
