#include "nn/dropout.h"

#include <torch/torch.h>

#include "base/errors.h"
#include "kernels/device.h"
#include "kernels/dropout_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

// p, the key and where it lies, as numbers that autograd can keep.
struct DropoutDraw {
  double p;
  RandomSource key;

  std::vector<int64_t> numbers() const {
    return {static_cast<int64_t>(key.seed),
            static_cast<int64_t>(key.step),
            key.shard,
            key.site,
            reinterpret_cast<int64_t>(key.on_device),
            key.shards};
  }
  static DropoutDraw of(double p, const std::vector<int64_t>& n) {
    RandomSource key({static_cast<uint64_t>(n[0]), static_cast<uint64_t>(n[1]), static_cast<uint32_t>(n[2]),
                      static_cast<uint32_t>(n[3])},
                     reinterpret_cast<const RandomKey*>(n[4]));
    key.shards = static_cast<int>(n[5]);
    return {p, key};
  }
};

// x * mask + residual in `type`, the product in `product`; the mask by row where row_ids are defined.
at::Tensor dropped_rows(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& row_ids, at::ScalarType type,
                        FloatType product, const DropoutDraw& draw) {
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(type).requires_grad(false));
  DropoutCall call{.shards = draw.key.shards,
                   .shard_elements = x.numel() / draw.key.shards,
                   .x = {x.const_data_ptr(), float_type(x)},
                   .residual = {},
                   .out = {out.data_ptr(), float_type(out)},
                   .product = product,
                   .drop_probability = draw.p,
                   .key = draw.key,
                   .key_on_device = x.is_cuda() == device().is_cuda() ? draw.key.on_device : nullptr};
  if (residual.defined()) call.residual = {residual.const_data_ptr(), float_type(residual)};
  if (row_ids.defined()) {
    call.row_ids = row_ids.const_data_ptr<int64_t>();
    call.row_elements = x.numel() / x.size(0);
  }
  kernels_for<DropoutKernels>(x).apply(call, stream_for(x));
  return out;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const std::optional<at::Tensor>& residual, const std::optional<at::Tensor>& row_ids,
                            const DropoutDraw& draw) {
    const WithoutAutocast plain;
    const at::Tensor ids = row_ids ? row_ids->contiguous() : at::Tensor();
    ctx->save_for_backward({ids});
    const bool adds = residual.has_value();
    const at::ScalarType x_type = x.scalar_type(), residual_type = adds ? residual->scalar_type() : x_type;
    ctx->saved_data["adds"] = adds;
    ctx->saved_data["p"] = draw.p;
    ctx->saved_data["key"] = draw.numbers();
    ctx->saved_data["x type"] = static_cast<int64_t>(x_type);
    ctx->saved_data["product"] = static_cast<int64_t>(float_type(x));
    ctx->saved_data["residual type"] = static_cast<int64_t>(residual_type);
    return dropped_rows(x.contiguous(), adds ? residual->contiguous() : at::Tensor(), ids,
                        at::promote_types(x_type, residual_type), float_type(x), draw);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto type_of = [&](const char* which) { return static_cast<at::ScalarType>(ctx->saved_data[which].toInt()); };
    at::Tensor x_grad, residual_grad;
    if (ctx->needs_input_grad(0))
      x_grad = dropped_rows(grads[0].contiguous(), {}, ctx->get_saved_variables()[0], type_of("x type"),
                            static_cast<FloatType>(ctx->saved_data["product"].toInt()),
                            DropoutDraw::of(ctx->saved_data["p"].toDouble(), ctx->saved_data["key"].toIntVector()));
    if (ctx->saved_data["adds"].toBool() && ctx->needs_input_grad(1))
      residual_grad = grads[0].to(type_of("residual type"));
    return {x_grad, residual_grad, {}, {}};
  }
};

void refuse_bad_dropout(const at::Tensor& x, double p, const RandomSource& key) {
  if (!(p >= 0 && p <= 1))
    throw ConfigError("a dropout of " + std::to_string(p), "it is the probability to drop an element",
                      "choose it in [0, 1]");
  shard_rows("dropout", x.dim() == 0 ? 1 : x.size(0), key.shards);
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, const RandomSource& key) {
  refuse_bad_dropout(x, p, key);
  if (p == 0 || !key.training || x.numel() == 0) return x;
  return DropoutFunction::apply(x, std::optional<at::Tensor>(), std::optional<at::Tensor>(), DropoutDraw{p, key});
}

at::Tensor dropout_rows(const at::Tensor& x, double p, const RandomSource& key, const at::Tensor& row_ids) {
  refuse_bad_dropout(x, p, key);
  if (x.dim() < 1 || row_ids.dim() != 1 || row_ids.size(0) != x.size(0) || row_ids.scalar_type() != at::kLong ||
      row_ids.device() != x.device())
    throw ConfigError(c10::str("dropout of ", x.sizes(), " on ", x.device(), " was given row ids ", row_ids.sizes(),
                               " of type ", c10::toString(row_ids.scalar_type()), " on ", row_ids.device()),
                      "each row's mask is drawn by its id",
                      "give it one int64 for each row, on the device of the rows");
  if (p == 0 || !key.training || x.numel() == 0) return x;
  return DropoutFunction::apply(x, std::optional<at::Tensor>(), std::optional<at::Tensor>(row_ids),
                                DropoutDraw{p, key});
}

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, double p, const RandomSource& key) {
  refuse_bad_dropout(x, p, key);
  if (x.sizes() != residual.sizes())
    throw ConfigError("dropout of " + c10::str(x.sizes()) + " is to be added to " + c10::str(residual.sizes()),
                      "they are added, number by number", "give it two tensors of one shape");
  if (p == 0 || !key.training || x.numel() == 0) return x + residual;
  return DropoutFunction::apply(x, std::optional<at::Tensor>(residual), std::optional<at::Tensor>(),
                                DropoutDraw{p, key});
}

}  // namespace tandem
