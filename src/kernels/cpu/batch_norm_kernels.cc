#include "kernels/batch_norm_kernels.h"

#include <algorithm>

#include "kernels/cpu/norm_lanes.h"

namespace tandem {
namespace {

// Where value (row, channel) of a shard lies.
struct NormIndex {
  int64_t first, channels, inner;  // first: the shard's first element
  TANDEM_HD int64_t operator()(int64_t row, int64_t channel) const {
    if (inner == 1) return first + row * channels + channel;
    return first + (row / inner * channels + channel) * inner + row % inner;
  }
};

TANDEM_HD NormIndex norm_index(const BatchNormShape& s, int shard) {
  return {shard * s.rows * s.channels, s.channels, s.inner};
}

// One block of rows of some channels as floats; channels beyond the last one are 0.
template <FloatType kType>
TANDEM_HD void read_tile(NormTile& tile, const void* data, const NormIndex& at, int64_t row, int rows, int64_t channel,
                         int channels) {
  if (at.inner == 1) {
    for (int r = 0; r < rows; ++r) read_channels<kType>(tile[r], data, at(row + r, channel), channels);
    return;
  }
  for (int c = 0; c < kTileChannels; ++c)
    for (int r = 0; r < rows; ++r) tile[r][c] = c < channels ? load_float(data, kType, at(row + r, channel + c)) : 0.0f;
}
template <FloatType kType>
TANDEM_HD void write_tile(const NormTile& tile, void* data, const NormIndex& at, int64_t row, int rows, int64_t channel,
                          int channels) {
  if (at.inner == 1) {
    for (int r = 0; r < rows; ++r) write_channels<kType>(tile[r], data, at(row + r, channel), channels);
    return;
  }
  for (int c = 0; c < channels; ++c)
    for (int r = 0; r < rows; ++r) store_float(data, kType, at(row + r, channel + c), tile[r][c]);
}

// body(shard, channel, channels, block, row, rows) for every tile: all blocks of some channels of a shard in a row.
template <typename Body>
TANDEM_HD void for_each_tile(const BatchNormShape& s, const Body& body) {
  for (int shard = 0; shard < s.shards; ++shard)
    for (int64_t channel = 0; channel < s.channels; channel += kTileChannels) {
      const int channels = static_cast<int>(std::min<int64_t>(kTileChannels, s.channels - channel));
      for (int64_t block = 0; block < moment_blocks(s.rows); ++block) {
        const int64_t row = block * kMomentBlock;
        body(shard, channel, channels, block, row, static_cast<int>(std::min<int64_t>(kMomentBlock, s.rows - row)));
      }
    }
}

TANDEM_HD void lane_moments(const NormTile& tile, int count, int lane, ChannelPairs& found) {
  float mean[kTileChannels] = {}, squares[kTileChannels] = {};
  for (int k = 0; k < count; ++k) TANDEM_INDEPENDENT
  for (int c = 0; c < kTileChannels; ++c) mean[c] = mean[c] + tile[lane + kMomentLanes * k][c];
  const float rows = static_cast<float>(count);
  TANDEM_INDEPENDENT
  for (int c = 0; c < kTileChannels; ++c) mean[c] = mean[c] / rows;
  for (int k = 0; k < count; ++k) TANDEM_INDEPENDENT
  for (int c = 0; c < kTileChannels; ++c) {
    const float distance = tile[lane + kMomentLanes * k][c] - mean[c];
    squares[c] = squares[c] + distance * distance;
  }
  std::copy_n(mean, kTileChannels, found.first);
  std::copy_n(squares, kTileChannels, found.second);
}

template <FloatType kType>
void norm_statistics(const BatchNormShape& s, const void* x, float* scratch) {
  run_variant(best_cpu_variant(), [=]() TANDEM_INLINE_LAMBDA {
    NormTile tile;
    NormLanes lanes;
    for_each_tile(
        s, [&](int shard, int64_t channel, int channels, int64_t block, int64_t row, int rows) TANDEM_INLINE_LAMBDA {
          read_tile<kType>(tile, x, norm_index(s, shard), row, rows, channel, channels);
          for (int lane = 0; lane < std::min(rows, kMomentLanes); ++lane)
            lane_moments(tile, static_cast<int>(rows_of_lane(rows, lane, kMomentLanes)), lane, lanes[lane]);
          merge_lanes_of_block<MergeMoments>(lanes, rows);
          store_pairs(s, scratch, shard, block, channel, channels, lanes);
        });
  });
}

// A channel's numbers for the tile's loops.
struct TileTerms {
  float mean[kTileChannels]{}, scale[kTileChannels]{}, bias[kTileChannels]{}, mean_grad[kTileChannels]{},
      slope[kTileChannels]{};
};

template <FloatType kType>
void norm_forward(const BatchNormShape& s, const void* x, const void* add, const float* mean, const float* inv_std,
                  const float* weight, const float* bias, bool relu, void* y) {
  run_variant(best_cpu_variant(), [=]() TANDEM_INLINE_LAMBDA {
    NormTile tile, added;
    for_each_tile(s,
                  [&](int shard, int64_t channel, int channels, int64_t, int64_t row, int rows) TANDEM_INLINE_LAMBDA {
                    const NormIndex at = norm_index(s, shard);
                    TileTerms terms;
                    for (int c = 0; c < channels; ++c) {
                      const int64_t i = shard * s.channels + channel + c;
                      terms.mean[c] = mean[i];
                      terms.scale[c] = inv_std[i] * weight[channel + c];
                      terms.bias[c] = bias[channel + c];
                    }
                    read_tile<kType>(tile, x, at, row, rows, channel, channels);
                    if (add) read_tile<kType>(added, add, at, row, rows, channel, channels);
                    for (int r = 0; r < rows; ++r) TANDEM_INDEPENDENT
                    for (int c = 0; c < kTileChannels; ++c) {
                      float value = normalised(tile[r][c], terms.mean[c], terms.scale[c], terms.bias[c]);
                      if (add) value = value + added[r][c];
                      tile[r][c] = relu ? relu_of(value) : value;
                    }
                    write_tile<kType>(tile, y, at, row, rows, channel, channels);
                  });
  });
}

using NormGiven = BatchNormKernels::Backward;

// tile = y_grad where it counts, x_tile = x.
template <FloatType kType>
TANDEM_HD void read_gradient(NormTile& tile, NormTile& x_tile, NormTile& y_tile, const NormGiven& given,
                             const TileTerms& terms, const NormIndex& at, int64_t row, int rows, int64_t channel,
                             int channels) {
  read_tile<kType>(tile, given.y_grad, at, row, rows, channel, channels);
  read_tile<kType>(x_tile, given.x, at, row, rows, channel, channels);
  if (!given.relu) return;
  if (given.y) {
    read_tile<kType>(y_tile, given.y, at, row, rows, channel, channels);
  } else {
    for (int r = 0; r < rows; ++r) TANDEM_INDEPENDENT
    for (int c = 0; c < kTileChannels; ++c)
      y_tile[r][c] = round_to(kType, relu_of(normalised(x_tile[r][c], terms.mean[c], terms.scale[c], terms.bias[c])));
  }
  for (int r = 0; r < rows; ++r) TANDEM_INDEPENDENT
  for (int c = 0; c < kTileChannels; ++c) tile[r][c] = where_positive(tile[r][c], y_tile[r][c]);
}

TANDEM_HD TileTerms given_terms(const BatchNormShape& s, const NormGiven& given, int shard, int64_t channel,
                                int channels) {
  TileTerms terms;
  for (int c = 0; c < channels; ++c) {
    const int64_t i = shard * s.channels + channel + c;
    terms.mean[c] = given.mean[i];
    terms.scale[c] = given.inv_std[i] * given.weight[channel + c];
    terms.bias[c] = given.bias[channel + c];
  }
  return terms;
}

TANDEM_HD void lane_sums(const NormTile& gradient, const NormTile& x, const TileTerms& terms, int rows, int lane,
                         ChannelPairs& found) {
  float weighted[kTileChannels] = {}, sums[kTileChannels] = {};
  for (int r = lane; r < rows; r += kMomentLanes) TANDEM_INDEPENDENT
  for (int c = 0; c < kTileChannels; ++c) {
    weighted[c] = weighted[c] + gradient[r][c] * (x[r][c] - terms.mean[c]);
    sums[c] = sums[c] + gradient[r][c];
  }
  std::copy_n(weighted, kTileChannels, found.first);
  std::copy_n(sums, kTileChannels, found.second);
}

template <FloatType kType>
void norm_backward_sums(const BatchNormShape& s, const NormGiven& given, float* scratch) {
  run_variant(best_cpu_variant(), [=]() TANDEM_INLINE_LAMBDA {
    NormTile gradient, x, y;
    NormLanes lanes;
    for_each_tile(
        s, [&](int shard, int64_t channel, int channels, int64_t block, int64_t row, int rows) TANDEM_INLINE_LAMBDA {
          const TileTerms terms = given_terms(s, given, shard, channel, channels);
          read_gradient<kType>(gradient, x, y, given, terms, norm_index(s, shard), row, rows, channel, channels);
          for (int lane = 0; lane < std::min(rows, kMomentLanes); ++lane)
            lane_sums(gradient, x, terms, rows, lane, lanes[lane]);
          merge_lanes_of_block<MergeSums>(lanes, rows);
          store_pairs(s, scratch, shard, block, channel, channels, lanes);
        });
  });
}

template <FloatType kType>
void norm_backward(const BatchNormShape& s, const NormGiven& given, const float* weight_leaves,
                   const float* bias_leaves, void* x_grad, void* add_grad) {
  run_variant(best_cpu_variant(), [=]() TANDEM_INLINE_LAMBDA {
    NormTile gradient, x, y;
    for_each_tile(
        s, [&](int shard, int64_t channel, int channels, int64_t, int64_t row, int rows) TANDEM_INLINE_LAMBDA {
          const NormIndex at = norm_index(s, shard);
          TileTerms terms = given_terms(s, given, shard, channel, channels);
          for (int c = 0; c < channels; ++c) {
            const int64_t i = shard * s.channels + channel + c;
            const BackwardTerms found = backward_terms(given.mean[i], given.inv_std[i], given.weight[channel + c],
                                                       weight_leaves[i], bias_leaves[i], s.rows);
            terms.mean_grad[c] = found.mean_grad;
            terms.slope[c] = found.slope;
          }
          read_gradient<kType>(gradient, x, y, given, terms, at, row, rows, channel, channels);
          if (add_grad) write_tile<kType>(gradient, add_grad, at, row, rows, channel, channels);
          if (!x_grad) return;
          for (int r = 0; r < rows; ++r) TANDEM_INDEPENDENT
          for (int c = 0; c < kTileChannels; ++c)
            gradient[r][c] = norm_x_grad(gradient[r][c], x[r][c],
                                         {terms.mean[c], terms.scale[c], terms.mean_grad[c], terms.slope[c]});
          write_tile<kType>(gradient, x_grad, at, row, rows, channel, channels);
        });
  });
}

// call.operator()<type>()
template <typename Call>
void with_norm_type(FloatType type, const Call& call) {
  switch (type) {
    case FloatType::kFloat:
      return call.template operator()<FloatType::kFloat>();
    case FloatType::kBFloat16:
      return call.template operator()<FloatType::kBFloat16>();
    case FloatType::kHalf:
      return call.template operator()<FloatType::kHalf>();
  }
}

}  // namespace

int64_t batch_norm_scratch_floats(const BatchNormShape& s) { return 2 * s.shards * moment_blocks(s.rows) * s.channels; }

const BatchNormKernels& BatchNormKernels::cpu() {
  static const BatchNormKernels kernels{
      .statistics =
          [](const BatchNormShape& s, const void* x, float eps, float share, float* mean, float* inv_std,
             float* mean_leaves, float* var_leaves, float* scratch, void*) {
            with_norm_type(s.type, [&]<FloatType kType>() { norm_statistics<kType>(s, x, scratch); });
            merge_blocks<MergeMoments>(s, scratch, [&](int64_t i, float found_mean, float squares) {
              const ChannelStatistics found = channel_statistics(squares, s.rows, eps);
              mean[i] = found_mean;
              inv_std[i] = found.inv_std;
              if (mean_leaves) mean_leaves[i] = found_mean * share;
              if (var_leaves) var_leaves[i] = found.unbiased_variance * share;
            });
          },
      .forward =
          [](const BatchNormShape& s, const void* x, const void* add, const float* mean, const float* inv_std,
             const float* weight, const float* bias, bool relu, void* y, void*) {
            with_norm_type(s.type, [&]<FloatType kType>() {
              norm_forward<kType>(s, x, add, mean, inv_std, weight, bias, relu, y);
            });
          },
      .backward_sums =
          [](const BatchNormShape& s, const Backward& given, float* weight_leaves, float* bias_leaves, float* scratch,
             void*) {
            with_norm_type(s.type, [&]<FloatType kType>() { norm_backward_sums<kType>(s, given, scratch); });
            merge_blocks<MergeSums>(s, scratch, [&](int64_t i, float weighted, float sum) {
              weight_leaves[i] = weighted * given.inv_std[i];
              bias_leaves[i] = sum;
            });
          },
      .backward =
          [](const BatchNormShape& s, const Backward& given, const float* weight_leaves, const float* bias_leaves,
             void* x_grad, void* add_grad, void*) {
            with_norm_type(s.type, [&]<FloatType kType>() {
              norm_backward<kType>(s, given, weight_leaves, bias_leaves, x_grad, add_grad);
            });
          }};
  return kernels;
}

}  // namespace tandem
