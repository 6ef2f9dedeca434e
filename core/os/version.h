/* version.h - the version of loam as text, such as "1.0.0", from the numbers in loam.h. */
#ifndef LM_VERSION_H
#define LM_VERSION_H

#include "loam.h"

#define LM_VERSION_TEXT_OF(number) #number
#define LM_VERSION_JOIN(major, minor, patch) \
  LM_VERSION_TEXT_OF(major) "." LM_VERSION_TEXT_OF(minor) "." LM_VERSION_TEXT_OF(patch)
#define LM_VERSION LM_VERSION_JOIN(LOAM_VERSION_MAJOR, LOAM_VERSION_MINOR, LOAM_VERSION_PATCH)

#endif
