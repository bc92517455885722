// kernels/gpu/linear_choice.h -- which algorithm runs a GEMM of a linear layer: one per shape of the job.
//
// An algorithm gives a row the same bits whatever rows stand beside it, but two algorithms round differently. So the
// algorithm is chosen for all of the job's rows, once, and kept for every part of them that a worker has; and only one
// that can run every part is taken. The choices are written down and can be forced from what was written, so that a
// resumed run, or a worker on another GPU, takes the same.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/float_type.h"

namespace tandem {

enum class GemmKind {
  kForward,        // y [rows, out] = x [rows, in] w [out, in]^T + bias [out]
  kInputGradient,  // dx [rows, in] = dy [rows, out] w [out, in]
  kWeightLeaves,   // for each shard: dw [out, in], float = dy [rows of the shard, out]^T x [rows of the shard, in]
};

// It has no number of shards of a pass, so a choice can't depend on it.
struct LinearGemmShape {
  GemmKind kind = GemmKind::kForward;
  int64_t shard_rows = 0;
  int64_t job_shards = 1;
  int64_t in = 0, out = 0;
  FloatType type = FloatType::kFloat;  // of x, y, dx, dy, w and bias
  bool tf32 = false;                   // kFloat: the tensor cores may round operands to TF32
  bool bias = false;                   // kForward

  auto operator<=>(const LinearGemmShape&) const = default;
  std::string text() const;  // "forward 8x4096 768->3072 bf16 bias"
};

struct GemmAlgorithm {
  std::array<uint64_t, 8> bytes{};  // cublasLtMatmulAlgo_t
  std::string details;              // for people: tile, stages, ...
  int64_t workspace_bytes = 0;
};

// cuBLASLt, or a test's.
class AlgorithmSource {
 public:
  virtual ~AlgorithmSource() = default;
  virtual std::string version() const = 0;  // of the library: its bytes mean nothing to another one; no spaces
  // For all rows of the job, the fastest first; only those that add up a row's products in one order.
  virtual std::vector<GemmAlgorithm> candidates(const LinearGemmShape& shape) = 0;
  // Why this many shards of the job can't be run by it; empty: they can. Sets workspace_bytes and details.
  virtual std::string refusal(const LinearGemmShape& shape, int64_t shards, GemmAlgorithm& algorithm) = 0;
};

class GemmChoices {
 public:
  explicit GemmChoices(AlgorithmSource& source) : source_(source) {}

  // The same one at every call. Throws ConfigError if there is none, or if the forced one is refused.
  const GemmAlgorithm& of(const LinearGemmShape& shape);

  // One line per choice so far: "<version> <shape> = <details>; <128 hex digits>".
  std::vector<std::string> lines() const;
  // Lines of lines(): from now on these are taken. Throws ConfigError for a line that is none, one of another version
  // of the library, and one that contradicts a choice already made.
  void force(const std::vector<std::string>& lines);

 private:
  // Runs all parts that a worker may have: 1 to job_shards shards. Else why not.
  std::string refusal(const LinearGemmShape& shape, GemmAlgorithm& algorithm);
  GemmAlgorithm choose(const LinearGemmShape& shape);

  AlgorithmSource& source_;
  mutable std::mutex mutex_;
  std::map<LinearGemmShape, GemmAlgorithm> chosen_;
  std::map<std::string, std::array<uint64_t, 8>> forced_;  // by LinearGemmShape::text()
};

}  // namespace tandem
