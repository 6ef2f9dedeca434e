/* live.hpp - returns the number of live blocks of a tag, for tests of the C++ binding. */
#ifndef LIVE_HPP
#define LIVE_HPP

#include <loam.hpp>

#include <cstring>

struct live {
  const char *tag;
  uint64_t blocks;
};

inline void add_row(void *ctx, const loam_stats_row *row) {
  auto sum = static_cast<live *>(ctx);
  if (!std::strcmp(row->tag, sum->tag)) sum->blocks += row->live_blocks;
}

inline uint64_t live_under(const char *tag) {
  live sum = { tag, 0 };
  loam::check(loam_stats_by(LOAM_BY_TAG, add_row, &sum));
  return sum.blocks;
}

#endif
