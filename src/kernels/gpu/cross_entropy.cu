// kernels/gpu/cross_entropy.cu -- CUDA twin of cross-entropy (kernels/token_kernels.h): logits are read once each way.
//
// Forward: a warp per row up to 1,024 classes, a block above. A lane owns classes by their number, not by their
// address: rows of 50,257 two-byte logits start anywhere, and a row's bits must not follow that. So a lane reads the
// two aligned 16-byte words around its eight logits and shifts them; the second one is its neighbour's first, from L1.
// Backward goes through memory in aligned vectors: each number stands for itself.
#include "kernels/gpu/launch.h"
#include "kernels/gpu/layer_kernels.h"
#include "kernels/gpu/typed_vectors.h"
#include "kernels/softmax_math.h"
#include "kernels/token_kernels.h"

namespace tandem::cuda {
namespace {

static_assert(kSoftmaxSlots == kVector);

// Eight two-byte numbers from an even address.
__device__ __forceinline__ uint4 load_shifted(const uint16_t* from) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  const auto* const words = reinterpret_cast<const uint4*>(address & ~uintptr_t{15});
  const auto shift = static_cast<unsigned>(address & 15);  // the same for a whole row
  const uint4 a = words[0];
  if (shift == 0) return a;
  const uint4 b = words[1];
  uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  if (shift & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = w[i + 2];
  }
  if (shift & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = w[i + 1];
  }
  if (shift & 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = __funnelshift_r(w[i], w[i + 1], 16);
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

// kWhole: rows begin at vectors.
template <bool kWhole>
__device__ __forceinline__ void load_logits(const TypedInput& logits, int64_t index, int count, bool aligned,
                                            float (&x)[kVector]) {
  if constexpr (kWhole)
    load8(logits.data, logits.type, index, x);
  else if (count < kVector)
    load8(logits.data, logits.type, index, count, false, x);
  else if (logits.type != FloatType::kFloat)
    unpack8(load_shifted(static_cast<const uint16_t*>(logits.data) + index), logits.type, x);
  else
    load8(logits.data, logits.type, index, kVector, aligned, x);
}

__device__ __forceinline__ SoftmaxSum join_lanes(SoftmaxSum sum, int mask) {
  const SoftmaxSum other{__shfl_xor_sync(0xFFFFFFFFu, sum.maximum, mask), __shfl_xor_sync(0xFFFFFFFFu, sum.sum, mask)};
  return join_softmax(sum, other);
}

template <int kLanes, bool kWhole>
__global__ void __launch_bounds__(kThreads) forward_kernel(const CrossEntropyForward call, bool aligned) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
  if (row >= call.rows) return;  // a whole warp, or nobody
  const int lane_number = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t start = row * call.classes;
  constexpr int kStride = kLanes * kVector;
  SoftmaxLane lane;
  begin_softmax(lane);
  const auto classes = static_cast<int>(call.classes);
  int c = lane_number * kVector;
  // Several loads in flight; then they are added one after the other.
  constexpr int kAhead = 4;
  for (; c + (kAhead - 1) * kStride + kVector <= classes; c += kAhead * kStride) {
    float x[kAhead][kVector];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) load_logits<kWhole>(call.logits, start + c + a * kStride, kVector, aligned, x[a]);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) add_to_softmax(lane, x[a], kVector);
  }
  for (; c < classes; c += kStride) {
    float x[kVector];
    const int count = min(kVector, classes - c);
    load_logits<kWhole>(call.logits, start + c, count, aligned, x);
    add_to_softmax(lane, x, count);
  }
  SoftmaxSum sum = end_softmax(lane);
#pragma unroll 1
  for (int mask = 16; mask > 0; mask /= 2) sum = join_lanes(sum, mask);
  if constexpr (kLanes > 32) {
    __shared__ SoftmaxSum groups[kLanes / 32];
    if (threadIdx.x % 32 == 0) groups[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = groups[threadIdx.x % (kLanes / 32)];
#pragma unroll 1
    for (int mask = kLanes / 64; mask > 0; mask /= 2) sum = join_lanes(sum, mask);
  }
  if (lane_number != 0) return;
  const int64_t label = call.labels[row];
  const LabelWeight worth = label_weight(label, call.classes, call.ignore_index, call.class_weights);
  const RowLogSum log_sum = row_log_sum(sum);
  const bool known = !worth.ignored && worth.weight == worth.weight;
  const float logit = known ? load_one(call.logits.data, call.logits.type, start + label) : 0.0f;
  call.losses[row] = worth.ignored ? 0.0f : row_loss(log_sum, logit) * worth.weight;
  call.log_sums[2 * row] = log_sum.maximum;
  call.log_sums[2 * row + 1] = log_sum.log_sum;
}

// What backward needs of a row.
struct RowFacts {
  int64_t label;
  RowLogSum log_sum;
  float scale;
  bool ignored;
};
__device__ __forceinline__ RowFacts row_facts(const CrossEntropyBackward& call, int64_t row) {
  const CrossEntropyForward& forward = call.forward;
  const int64_t label = forward.labels[row];
  const LabelWeight worth = label_weight(label, forward.classes, forward.ignore_index, forward.class_weights);
  return {label,
          {forward.log_sums[2 * row], forward.log_sums[2 * row + 1]},
          worth.weight * call.loss_grads[row],
          worth.ignored};
}

// Index: 32 bits where they suffice, since it is divided by the class count.
template <typename Index>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const CrossEntropyBackward call, int64_t elements, bool aligned) {
  const CrossEntropyForward& forward = call.forward;
  const auto classes = static_cast<Index>(forward.classes);
  const int64_t vectors = (elements + kVector - 1) / kVector;
  for (int64_t v = first_item(); v < vectors; v += item_stride()) {
    const int64_t first = v * kVector;
    const int count = static_cast<int>(min(int64_t{kVector}, elements - first));
    const bool whole = aligned && count == kVector;
    float x[kVector];
    load8(forward.logits.data, forward.logits.type, first, count, whole, x);
    int64_t row = static_cast<Index>(first) / classes;
    int64_t c = first - row * forward.classes;
    RowFacts facts = row_facts(call, row);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i < count) {
        if (c == forward.classes) {
          c = 0;
          facts = row_facts(call, ++row);
        }
        x[i] = facts.ignored ? 0.0f : logit_gradient(x[i], facts.log_sum, c == facts.label, facts.scale);
        ++c;
      }
    }
    store8(call.grad.data, call.grad.type, first, count, whole, x);
  }
}

