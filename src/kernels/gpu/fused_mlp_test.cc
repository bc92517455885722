// A fused MLP beside the same layers one by one, on emulated wgmma: other numbers and widths of layers and other row
// counts than a DQN's.
#define TANDEM_EMULATED_TENSOR_CORES
#define TANDEM_EMULATED_WARPGROUPS
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/gpu/fused_mlp_layers.h"
#include "kernels/gpu/gemm_linear.h"

namespace tandem::cuda {
namespace {

constexpr float kNormEpsilon = 1e-5f;
constexpr int kShards = 3;

// Linear, layer norm, ReLU, dropout for each width but the last; kShards shards of `rows` rows.
struct MlpRun {
  std::vector<int> widths;  // of the input, then of each layer
  int rows;
  BlockChoice choice;
  double dropout = 0.25;
  RandomKey key{.seed = 21};
  std::vector<float> net, in, out, gradient;
  std::vector<std::vector<float>> preacts, outs, inv_stds, norm_out_grads, preact_grads;  // of each hidden layer
  std::vector<PackedFragment> packed;
  MlpShape mlp;
  MlpBackwardShape backward;

  MlpRun(std::vector<int> layer_widths, int rows_per_shard, Precision precision)
      : widths(std::move(layer_widths)), rows(rows_per_shard), choice{.precision = precision} {
    std::mt19937 random(rows);
    std::normal_distribution<float> normal;
    const int layers = static_cast<int>(widths.size()) - 1, all = kShards * rows;
    const auto fill = [&](std::vector<float>& v, int64_t count) {
      const auto first = static_cast<int64_t>(v.size());
      for (int64_t i = 0; i < count; ++i) v.push_back(normal(random));
      return first;
    };
    fill(in, int64_t{all} * widths[0]);
    fill(gradient, int64_t{all} * widths.back());
    mlp.count = layers;
    for (auto* v : {&preacts, &outs, &inv_stds, &norm_out_grads, &preact_grads}) v->resize(layers);
    int64_t fragments = 0;
    for (int l = 0; l < layers; ++l) {
      MlpShape::Layer& layer = mlp.layers[l];
      layer.in = widths[l];
      layer.out = widths[l + 1];
      layer.weight = fill(net, int64_t{layer.in} * layer.out);
      layer.bias = fill(net, layer.out);
      layer.packed = fragments;
      fragments += int64_t{layer.in} * layer.out / 8;
      const int64_t scale = fill(net, layer.out), shift = fill(net, layer.out);
      for (auto* v : {&preacts, &outs, &norm_out_grads, &preact_grads}) (*v)[l].assign(all * layer.out, -1);
      inv_stds[l].assign(all, -1);
      layer.norm = {preacts[l].data(), outs[l].data(), inv_stds[l].data(),          scale, shift, 1, rows,
                    layer.out,         true,           static_cast<uint32_t>(5 + l)};
    }
    backward.count = layers - 1;
    for (int l = layers - 1; l > 0; --l) {
      MlpBackwardShape::Layer& layer = backward.layers[layers - 1 - l];
      layer.packed = fragments;
      layer.in = widths[l + 1];
      fragments += int64_t{widths[l]} * widths[l + 1] / 8;
      const LayerNorm& norm = mlp.layers[l - 1].norm;
      layer.norm = {norm.preact,
                    norm.out,
                    norm.inv_std,
                    norm_out_grads[l - 1].data(),
                    preact_grads[l - 1].data(),
                    norm.scale,
                    widths[l],
                    rows,
                    1,
                    dropout};
    }
    out.assign(int64_t{all} * widths.back(), -1);
    packed.resize(fragments);
    if (is_16bit(precision)) pack();
  }
  void pack() {
    const auto pack_matrix = [&](int64_t first, const float* matrix, int matrix_rows, int k, bool transposed) {
      const PackedSource source{matrix, k, transposed ? 1 : k, transposed ? matrix_rows : 1, static_cast<int>(first)};
      for (int64_t i = first; i < first + int64_t{matrix_rows} * k / 8; ++i)
        packed[i] = choice.precision == Precision::kBf16 ? pack_fragment<Precision::kBf16>(source, static_cast<int>(i))
                                                         : pack_fragment<Precision::kFp16>(source, static_cast<int>(i));
    };
    for (int l = 0; l < mlp.count; ++l) {
      const MlpShape::Layer& layer = mlp.layers[l];
      pack_matrix(layer.packed, net.data() + layer.weight, layer.out, layer.in, false);
      if (l > 0)
        pack_matrix(backward.layers[mlp.count - 1 - l].packed, net.data() + layer.weight, layer.in, layer.out, true);
    }
  }
  std::vector<std::vector<float>> results() const {
    std::vector<std::vector<float>> all{out};
    for (const auto* v : {&outs, &inv_stds, &preacts})
      for (int l = 0; l + 1 < mlp.count; ++l) all.push_back((*v)[l]);
    return all;
  }
  std::vector<std::vector<float>> backward_results() const {
    std::vector<std::vector<float>> all;
    for (const auto* v : {&norm_out_grads, &preact_grads})
      for (int l = 0; l + 1 < mlp.count; ++l) all.push_back((*v)[l]);
    return all;
  }
};

uint32_t bits_of_row(const MlpRun& run, uint32_t site, int shard, int row, int width) {
  RandomKey key = run.key;
  key.shard = static_cast<uint32_t>(shard);
  key.site = site;
  return draw_dropout_bits(key, row, width, dropout_shape(run.dropout));
}

// ---- fused ----

template <class Block>
void load_rows(const MlpRun& run, const float* src, int width, const WarpRows<Block>& rows,
               typename Block::Memory& memory) {
  for (int i = 0; i < Block::kRowsPerWarp; ++i) {
    const int shard = rows.shard(i), row = rows.row(i);
    for (int column = static_cast<int>(threadIdx.x) % 32 * 4; column < width; column += 128)
      memory.store_operand(
          width, rows.row_in_block(i), column,
          shard < 0 ? float4{0, 0, 0, 0} : load4(src + (int64_t{shard} * run.rows + row) * width + column));
  }
}
template <class Block>
void fused_forward_kernel(MlpRun& run) {
  TANDEM_SHARED(typename Block::Memory, memory);
  const WarpRows<Block> rows(0, kShards, run.rows);
  load_rows<Block>(run, run.in.data(), run.widths[0], rows, memory);
  mlp_forward<Block>(memory, rows, run.mlp, run.net.data(), run.packed.data(), kNormEpsilon, run.dropout,
                     dropout_shape(run.dropout), true, [&](uint32_t site, int, int shard, int row, int width) {
                       return bits_of_row(run, site, shard, row, width);
                     });
  const int width = run.widths.back();
  for (int i = 0; i < Block::kRowsPerWarp; ++i) {
    const int shard = rows.shard(i), row = rows.row(i);
    if (shard < 0) continue;
    for (int column = static_cast<int>(threadIdx.x) % 32; column < width; column += 32)
      run.out[(int64_t{shard} * run.rows + row) * width + column] = memory.output(width, rows.row_in_block(i))[column];
  }
}
template <class Block>
void fused_backward_kernel(MlpRun& run) {
  TANDEM_SHARED(typename Block::Memory, memory);
  const WarpRows<Block> rows(0, kShards, run.rows);
  load_rows<Block>(run, run.gradient.data(), run.widths.back(), rows, memory);
  mlp_backward<Block>(memory, rows, run.backward, run.net.data(), run.packed.data());
}

// ---- layer by layer ----

template <Precision precision>
void linear_kernel(const MlpRun& run, const MlpShape::Layer& layer, const float* in, float* out, bool backward) {
  using BlockShape = OneTile<precision>;
  TANDEM_SHARED(typename BlockShape::Memory, memory);
  const int n = backward ? layer.in : layer.out, k = backward ? layer.out : layer.in;
  const GemmShape shape{.groups = kShards, .m = run.rows, .n = n, .k = k};
  const RowTiles tiles(kShards, run.rows);
  const auto row = [&](int tile) { return int64_t{tiles.group(tile)} * run.rows + tiles.row(tile); };
  const auto in_row = [&](int tile) { return in + row(tile) * k; };
  const auto out_row = [&](int tile) { return out + row(tile) * n; };
  const float *weight = run.net.data() + layer.weight, *bias = run.net.data() + layer.bias;
  const int tile = static_cast<int>(blockIdx.y), column = static_cast<int>(blockIdx.x) * kTileColumns;
  if (backward)
    linear_backward_block<BlockShape>(memory, shape, tiles, tile, column, weight, in_row, out_row);
  else
    linear_block<BlockShape>(memory, shape, tiles, tile, column, weight, bias, false, in_row, out_row);
}
void norm_kernel(MlpRun& run, const LayerNorm& norm) {
  const int shard = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.x);
  float4 x[4], scale[4], shift[4];
  load_row(norm.preact + (int64_t{shard} * run.rows + row) * norm.width, norm.width, x);
  load_row(run.net.data() + norm.scale, norm.width, scale);
  load_row(run.net.data() + norm.shift, norm.width, shift);
  const Moments moments = moments_of(x, norm.width, kNormEpsilon);
  layer_norm_row(run.dropout, norm, bits_of_row(run, norm.site, shard, row, norm.width), shard, row, true, x,
                 moments.mean, moments.inv_std, scale, shift, [](int, float4) {});
}
void norm_backward_kernel(MlpRun& run, const LayerNormBackward& norm) {
  const int shard = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.x);
  float4 out_grad[4];
  load_row(norm.norm_out_grad + (int64_t{shard} * run.rows + row) * norm.width, norm.width, out_grad);
  layer_norm_row_backward(norm, run.net.data(), shard, row, out_grad, [](int, float4) {});
}
void by_layers(MlpRun& run, bool backward) {
  const auto linear = [&](const MlpShape::Layer& layer, const float* in, float* out) {
    with_precision(run.choice.precision, [&](auto precision) {
      TANDEM_LAUNCH(
          "", linear_kernel<precision.value>,
          dim3(ceil_div(backward ? layer.in : layer.out, kTileColumns), kShards * ceil_div(run.rows, kTileRows)),
          dim3(OneTile<precision.value>::kThreads), nullptr, run, layer, in, out, backward);
    });
  };
  if (backward) {
    const float* src = run.gradient.data();
    for (int i = 0; i < run.backward.count; ++i) {
      const LayerNormBackward& norm = run.backward.layers[i].norm;
      linear(run.mlp.layers[run.mlp.count - 1 - i], src, norm.norm_out_grad);
      TANDEM_LAUNCH("", norm_backward_kernel, dim3(run.rows, kShards), dim3(32), nullptr, run, norm);
      src = norm.preact_grad;
    }
    return;
  }
  const float* src = run.in.data();
  for (int l = 0; l < run.mlp.count; ++l) {
    const bool last = l + 1 == run.mlp.count;
    linear(run.mlp.layers[l], src, last ? run.out.data() : run.preacts[l].data());
    if (last) break;
    TANDEM_LAUNCH("", norm_kernel, dim3(run.rows, kShards), dim3(32), nullptr, run, run.mlp.layers[l].norm);
    src = run.outs[l].data();
  }
}

