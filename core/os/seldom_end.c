/* seldom_end.c - where the code ends that is seldom wanted. */
#include "os/seldom.h"

void lm_seldom_end(void) {}
