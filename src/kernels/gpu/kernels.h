// kernels/gpu/kernels.h -- the CUDA twins: the same names, arguments and bits as the CPU functions, in tandem::cuda.
//
// Pointers are to device memory unless said otherwise; every call only queues work on `stream` and may be captured into
// a graph. Parameters marked "on the device" are read when the kernel runs, so that one captured graph serves all steps
// and shards. A refused launch throws CudaError; a fault inside a kernel appears, as always with CUDA, at a later call.
// This header needs no CUDA headers; link tandem_kernels_cuda.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/cpu/norms.h"
#include "kernels/cpu/state_hash.h"
#include "kernels/philox.h"
#include "kernels/update_decision.h"

struct CUstream_st;

namespace tandem::cuda {

using Stream = CUstream_st*;

class CudaError : public std::runtime_error {
 public:
  CudaError(int code, const std::string& what) : std::runtime_error(what), code_(code) {}
  int code() const { return code_; }  // a cudaError_t

 private:
  int code_;
};

// ---- random_fill.h. The second form of each reads the key on the device. ----
void fill_u32(uint32_t* out, int64_t n, const RandomKey& key, uint64_t first_index, Stream stream);
void fill_u32(uint32_t* out, int64_t n, const RandomKey* key, uint64_t first_index, Stream stream);
void fill_uniform(float* out, int64_t n, const RandomKey& key, uint64_t first_index, float low, float high,
                  Stream stream);
void fill_uniform(float* out, int64_t n, const RandomKey* key, uint64_t first_index, float low, float high,
                  Stream stream);
void fill_normal(float* out, int64_t n, const RandomKey& key, uint64_t first_index, float mean, float deviation,
                 Stream stream);
void fill_normal(float* out, int64_t n, const RandomKey* key, uint64_t first_index, float mean, float deviation,
                 Stream stream);
void fill_bernoulli_mask(float* out, int64_t n, const RandomKey& key, uint64_t first_index, double keep_probability,
                         float kept_value, Stream stream);
void fill_bernoulli_mask(float* out, int64_t n, const RandomKey* key, uint64_t first_index, double keep_probability,
                         float kept_value, Stream stream);
void fill_dropout_mask(float* out, int64_t n, const RandomKey& key, uint64_t first_index, double drop_probability,
                       Stream stream);
void fill_dropout_mask(float* out, int64_t n, const RandomKey* key, uint64_t first_index, double drop_probability,
                       Stream stream);
// The key but for its site, which is given.
void fill_dropout_mask(float* out, int64_t n, const RandomKey* key, uint32_t site, uint64_t first_index,
                       double drop_probability, Stream stream);
// out[i] = Permutation(n, seed, epoch).at(first + i) for i < count.
void fill_permutation(int64_t* out, int64_t count, uint64_t n, uint64_t seed, uint64_t epoch, uint64_t first,
                      Stream stream);

// ---- optimizers.h. The second form of each reads parameters and decision on the device. ----
void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams& params, float grad_scale,
                 Stream stream);
void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams* params,
                 const UpdateDecision* decision, Stream stream);
// All n weights at once, and the target network's: `segments` [count] cover them, in order; all on the device.
void adam_update(float* p, const float* g, float* m, float* v, const UpdateSegment* segments, int count, int64_t n,
                 const UpdateParams* params, const UpdateDecision* decisions, const TargetUpdate& target,
                 Stream stream);
void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams& params, float grad_scale,
                Stream stream);
void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams* params,
                const UpdateDecision* decision, Stream stream);
// Norms and decisions of `groups` ranges of n floats in one launch; scratch: norm_scratch_doubles(n) of each;
// `arrived`: a zero on the device, of this stream alone, and zero again afterwards.
void decide_groups(UpdateDecision* decisions, UpdateDecision* decision, const UpdateParams* params,
                   const float* gradient, int64_t n, int groups, const int64_t* bad, int bad_count, double* scratch,
                   unsigned* arrived, Stream stream);
// update_decision.h, all on the device: if one of `bad` is not negative, or params->flag is set, the update is skipped.
void decide_update(UpdateDecision* decision, const UpdateParams* params, const double* sum_of_squares,
                   const int* statistics_finite, const int64_t* bad, int bad_count, Stream stream);

// ---- sums.h ----
// `inputs` is a host array of device pointers; it is copied before the call returns.
void add_in_order(float* out, const float* const* inputs, int count, int64_t n, Stream stream);
void scale_add(float* y, float a, const float* x, int64_t n, Stream stream);
void scale(float* x, float a, int64_t n, Stream stream);
// Up to 4 kB from or to mapped host memory by a kernel: lower latency than a copy engine. False: not possible, nothing
// was queued.
bool copy_few(void* dst, const void* src, size_t bytes, Stream stream);
void soft_update(float* target, const float* p, float tau, int64_t n, Stream stream);
void soft_update(float* target, const float* p, float tau, int64_t n, const UpdateDecision* decision, Stream stream);

// ---- norms.h. Results are written to device memory. ----
// How many doubles of device memory sum_of_squares needs for its block sums.
inline constexpr int64_t norm_scratch_doubles(int64_t n) {
  const int64_t blocks = (n + kNormBlock - 1) / kNormBlock;
  return blocks + (blocks + kNormBlocksPerGroup - 1) / kNormBlocksPerGroup;
}
void sum_of_squares(double* result, const float* x, int64_t n, double* scratch, Stream stream);
// 1 or 0.
void all_finite(int* result, const float* x, int64_t n, Stream stream);
// The index, or -1.
void first_nonfinite(int64_t* result, const float* x, int64_t n, Stream stream);
// The same where *result is -1 already: one launch.
void lower_to_nonfinite(int64_t* result, const float* x, int64_t n, Stream stream);

// ---- state_hash.h. blocks: device memory for hash_block_count(bytes) numbers, which receives the block hashes. ----
void state_hash(uint64_t* result, const void* data, int64_t bytes, uint64_t* blocks, Stream stream);

// For tests: work that never ends.
void hang(Stream stream);

}  // namespace tandem::cuda