// A block for each row, where rows begin at vectors: what is the row's is read once.
template <FloatType kType>
__global__ void __launch_bounds__(kThreads) backward_rows(const CrossEntropyBackward call) {
  const CrossEntropyForward& forward = call.forward;
  const int64_t row = blockIdx.x, start = row * forward.classes;
  const RowFacts facts = row_facts(call, row);
  const auto classes = static_cast<int>(forward.classes);
  for (int c = static_cast<int>(threadIdx.x) * kVector; c < classes; c += kThreads * kVector) {
    float x[kVector];
    load8(forward.logits.data, kType, start + c, kVector, true, x);
    const int64_t label = facts.label - c;
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      x[i] = facts.ignored ? 0.0f : logit_gradient(x[i], facts.log_sum, label == i, facts.scale);
    store8(call.grad.data, kType, start + c, kVector, true, x);
  }
}

bool queue_backward_rows(const CrossEntropyBackward& call, cudaStream_t queue) {
  const CrossEntropyForward& forward = call.forward;
  if (forward.classes % kVector != 0 || forward.classes < kThreads * kVector || forward.classes > INT32_MAX ||
      forward.logits.type != call.grad.type || !aligned16(forward.logits.data, call.grad.data))
    return false;
  const auto rows = static_cast<unsigned>(forward.rows);
  switch (forward.logits.type) {
    case FloatType::kFloat:
      backward_rows<FloatType::kFloat><<<rows, kThreads, 0, queue>>>(call);
      break;
    case FloatType::kBFloat16:
      backward_rows<FloatType::kBFloat16><<<rows, kThreads, 0, queue>>>(call);
      break;
    case FloatType::kHalf:
      backward_rows<FloatType::kHalf><<<rows, kThreads, 0, queue>>>(call);
      break;
  }
  check_launch("cross_entropy_backward_rows");
  return true;
}

void cross_entropy_forward(const CrossEntropyForward& call, void* stream) {
  if (call.rows == 0) return;
  const auto queue = static_cast<cudaStream_t>(stream);
  const bool aligned = call.classes % 4 == 0 && aligned16(call.logits.data);
  if (softmax_lanes(call.classes) == 32)
    forward_kernel<32, false>
        <<<static_cast<unsigned>((call.rows + kThreads / 32 - 1) / (kThreads / 32)), kThreads, 0, queue>>>(call,
                                                                                                           aligned);
  else if (call.classes % kVector == 0 && aligned16(call.logits.data))
    forward_kernel<256, true><<<static_cast<unsigned>(call.rows), kThreads, 0, queue>>>(call, aligned);
  else
    forward_kernel<256, false><<<static_cast<unsigned>(call.rows), kThreads, 0, queue>>>(call, aligned);
  check_launch("cross_entropy_forward");
}

void cross_entropy_backward(const CrossEntropyBackward& call, void* stream) {
  const int64_t elements = call.forward.rows * call.forward.classes;
  if (elements == 0) return;
  const auto queue = static_cast<cudaStream_t>(stream);
  if (queue_backward_rows(call, queue)) return;
  const bool aligned = aligned16(call.forward.logits.data, call.grad.data);
  const int grid = grid_for(elements / kVector + 1);
  if (elements <= INT32_MAX)
    backward_kernel<uint32_t><<<grid, kThreads, 0, queue>>>(call, elements, aligned);
  else
    backward_kernel<uint64_t><<<grid, kThreads, 0, queue>>>(call, elements, aligned);
  check_launch("cross_entropy_backward");
}

}  // namespace

const CrossEntropyKernels& cross_entropy_kernels() {
  static const CrossEntropyKernels kernels{cross_entropy_forward, cross_entropy_backward};
  return kernels;
}

}  // namespace tandem::cuda
