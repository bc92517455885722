#include "nn/linear_gemm.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "kernels/cpu/gemm.h"
#include "kernels/gpu/linear_cublaslt.h"
#include "kernels/linear_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

// Weights up to this many numbers are multiplied by kernels/cpu/gemm.h. Measured with AVX-512 and one thread, 8 shards,
// against libtorch (MKL) shard by shard: forward, input and weight gradient of 256 x 768, 640 rows a shard, take .90,
// .88 and .90 of the time, of 512 x 512 .92, .92 and .95; with 32 rows a shard, of 512 x 512, .58, 1.04 and 1.17.
constexpr int64_t kOwnGemmNumbers = 512 * 512;

bool by_own_gemm(const LinearPass& pass, const at::Tensor& rows) {
  return rows.scalar_type() == at::kFloat && pass.in * pass.out <= kOwnGemmNumbers;
}

// A library may choose by the address of a matrix, so each begins where a tensor of its own would.
bool is_aligned(const at::Tensor& x, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % bytes == 0;
}
at::Tensor aligned_copy(const at::Tensor& x, uintptr_t bytes) { return is_aligned(x, bytes) ? x : x.clone(); }
constexpr uintptr_t kCpuAlignment = 64;

at::Tensor shard_of(const LinearPass& pass, const at::Tensor& rows, int shard) {
  return aligned_copy(rows.narrow(0, shard * pass.shard_rows, pass.shard_rows), kCpuAlignment);
}

// run(shard, part) writes each shard's part of `all`, whose first dimension is that of shards or of their rows.
template <class Run>
at::Tensor shard_by_shard(const LinearPass& pass, at::Tensor all, const Run& run) {
  const int64_t each = all.size(0) / pass.shards;
  for (int shard = 0; shard < pass.shards; ++shard) {
    at::Tensor part = all.narrow(0, shard * each, each);
    if (is_aligned(part, kCpuAlignment)) {
      run(shard, part);
    } else {
      at::Tensor apart = at::empty(part.sizes(), part.options());
      run(shard, apart);
      part.copy_(apart);
    }
  }
  return all;
}

struct OwnGemmMemory {
  Panels panels;
  WeightGradientScratch scratch;
};
OwnGemmMemory& own_gemm_memory() {
  static thread_local OwnGemmMemory memory;
  return memory;
}

// ---- GPU ----
const GemmKernels* offered_gemms() {
  return gpu_kernels().tables ? gpu_kernels().tables->find<GemmKernels>() : nullptr;
}

// Runs `call` for the whole pass or, one by one, for each shard: the pointers move on by so many bytes a shard.
void run_on_gpu(const LinearPass& pass, GemmCall call, int64_t x_bytes, int64_t dy_bytes, int64_t out_bytes,
                const at::Tensor& like) {
  const GemmKernels* const gemms = offered_gemms();
  if (!gemms) throw std::logic_error("the GPU library has no kernels 'gemm'");
  at::Tensor workspace;
  if (const int64_t bytes = gemms->workspace_bytes(call.shape); bytes > 0) {
    workspace = at::empty({bytes}, like.options().dtype(at::kByte));
    call.workspace = workspace.data_ptr();
  }
  call.shards = pass.one_by_one ? 1 : pass.shards;
  for (int64_t shard = 0; shard < pass.shards; shard += call.shards) {
    gemms->run(call, stream_for(like));
    if (call.x) call.x = static_cast<const char*>(call.x) + x_bytes;
    if (call.dy) call.dy = static_cast<const char*>(call.dy) + dy_bytes;
    call.out = static_cast<char*>(call.out) + out_bytes;
  }
}

int64_t shard_bytes(const LinearPass& pass, const at::Tensor& rows) {
  return pass.shard_rows * rows.size(1) * static_cast<int64_t>(rows.element_size());
}

