#include "nn/conv3d.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "nn/kernel_choice.h"
#include "nn/linear_gemm.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

constexpr auto kVolumesLast = at::MemoryFormat::ChannelsLast3d;

bool lies_channels_last(const at::Tensor& weight) {
  return !weight.is_contiguous() && weight.is_contiguous(kVolumesLast);
}

// A gradient of a weight as a leaf: float, in the order of the parameter's memory; and back.
at::Tensor volume_leaf(const at::Tensor& gradient, const at::Tensor& weight) {
  const at::Tensor leaf = gradient.to(at::kFloat);
  return (lies_channels_last(weight) ? leaf.permute({0, 2, 3, 4, 1}) : leaf).reshape({-1});
}
at::Tensor volume_gradient(const at::Tensor& leaf, const at::Tensor& weight) {
  if (!lies_channels_last(weight)) return leaf.view(weight.sizes());
  return leaf.view({weight.size(0), weight.size(2), weight.size(3), weight.size(4), weight.size(1)})
      .permute({0, 4, 1, 2, 3});
}

std::string volume_sizes(const torch::ExpandingArray<3>& sizes) { return fmt::format("{}", fmt::join(*sizes, " x ")); }

}  // namespace

struct Conv3dFunction : torch::autograd::Function<Conv3dFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias, Conv3dImpl* layer) {
    const Conv3dOptions& o = layer->options;
    const at::Tensor w = weight.to(x.scalar_type()).contiguous(kVolumesLast);
    const at::Tensor bias = given_bias ? given_bias->to(x.scalar_type()) : at::Tensor();
    const int shards = layer->pass().shards;
    const at::Tensor y = by_shard(shards, [&](int shard) {
      return at::convolution(part(x, shard, shards), w, bias, *o.stride, *o.padding, *o.dilation, false, {0, 0, 0},
                             o.groups);
    });
    ctx->save_for_backward({x, w});
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(layer->pass().sums);
    ctx->saved_data["shards"] = static_cast<int64_t>(shards);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1];
    auto* const layer = reinterpret_cast<Conv3dImpl*>(ctx->saved_data["layer"].toInt());
    const Conv3dOptions& o = layer->options;
    const int shards = static_cast<int>(ctx->saved_data["shards"].toInt());
    const at::Tensor dy = grads[0].to(x.scalar_type()).contiguous(kVolumesLast);
    layer->trace("gradient of the output", dy);
    at::Tensor dx, weight_grad, bias_grad;
    if (layer->bias.defined() && layer->bias.requires_grad()) {
      const at::Tensor places = dy.permute({0, 2, 3, 4, 1}).reshape({-1, o.out});
      bias_grad = give_leaves(
          ctx, layer->bias, linear_bias_leaves({o.in, o.out, places.size(0) / shards, shards, shards, false}, places));
    }
    const bool dx_wanted = ctx->needs_input_grad(0), dw_wanted = layer->weight.requires_grad();
    at::Tensor leaves = dw_wanted ? at::empty({shards, layer->weight.numel()}, layer->weight.options()) : at::Tensor();
    if (dx_wanted || dw_wanted)
      dx = by_shard(shards, [&](int shard) {
        auto found = at::convolution_backward(part(dy, shard, shards), part(x, shard, shards), w,
                                              at::OptionalIntArrayRef(), *o.stride, *o.padding, *o.dilation, false,
                                              {0, 0, 0}, o.groups, {dx_wanted, dw_wanted, false});
        if (dw_wanted) leaves[shard].copy_(volume_leaf(std::get<1>(found), layer->weight));
        return std::get<0>(found);
      });
    if (dw_wanted) weight_grad = give_leaves(ctx, layer->weight, leaves);
    if (dx_wanted) layer->trace("gradient of the input", dx);
    return {dx, weight_grad, bias_grad, {}};
  }

 private:
  // run(shard) of each shard, one after the other in the first dimension; undefined where it gives nothing.
  template <class Run>
  static at::Tensor by_shard(int shards, const Run& run) {
    if (shards == 1) return run(0);
    std::vector<at::Tensor> parts;
    for (int shard = 0; shard < shards; ++shard) parts.push_back(run(shard));
    return parts[0].defined() ? at::cat(parts) : at::Tensor();
  }
  // A library may look at an operand's address, so the rows of one shard begin where a tensor of their own would.
  static at::Tensor part(const at::Tensor& rows, int shard, int shards) {
    if (shards == 1) return rows;
    const int64_t each = rows.size(0) / shards;
    const at::Tensor own = rows.narrow(0, shard * each, each);
    return reinterpret_cast<uintptr_t>(own.const_data_ptr()) % 512 == 0 ? own : own.clone();
  }
  // To the sums, or without these to autograd: then there is one shard.
  static at::Tensor give_leaves(torch::autograd::AutogradContext* ctx, const at::Tensor& parameter,
                                const at::Tensor& leaves) {
    auto* const sums = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt());
    if (!sums && leaves.size(0) != 1) throw std::logic_error("a pass of several shards without sums for their leaves");
    if (!sums) return parameter.dim() == 5 ? volume_gradient(leaves[0], parameter) : leaves[0];
    sums->add(parameter, leaves);
    return {};
  }
};

