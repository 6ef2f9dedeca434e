/* own_folder.h - a program of tests with a control folder of its own, which other programs of the
 * user do not see, and without a control socket. */
#ifndef OWN_FOLDER_H
#define OWN_FOLDER_H

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static char own_folder[] = "/tmp/loam-test-XXXXXX";

static inline bool make_own_folder(void) {
  return mkdtemp(own_folder) && !setenv("LOAM_CONTROL_DIR", own_folder, 1) &&
         !setenv("LOAM_CONTROL", "0", 1);
}

static inline int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place) {
  (void)st;
  (void)kind;
  (void)place;
  return remove(path);
}

static inline bool remove_own_folder(void) { return !nftw(own_folder, remove_one, 8, FTW_DEPTH); }

#endif
