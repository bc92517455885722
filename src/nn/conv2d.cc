#include "nn/conv2d.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "nn/conv_columns.h"
#include "nn/kernel_choice.h"
#include "nn/linear_gemm.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

// [N, C, H, W] in channels-last memory as [N * H * W, C], and back.
at::Tensor places_of(const at::Tensor& x) { return x.permute({0, 2, 3, 1}).reshape({-1, x.size(1)}); }
at::Tensor images_of(const at::Tensor& places, const at::Tensor& like, int64_t channels) {
  return places.view({like.size(0), like.size(2), like.size(3), channels}).permute({0, 3, 1, 2});
}

// A gradient of a weight as a leaf: float, in the order of the parameter's memory.
at::Tensor as_leaf(const at::Tensor& gradient, const at::Tensor& weight) {
  const at::Tensor leaf = gradient.to(at::kFloat);
  const bool last = !weight.is_contiguous() && weight.is_contiguous(kChannelsLast);
  return (last ? leaf.permute({0, 2, 3, 1}) : leaf).reshape({-1});
}
// The other way: a leaf as a gradient of the weight's shape.
at::Tensor as_gradient(const at::Tensor& leaf, const at::Tensor& weight) {
  if (weight.is_contiguous() || !weight.is_contiguous(kChannelsLast)) return leaf.view(weight.sizes());
  return leaf.view({weight.size(0), weight.size(2), weight.size(3), weight.size(1)}).permute({0, 3, 1, 2});
}

}  // namespace

struct Conv2dFunction : torch::autograd::Function<Conv2dFunction> {
  struct Pass {
    const Conv2dImpl* layer;
    int shards, job_shards;
    // ATen's operators run once for each shard: cuDNN chooses its engine by the number of images. At some numbers it
    // takes another one, whose bits differ in few elements; a comparison can miss these.
    bool apart;
    bool as_linear;  // 1 x 1 on a GPU

