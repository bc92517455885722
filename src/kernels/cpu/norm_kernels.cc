#include "kernels/norm_kernels.h"

#include <vector>

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/norm_math.h"

namespace tandem {
namespace {

constexpr int kMaxAccumulators = 256 * kNormSlots;

#define TANDEM_ROW_LOOP __attribute__((always_inline)) inline

TANDEM_ROW_LOOP void read_row(float* __restrict out, const TypedInput& in, int64_t first, int width) {
  if (in.type == FloatType::kFloat) {
    const float* const from = static_cast<const float*>(in.data) + first;
    for (int i = 0; i < width; ++i) out[i] = from[i];
  } else if (in.type == FloatType::kBFloat16) {
    const uint16_t* const from = static_cast<const uint16_t*>(in.data) + first;
    for (int i = 0; i < width; ++i) out[i] = bf16_to_float(from[i]);
  } else {
    const uint16_t* const from = static_cast<const uint16_t*>(in.data) + first;
    for (int i = 0; i < width; ++i) out[i] = half_to_float(from[i]);
  }
}

TANDEM_ROW_LOOP void write_row(const TypedOutput& out, int64_t first, const float* __restrict in, int width) {
  if (out.type == FloatType::kFloat) {
    float* __restrict const to = static_cast<float*>(out.data) + first;
    for (int i = 0; i < width; ++i) to[i] = in[i];
  } else if (out.type == FloatType::kBFloat16) {
    uint16_t* __restrict const to = static_cast<uint16_t*>(out.data) + first;
    for (int i = 0; i < width; ++i) to[i] = float_to_bf16(in[i]);
  } else {
    uint16_t* __restrict const to = static_cast<uint16_t*>(out.data) + first;
    for (int i = 0; i < width; ++i) to[i] = float_to_half(in[i]);
  }
}

// The sum over a row of term(i), in the order of norm_math.h.
template <typename Term>
TANDEM_ROW_LOOP float norm_row_sum(int width, const Term& term) {
  const int lanes = norm_lanes(width), accumulators = lanes * kNormSlots;
  alignas(64) float sums[kMaxAccumulators];
  for (int a = 0; a < accumulators; ++a) sums[a] = 0;
  for (int first = 0; first < width; first += accumulators) {
    const int count = std::min(accumulators, width - first);
    for (int i = 0; i < count; ++i) sums[i] += term(first + i);
  }
  float lane_sums[256];
  for (int l = 0; l < lanes; ++l) lane_sums[l] = add_slots(sums + l * kNormSlots);
  for (int group = 0; group < lanes / 32; ++group)
    for (int mask = 16; mask > 0; mask /= 2)
      for (int l = 0; l < mask; ++l) lane_sums[32 * group + l] += lane_sums[32 * group + l + mask];
  for (int mask = lanes / 64; mask > 0; mask /= 2)
    for (int group = 0; group < mask; ++group) lane_sums[32 * group] += lane_sums[32 * (group + mask)];
  return lane_sums[0];
}

TANDEM_ROW_LOOP void forward_rows(const LayerNormForwardCall& call) {
  const int width = call.width;
  std::vector<float> row_memory(static_cast<size_t>(2 * width));
  float *const x = row_memory.data(), *const other = x + width;
  for (int64_t row = 0; row < call.rows; ++row) {
    const int64_t first = row * width;
    read_row(x, call.x, first, width);
    if (call.residual.data) {
      read_row(other, call.residual, first, width);
      for (int i = 0; i < width; ++i) x[i] = x[i] + other[i];
      write_row(call.sum, first, x, width);
      if (call.sum.type != FloatType::kFloat) read_row(x, {call.sum.data, call.sum.type}, first, width);
    }
    const float mean =
        norm_row_sum(width, [=](int i) TANDEM_INLINE_LAMBDA { return x[i]; }) / static_cast<float>(width);
    const float squares =
        norm_row_sum(width, [=](int i) TANDEM_INLINE_LAMBDA { return squared_deviation(x[i], mean); });
    const RowStatistics statistics{mean, reciprocal_deviation(squares, width, call.eps)};
    for (int i = 0; i < width; ++i) other[i] = normalised(x[i], statistics) * call.weight[i] + call.bias[i];
    write_row(call.out, first, other, width);
    call.mean[row] = statistics.mean;
    call.rstd[row] = statistics.rstd;
  }
}

// Room for one row, for the sums of the row groups of a block, and for the totals of a shard.
struct BackwardRoom {
  explicit BackwardRoom(int width)
      : rows(static_cast<size_t>(4 * width)),
        sums(static_cast<size_t>(2 * width * norm_row_groups(width))),
        totals(static_cast<size_t>(2 * width * kNormTotals)) {}
  std::vector<float> rows, sums, totals;
};

TANDEM_ROW_LOOP void backward_row(const LayerNormBackwardCall& call, int64_t row, BackwardRoom& room,
                                  float* weight_sums, float* bias_sums) {
  const int width = call.width;
  float *const dy = room.rows.data(), *const g = dy + width, *const xhat = g + width, *const other = xhat + width;
  const int64_t first = row * width;
  const RowStatistics statistics{call.mean[row], call.rstd[row]};
  read_row(dy, call.out_grad, first, width);
  read_row(xhat, call.sum, first, width);
  const float* const weight = call.weight;
  TANDEM_INDEPENDENT
  for (int i = 0; i < width; ++i) {
    xhat[i] = normalised(xhat[i], statistics);
    g[i] = dy[i] * weight[i];
  }
  if (weight_sums) {
    TANDEM_INDEPENDENT
    for (int i = 0; i < width; ++i) {
      weight_sums[i] = weight_sums[i] + dy[i] * xhat[i];
      bias_sums[i] = bias_sums[i] + dy[i];
    }
  }
  if (!call.grad.data) return;
  const float sum_g = norm_row_sum(width, [=](int i) TANDEM_INLINE_LAMBDA { return g[i]; });
  const float sum_g_xhat = norm_row_sum(width, [=](int i) TANDEM_INLINE_LAMBDA { return g[i] * xhat[i]; });
  const RowGradients gradients = row_gradients(sum_g, sum_g_xhat, statistics.rstd, width);
  TANDEM_INDEPENDENT
  for (int i = 0; i < width; ++i) dy[i] = input_gradient(g[i], xhat[i], gradients);
  if (call.sum_grad.data) {
    read_row(other, call.sum_grad, first, width);
    TANDEM_INDEPENDENT
    for (int i = 0; i < width; ++i) dy[i] = dy[i] + other[i];
  }
  write_row(call.grad, first, dy, width);
  if (call.second_grad.data) write_row(call.second_grad, first, dy, width);
}

// Adds a block's row groups, then the sum to its total.
TANDEM_ROW_LOOP void end_block(BackwardRoom& room, int64_t block, int width) {
  const int groups = norm_row_groups(width);
  for (int which = 0; which < 2; ++which) {
    const float* const sums = room.sums.data() + which * groups * width;
    float* const total = room.totals.data() + (which * kNormTotals + block % kNormTotals) * width;
    for (int i = 0; i < width; ++i) {
      float sum = sums[i];
      for (int group = 1; group < groups; ++group) sum = sum + sums[group * width + i];
      total[i] = total[i] + sum;
    }
  }
}

TANDEM_ROW_LOOP void end_shard(BackwardRoom& room, const LayerNormBackwardCall& call, int shard) {
  const int width = call.width;
  for (int which = 0; which < 2; ++which) {
    float* const totals = room.totals.data() + which * kNormTotals * width;
    float* const leaves = (which == 0 ? call.weight_leaves : call.bias_leaves) + int64_t{shard} * width;
    for (int mask = kNormTotals / 2; mask > 0; mask /= 2)
      for (int i = 0; i < mask * width; ++i) totals[i] = totals[i] + totals[mask * width + i];
    std::copy(totals, totals + width, leaves);
  }
}

TANDEM_ROW_LOOP void backward_rows(const LayerNormBackwardCall& call) {
  const int width = call.width, groups = norm_row_groups(width);
  const int64_t block_rows = norm_block_rows(call.shard_rows);
  const bool leaves = call.weight_leaves != nullptr;
  BackwardRoom room(width);
  float *const weight_sums = room.sums.data(), *const bias_sums = weight_sums + groups * width;
  for (int shard = 0; shard < call.shards; ++shard) {
    std::fill(room.totals.begin(), room.totals.end(), 0.0f);
    for (int64_t block = 0; block < norm_blocks(call.shard_rows); ++block) {
      std::fill(room.sums.begin(), room.sums.end(), 0.0f);
      const int64_t begin = block * block_rows, end = std::min(begin + block_rows, call.shard_rows);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = (r - begin) % groups * width;
        backward_row(call, shard * call.shard_rows + r, room, leaves ? weight_sums + at : nullptr,
                     leaves ? bias_sums + at : nullptr);
      }
      if (leaves) end_block(room, block, width);
    }
    if (leaves) end_shard(room, call, shard);
  }
}

void layer_norm_forward(const LayerNormForwardCall& call, void*) {
  run_variant(best_cpu_variant(), [&]() TANDEM_INLINE_LAMBDA { forward_rows(call); });
}
void layer_norm_backward(const LayerNormBackwardCall& call, void*) {
  run_variant(best_cpu_variant(), [&]() TANDEM_INLINE_LAMBDA { backward_rows(call); });
}

}  // namespace

const LayerNormKernels& LayerNormKernels::cpu() {
  static const LayerNormKernels kernels{layer_norm_forward, layer_norm_backward};
  return kernels;
}

}  // namespace tandem
