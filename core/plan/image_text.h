/* image_text.h - a policy image as text, for the environment: `loam run` has compiled the policy
 * for the program that it becomes, and for the programs that this starts.
 *
 * The text stands for the image without the policy's own text, which the program has read from the
 * policy file. Each byte is two hexadecimal digits; `z` with two digits is a run of that many
 * zeros, of which an image has many. */
#ifndef LM_IMAGE_TEXT_H
#define LM_IMAGE_TEXT_H

#include "plan/policy_image.h"

/* LM_IMAGE_TEXT_SIZE: room for a text and its NUL, which is in the environment of every child.
 * LM_IMAGE_TEXT_BYTES: the most bytes that a text may stand for. */
enum { LM_IMAGE_TEXT_SIZE = 8192, LM_IMAGE_TEXT_BYTES = 65536 };

/* Writes an image as text. Returns false if the text would be too long. */
bool lm_image_text_write(const void *image, size_t size, char text[LM_IMAGE_TEXT_SIZE]);
/* Makes the image that a text stands for; it holds the policy's text `policy`, of `length` bytes.
 * Returns lm_metadata memory that the caller frees, or NULL if `text` stands for no image or there
 * is no memory. Whoever set the environment may have written anything, so the image still has to
 * pass lm_policy_image_open. */
void *lm_image_text_read(const char *text, const char *policy, size_t length, size_t *size);

#endif
