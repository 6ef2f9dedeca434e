/* cold_code_end.c - where the code ends that is seldom wanted. */
#include "os/cold_code.h"

void lm_cold_code_end(void) {}
