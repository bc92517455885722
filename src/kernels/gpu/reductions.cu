// kernels/gpu/reductions.cu -- CUDA twins of norms.cc and state_hash.cc, in the orders that their headers fix.
#include "kernels/gpu/launch.h"
#include "kernels/state_hash_math.h"

namespace tandem::cuda {
namespace {

static_assert(kNormLanes == 32, "a lane of norms.h is a lane of a warp");

// The sum of squares of each block of norms.h (kNormBlock elements): one warp per block.
__global__ void block_sums(double* sums, const float* x, int64_t n, int64_t blocks) {
  const int lane = threadIdx.x % 32;
  for (int64_t block = first_item() / 32; block < blocks; block += item_stride() / 32) {
    const float* begin = x + block * kNormBlock;
    const int64_t length = min(kNormBlock, n - block * kNormBlock);
    double sum = 0.0;
    if (length == kNormBlock) {
#pragma unroll 16
      for (int i = 0; i < kNormBlock / 32; ++i) {
        const double value = begin[32 * i + lane];
        sum += value * value;
      }
    } else {
      for (int64_t i = lane; i < length; i += 32) {
        const double value = begin[i];
        sum += value * value;
      }
    }
    for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, delta);
    if (lane == 0) sums[block] = sum;
  }
}

// out[i] = in[i * group] + in[i * group + 1] + ..., in order: one thread each, since the additions are sequential.
__global__ void add_groups(double* out, const double* in, int64_t count, int64_t group) {
  const int64_t begin = first_item() * group;
  if (begin >= count) return;
  const int64_t end = min(count, begin + group);
  double sum = 0.0;
#pragma unroll 8
  for (int64_t i = begin; i < end; ++i) sum += in[i];
  out[first_item()] = sum;
}

// By one warp, where a group is a range of weights with its own norm: lane g adds up the block sums of group g as
// add_groups() does, then of group g + 32, ..., and decides for each.
__device__ void decide_groups(UpdateDecision* decisions, UpdateDecision* decision, const UpdateParams* params,
                              const volatile double* sums, int64_t blocks, int groups, const int64_t* bad,
                              int bad_count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  bool flagged = params->flag != 0;
  for (int i = 0; i < bad_count; ++i) flagged = flagged || bad[i] >= 0;
  for (int g = lane; g < groups; g += 32) {
    double total = 0.0;
    for (int64_t begin = 0; begin < blocks; begin += kNormBlocksPerGroup) {
      const int64_t end = min(blocks, begin + kNormBlocksPerGroup);
      double sum = 0.0;
#pragma unroll 64
      for (int64_t i = begin; i < end; ++i) sum += sums[g * blocks + i];
      total += sum;
    }
    decisions[g] = tandem::decide_update(total, true, flagged, *params);
  }
  __syncwarp();  // all groups' decisions are written
  if (lane == 0) *decision = decide_batched(decisions, groups);
}

// Grid: a thread block of one warp for each block of norms.h of each group; it writes that block's sum of squares. The
// last thread block to arrive decides: `arrived` counts them and is 0 again afterwards. The fences order a block's sum
// before its count, and the last block's reads after it.
__global__ void __launch_bounds__(32, 8)
    decide_by_groups(UpdateDecision* decisions, UpdateDecision* decision, const UpdateParams* params,
                     const float* gradient, int64_t n, int64_t blocks, int groups, const int64_t* bad, int bad_count,
                     double* sums, unsigned* arrived) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t block = blockIdx.x;
  if (block < blocks * groups) {
    const float* begin = gradient + block / blocks * n + block % blocks * kNormBlock;
    const int64_t length = min(kNormBlock, n - block % blocks * kNormBlock);
    double sum = 0.0;
    constexpr int kLoadsInFlight = 128;  // independent loads in flight
    for (int64_t first = lane; first < length; first += 32 * kLoadsInFlight) {
      float x[kLoadsInFlight];
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) x[i] = first + 32 * i < length ? begin[first + 32 * i] : 0.0f;
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, delta);
    if (lane == 0) sums[block] = sum;
  }
  unsigned arrived_before = 0;
  if (lane == 0) {
    __threadfence();
    arrived_before = atomicAdd(arrived, 1u);
  }
  arrived_before = __shfl_sync(0xFFFFFFFFu, arrived_before, 0);
  if (arrived_before + 1 < gridDim.x) return;
  __threadfence();
  decide_groups(decisions, decision, params, sums, blocks, groups, bad, bad_count);
  if (lane == 0) *arrived = 0;
}

__device__ bool is_nonfinite(float x) { return (__float_as_uint(x) & 0x7F800000u) == 0x7F800000u; }

__global__ void set_int(int* result, int value) { *result = value; }
__global__ void set_index(unsigned long long* result, unsigned long long value) { *result = value; }

// Every thread that finds a NaN or Inf writes the same 0: a benign race.
__global__ void find_any(int* result, const float* x, int64_t n) {
  bool found = false;
  for (int64_t i = first_item(); i < n; i += item_stride()) found |= is_nonfinite(x[i]);
  if (found) *result = 0;
}

// As unsigned, -1 is the largest number, so the minimum over all found indices is the first one, or stays -1.
__global__ void find_first(unsigned long long* result, const float* x, int64_t n) {
  for (int64_t i = first_item(); i < n; i += item_stride())
    if (is_nonfinite(x[i])) {
      atomicMin(result, static_cast<unsigned long long>(i));
      return;
    }
}

