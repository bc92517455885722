// kernels/gpu/linear_cublaslt.h -- the GEMMs of linear layers on a GPU, by cuBLASLt.
//
// Matrices are row-major and contiguous, rows of `shards` shards one after the other. Sums are float. All calls of one
// shape run one algorithm (linear_choice.h), without split-K, so a row's bits do not depend on `shards`.
#pragma once

#include <string>
#include <vector>

#include "kernels/gpu/kernel_tables.h"
#include "kernels/gpu/linear_choice.h"

namespace tandem {

// Device pointers. x and dy begin at a multiple of gemm_alignment(); w, bias, workspace and `out` at one of 16.
struct GemmCall {
  LinearGemmShape shape;
  int64_t shards = 1;          // of this call, 1 to shape.job_shards
  const void* x = nullptr;     // [rows, in]: kForward, kWeightLeaves
  const void* dy = nullptr;    // [rows, out]: kInputGradient, kWeightLeaves
  const void* w = nullptr;     // [out, in]: kForward, kInputGradient
  const void* bias = nullptr;  // [out], where the shape has one
  void* out = nullptr;         // y, dx, or dw [shards, out, in]
  void* workspace = nullptr;   // of workspace_bytes(shape)
};

inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;  // no algorithm that needs more is taken

// What the rows of a matrix begin at a multiple of, in bytes, 16 at most: a part of a pass may begin at any row.
constexpr int64_t gemm_alignment(int64_t columns, FloatType type) {
  const int64_t bytes = columns * (type == FloatType::kFloat ? 4 : 2), lowest = bytes & -bytes;
  return lowest < 16 ? lowest : 16;
}

struct GemmKernels {
  static constexpr KernelTableId kId{"gemm", 1};

  void (*run)(const GemmCall& call, void* stream);           // only queues work; may be captured
  int64_t (*workspace_bytes)(const LinearGemmShape& shape);  // chooses the algorithm, if that is not done yet
  std::vector<std::string> (*choices)();                     // GemmChoices::lines()
  void (*force)(const std::vector<std::string>& choices);    // GemmChoices::force()
};

namespace cuda {
const GemmKernels& gemm_kernels();
}

}  // namespace tandem
