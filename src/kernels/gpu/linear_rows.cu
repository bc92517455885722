// kernels/gpu/linear_rows.cu -- GELU, its gradient and sums of columns. CPU twins: cpu/linear_rows.cc.
#include "kernels/gpu/launch.h"
#include "kernels/gpu/typed_vectors.h"
#include "kernels/linear_kernels.h"

namespace tandem::cuda {
namespace {

// Eight numbers of a thread at a time; the last thread takes what is left.
template <FloatType kType, GeluForm kForm>
__global__ void __launch_bounds__(kThreads) gelu_kernel(const void* z, void* y, int64_t n, bool aligned) {
  for (int64_t i = first_item() * kVector; i < n; i += item_stride() * kVector) {
    const int count = static_cast<int>(n - i < kVector ? n - i : kVector);
    float x[kVector];
    load8(z, kType, i, count, aligned && count == kVector, x);
#pragma unroll
    for (int k = 0; k < kVector; ++k) x[k] = gelu_of<kForm>(x[k]);
    store8(y, kType, i, count, aligned && count == kVector, x);
  }
}

enum class RowWork { kSums, kGeluTanh, kGeluErf };

struct RowsView {
  const void *dy, *z;
  void* dz;
  int64_t rows, columns, block_rows, blocks, tiles;
  float* sums;  // [shards][blocks][columns]; null: none are asked for
  bool aligned;
};

// One block: block_rows rows of one shard, 256 columns. Lane l of a warp has columns 8 l to 8 l + 7, warp w rows w,
// w + 8, ...: a warp's load is 512 neighbouring bytes (1,024 of float). The warps' sums meet in shared memory.
constexpr int kTileColumns = 32 * kVector;
template <FloatType kType, RowWork kWork>
__global__ void __launch_bounds__(32 * kColumnLanes) row_block(RowsView v) {
  __shared__ float lanes[kColumnLanes][kTileColumns];
  const int64_t tile = blockIdx.x % v.tiles, part = blockIdx.x / v.tiles;
  const int64_t shard = part / v.blocks, block = part % v.blocks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t column = tile * kTileColumns + lane * kVector, left = v.columns - column;
  const int count = static_cast<int>(left < 0 ? 0 : left < kVector ? left : kVector);
  const bool whole = v.aligned && count == kVector;
  const int64_t end = v.rows < (block + 1) * v.block_rows ? v.rows : (block + 1) * v.block_rows;
  float sum[kVector] = {};
#pragma unroll 2
  for (int64_t row = block * v.block_rows + warp; row < end; row += kColumnLanes) {
    const int64_t index = (shard * v.rows + row) * v.columns + column;
    float x[kVector];
    load8(v.dy, kType, index, count, whole, x);
    if constexpr (kWork != RowWork::kSums) {
      constexpr GeluForm kForm = kWork == RowWork::kGeluTanh ? GeluForm::kTanh : GeluForm::kErf;
      float z[kVector];
      load8(v.z, kType, index, count, whole, z);
#pragma unroll
      for (int k = 0; k < kVector; ++k) x[k] = round_one(kType, x[k] * gelu_slope<kForm>(z[k]));
      store8(v.dz, kType, index, count, whole, x);
    }
#pragma unroll
    for (int k = 0; k < kVector; ++k) sum[k] = sum[k] + x[k];
  }
  if (!v.sums) return;
#pragma unroll
  for (int k = 0; k < kVector; ++k) lanes[warp][lane * kVector + k] = sum[k];
  __syncthreads();
  const int own = static_cast<int>(threadIdx.x);
  if (tile * kTileColumns + own >= v.columns) return;
  float total = lanes[0][own];
#pragma unroll
  for (int w = 1; w < kColumnLanes; ++w) total = total + lanes[w][own];
  v.sums[part * v.columns + tile * kTileColumns + own] = total;
}
static_assert(kTileColumns == 32 * kColumnLanes);  // a thread for each column in the end

// sums [shards][columns] = the blocks' sums, in order; loads run eight ahead of their additions.
__global__ void __launch_bounds__(kThreads)
    add_blocks(const float* parts, float* sums, int64_t shards, int64_t blocks, int64_t columns) {
  for (int64_t i = first_item(); i < shards * columns; i += item_stride()) {
    const float* part = parts + i / columns * blocks * columns + i % columns;
    float total = *part;
#pragma unroll 8
    for (int64_t block = 1; block < blocks; ++block) total = total + part[block * columns];
    sums[i] = total;
  }
}

template <RowWork kWork>
void launch_rows(FloatType type, const RowsView& view, int64_t shards, Stream stream) {
  const int64_t count = shards * view.blocks * view.tiles;
  if (count > 0x7FFFFFFF) throw CudaError(1, "a linear layer of more rows than a grid has blocks");
  const unsigned grid = static_cast<unsigned>(count), threads = 32 * kColumnLanes;
  if (type == FloatType::kFloat)
    row_block<FloatType::kFloat, kWork><<<grid, threads, 0, stream>>>(view);
  else if (type == FloatType::kBFloat16)
    row_block<FloatType::kBFloat16, kWork><<<grid, threads, 0, stream>>>(view);
  else
    row_block<FloatType::kHalf, kWork><<<grid, threads, 0, stream>>>(view);
  check_launch(kWork == RowWork::kSums ? "column_sums" : "gelu_gradient");
}

template <class Launch>
void sum_rows(const void* dy, const void* z, void* dz, int shards, int64_t rows, int64_t columns, FloatType type,
              float* sums, float* scratch, Stream stream, const Launch& launch) {
  if (shards <= 0 || columns <= 0) return;
  if (rows <= 0) {
    if (sums) cudaMemsetAsync(sums, 0, sizeof(float) * static_cast<size_t>(shards * columns), stream);
    return check_launch("column_sums, no rows");
  }
  const int64_t blocks = column_blocks(rows);
  launch(RowsView{dy, z, dz, rows, columns, column_block_rows(rows), blocks,
                  (columns + kTileColumns - 1) / kTileColumns, blocks == 1 || !sums ? sums : scratch,
                  aligned16(dy, z, dz) && columns * bytes_of(type) % 16 == 0});
  if (!sums || blocks == 1) return;
  add_blocks<<<grid_for(shards * columns), kThreads, 0, stream>>>(scratch, sums, shards, blocks, columns);
  check_launch("column_sums, blocks");
}

template <FloatType kType>
void launch_gelu(const void* z, void* y, int64_t n, GeluForm form, Stream stream) {
  const int grid = grid_for((n + kVector - 1) / kVector);
  const bool aligned = aligned16(z, y);
  if (form == GeluForm::kTanh)
    gelu_kernel<kType, GeluForm::kTanh><<<grid, kThreads, 0, stream>>>(z, y, n, aligned);
  else
    gelu_kernel<kType, GeluForm::kErf><<<grid, kThreads, 0, stream>>>(z, y, n, aligned);
  check_launch("gelu");
}

}  // namespace

void gelu(const void* z, void* y, int64_t n, FloatType type, GeluForm form, void* stream) {
  if (n <= 0) return;
  const Stream queue = static_cast<Stream>(stream);
  if (type == FloatType::kFloat)
    launch_gelu<FloatType::kFloat>(z, y, n, form, queue);
  else if (type == FloatType::kBFloat16)
    launch_gelu<FloatType::kBFloat16>(z, y, n, form, queue);
  else
    launch_gelu<FloatType::kHalf>(z, y, n, form, queue);
}

void gelu_gradient(const void* dy, const void* z, void* dz, int shards, int64_t rows, int64_t columns, FloatType type,
                   GeluForm form, float* sums, float* scratch, void* stream) {
  const Stream queue = static_cast<Stream>(stream);
  sum_rows(dy, z, dz, shards, rows, columns, type, sums, scratch, queue, [=](const RowsView& view) {
    if (form == GeluForm::kTanh)
      launch_rows<RowWork::kGeluTanh>(type, view, shards, queue);
    else
      launch_rows<RowWork::kGeluErf>(type, view, shards, queue);
  });
}

void column_sums(const void* dy, int shards, int64_t rows, int64_t columns, FloatType type, float* sums, float* scratch,
                 void* stream) {
  const Stream queue = static_cast<Stream>(stream);
  sum_rows(dy, nullptr, nullptr, shards, rows, columns, type, sums, scratch, queue,
           [=](const RowsView& view) { launch_rows<RowWork::kSums>(type, view, shards, queue); });
}

}  // namespace tandem::cuda
