// kernels/linear_kernels.h -- what a linear layer needs beside its GEMMs: GELU, its gradient, sums of columns.
//
// CPU and CUDA give equal bits. Rows are those of `shards` shards, one after the other, `rows` each; a row has
// `columns` numbers of `type`. On a GPU, `stream` is a cudaStream_t and every call only queues work.
//
// The sum of a column over a shard's rows: rows are taken in blocks of column_block_rows(); in a block, lane l of 8
// adds rows l, l + 8, ... in this order, then the lanes are added in order, then the blocks. It depends on nothing but
// the number of rows per shard.
#pragma once

#include <cstdint>

#include "kernels/float_type.h"
#include "kernels/gelu_math.h"
#include "kernels/gpu/kernel_tables.h"

namespace tandem {

inline constexpr int kColumnLanes = 8;
constexpr int64_t column_block_rows(int64_t rows) { return rows <= 16'384 ? 64 : 512; }
constexpr int64_t column_blocks(int64_t rows) { return (rows + column_block_rows(rows) - 1) / column_block_rows(rows); }
// Floats of scratch memory that the sums of columns need.
constexpr int64_t column_scratch_floats(int shards, int64_t rows, int64_t columns) {
  return shards * column_blocks(rows) * columns;
}

struct LinearKernels {
  static constexpr KernelTableId kId{"linear", 1};
  static const LinearKernels& cpu();

  // y [n] = gelu(z [n]).
  void (*gelu)(const void* z, void* y, int64_t n, FloatType type, GeluForm form, void* stream);
  // dz = dy * gelu'(z), and with `sums` [shards, columns] the sums of dz's columns over each shard's rows: the bias
  // leaves of the layer. Null `sums`: no `scratch` is needed.
  void (*gelu_gradient)(const void* dy, const void* z, void* dz, int shards, int64_t rows, int64_t columns,
                        FloatType type, GeluForm form, float* sums, float* scratch, void* stream);
  // sums [shards, columns]: of dy's columns over each shard's rows.
  void (*column_sums)(const void* dy, int shards, int64_t rows, int64_t columns, FloatType type, float* sums,
                      float* scratch, void* stream);
};

namespace cuda {
void gelu(const void* z, void* y, int64_t n, FloatType type, GeluForm form, void* stream);
void gelu_gradient(const void* dy, const void* z, void* dz, int shards, int64_t rows, int64_t columns, FloatType type,
                   GeluForm form, float* sums, float* scratch, void* stream);
void column_sums(const void* dy, int shards, int64_t rows, int64_t columns, FloatType type, float* sums, float* scratch,
                 void* stream);
}  // namespace cuda

}  // namespace tandem
