// kernels/gpu/elementwise.cu -- CUDA twins of optimizers.cc and sums.cc: one thread, one element or four.
#include "kernels/gpu/launch.h"
#include "kernels/optimizer_math.h"

namespace tandem::cuda {
namespace {

// Runs body.one(i) for single elements, or four(i) for four from 4 * i on and one() for the rest. A body whose
// prepare() says no leaves everything as it is.
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
struct AsGiven {
  float scale;
  __device__ bool skip() const { return false; }
  __device__ float get() const { return scale; }
};
struct AsDecided {
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

// The same for pieces with parameters and decisions of their own. Pieces are multiples of four. A block takes `turns` x
// 128 contiguous float4s and loads a turn ahead of the arithmetic; a piece's constants are computed once.
constexpr int kPieceThreads = 128, kPieceBlocks = 6;  // on an SM: 80 registers, at which 8 bytes of a thread spill
__global__ void __launch_bounds__(kPieceThreads, kPieceBlocks)
    adam_pieces(float* p, const float* g, float* m, float* v, const UpdatePiece* pieces, int count, int64_t n,
                const UpdateParams* params, const UpdateDecision* decisions, TargetUpdate target, int turns) {
  const int64_t base = int64_t{blockIdx.x} * turns * kPieceThreads, left = n / 4 - base;
  const int stretch = turns * kPieceThreads, end = left < stretch ? static_cast<int>(left) : stretch;
  int i = static_cast<int>(threadIdx.x);  // float4 of the block
  if (i >= end) return;
  Adam<Given, AsGiven> body{p + 4 * base, g + 4 * base, m + 4 * base, v + 4 * base, {}, {}, {}};
  float4* const target_weights = target.weights ? reinterpret_cast<float4*>(target.weights) + base : nullptr;
  auto loaded = body.load(i);
  float4 before = target_weights ? target_weights[i] : float4{};
  __syncwarp(__activemask());     // keeps the compiler from moving the loads down to their use
  int low = 0, high = count - 1;  // the first piece that ends after 4 * (base + i)
  while (low < high) {
    const int middle = (low + high) / 2;
    if (pieces[middle].end > 4 * (base + i))
      high = middle;
    else
      low = middle + 1;
  }
  int piece_end = 0;  // of the one that `body` is made for
  bool skip = false;
#pragma unroll 1
  for (; i < end; i += kPieceThreads) {
    const auto now = loaded;
    const float4 old_target = before;
    if (const int next = i + kPieceThreads; next < end) {
      loaded = body.load(next);
      if (target_weights) before = target_weights[next];
    }
    if (i >= piece_end) {
      while (low < count - 1 && pieces[low].end <= 4 * (base + i)) ++low;
      const int64_t piece_left = pieces[low].end / 4 - base;
      piece_end = static_cast<int>(piece_left < 0 ? 0 : piece_left < stretch ? piece_left : stretch);
      const UpdateDecision& decision = decisions[pieces[low].group];
      skip = decision.skip != 0;
      body.params.value = params->adam[pieces[low].decays];
      body.grad_scale.scale = decision.scale;
      body.prepare();
    }
    if (skip) continue;
    const float4 weight = body.four(i, now);
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
  __device__ void update(float& weight, float gradient, float& moved) const {
    if (params.momentum == 0.0f)
      sgd_one<false, false>(weight, gradient, nullptr, params, grad_scale);
    else if (params.nesterov)
      sgd_one<true, true>(weight, gradient, &moved, params, grad_scale);
    else
      sgd_one<true, false>(weight, gradient, &moved, params, grad_scale);
  }
  __device__ void one(int64_t i) const {
    const bool momentum = params.momentum != 0.0f;
    float weight = p[i], moved = momentum ? velocity[i] : 0.0f;
    update(weight, g[i], moved);
    p[i] = weight;
    if (momentum) velocity[i] = moved;
  }
  __device__ void four(int64_t i) const {
    const bool momentum = params.momentum != 0.0f;
    float4 weight = reinterpret_cast<float4*>(p)[i];
    float4 moved = momentum ? reinterpret_cast<float4*>(velocity)[i] : float4{};
    const float4 gradient = reinterpret_cast<const float4*>(g)[i];
    update(weight.x, gradient.x, moved.x);
    update(weight.y, gradient.y, moved.y);
    update(weight.z, gradient.z, moved.z);
    update(weight.w, gradient.w, moved.w);
    reinterpret_cast<float4*>(p)[i] = weight;
    if (momentum) reinterpret_cast<float4*>(velocity)[i] = moved;
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

// y = op(y, x) for the small ones.
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

__global__ void copy_words(uint32_t* to, const uint32_t* from, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) to[i] = from[i];
}

__global__ void decide(UpdateDecision* decision, const UpdateParams* params, const double* sum_of_squares,
                       const int* statistics_finite, const int64_t* bad, int bad_count) {
  bool flagged = params->flag != 0;
  for (int i = 0; i < bad_count; ++i) flagged = flagged || bad[i] >= 0;
  *decision = tandem::decide_update(*sum_of_squares, *statistics_finite != 0, flagged, *params);
}

}  // namespace

void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams& params, float grad_scale,
                 Stream stream) {
  launch("adam_update", aligned16(p, g, m, v), n, Adam<Given, AsGiven>{p, g, m, v, {params}, {grad_scale}, {}}, stream);
}
void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams* params,
                 const UpdateDecision* decision, Stream stream) {
  launch("adam_update", aligned16(p, g, m, v), n, Adam<OnDevice, AsDecided>{p, g, m, v, {params}, {decision}, {}},
         stream);
}

void adam_update(float* p, const float* g, float* m, float* v, const UpdatePiece* pieces, int count, int64_t n,
                 const UpdateParams* params, const UpdateDecision* decisions, const TargetUpdate& target,
                 Stream stream) {
  if (n < 4) return;
  // As many turns as let all blocks run at once; a few, where there are very many weights.
  constexpr int64_t kMostTurns = 8;
  const int64_t at_once = std::max<int64_t>(1, sm_count()) * kPieceBlocks * kPieceThreads;
  const auto turns = static_cast<int>(std::clamp<int64_t>((n / 4 + at_once - 1) / at_once, 1, kMostTurns));
  const int64_t stretch = int64_t{turns} * kPieceThreads;
  adam_pieces<<<static_cast<unsigned>((n / 4 + stretch - 1) / stretch), kPieceThreads, 0, stream>>>(
      p, g, m, v, pieces, count, n, params, decisions, target, turns);
  check_launch("adam_update");
}

void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams& params, float grad_scale,
                Stream stream) {
  launch("sgd_update", aligned16(p, g, velocity), n,
         Sgd<Given, AsGiven>{p, g, velocity, {params}, {grad_scale}, {}, 0.0f}, stream);
}
void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams* params,
                const UpdateDecision* decision, Stream stream) {
  launch("sgd_update", aligned16(p, g, velocity), n,
         Sgd<OnDevice, AsDecided>{p, g, velocity, {params}, {decision}, {}, 0.0f}, stream);
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

bool copy_few(void* to, const void* from, size_t bytes, Stream stream) {
  constexpr size_t kFew = 4096;
  const auto odd = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(uint32_t) != 0; };
  if (bytes == 0 || bytes > kFew || bytes % sizeof(uint32_t) != 0 || odd(to) || odd(from)) return false;
  copy_words<<<1, kThreads, 0, stream>>>(static_cast<uint32_t*>(to), static_cast<const uint32_t*>(from),
                                         static_cast<int>(bytes / sizeof(uint32_t)));
  check_launch("copy_few");
  return true;
}

}  // namespace tandem::cuda
