// kernels/gpu/elementwise.cu -- CUDA twins of optimizers.cc and sums.cc: one thread, one element or four.
#include "kernels/gpu/launch.h"
#include "kernels/optimizer_math.h"

namespace tandem::cuda {
namespace {

// Grid-stride loops: body.one(i) for single elements, or body.four(i) for four from 4 * i on and one() for the rest. If
// body.prepare() returns false, nothing is changed.
template <typename Body>
__global__ void each(int64_t n, Body body) {
  if (!body.prepare()) return;
  for (int64_t i = first_item(); i < n; i += item_stride()) body.one(i);
}
template <typename Body>
__global__ void each4(int64_t n, Body body) {
  if (!body.prepare()) return;
  for (int64_t i = first_item(); i < n / 4; i += item_stride()) body.four(i);
  const int64_t rest = n / 4 * 4 + first_item();
  if (rest < n) body.one(rest);
}

template <typename Body>
void launch(const char* name, bool by_four, int64_t n, const Body& body, Stream stream) {
  if (n <= 0) return;
  if (by_four)
    each4<<<grid_for((n + 3) / 4), kThreads, 0, stream>>>(n, body);
  else
    each<<<grid_for(n), kThreads, 0, stream>>>(n, body);
  check_launch(name);
}

// The scale of the gradient, and whether the update is skipped.
struct GivenScale {
  float scale;
  __device__ bool skip() const { return false; }
  __device__ float get() const { return scale; }
};
struct DecidedScale {
  const UpdateDecision* decision;
  __device__ bool skip() const { return decision->skip != 0; }
  __device__ float get() const { return decision->scale; }
};

struct SoftUpdateOp {
  float tau;
  __device__ float operator()(float target, float p) const { return target + tau * (p - target); }
};

template <template <typename> class Source, typename Scale>
struct Adam {
  float* p;
  const float* g;
  float *m, *v;
  Source<AdamParams> params;
  Scale grad_scale;
  AdamConstants constants;

  __device__ bool prepare() {
    if (grad_scale.skip()) return false;
    constants = adam_constants(params.get(), grad_scale.get());
    return true;
  }
  __device__ void one(int64_t i) const {
    float weight = p[i], first = m[i], second = v[i];
    adam_one(weight, g[i], first, second, constants);
    p[i] = weight;
    m[i] = first;
    v[i] = second;
  }
  __device__ void four(int64_t i) const { four(i, load(i)); }

  struct Loaded {
    float4 weight, gradient, first, second;
  };
  __device__ Loaded load(int64_t i) const {
    return {reinterpret_cast<const float4*>(p)[i], reinterpret_cast<const float4*>(g)[i],
            reinterpret_cast<const float4*>(m)[i], reinterpret_cast<const float4*>(v)[i]};
  }
  __device__ float4 four(int64_t i, Loaded x) const {
    adam_one(x.weight.x, x.gradient.x, x.first.x, x.second.x, constants);
    adam_one(x.weight.y, x.gradient.y, x.first.y, x.second.y, constants);
    adam_one(x.weight.z, x.gradient.z, x.first.z, x.second.z, constants);
    adam_one(x.weight.w, x.gradient.w, x.first.w, x.second.w, constants);
    reinterpret_cast<float4*>(p)[i] = x.weight;
    reinterpret_cast<float4*>(m)[i] = x.first;
    reinterpret_cast<float4*>(v)[i] = x.second;
    return x.weight;
  }
};

// The same for segments with parameters and decisions of their own; their lengths are multiples of four. A block takes
// `iterations` x 128 contiguous float4s and loads one iteration ahead of the arithmetic; a segment's constants are
// computed once.
constexpr int kSegmentThreads = 128;
constexpr int kSegmentBlocksPerSm = 6;  // 80 registers a thread; 8 bytes spill
__global__ void __launch_bounds__(kSegmentThreads, kSegmentBlocksPerSm)
    adam_segments(float* p, const float* g, float* m, float* v, const UpdateSegment* segments, int count, int64_t n,
                  const UpdateParams* params, const UpdateDecision* decisions, TargetUpdate target, int iterations) {
  const int64_t base = int64_t{blockIdx.x} * iterations * kSegmentThreads, float4s_left = n / 4 - base;
  const int block_float4s = iterations * kSegmentThreads,
            end = float4s_left < block_float4s ? static_cast<int>(float4s_left) : block_float4s;
  int i = static_cast<int>(threadIdx.x);  // float4 of the block, counted from `base`
  if (i >= end) return;
  Adam<Given, GivenScale> body{p + 4 * base, g + 4 * base, m + 4 * base, v + 4 * base, {}, {}, {}};
  float4* const target_weights = target.weights ? reinterpret_cast<float4*>(target.weights) + base : nullptr;
  auto next_loaded = body.load(i);
  float4 next_target = target_weights ? target_weights[i] : float4{};
  __syncwarp(__activemask());         // keeps the compiler from moving the loads down to their use
  int segment = 0, last = count - 1;  // the first segment that ends after 4 * (base + i)
  while (segment < last) {
    const int middle = (segment + last) / 2;
    if (segments[middle].end > 4 * (base + i))
      last = middle;
    else
      segment = middle + 1;
  }
  int segment_end = 0;  // of the segment that `body` is made for
  bool skip = false;
#pragma unroll 1
  for (; i < end; i += kSegmentThreads) {
    const auto loaded = next_loaded;
    const float4 old_target = next_target;
    if (const int next = i + kSegmentThreads; next < end) {
      next_loaded = body.load(next);
      if (target_weights) next_target = target_weights[next];
    }
    if (i >= segment_end) {
      while (segment < count - 1 && segments[segment].end <= 4 * (base + i)) ++segment;
      const int64_t segment_float4s_left = segments[segment].end / 4 - base;
      segment_end = static_cast<int>(segment_float4s_left < 0               ? 0
                                     : segment_float4s_left < block_float4s ? segment_float4s_left
                                                                            : block_float4s);
      const UpdateDecision& decision = decisions[segments[segment].group];
      skip = decision.skip != 0;
      body.params.value = params->adam[segments[segment].decays];
      body.grad_scale.scale = decision.scale;
      body.prepare();
    }
    if (skip) continue;
    const float4 weight = body.four(i, loaded);
    if (!target_weights) continue;
    const SoftUpdateOp soft_update_op{target.rate};
    target_weights[i] = {soft_update_op(old_target.x, weight.x), soft_update_op(old_target.y, weight.y),
                         soft_update_op(old_target.z, weight.z), soft_update_op(old_target.w, weight.w)};
  }
}

template <template <typename> class Source, typename Scale>
struct Sgd {
  float* p;
  const float* g;
  float* velocity;
  Source<SgdParams> source;
  Scale source_scale;
  SgdParams params;
  float grad_scale;