template <class Block>
void expect_forward_as_layers(const std::vector<int>& widths, int rows) {
  SCOPED_TRACE(fmt::format("{} rows of {} in blocks of {}, precision {}", rows, fmt::join(widths, "-"), Block::kRows,
                           static_cast<int>(Block::kPrecision)));
  MlpRun layers(widths, rows, Block::kPrecision), fused(widths, rows, Block::kPrecision);
  ASSERT_TRUE(fused.mlp.template fits<Block>());
  by_layers(layers, false);
  TANDEM_LAUNCH("", fused_forward_kernel<Block>, dim3(ceil_div(kShards * rows, Block::kRows)), dim3(Block::kThreads),
                nullptr, fused);
  EXPECT_EQ(fused.results(), layers.results());
}

using enum Precision;

TEST(FusedMlpLayers, GiveTheBitsOfSingleLayersAtOtherWidths) {
  expect_forward_as_layers<Rows40<kFp32>>({256, 384}, 7);                 // one layer
  expect_forward_as_layers<Rows24<kFp32>>({128, 128, 384}, 9);            // two, the last one wide
  expect_forward_as_layers<Rows16<kFp32>>({256, 256, 256, 256, 256}, 3);  // four
  expect_forward_as_layers<Rows24<kTf32>>({512, 128, 256}, 5);
  expect_forward_as_layers<Rows16<kBf16>>({256, 512, 256}, 6);
  expect_forward_as_layers<Rows40<kFp16>>({256, 512, 128, 384}, 4);
}