LinearGemmShape gpu_shape(GemmKind kind, const LinearPass& pass, const at::Tensor& rows, bool bias) {
  const bool tf32 = rows.scalar_type() == at::kFloat && at::globalContext().allowTF32CuBLAS();
  return linear_gemm_shape(kind, pass, float_type(rows), tf32, bias);
}

at::Tensor gpu_rows(const LinearPass& pass, GemmKind kind, const at::Tensor& given, const at::Tensor& weight,
                    const at::Tensor& given_bias) {
  const bool forward = kind == GemmKind::kForward;
  const at::Tensor rows = aligned_copy(given, 16), w = aligned_copy(weight, 16);
  const at::Tensor bias = given_bias.defined() ? aligned_copy(given_bias, 16) : given_bias;
  at::Tensor out = at::empty({rows.size(0), forward ? pass.out : pass.in}, rows.options());
  GemmCall call;
  call.shape = gpu_shape(kind, pass, rows, bias.defined());
  (forward ? call.x : call.dy) = rows.const_data_ptr();
  call.w = w.const_data_ptr();
  if (bias.defined()) call.bias = bias.const_data_ptr();
  call.out = out.data_ptr();
  run_on_gpu(pass, call, shard_bytes(pass, rows), shard_bytes(pass, rows), shard_bytes(pass, out), rows);
  return out;
}

at::Tensor gpu_weight_leaves(const LinearPass& pass, const at::Tensor& given_dy, const at::Tensor& given_x) {
  const at::Tensor dy = aligned_copy(given_dy, 16), x = aligned_copy(given_x, 16);
  at::Tensor leaves = at::empty({pass.shards, pass.out, pass.in}, x.options().dtype(at::kFloat));
  GemmCall call;
  call.shape = gpu_shape(GemmKind::kWeightLeaves, pass, x, false);
  call.x = x.const_data_ptr();
  call.dy = dy.const_data_ptr();
  call.out = leaves.data_ptr();
  const auto leaf_bytes = pass.out * pass.in * static_cast<int64_t>(sizeof(float));
  run_on_gpu(pass, call, shard_bytes(pass, x), shard_bytes(pass, dy), leaf_bytes, x);
  return leaves;
}

// ---- CPU, kernels/cpu/gemm.h ----
at::Tensor own_rows(const at::Tensor& rows, const Panels& panels, const at::Tensor& bias) {
  const int64_t all = rows.size(0), in = rows.size(1), columns = panels.n();
  at::Tensor out = at::empty({all, columns}, rows.options());
  gemm(rows.const_data_ptr<float>(), in, panels, bias.defined() ? bias.const_data_ptr<float>() : nullptr,
       out.data_ptr<float>(), columns, all);
  return out;
}

void own_weight_leaves(const LinearPass& pass, const at::Tensor& dy, const at::Tensor& x, float* leaves) {
  constexpr int kNoMerge = 0;
  for (int64_t shard = 0; shard < pass.shards; ++shard)
    weight_gradient(dy.const_data_ptr<float>() + shard * pass.shard_rows * pass.out, pass.out,
                    x.const_data_ptr<float>() + shard * pass.shard_rows * pass.in, pass.in,
                    leaves + shard * pass.out * pass.in, pass.out, pass.in, pass.shard_rows, {&kNoMerge, 1},
                    Write::kSet, own_gemm_memory().scratch);
}

}  // namespace

LinearPass LinearPass::of(const ShardAware& layer, int64_t rows, int64_t in, int64_t out) {
  return {in,
          out,
          tandem::shard_rows(layer, rows),
          layer.pass().shards,
          std::max(layer.pass().job_shards, layer.pass().shards),
          layer.one_by_one()};
}

LinearGemmShape linear_gemm_shape(GemmKind kind, const LinearPass& pass, FloatType type, bool tf32, bool bias) {
  return {kind, pass.shard_rows, pass.job_shards, pass.in, pass.out, type, tf32, bias};
}

