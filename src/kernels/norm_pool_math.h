// kernels/norm_pool_math.h -- what cpu/norm_pool_kernels.cc and gpu/norm_pool.h share: where boxes lie, and codes.
#pragma once

#include <cstdint>

#include "kernels/batch_norm_math.h"
#include "kernels/norm_pool_kernels.h"

namespace tandem {

inline constexpr uint32_t kPoolAlive = 8;  // of a code: the maximum was above 0, or NaN; below it: its place in the box

// A box of clip `clip` of all shards; `whole`: it has an output.
struct PoolBox {
  int64_t clip;
  int t, h, w;  // number of the box along each dimension
  bool whole;
};
// Boxes along a dimension: those with an output, or all, with the rest behind them.
TANDEM_HD int boxes_along(const NormPoolShape& s, int d, bool all) {
  return all ? (s.in[d] + s.box[d] - 1) / s.box[d] : s.out(d);
}
TANDEM_HD int64_t boxes_of_clip(const NormPoolShape& s, bool all) {
  return int64_t{boxes_along(s, 0, all)} * boxes_along(s, 1, all) * boxes_along(s, 2, all);
}
// Box `number` of its clip.
TANDEM_HD PoolBox pool_box(const NormPoolShape& s, int64_t clip, unsigned number, bool all) {
  const unsigned across = static_cast<unsigned>(boxes_along(s, 2, all)),
                 down = static_cast<unsigned>(boxes_along(s, 1, all));
  const int w = static_cast<int>(number % across), h = static_cast<int>(number / across % down),
            t = static_cast<int>(number / across / down);
  return {clip, t, h, w, t < s.out(0) && h < s.out(1) && w < s.out(2)};
}
// The output place of a box that has one, and the input place at `inside` in it; -1: it lies outside the clip.
TANDEM_HD int64_t place_out(const NormPoolShape& s, const PoolBox& b) {
  return ((b.clip * s.out(0) + b.t) * s.out(1) + b.h) * s.out(2) + b.w;
}
TANDEM_HD int64_t place_in(const NormPoolShape& s, const PoolBox& b, int inside) {
  const int t = b.t * s.box[0] + inside / (s.box[1] * s.box[2]), h = b.h * s.box[1] + inside / s.box[2] % s.box[1],
            w = b.w * s.box[2] + inside % s.box[2];
  if (t >= s.in[0] || h >= s.in[1] || w >= s.in[2]) return -1;
  return ((b.clip * s.in[0] + t) * s.in[1] + h) * s.in[2] + w;
}

// Takes one more place of the box in: `best` and `place` are those so far.
TANDEM_HD void take_larger(float value, int inside, float& best, uint32_t& place) {
  const bool larger = (inside == 0) | (value > best) | (value != value);  // without branches: vectors
  best = larger ? value : best;
  place = larger ? static_cast<uint32_t>(inside) : place;
}
TANDEM_HD uint32_t pool_code(float best, uint32_t place) { return best <= 0.0f ? place : place | kPoolAlive; }
TANDEM_HD uint32_t code_of_channel(uint32_t word, int channel) { return word >> 4 * (channel % 8) & 15u; }

}  // namespace tandem
