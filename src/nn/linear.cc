#include "nn/linear.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "kernels/linear_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/linear_gemm.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

at::Tensor as_rows(const at::Tensor& x, int64_t columns, at::ScalarType type) {
  return x.to(type).reshape({-1, columns}).contiguous();
}

std::vector<int64_t> with_last(const at::Tensor& x, int64_t last) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = last;
  return sizes;
}

at::Tensor gelu_rows(const at::Tensor& z, GeluForm form) {
  at::Tensor y = at::empty_like(z);
  kernels_for<LinearKernels>(z).gelu(z.const_data_ptr(), y.data_ptr(), z.numel(), float_type(z), form, stream_for(z));
  return y;
}

struct GeluGradient {
  at::Tensor dz, bias_leaves;  // the second undefined unless asked for
};
GeluGradient gelu_gradient_rows(const LinearPass& pass, const at::Tensor& dy, const at::Tensor& z, GeluForm form,
                                bool with_bias) {
  GeluGradient found{at::empty_like(z), {}};
  at::Tensor scratch;
  if (with_bias) {
    found.bias_leaves = at::empty({pass.shards, pass.out}, z.options().dtype(at::kFloat));
    const int64_t floats = z.is_cuda() ? column_scratch_floats(pass.shards, pass.shard_rows, pass.out) : 0;
    scratch = at::empty({floats}, z.options().dtype(at::kFloat));
  }
  kernels_for<LinearKernels>(z).gelu_gradient(dy.const_data_ptr(), z.const_data_ptr(), found.dz.data_ptr(), pass.shards,
                                              pass.shard_rows, pass.out, float_type(z), form,
                                              with_bias ? found.bias_leaves.data_ptr<float>() : nullptr,
                                              with_bias ? scratch.data_ptr<float>() : nullptr, stream_for(z));
  return found;
}

}  // namespace

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_in, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, LinearImpl* layer) {
    const at::ScalarType type = compute_type(x_in);
    const WithoutAutocast plain;
    const LinearOptions& o = layer->options;
    const at::Tensor x = as_rows(x_in, o.in, type), w = weight.to(type).contiguous();
    const LinearPass pass = pass_of(*layer, x);
    const at::Tensor z = linear_forward(pass, x, w, bias ? bias->to(type) : at::Tensor());
    const at::Tensor y = o.gelu ? gelu_rows(z, *o.gelu) : z;
    ctx->save_for_backward({weight.requires_grad() ? x : at::Tensor(), x_in.requires_grad() ? w : at::Tensor(),
                            o.gelu ? z : at::Tensor()});
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(layer->pass().sums);
    ctx->saved_data["shards"] = pass.shards;
    ctx->saved_data["job shards"] = pass.job_shards;
    ctx->saved_data["sizes"] = x_in.sizes().vec();
    ctx->saved_data["x type"] = static_cast<int64_t>(x_in.scalar_type());
    return y.view(with_last(x_in, o.out));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    auto* const layer = reinterpret_cast<LinearImpl*>(ctx->saved_data["layer"].toInt());
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1], &z = saved[2];
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    layer->trace("gradient of the output", grads[0]);
    const LinearOptions& o = layer->options;
    at::Tensor dz = as_rows(grads[0], o.out, grads[0].scalar_type());
    LinearPass pass{o.in, o.out, 0, 0, 0, layer->one_by_one()};
    pass.shards = static_cast<int>(ctx->saved_data["shards"].toInt());
    pass.job_shards = static_cast<int>(ctx->saved_data["job shards"].toInt());
    pass.shard_rows = dz.size(0) / pass.shards;

    const bool with_bias = layer->bias.defined() && layer->bias.requires_grad();
    at::Tensor bias_leaves;
    if (o.gelu) {
      GeluGradient found = gelu_gradient_rows(pass, dz, z, *o.gelu, with_bias);
      dz = found.dz, bias_leaves = found.bias_leaves;
    } else if (with_bias) {
      bias_leaves = linear_bias_leaves(pass, dz);
    }
    at::Tensor weight_grad, bias_grad;
    if (with_bias) bias_grad = give_leaves(ctx, layer->bias, bias_leaves);
    if (x.defined()) weight_grad = give_leaves(ctx, layer->weight, linear_weight_leaves(pass, dz, x));
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      dx = linear_input_gradient(pass, dz, w).view(sizes);
      dx = dx.to(static_cast<at::ScalarType>(ctx->saved_data["x type"].toInt()));
      layer->trace("gradient of the input", dx);
    }
    return {dx, weight_grad, bias_grad, {}};
  }

  static LinearPass pass_of(const LinearImpl& layer, const at::Tensor& x) {
    return LinearPass::of(layer, x.size(0), layer.options.in, layer.options.out);
  }

 private:
  // To the sums, or without these to autograd: then there is one shard.
  static at::Tensor give_leaves(torch::autograd::AutogradContext* ctx, const at::Tensor& parameter,
                                const at::Tensor& leaves) {
    auto* const sums = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt());
    if (!sums && leaves.size(0) != 1) throw std::logic_error("a pass of several shards without sums for their leaves");
    if (!sums) return leaves[0].view_as(parameter).to(parameter.scalar_type());
    sums->add(parameter, leaves.view({leaves.size(0), parameter.numel()}));
    return {};
  }
};

LinearImpl::LinearImpl(const LinearOptions& given) : options(given) {
  if (given.in < 1 || given.out < 1)
    throw ConfigError(fmt::format("a linear layer from {} to {} features", given.in, given.out),
                      "both are numbers from 1 up", "give it the sizes of its input and output");
  const torch::nn::Linear torchs(torch::nn::LinearOptions(given.in, given.out).bias(given.bias));
  weight = register_parameter("weight", torchs->weight);
  bias = register_parameter("bias", torchs->bias, /*requires_grad=*/given.bias);
}

at::Tensor LinearImpl::forward(const at::Tensor& x) {
  if (x.dim() < 1 || x.size(-1) != options.in)
    throw ConfigError(fmt::format("{} (linear, {} -> {}) was given an input of [{}]", layer_name(), options.in,
                                  options.out, fmt::join(x.sizes(), ", ")),
                      fmt::format("its last dimension must be {}", options.in),
                      "give it that shape, or make the layer for the input's last dimension");
  shard_rows(*this, x.dim() < 2 ? 1 : x.size(0));
  trace("input", x);
  if (at::GradMode::is_enabled() && pass().sums) {
    if (weight.requires_grad()) pass().sums->expect(weight);
    if (bias.defined() && bias.requires_grad()) pass().sums->expect(bias);
  }
  const at::Tensor y = LinearFunction::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, this);
  trace("output", y);
  return y;
}

void LinearImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("tandem::Linear(in={}, out={}, bias={}{})", options.in, options.out, options.bias,
                        !options.gelu                      ? ""
                        : *options.gelu == GeluForm::kTanh ? ", gelu=tanh"
                                                           : ", gelu=erf");
}

}  // namespace tandem