  __device__ bool prepare() {
    if (source_scale.skip()) return false;
    params = source.get();
    grad_scale = source_scale.get();
    return true;
  }
  __device__ void update(float& weight, float gradient, float& new_velocity) const {
    if (params.momentum == 0.0f)
      sgd_one<false, false>(weight, gradient, nullptr, params, grad_scale);
    else if (params.nesterov)
      sgd_one<true, true>(weight, gradient, &new_velocity, params, grad_scale);
    else
      sgd_one<true, false>(weight, gradient, &new_velocity, params, grad_scale);
  }
  __device__ void one(int64_t i) const {
    const bool momentum = params.momentum != 0.0f;
    float weight = p[i], new_velocity = momentum ? velocity[i] : 0.0f;
    update(weight, g[i], new_velocity);
    p[i] = weight;
    if (momentum) velocity[i] = new_velocity;
  }
  __device__ void four(int64_t i) const {
    const bool momentum = params.momentum != 0.0f;
    float4 weight = reinterpret_cast<float4*>(p)[i];
    float4 new_velocity = momentum ? reinterpret_cast<float4*>(velocity)[i] : float4{};
    const float4 gradient = reinterpret_cast<const float4*>(g)[i];
    update(weight.x, gradient.x, new_velocity.x);
    update(weight.y, gradient.y, new_velocity.y);
    update(weight.z, gradient.z, new_velocity.z);
    update(weight.w, gradient.w, new_velocity.w);
    reinterpret_cast<float4*>(p)[i] = weight;
    if (momentum) reinterpret_cast<float4*>(velocity)[i] = new_velocity;
  }
};

constexpr int kMaxInputs = 16;  // pointers that travel with one launch

struct AddInOrder {
  float* out;
  const float* inputs[kMaxInputs];
  int count;

  __device__ bool prepare() const { return true; }
  __device__ void one(int64_t i) const {
    float sum = inputs[0][i];
    for (int k = 1; k < count; ++k) sum = sum + inputs[k][i];
    out[i] = sum;
  }
  __device__ void four(int64_t i) const {
    float4 sum = reinterpret_cast<const float4*>(inputs[0])[i];
#pragma unroll 4
    for (int k = 1; k < count; ++k) {
      const float4 next = reinterpret_cast<const float4*>(inputs[k])[i];
      sum = {sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w};
    }
    reinterpret_cast<float4*>(out)[i] = sum;
  }
};

// y = op(y, x), unless the decision is to skip.
template <typename Op>
struct Blend {
  float* y;
  const float* x;
  Op op;
  const UpdateDecision* decision = nullptr;

  __device__ bool prepare() const { return !decision || !decision->skip; }
  __device__ void one(int64_t i) const { y[i] = op(y[i], x[i]); }
  __device__ void four(int64_t i) const {
    const float4 a = reinterpret_cast<float4*>(y)[i], b = reinterpret_cast<const float4*>(x)[i];
    reinterpret_cast<float4*>(y)[i] = {op(a.x, b.x), op(a.y, b.y), op(a.z, b.z), op(a.w, b.w)};
  }
};
struct ScaleAddOp {
  float a;
  __device__ float operator()(float y, float x) const { return y + a * x; }
};
struct ScaleOp {
  float a;
  __device__ float operator()(float y, float) const { return a * y; }
};

// One block.
__global__ void copy_words(uint32_t* dst, const uint32_t* src, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) dst[i] = src[i];
}

// One thread.
__global__ void decide(UpdateDecision* decision, const UpdateParams* params, const double* sum_of_squares,
                       const int* statistics_finite, const int64_t* bad, int bad_count) {
  bool flagged = params->flag != 0;
  for (int i = 0; i < bad_count; ++i) flagged = flagged || bad[i] >= 0;
  *decision = tandem::decide_update(*sum_of_squares, *statistics_finite != 0, flagged, *params);
}

}  // namespace