__global__ void clear(uint64_t* blocks, int64_t count) {
  for (int64_t i = first_item(); i < count; i += item_stride()) blocks[i] = 0;
}

constexpr int64_t kHashWords = kHashBlockBytes / 8;
constexpr int kChunksPerHashBlock = 16;  // one to a thread block; sums modulo 2^64 do not depend on order

__device__ uint64_t load_word(const unsigned char* data, int64_t word, int64_t bytes, bool aligned) {
  if (aligned && 8 * word + 8 <= bytes) return reinterpret_cast<const uint64_t*>(data)[word];
  uint64_t value = 0;
  for (int b = 0; b < 8; ++b)
    if (8 * word + b < bytes) value |= static_cast<uint64_t>(data[8 * word + b]) << (8 * b);
  return value;
}

// A thread block hashes one chunk at a time and adds its sum to the hash of the chunk's hash block.
__global__ void hash_blocks(uint64_t* hashes, const unsigned char* data, int64_t bytes) {
  constexpr int64_t kChunkWords = kHashWords / kChunksPerHashBlock;
  const int64_t words = (bytes + 7) / 8;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % 8 == 0;
  for (int64_t chunk = blockIdx.x; chunk * kChunkWords < words; chunk += gridDim.x) {
    const int64_t end = min(words, (chunk + 1) * kChunkWords);
    uint64_t sum = 0;
    for (int64_t i = chunk * kChunkWords + threadIdx.x; i < end; i += blockDim.x)
      sum += hash_word(load_word(data, i, bytes, aligned), static_cast<uint64_t>(i));
    for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, delta);
    if (threadIdx.x % 32 == 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(hashes + chunk / kChunksPerHashBlock),
                static_cast<unsigned long long>(sum));
  }
}

// One thread: folding is sequential.
__global__ void fold_blocks(uint64_t* result, const uint64_t* hashes, int64_t count, int64_t bytes) {
  uint64_t hash = 0;
  for (int64_t i = 0; i < count; ++i) hash = hash_fold(hash, hashes[i]);
  *result = hash_fold(hash, static_cast<uint64_t>(bytes));
}

}  // namespace

void sum_of_squares(double* result, const float* x, int64_t n, double* scratch, Stream stream) {
  const int64_t blocks = (n + kNormBlock - 1) / kNormBlock;
  const int64_t groups = (blocks + kNormBlocksPerGroup - 1) / kNormBlocksPerGroup;
  if (n > 0) {
    block_sums<<<grid_for(blocks * 32), kThreads, 0, stream>>>(scratch, x, n, blocks);
    check_launch("sum_of_squares, blocks");
    // 32 threads a block, so that the groups spread over the GPU.
    add_groups<<<static_cast<unsigned>((groups + 31) / 32), 32, 0, stream>>>(scratch + blocks, scratch, blocks,
                                                                             kNormBlocksPerGroup);
    check_launch("sum_of_squares, groups");
    add_groups<<<1, 1, 0, stream>>>(result, scratch + blocks, groups, groups);
    check_launch("sum_of_squares, total");
  } else {
    cudaMemsetAsync(result, 0, sizeof *result, stream);
    check_launch("sum_of_squares, empty");
  }
}

void decide_groups(UpdateDecision* decisions, UpdateDecision* decision, const UpdateParams* params,
                   const float* gradient, int64_t n, int groups, const int64_t* bad, int bad_count, double* scratch,
                   unsigned* arrived, Stream stream) {
  const int64_t blocks = (n + kNormBlock - 1) / kNormBlock;
  decide_by_groups<<<static_cast<unsigned>(std::max<int64_t>(1, blocks * groups)), 32, 0, stream>>>(
      decisions, decision, params, gradient, n, blocks, groups, bad, bad_count, scratch, arrived);
  check_launch("decide_groups");
}

void all_finite(int* result, const float* x, int64_t n, Stream stream) {
  set_int<<<1, 1, 0, stream>>>(result, 1);
  check_launch("all_finite, start");
  if (n <= 0) return;
  find_any<<<grid_for(n), kThreads, 0, stream>>>(result, x, n);
  check_launch("all_finite");
}

void first_nonfinite(int64_t* result, const float* x, int64_t n, Stream stream) {
  set_index<<<1, 1, 0, stream>>>(reinterpret_cast<unsigned long long*>(result), ~0ull);
  check_launch("first_nonfinite, start");
  lower_to_nonfinite(result, x, n, stream);
}

void lower_to_nonfinite(int64_t* result, const float* x, int64_t n, Stream stream) {
  if (n <= 0) return;
  find_first<<<grid_for(n), kThreads, 0, stream>>>(reinterpret_cast<unsigned long long*>(result), x, n);
  check_launch("first_nonfinite");
}

void state_hash(uint64_t* result, const void* data, int64_t bytes, uint64_t* blocks, Stream stream) {
  const int64_t count = hash_block_count(bytes);
  if (count > 0) {
    clear<<<grid_for(count), kThreads, 0, stream>>>(blocks, count);
    check_launch("state_hash, start");
    hash_blocks<<<static_cast<unsigned>(std::min<int64_t>(count * kChunksPerHashBlock, 4096)), kThreads, 0, stream>>>(
        blocks, static_cast<const unsigned char*>(data), bytes);
    check_launch("state_hash, blocks");
  }
  fold_blocks<<<1, 1, 0, stream>>>(result, blocks, count, bytes);
  check_launch("state_hash, fold");
}

}  // namespace tandem::cuda