template <Precision precision>
void expect_backward_as_layers(const std::vector<int>& widths, int rows) {
  using Block = Rows16<precision>;
  SCOPED_TRACE(fmt::format("{} rows of {}", rows, fmt::join(widths, "-")));
  MlpRun layers(widths, rows, precision), fused(widths, rows, precision);
  ASSERT_TRUE(fused.backward.template fits<Block>());
  by_layers(layers, false);
  by_layers(fused, false);
  by_layers(layers, true);
  for (const bool reversed : {false, true}) {
    cuda_on_cpu::last_thread_first = async_completes_early = reversed;
    TANDEM_LAUNCH("", fused_backward_kernel<Block>, dim3(ceil_div(kShards * rows, Block::kRows)), dim3(Block::kThreads),
                  nullptr, fused);
    cuda_on_cpu::last_thread_first = async_completes_early = false;
    EXPECT_EQ(fused.backward_results(), layers.backward_results()) << reversed;
  }
}
TEST(FusedMlpLayers, GoBackwardWithTheBitsOfSingleLayers) {
  expect_backward_as_layers<kBf16>({128, 256, 512, 256}, 5);
  expect_backward_as_layers<kFp16>({128, 256, 512, 256, 128}, 6);
  expect_backward_as_layers<kBf16>({64, 256, 128}, 2);
}

