/* chance.h - random numbers for tests. They are the same in each run, because a test has its own
 * seed. */
#ifndef CHANCE_H
#define CHANCE_H

#include <stdint.h>

/* Returns a random number below n, and changes the seed. Knuth's generator MMIX: its high bits are
 * good, so the low ones are not used. */
static inline uint32_t chance(uint64_t *seed, uint32_t n) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*seed >> 33) % n;
}

#endif
