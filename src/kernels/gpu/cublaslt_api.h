// kernels/gpu/cublaslt_api.h -- the part of cuBLASLt 13 that is used here: its interface, from NVIDIA's documentation.
//
// The library comes with libtorch and is loaded when it is first needed; its header would come with a package of
// several hundred megabytes. Where that header is there, linear_cublaslt.cc compares its numbers with these.
#pragma once

#include <library_types.h>

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace tandem::cublaslt {

using Status = int;  // 0: success
using Handle = struct cublasLtContext*;
using Desc = struct cublasLtMatmulDescOpaque*;
using Layout = struct cublasLtMatrixLayoutOpaque*;
using Preference = struct cublasLtMatmulPreferenceOpaque*;

inline constexpr Status kSuccess = 0;
enum Operation : int32_t { kOpN = 0, kOpT = 1 };
enum Compute : int { kCompute32F = 68, kCompute32FFastTf32 = 77 };
enum DescAttribute : int {
  kDescTransA = 3,
  kDescTransB = 4,
  kDescEpilogue = 7,
  kDescBiasPointer = 8,
  kDescSmCountTarget = 15,
  kDescBiasDataType = 26
};
enum Epilogue : int32_t { kEpilogueBias = 4 };
enum LayoutAttribute : int { kLayoutBatchCount = 5, kLayoutStridedBatchOffset = 6 };
enum PreferenceAttribute : int {
  kPrefMaxWorkspaceBytes = 1,
  kPrefReductionSchemeMask = 3,
  kPrefMinAlignmentA = 5,
  kPrefMinAlignmentB = 6,
  kPrefMinAlignmentC = 7,
  kPrefMinAlignmentD = 8
};
inline constexpr uint32_t kReductionSchemeNone = 0;
enum ConfigAttribute : int {
  kConfigId = 0,
  kConfigTileId = 1,
  kConfigSplitKNum = 2,
  kConfigReductionScheme = 3,
  kConfigCtaSwizzling = 4,
  kConfigCustomOption = 5,
  kConfigStagesId = 6,
  kConfigInnerShapeId = 7,
  kConfigClusterShapeId = 8
};

struct Algo {
  uint64_t data[8];
};
struct HeuristicResult {
  Algo algo;
  size_t workspaceSize;
  Status state;
  float wavesCount;
  int reserved[4];
};

// The functions, by the names that the library exports.
struct LtFunctions {
  size_t (*get_version)();
  const char* (*status_string)(Status);
  Status (*create)(Handle*);
  Status (*desc_create)(Desc*, Compute, cudaDataType);
  Status (*desc_destroy)(Desc);
  Status (*desc_set)(Desc, DescAttribute, const void*, size_t);
  Status (*layout_create)(Layout*, cudaDataType, uint64_t rows, uint64_t columns, int64_t leading);
  Status (*layout_destroy)(Layout);
  Status (*layout_set)(Layout, LayoutAttribute, const void*, size_t);
  Status (*preference_create)(Preference*);
  Status (*preference_destroy)(Preference);
  Status (*preference_set)(Preference, PreferenceAttribute, const void*, size_t);
  Status (*heuristic)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference, int asked, HeuristicResult*,
                      int* found);
  Status (*check)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, const Algo*, HeuristicResult*);
  Status (*config_get)(const Algo*, ConfigAttribute, void*, size_t, size_t* written);
  Status (*matmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,
                   const void* c, Layout, void* d, Layout, const Algo*, void* workspace, size_t, CUstream_st*);
};

}  // namespace tandem::cublaslt