TEST(FusedMlpLayers, FitOnlyWhereSharedMemoryAndTheSplitOfKAllow) {
  EXPECT_TRUE(Rows24<kFp32>::fits(128, 384));
  EXPECT_FALSE(Rows16<kFp32>::fits(128, 384));  // four warpgroups: widths in steps of 256
  EXPECT_FALSE(Rows24<kFp32>::fits(384, 128));  // three slices to a split
  EXPECT_FALSE(Rows24<kFp32>::fits(128, 640));
  EXPECT_TRUE(Rows40<kBf16>::fits(512, 384));
  EXPECT_FALSE(Rows40<kBf16>::fits(512, 512));  // operand and output beside each other
}

// The 32 lanes that store a row's operand must hit 32 banks, as must those that store the output.
template <class Block>
void expect_no_bank_conflict() {
  unsigned banks = 0;
  for (int lane = 0; lane < 32; ++lane) banks |= 1u << Block::operand_word(5, lane * 4) % 32;
  EXPECT_EQ(banks, 0xFFFFFFFFu);
  for (const int width : {256, 512}) {
    banks = 0;  // lane 4 g + t has row 2 t of column g
    for (int lane = 0; lane < 32; ++lane) banks |= 1u << (lane % 4 * 2 * (width + Block::kPad) + lane / 4) % 32;
    EXPECT_EQ(banks, 0xFFFFFFFFu);
  }
}
TEST(FusedMlpLayers, HaveNoBankConflicts) {
  expect_no_bank_conflict<Rows16<kFp32>>();
  expect_no_bank_conflict<Rows24<kFp32>>();
  expect_no_bank_conflict<Rows40<kFp32>>();
  expect_no_bank_conflict<Rows16<kBf16>>();
  expect_no_bank_conflict<Rows24<kBf16>>();
  expect_no_bank_conflict<Rows40<kBf16>>();
}

TEST(FusedMlpLayers, TakeTheSmallestBlocksThatAllRunAtOnce) {
  BlockChoice choice;
  const auto taken = [&](int nets, int rows, bool fit = true) {
    int block_rows = 0;
    const bool some = with_row_block(
        choice, nets, rows, /*min_rows=*/48, [&](auto) { return fit; }, [](auto) { return nullptr; },
        [&](auto block) { block_rows = block.kRows; });
    EXPECT_EQ(some, block_rows > 0);
    return block_rows;
  };
  ASSERT_EQ(sm_count(), 4);
  EXPECT_EQ(taken(3, 15), 0);  // layers are faster
  EXPECT_EQ(taken(3, 16), 16);
  EXPECT_EQ(taken(4, 17), 24);
  EXPECT_EQ(taken(2, 48), 24);
  EXPECT_EQ(taken(2, 50), 40);
  EXPECT_EQ(taken(4, 33), 40);
  EXPECT_EQ(taken(4, 400), 40);  // there are none larger
  EXPECT_EQ(taken(4, 400, false), 0);
  for (const int asked : {16, 24, 40}) {
    choice.rows = asked;
    EXPECT_EQ(taken(1, 1), asked);
    EXPECT_EQ(taken(4, 400, false), 0);
  }
  choice.rows = 32;
  EXPECT_EQ(taken(4, 400), 0);
  choice.rows = 0;
  choice.tiles = 4;
  EXPECT_EQ(taken(4, 400), 0);
}

}  // namespace
}  // namespace tandem::cuda
