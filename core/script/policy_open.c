/* policy_open.c - opens policies: texts and images. */
#include "script/policy_open.h"

#include <stdio.h>
#include <string.h>

#include "os/error.h"
#include "script/policy_file.h"

/* Puts the name of a policy before the error words. An image that is not valid is a policy that is
 * refused. */
static loam_status name_error(loam_status status, const char *name) {
  char words[LM_ERROR_SIZE];
  snprintf(words, sizeof words, "%s", loam_error());
  return lm_error(status == LOAM_EINVAL ? LOAM_EPOLICY : status, "%s: %s", name, words);
}

/* Opens an image whose bytes are freed on failure. */
static loam_status open_bytes(const lm_script_source *source, void *bytes, size_t size,
                              lm_policy_image **out) {
  loam_status status = lm_policy_image_open(bytes, size, source->is_host, out);
  if (status == LOAM_OK) return status;
  lm_metadata_free(bytes);
  return name_error(status, source->name);
}

static loam_status compile(const lm_script_source *source, bool is_vetted, lm_policy_image **out) {
  void *bytes;
  size_t size;
  loam_status status = lm_script_compile(source, is_vetted, &bytes, &size);
  return status == LOAM_OK ? open_bytes(source, bytes, size, out) : status;
}

static loam_status open_copy(const lm_script_source *source, lm_policy_image **out) {
  void *copy = lm_metadata_alloc(source->length);
  if (!copy) return lm_error(LOAM_ENOMEM, "%s: no memory to load it", source->name);
  memcpy(copy, source->text, source->length);
  return open_bytes(source, copy, source->length, out);
}

/* Compiles the text in an image. The error words, of why the image cannot be used, are kept. */
static loam_status recompile(const lm_script_source *source, bool is_vetted,
                             lm_policy_opened *out) {
  lm_script_source text = *source;
  size_t before = strlen(source->name) + strlen(": "); /* name_error has put the name there */
  bool has_reason = before < strlen(loam_error());     /* else the words were cut in the name */
  snprintf(out->recompiled, sizeof out->recompiled, "%s",
           has_reason ? loam_error() + before : loam_error());
  loam_status status = lm_policy_open_text(source->name, &text.text, &text.length);
  if (status == LOAM_OK) status = compile(&text, is_vetted, &out->image);
  if (status != LOAM_EUNSUPPORTED) return status;
  char words[LM_ERROR_SIZE];
  snprintf(words, sizeof words, "%s", loam_error());
  return lm_error(status, "%s: %s; and its text cannot be compiled: %s", source->name,
                  out->recompiled, words);
}

loam_status lm_policy_open(const lm_script_source *source, bool is_vetted, lm_policy_opened *out) {
  *out = (lm_policy_opened){ 0 };
  if (!lm_policy_image_is(source->text, source->length))
    return compile(source, is_vetted, &out->image);
  loam_status status = open_copy(source, &out->image);
  return status == LOAM_EUNSUPPORTED ? recompile(source, is_vetted, out) : status;
}

bool lm_policy_open_is_verdict(loam_status status) {
  return status == LOAM_EPOLICY || status == LOAM_EUNSUPPORTED;
}

loam_status lm_policy_open_text(const char *name, const char **text, size_t *length) {
  if (!lm_policy_image_is(*text, *length)) return LOAM_OK;
  loam_status status = lm_policy_image_text(*text, *length, text, length);
  return status == LOAM_OK ? status : name_error(status, name);
}

/* Returns LOAM_EPOLICY if a program on this machine would use the image in `source` without
 * compiling its text again. `words` say how the image and its text differ. */
static loam_status refuse_if_loaded(const lm_script_source *source, const char *words) {
  lm_policy_image *image;
  loam_status status = open_copy(source, &image);
  if (status != LOAM_OK) return status == LOAM_EUNSUPPORTED ? LOAM_OK : status;
  lm_policy_image_close(image);
  return lm_error(LOAM_EPOLICY, "%s", words);
}

/* Compares an image with the image of the text in it. */
static loam_status check_image(const lm_script_source *source, const lm_script_source *text) {
  char words[LM_ERROR_SIZE];
  void *bytes;
  size_t size;
  loam_status status = lm_script_compile(text, true, &bytes, &size);
  if (status == LOAM_OK) {
    bool is_equal = size == source->length && !memcmp(bytes, source->text, size);
    lm_metadata_free(bytes);
    if (is_equal) return LOAM_OK;
    snprintf(words, sizeof words,
             "%s: policy image: it is not the image of the text in it, and a program decides by "
             "the image: write it again with `loam compile`",
             source->name);
  } else if (lm_policy_open_is_verdict(status)) {
    snprintf(words, sizeof words, "%s", loam_error());
  } else {
    return status;
  }
  return refuse_if_loaded(source, words);
}

loam_status lm_policy_open_to_report(lm_script_source *source) {
  lm_script_source text = *source;
  loam_status status = lm_policy_open_text(source->name, &text.text, &text.length);
  bool is_image = text.text != source->text;
  if (status == LOAM_OK && is_image) status = check_image(source, &text);
  *source = text;
  return status;
}

uint64_t lm_policy_open_hash(const char *text, size_t length) {
  (void)lm_policy_open_text("", &text, &length);
  return lm_policy_file_hash(text, length);
}