Conv3dImpl::Conv3dImpl(const Conv3dOptions& given) : options(given) {
  const Conv3dOptions& o = options;
  const auto least = [](const torch::ExpandingArray<3>& sizes) { return std::ranges::min(*sizes); };
  const std::string what = fmt::format(
      "a convolution {} -> {} with kernel {}, stride {}, padding {}, dilation {}, {} groups", o.in, o.out,
      volume_sizes(o.kernel), volume_sizes(o.stride), volume_sizes(o.padding), volume_sizes(o.dilation), o.groups);
  if (o.in < 1 || o.out < 1 || o.groups < 1 || least(o.kernel) < 1 || least(o.stride) < 1 || least(o.dilation) < 1 ||
      least(o.padding) < 0)
    throw ConfigError(what, "all of them are numbers from 1 up, the padding from 0 up", "change these sizes");
  if (o.in % o.groups != 0 || o.out % o.groups != 0)
    throw ConfigError(what, "both numbers of channels must divide by the groups", "change the groups or the channels");
  const torch::nn::Conv3d torchs(torch::nn::Conv3dOptions(o.in, o.out, o.kernel)
                                     .stride(o.stride)
                                     .padding(o.padding)
                                     .dilation(o.dilation)
                                     .groups(o.groups)
                                     .bias(o.bias));
  weight = register_parameter("weight", torchs->weight);
  bias = register_parameter("bias", torchs->bias, /*requires_grad=*/o.bias);
}

at::Tensor Conv3dImpl::forward(const at::Tensor& given) {
  const Conv3dOptions& o = options;
  if (given.dim() != 5 || given.size(1) != o.in)
    throw ConfigError(fmt::format("{} (3D convolution, {} -> {}) was given an input of [{}]", layer_name(), o.in, o.out,
                                  fmt::join(given.sizes(), ", ")),
                      fmt::format("it takes [rows, {}, time, height, width]", o.in),
                      "give it that shape, or make the layer for the input's channels");
  for (const size_t d : {0, 1, 2})
    if (given.size(static_cast<int64_t>(2 + d)) + 2 * (*o.padding)[d] < (*o.dilation)[d] * ((*o.kernel)[d] - 1) + 1)
      throw ConfigError(fmt::format("{} has a kernel of {}, and volumes of {}", layer_name(), volume_sizes(o.kernel),
                                    fmt::join(given.sizes().slice(2), " x ")),
                        "the kernel is larger than the volume with its padding",
                        "use a smaller kernel, or longer clips of larger frames");
  shard_rows(*this, given.size(0));
  const at::ScalarType type = compute_type(given);
  const WithoutAutocast plain;
  const at::Tensor x = given.to(type).contiguous(kVolumesLast);
  trace("input", x);
  if (at::GradMode::is_enabled() && pass().sums) {
    if (weight.requires_grad()) pass().sums->expect(weight);
    if (bias.defined() && bias.requires_grad()) pass().sums->expect(bias);
  }
  const at::Tensor y =
      Conv3dFunction::apply(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt, this);
  trace("output", y);
  return y;
}

void Conv3dImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("tandem::Conv3d({} -> {}, kernel={}, stride={}, padding={}, dilation={}, groups={}, bias={})",
                        options.in, options.out, volume_sizes(options.kernel), volume_sizes(options.stride),
                        volume_sizes(options.padding), volume_sizes(options.dilation), options.groups, options.bias);
}

}  // namespace tandem