at::Tensor linear_forward(const LinearPass& pass, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  if (x.size(0) == 0) return at::empty({0, pass.out}, x.options());
  if (x.is_cuda()) return gpu_rows(pass, GemmKind::kForward, x, w, bias);
  if (by_own_gemm(pass, x)) {
    Panels& panels = own_gemm_memory().panels;
    panels.pack_transposed(w.const_data_ptr<float>(), pass.in, pass.out);
    return own_rows(x, panels, bias);
  }
  return shard_by_shard(pass, at::empty({x.size(0), pass.out}, x.options()), [&](int shard, at::Tensor& part) {
    bias.defined() ? at::addmm_out(part, bias, shard_of(pass, x, shard), w.t())
                   : at::mm_out(part, shard_of(pass, x, shard), w.t());
  });
}

at::Tensor linear_input_gradient(const LinearPass& pass, const at::Tensor& dy, const at::Tensor& w) {
  if (dy.size(0) == 0) return at::empty({0, pass.in}, dy.options());
  if (dy.is_cuda()) return gpu_rows(pass, GemmKind::kInputGradient, dy, w, {});
  if (by_own_gemm(pass, dy)) {
    Panels& panels = own_gemm_memory().panels;
    panels.pack(w.const_data_ptr<float>(), pass.out, pass.in);
    return own_rows(dy, panels, {});
  }
  return shard_by_shard(pass, at::empty({dy.size(0), pass.in}, dy.options()),
                        [&](int shard, at::Tensor& part) { at::mm_out(part, shard_of(pass, dy, shard), w); });
}

at::Tensor linear_weight_leaves(const LinearPass& pass, const at::Tensor& dy, const at::Tensor& x) {
  const auto floats = x.options().dtype(at::kFloat);
  if (x.size(0) == 0) return at::zeros({pass.shards, pass.out, pass.in}, floats);
  if (x.is_cuda()) return gpu_weight_leaves(pass, dy, x);
  at::Tensor leaves = at::empty({pass.shards, pass.out, pass.in}, floats);
  if (by_own_gemm(pass, x)) {
    own_weight_leaves(pass, dy, x, leaves.data_ptr<float>());
    return leaves;
  }
  // Leaves are float, so the sums are too: libtorch's own GEMM of bf16 operands would round the result to bf16.
  return shard_by_shard(pass, leaves, [&](int shard, at::Tensor& part) {
    at::Tensor leaf = part.view({pass.out, pass.in});
    at::mm_out(leaf, shard_of(pass, dy, shard).to(at::kFloat).t(), shard_of(pass, x, shard).to(at::kFloat));
  });
}

at::Tensor linear_bias_leaves(const LinearPass& pass, const at::Tensor& dy) {
  const auto floats = dy.options().dtype(at::kFloat);
  at::Tensor leaves = at::empty({pass.shards, pass.out}, floats);
  const at::Tensor scratch =
      dy.is_cuda() ? at::empty({column_scratch_floats(pass.shards, pass.shard_rows, pass.out)}, floats) : at::Tensor();
  kernels_for<LinearKernels>(dy).column_sums(dy.const_data_ptr(), pass.shards, pass.shard_rows, pass.out,
                                             float_type(dy), leaves.data_ptr<float>(),
                                             scratch.defined() ? scratch.data_ptr<float>() : nullptr, stream_for(dy));
  return leaves;
}

std::vector<std::string> gemm_choices() {
  const GemmKernels* const gemms = offered_gemms();
  return gemms ? gemms->choices() : std::vector<std::string>{};
}

void force_gemm_choices(const std::vector<std::string>& lines) {
  const GemmKernels* const gemms = offered_gemms();
  if (gemms) return gemms->force(lines);
  if (!lines.empty())
    throw ConfigError("GEMM algorithms of a GPU are recorded, and this is a CPU",
                      "CPU and GPU round differently: it would be another run",
                      "go on with the kind of GPU that the run began with, or begin a new run");
}

}  // namespace tandem