    Pass(const Conv2dImpl* of, const at::Tensor& x, int in_pass, int in_job)
        : layer(of), shards(in_pass), job_shards(std::max(in_pass, in_job)) {
      const Conv2dOptions& o = of->options;
      apart = shards > 1;
      const auto are = [](const torch::ExpandingArray<2>& pair, int64_t n) {
        return (*pair)[0] == n && (*pair)[1] == n;
      };
      as_linear = x.is_cuda() && o.groups == 1 && are(o.kernel, 1) && are(o.stride, 1) && are(o.padding, 0);
    }
    LinearPass linear(const at::Tensor& x) const {
      const Conv2dOptions& o = layer->options;
      const int64_t places = x.size(0) * x.size(2) * x.size(3);
      return {o.in, o.out, places / shards, shards, job_shards, layer->one_by_one()};
    }
    // [rows, ...]: run(shard) of each shard, or run(-1) of all.
    template <class Run>
    at::Tensor rows(const Run& run) const {
      if (!apart) return run(-1);
      std::vector<at::Tensor> parts;
      for (int shard = 0; shard < shards; ++shard) parts.push_back(run(shard));
      return at::cat(parts);
    }
    // A library may look at an operand's address, so the rows of one shard begin where a tensor of their own would.
    at::Tensor part(const at::Tensor& rows, int shard) const {
      if (shard < 0 || shards == 1) return rows;
      const int64_t each = rows.size(0) / shards;
      const at::Tensor own = rows.narrow(0, shard * each, each);
      return reinterpret_cast<uintptr_t>(own.const_data_ptr()) % 512 == 0 ? own : own.clone();
    }
  };

  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias, Conv2dImpl* layer) {
    const Conv2dOptions& o = layer->options;
    const at::Tensor w =
        x.is_cuda() ? weight.to(x.scalar_type()).contiguous(kChannelsLast) : weight.to(x.scalar_type());
    const at::Tensor bias = given_bias ? given_bias->to(x.scalar_type()) : at::Tensor();
    const Pass pass(layer, x, layer->pass().shards, layer->pass().job_shards);
    at::Tensor y;
    if (pass.as_linear)
      y = images_of(linear_forward(pass.linear(x), places_of(x), w.view({o.out, o.in}), bias), x, o.out);
    else
      y = pass.rows([&](int shard) {
        return at::convolution(pass.part(x, shard), w, bias, *o.stride, *o.padding, *o.dilation, false, {0, 0},
                               o.groups);
      });
    ctx->save_for_backward({x, w});
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(layer->pass().sums);
    ctx->saved_data["shards"] = static_cast<int64_t>(layer->pass().shards);
    ctx->saved_data["job shards"] = static_cast<int64_t>(layer->pass().job_shards);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1];
    auto* const layer = reinterpret_cast<Conv2dImpl*>(ctx->saved_data["layer"].toInt());
    const Pass pass(layer, x, static_cast<int>(ctx->saved_data["shards"].toInt()),
                    static_cast<int>(ctx->saved_data["job shards"].toInt()));
    at::Tensor dy = grads[0].to(x.scalar_type());
    if (x.is_cuda()) dy = dy.contiguous(kChannelsLast);
    layer->trace("gradient of the output", dy);
    at::Tensor dx, weight_grad, bias_grad;
    if (layer->bias.defined() && layer->bias.requires_grad()) {
      LinearPass sums = pass.linear(dy);
      bias_grad = give_leaves(ctx, layer->bias, linear_bias_leaves(sums, places_of(dy).contiguous()));
    }
    if (layer->weight.requires_grad()) weight_grad = give_leaves(ctx, layer->weight, weight_leaves(pass, x, w, dy));
    if (ctx->needs_input_grad(0)) {
      dx = input_gradient(pass, x, w, dy);
      layer->trace("gradient of the input", dx);
    }
    return {dx, weight_grad, bias_grad, {}};
  }

 private:
  static at::Tensor input_gradient(const Pass& pass, const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy) {
    const Conv2dOptions& o = pass.layer->options;
    if (pass.as_linear)
      return images_of(linear_input_gradient(pass.linear(x), places_of(dy), w.view({o.out, o.in})), x, o.in);
    return pass.rows([&](int shard) {
      return std::get<0>(at::convolution_backward(pass.part(dy, shard), pass.part(x, shard), w,
                                                  at::OptionalIntArrayRef(), *o.stride, *o.padding, *o.dilation, false,
                                                  {0, 0}, o.groups, {true, false, false}));
    });
  }

  // [shards, elements], in the order of the parameter's memory.
  static at::Tensor weight_leaves(const Pass& pass, const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy) {
    const Conv2dOptions& o = pass.layer->options;
    const at::Tensor& weight = pass.layer->weight;
    if (x.is_cuda() && o.groups == 1) {
      const ConvShape shape = conv_shape(x, dy, *o.kernel, *o.stride, *o.padding, *o.dilation);
      const at::Tensor leaves = conv_weight_leaves({pass.shards, pass.job_shards, /*one_by_one=*/false}, shape, x, dy);
      const bool last = !weight.is_contiguous() && weight.is_contiguous(kChannelsLast);
      return (last ? leaves : leaves.permute({0, 1, 4, 2, 3})).reshape({pass.shards, weight.numel()});
    }
    at::Tensor leaves = at::empty({pass.shards, weight.numel()}, weight.options());
    for (int shard = 0; shard < pass.shards; ++shard) {
      const auto gradients =
          at::convolution_backward(pass.part(dy, shard), pass.part(x, shard), w, at::OptionalIntArrayRef(), *o.stride,
                                   *o.padding, *o.dilation, false, {0, 0}, o.groups, {false, true, false});
      leaves[shard].copy_(as_leaf(std::get<1>(gradients), weight));
    }
    return leaves;
  }

  // To the sums, or without these to autograd: then there is one shard.
  static at::Tensor give_leaves(torch::autograd::AutogradContext* ctx, const at::Tensor& parameter,
                                const at::Tensor& leaves) {
    auto* const sums = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt());
    if (!sums && leaves.size(0) != 1) throw std::logic_error("a pass of several shards without sums for their leaves");
    if (!sums) return parameter.dim() == 4 ? as_gradient(leaves[0], parameter) : leaves[0];
    sums->add(parameter, leaves);
    return {};
  }
};

