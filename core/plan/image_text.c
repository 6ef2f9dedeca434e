/* image_text.c - policy images as text: hexadecimal digits, and runs of zeros. */
#include "plan/image_text.h"

#include <stdio.h>
#include <string.h>

#include "os/hash.h"

enum { RUN_MAX = 255 }; /* zeros that two digits can count */

bool lm_image_text_write(const void *image, size_t size, char text[LM_IMAGE_TEXT_SIZE]) {
  const lm_policy_image_frame *frame = image;
  const unsigned char *bytes = image;
  size_t at = 0, end = frame->text.at < size ? frame->text.at : size;
  lm_assert(frame->text.at <= size);
  for (size_t i = 0; i < end;) {
    unsigned run = 0;
    while (i + run < end && run < RUN_MAX && !bytes[i + run]) run++;
    if (at + 4 > LM_IMAGE_TEXT_SIZE) return false;
    if (run > 1) at += (size_t)sprintf(text + at, "z%02x", run);
    else at += (size_t)sprintf(text + at, "%02x", bytes[i]);
    i += run > 1 ? run : 1;
  }
  return true;
}

/* ---- Reading */

static int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the number that two digits stand for; -1 if they are none. */
static int read_byte(const char *text) {
  int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);
  return low < 0 ? -1 : high * 16 + low;
}

/* Decodes a text; without `bytes`, only counts. Returns the number of bytes; 0 if the text is wrong
 * or stands for too many bytes. */
static size_t decode(const char *text, unsigned char *bytes) {
  size_t n = 0;
  while (*text) {
    bool is_run = *text == 'z';
    int byte = read_byte(text + is_run);
    size_t more = is_run ? (size_t)byte : 1;
    if (byte < 0 || more > LM_IMAGE_TEXT_BYTES - n) return 0;
    if (bytes) memset(bytes + n, is_run ? 0 : byte, more);
    n += more;
    text += 2 + is_run;
  }
  return n;
}

/* Appends the policy's text at `end` and makes the frame agree. */
static void complete(char *image, size_t end, const char *policy, size_t length) {
  lm_policy_image_frame *frame = (lm_policy_image_frame *)(void *)image;
  memcpy(image + end, policy, length);
  frame->size = end + length;
  frame->text = (lm_policy_image_range){ end, length };
  frame->text_hash = lm_hash_bytes(policy, length);
  frame->checksum = lm_policy_image_checksum(image, end + length);
}

void *lm_image_text_read(const char *text, const char *policy, size_t length, size_t *size) {
  size_t end = decode(text, NULL);
  if (end < sizeof(lm_policy_image_frame)) return NULL;
  char *image = lm_metadata_alloc(end + length);
  if (!image) return NULL;
  decode(text, (unsigned char *)image);
  complete(image, end, policy, length);
  *size = end + length;
  return image;
}
