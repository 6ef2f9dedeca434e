/* policy.h - the live policy: loads a policy, checks it, makes it live, and keeps the last good
 * one.
 *
 * Each policy that becomes live is a generation with a number. There are two locks. `load_lock` is
 * held during a whole load, so that loads come one after the other. `live_lock` is held for
 * moments: it guards the live generation's policy image and every write to the plans of sites.
 *
 * A load compiles the whole policy into an image (plan/policy_image.h), runs the policy's tests and
 * closes Lua, which is not needed again until the next load. Then it finds the plans of all known
 * sites in the image. Under `live_lock`, it finds those of the sites that came since, writes the
 * plans of all sites for the next generation (loam_site.now, by the parity of the number), and sets
 * lm_site_generation. Then it waits until no thread reads the old plans (lm_thread_grace), and
 * closes the old image, which frees these plans. Threads that allocate memory take neither lock. A
 * thread that makes a new site takes `live_lock`, and finds the site's plan in the image. */
#ifndef LM_POLICY_H
#define LM_POLICY_H

#include "plan/site.h"
#include "script/policy_file.h"
#include "script/script.h"

/* Registers the fork hooks of this file and, before them, of the memory layers below. Must be
 * called before the first site is made: making a site takes a lock that a forked child must not
 * find taken. Later calls do nothing. */
void lm_policy_start(void);
/* Sets the limits of later loads. A field of 0 does not change that limit. */
void lm_policy_set_limits(const lm_script_limits *limits);
const lm_script_limits *lm_policy_limits(void);

/* Makes room for the strategies of a policy that is about to be inspected: takes the places of bins
 * from strategies that the live policy does not name and that hold no memory, if few places are
 * left. A load does that itself. May wait for a load; the caller is not active. */
void lm_policy_make_room(void);

/* Loads a policy's text of `length` bytes, which came from no file. `name` stands in messages. */
loam_status lm_policy_load(const char *name, const char *text, size_t length);
/* Reads a policy file and loads it. A file that is empty, cut off or changing is LOAM_EIO or
 * LOAM_EPOLICY. */
loam_status lm_policy_load_file(const char *path);
/* Like lm_policy_load_file, for a file whose later edits are loaded as well: LOAM_EIO if other
 * users can change the file (LM_READ_TO_FOLLOW in policy_file.h). With `if_changed`, the file is
 * not loaded if its text is already live or was refused by the last load; LOAM_OK is returned
 * then. */
loam_status lm_policy_load_followed(const char *path, bool if_changed);
/* ---- Images that were published on the board (publish.h) */

/* Takes the load lock if no thread has it. True: the caller calls lm_policy_end. In between, it
 * counts as inside loam. */
bool lm_policy_try_begin(void);
/* Takes the load lock, and waits for it. */
void lm_policy_begin(void);
void lm_policy_end(void);
/* Makes an image live whose bytes, in lm_metadata memory, are the policy of the file `path`. Frees
 * the bytes on failure. Uses little stack, and starts nothing. Under the load lock. */
loam_status lm_policy_load_image_locked(const char *path, void *bytes, size_t size);
/* Gives back what policies that were replaced by published ones have left: their plans, and the
 * memory of strategies that no policy names any more. Does a step that takes no waiting, and is to
 * be called again. Does nothing while a thread loads a policy. With no lock held. */
void lm_policy_tidy(void);
/* Records how a load of a published image ended. `path` is the policy file, and `text_hash` the
 * hash of the policy's text. Under the load lock. */
void lm_policy_note_published_locked(loam_status status, const char *path, uint64_t text_hash);
/* Reports the end of such a load as an event. With no lock held. */
void lm_policy_announce_published(loam_status status);

/* Tells whether live memory is to be moved to follow the live policy: apply = "live". */
bool lm_policy_is_followed(void);
/* Fills `out` as loam_policy_info does. Returns the hash of the text that the last attempt refused;
 * 0: the attempt succeeded, or it could not read a text. */
uint64_t lm_policy_info_get(struct loam_policy_info *out);
/* Returns n bytes, of which byte i is 1 if the live policy names strategy i; NULL: there is no
 * memory. The caller frees the bytes with lm_metadata_free. */
uint8_t *lm_policy_strategies_named(uint32_t n);

/* Sets the function to be called each time after a policy became live. Its argument is
 * lm_policy_is_followed(). It is called by the thread that loaded the policy, with no lock held.
 * The service layer sets it at start; NULL: nothing is called. */
void lm_policy_on_live(void (*announce)(bool is_followed));
/* Sets the function to be called after each attempt to load a policy, and after a refused edit was
 * undone. It is called with the load lock held; NULL: nothing is called. */
void lm_policy_on_attempt(void (*note)(void));
/* Notes whether the service watches the live policy's file, for loam_policy_info. May be called
 * with any lock held. */
void lm_policy_set_watched(bool is_watched);
bool lm_policy_is_watched(void);

/* Checks that the record of the live policy agrees with lm_site_generation and with the live
 * image. Takes `live_lock`. */
bool lm_policy_is_valid(void);

#endif