Conv2dImpl::Conv2dImpl(const Conv2dOptions& given) : options(given) {
  const Conv2dOptions& o = options;
  const auto sizes = [](const torch::ExpandingArray<2>& pair) { return fmt::format("{}", fmt::join(*pair, " x ")); };
  const auto least = [](const torch::ExpandingArray<2>& pair) { return std::min((*pair)[0], (*pair)[1]); };
  const std::string what =
      fmt::format("a convolution {} -> {} with kernel {}, stride {}, padding {}, dilation {}, {} groups", o.in, o.out,
                  sizes(o.kernel), sizes(o.stride), sizes(o.padding), sizes(o.dilation), o.groups);
  if (o.in < 1 || o.out < 1 || o.groups < 1 || least(o.kernel) < 1 || least(o.stride) < 1 || least(o.dilation) < 1 ||
      least(o.padding) < 0)
    throw ConfigError(what, "all of them are numbers from 1 up, the padding from 0 up", "change these sizes");
  if (o.in % o.groups != 0 || o.out % o.groups != 0)
    throw ConfigError(what, "both numbers of channels must divide by the groups", "change the groups or the channels");
  const torch::nn::Conv2d torchs(torch::nn::Conv2dOptions(o.in, o.out, o.kernel)
                                     .stride(o.stride)
                                     .padding(o.padding)
                                     .dilation(o.dilation)
                                     .groups(o.groups)
                                     .bias(o.bias));
  weight = register_parameter("weight", torchs->weight);
  bias = register_parameter("bias", torchs->bias, /*requires_grad=*/o.bias);
}

at::Tensor Conv2dImpl::forward(const at::Tensor& given) {
  const Conv2dOptions& o = options;
  if (given.dim() != 4 || given.size(1) != o.in)
    throw ConfigError(fmt::format("{} (convolution, {} -> {}) was given an input of [{}]", layer_name(), o.in, o.out,
                                  fmt::join(given.sizes(), ", ")),
                      fmt::format("it takes [rows, {}, height, width]", o.in),
                      "give it that shape, or make the layer for the input's channels");
  for (const size_t d : {0, 1})
    if (given.size(static_cast<int64_t>(2 + d)) + 2 * (*o.padding)[d] < (*o.dilation)[d] * ((*o.kernel)[d] - 1) + 1)
      throw ConfigError(fmt::format("{} has a kernel of {}, and images of {} x {}", layer_name(),
                                    fmt::join(*o.kernel, " x "), given.size(2), given.size(3)),
                        "the kernel is larger than the image with its padding",
                        "use a smaller kernel or larger images");
  shard_rows(*this, given.size(0));
  const at::ScalarType type = compute_type(given);
  const WithoutAutocast plain;
  at::Tensor x = given.to(type);
  x = x.contiguous(x.is_cuda() ? kChannelsLast : x.suggest_memory_format());
  trace("input", x);
  if (at::GradMode::is_enabled() && pass().sums) {
    if (weight.requires_grad()) pass().sums->expect(weight);
    if (bias.defined() && bias.requires_grad()) pass().sums->expect(bias);
  }
  const at::Tensor y =
      Conv2dFunction::apply(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt, this);
  trace("output", y);
  return y;
}

void Conv2dImpl::pretty_print(std::ostream& stream) const {
  const auto sizes = [](const torch::ExpandingArray<2>& pair) { return fmt::format("{}", fmt::join(*pair, " x ")); };
  stream << fmt::format("tandem::Conv2d({} -> {}, kernel={}, stride={}, padding={}, dilation={}, groups={}, bias={})",
                        options.in, options.out, sizes(options.kernel), sizes(options.stride), sizes(options.padding),
                        sizes(options.dilation), options.groups, options.bias);
}

}  // namespace tandem