void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams& params, float grad_scale,
                 Stream stream) {
  launch("adam_update", aligned16(p, g, m, v), n, Adam<Given, GivenScale>{p, g, m, v, {params}, {grad_scale}, {}},
         stream);
}
void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams* params,
                 const UpdateDecision* decision, Stream stream) {
  launch("adam_update", aligned16(p, g, m, v), n, Adam<OnDevice, DecidedScale>{p, g, m, v, {params}, {decision}, {}},
         stream);
}

void adam_update(float* p, const float* g, float* m, float* v, const UpdateSegment* segments, int count, int64_t n,
                 const UpdateParams* params, const UpdateDecision* decisions, const TargetUpdate& target,
                 Stream stream) {
  if (n < 4) return;
  // As many iterations as let all blocks be resident at once; at most kMaxIterations, where there are very many
  // weights.
  constexpr int64_t kMaxIterations = 8;
  const int64_t resident_threads = std::max<int64_t>(1, sm_count()) * kSegmentBlocksPerSm * kSegmentThreads;
  const auto iterations =
      static_cast<int>(std::clamp<int64_t>((n / 4 + resident_threads - 1) / resident_threads, 1, kMaxIterations));
  const int64_t block_float4s = int64_t{iterations} * kSegmentThreads;
  adam_segments<<<static_cast<unsigned>((n / 4 + block_float4s - 1) / block_float4s), kSegmentThreads, 0, stream>>>(
      p, g, m, v, segments, count, n, params, decisions, target, iterations);
  check_launch("adam_update");
}

void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams& params, float grad_scale,
                Stream stream) {
  launch("sgd_update", aligned16(p, g, velocity), n,
         Sgd<Given, GivenScale>{p, g, velocity, {params}, {grad_scale}, {}, 0.0f}, stream);
}
void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams* params,
                const UpdateDecision* decision, Stream stream) {
  launch("sgd_update", aligned16(p, g, velocity), n,
         Sgd<OnDevice, DecidedScale>{p, g, velocity, {params}, {decision}, {}, 0.0f}, stream);
}

void decide_update(UpdateDecision* decision, const UpdateParams* params, const double* sum_of_squares,
                   const int* statistics_finite, const int64_t* bad, int bad_count, Stream stream) {
  decide<<<1, 1, 0, stream>>>(decision, params, sum_of_squares, statistics_finite, bad, bad_count);
  check_launch("decide_update");
}

void add_in_order(float* out, const float* const* inputs, int count, int64_t n, Stream stream) {
  AddInOrder body{out, {}, 0};
  for (int next = 0; next < count;) {
    body.count = 0;
    if (next > 0) body.inputs[body.count++] = out;  // the sum so far comes first: the order of addition stays
    bool by_four = aligned16(out);
    while (body.count < kMaxInputs && next < count) {
      by_four = by_four && aligned16(inputs[next]);
      body.inputs[body.count++] = inputs[next++];
    }
    launch("add_in_order", by_four, n, body, stream);
  }
}

void scale_add(float* y, float a, const float* x, int64_t n, Stream stream) {
  launch("scale_add", aligned16(y, x), n, Blend<ScaleAddOp>{y, x, {a}}, stream);
}
void scale(float* x, float a, int64_t n, Stream stream) {
  launch("scale", aligned16(x), n, Blend<ScaleOp>{x, x, {a}}, stream);
}
void soft_update(float* target, const float* p, float tau, int64_t n, Stream stream) {
  launch("soft_update", aligned16(target, p), n, Blend<SoftUpdateOp>{target, p, {tau}}, stream);
}

void soft_update(float* target, const float* p, float tau, int64_t n, const UpdateDecision* decision, Stream stream) {
  launch("soft_update", aligned16(target, p), n, Blend<SoftUpdateOp>{target, p, {tau}, decision}, stream);
}

bool copy_few(void* dst, const void* src, size_t bytes, Stream stream) {
  constexpr size_t kMaxBytes = 4096;
  const auto unaligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(uint32_t) != 0; };
  if (bytes == 0 || bytes > kMaxBytes || bytes % sizeof(uint32_t) != 0 || unaligned(dst) || unaligned(src))
    return false;
  copy_words<<<1, kThreads, 0, stream>>>(static_cast<uint32_t*>(dst), static_cast<const uint32_t*>(src),
                                         static_cast<int>(bytes / sizeof(uint32_t)));
  check_launch("copy_few");
  return true;
}

}  // namespace tandem::cuda
