#include "rl/ppo/policy_net.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "kernels/linear_kernels.h"
#include "nn/dropout.h"
#include "nn/here.h"
#include "nn/kernel_choice.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/lstm.h"
#include "nn/multihead_attention.h"
#include "nn/shard_rows.h"
#include "rl/ppo/ppo_math.h"

namespace tandem {
namespace {

// A parameter that is the same for every row, [size] -> [rows, size].
struct EveryRowFunction : torch::autograd::Function<EveryRowFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& parameter, int64_t rows,
                            const PolicyNet* net) {
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(net->pass().sums);
    ctx->saved_data["net"] = reinterpret_cast<int64_t>(net);
    ctx->saved_data["shards"] = static_cast<int64_t>(net->pass().shards);
    return parameter.detach().view({1, -1}).expand({rows, parameter.numel()}).contiguous();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto* const net = reinterpret_cast<const PolicyNet*>(ctx->saved_data["net"].toInt());
    auto* const sums = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt());
    const int shards = static_cast<int>(ctx->saved_data["shards"].toInt());
    const at::Tensor dy = grads[0].contiguous();
    const int64_t rows = dy.size(0) / shards, columns = dy.size(1);
    at::Tensor leaves = at::empty({shards, columns}, dy.options());
    const at::Tensor scratch = at::empty({column_scratch_floats(shards, rows, columns)}, dy.options());
    kernels_for<LinearKernels>(dy).column_sums(dy.const_data_ptr(), shards, rows, columns, float_type(dy),
                                               leaves.data_ptr<float>(), scratch.data_ptr<float>(), stream_for(dy));
    if (!sums) return {leaves[0], {}, {}};
    sums->add(net->log_deviation, leaves);
    return {{}, {}, {}};
  }
};

// Linear layers with an activation between them, numbered as torch::nn::Sequential numbers both.
struct PolicyHeadImpl : torch::nn::Module {
  PolicyHeadImpl(int64_t in, const std::vector<int64_t>& hidden, int64_t out, bool relu) : relu_(relu) {
    for (const int64_t width : hidden) {
      add(in, width);
      in = width;
    }
    add(in, out);
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < layers.size(); ++i) {
      x = layers[i](x);
      if (i + 1 < layers.size()) x = relu_ ? at::relu(x) : at::tanh(x);
    }
    return x;
  }
  void add(int64_t in, int64_t out) {
    layers.push_back(register_module(fmt::format("{}", 2 * layers.size()), Linear(in, out)));
  }
  std::string last_name() const { return fmt::format("{}", 2 * (layers.size() - 1)); }
  std::vector<Linear> layers;

 private:
  bool relu_;
};
TORCH_MODULE(PolicyHead);

// As orthogonal layers begin, in deviation: the policy's last layer near 0, so that at first all actions are alike.
InitRules head_rules(const PolicyHead& policy, double hidden_gain) {
  return InitRules()
      .name("policy.*.weight", init::kaiming_normal(Fan::kIn, hidden_gain))
      .name("value.*.weight", init::kaiming_normal(Fan::kIn, hidden_gain))
      .name("policy." + policy->last_name() + ".weight", init::kaiming_normal(Fan::kIn, 0.01))
      .name("value." + policy->last_name() + ".weight", init::kaiming_normal(Fan::kIn, 1))
      .name("policy.*.bias", init::zeros())
      .name("value.*.bias", init::zeros());
}

class MlpNetImpl : public PolicyNet {
 public:
  MlpNetImpl(const PpoSettings& s, const PolicyShape& shape)
      : relu_(s.net.activation == "relu"),
        policy_(register_module("policy", PolicyHead(shape.width, s.net.hidden, shape.outputs, relu_))),
        value_(register_module("value", PolicyHead(shape.width, s.net.hidden, 1, relu_))) {
    add_deviation(shape.action_size, s.initial_deviation);
  }
  InitRules initial_weights() const override { return head_rules(policy_, relu_ ? init::kReluGain : 1.0); }

 protected:
  PolicyOutput run(const at::Tensor& seen, const at::Tensor&, const std::optional<RandomSource>&) override {
    const at::Tensor x = seen.select(1, seen.size(1) - 1);
    return {policy_(x), value_(x), {}, {}};
  }

 private:
  bool relu_;
  PolicyHead policy_, value_;
};

class ClstmNetImpl : public PolicyNet {
 public:
  ClstmNetImpl(const PpoSettings& s, const PolicyShape& shape)
      : dropout_(s.net.dropout),
        input_(register_module("input", Linear(shape.width, s.net.width))),
        trunk_(register_module("trunk", PolicyHead(s.net.width, std::vector{s.net.width}, s.net.width, true))),
        policy_(register_module("policy", PolicyHead(s.net.width, s.net.head_hidden, shape.outputs, true))),
        value_(register_module("value", PolicyHead(s.net.width, s.net.head_hidden, 1, true))) {
    for (int64_t i = 0; i < s.net.layers; ++i) {
      lstms_.push_back(register_module(fmt::format("lstm{}", i), Lstm(s.net.width, s.net.width)));
      attentions_.push_back(
          register_module(fmt::format("attention{}", i), MultiheadAttention(s.net.width, s.net.heads)));
      norms_.push_back(register_module(fmt::format("norm{}", i), LayerNorm(s.net.width)));
    }
    for (int64_t i = 0; i < shape.forecasts; ++i)
      forecasts_.push_back(register_module(fmt::format("forecast{}", i), Linear(s.net.width, 1)));
    add_deviation(shape.action_size, s.initial_deviation);
  }
  InitRules initial_weights() const override { return head_rules(policy_, init::kReluGain); }

 protected:
  PolicyOutput run(const at::Tensor& seen, const at::Tensor& number, const std::optional<RandomSource>& key) override {
    at::Tensor x = input_(seen);
    std::vector<at::Tensor> forecasts;  // head i looks at layer i, those beyond the last layer at the last
    for (size_t i = 0; i < lstms_.size(); ++i) {
      const at::Tensor carried = lstms_[i](x);
      const bool last = i + 1 == lstms_.size();  // of its output the last step alone is used
      x = last ? norms_[i]->forward_residual(attentions_[i]->forward_last(carried), last_step(carried)).normed
               : norms_[i]->forward_residual(attentions_[i](carried), carried).normed;
      if (key && dropout_ > 0) {
        RandomSource of_layer = *key;
        of_layer.site += static_cast<uint32_t>(i);
        x = dropout_rows(x, dropout_, of_layer, number);
      }
      if (at::GradMode::is_enabled())
        for (size_t k = i; k < forecasts_.size() && (k == i || last); ++k)
          forecasts.push_back(forecasts_[k](last_step(x)));
    }
    x = at::relu(trunk_(x));
    return {policy_(x), value_(x), {}, forecasts.empty() ? at::Tensor() : at::cat(forecasts, 1)};
  }

 private:
  static at::Tensor last_step(const at::Tensor& x) { return x.dim() == 3 ? x.select(1, x.size(1) - 1) : x; }
  double dropout_;
  Linear input_;
  PolicyHead trunk_, policy_, value_;
  std::vector<Lstm> lstms_;
  std::vector<MultiheadAttention> attentions_;
  std::vector<LayerNorm> norms_;
  std::vector<Linear> forecasts_;
};

}  // namespace

void PolicyNet::add_deviation(int64_t action_size, double initial) {
  if (action_size == 0) return;
  log_deviation = register_parameter("log_deviation", at::full({action_size}, static_cast<float>(std::log(initial))));
}

PolicyOutput PolicyNet::forward(const at::Tensor& seen, const at::Tensor& number,
                                const std::optional<RandomSource>& key) {
  PolicyOutput out = run(seen, number, key);
  out.policy = out.policy.to(at::kFloat);
  if (rule_columns_.defined()) {
    const at::Tensor now = seen.select(1, seen.size(1) - 1).index_select(1, rule_columns_);
    out.policy = out.policy.masked_fill((now < rule_low_).logical_or_(now > rule_high_), kImpossibleLogit);
  }
  out.value = out.value.to(at::kFloat).squeeze(1);
  if (out.forecast.defined()) out.forecast = out.forecast.to(at::kFloat);
  if (!log_deviation.defined()) return out;
  if (at::GradMode::is_enabled() && pass().sums && log_deviation.requires_grad()) pass().sums->expect(log_deviation);
  out.log_deviation = EveryRowFunction::apply(log_deviation, seen.size(0), this);
  return out;
}

void PolicyNet::obey(const PolicyShape& shape) {
  if (shape.rules.empty()) return;
  std::vector<int64_t> columns;
  std::vector<float> low, high;
  for (const ActionRule& rule : shape.rules) {
    constexpr float kAny = std::numeric_limits<float>::infinity();
    const bool always = rule.feature < 0;
    columns.push_back(shape.width - shape.own + (always ? 0 : rule.feature));
    low.push_back(always ? -kAny : rule.low);
    high.push_back(always ? kAny : rule.high);
  }
  rule_columns_ = here(at::tensor(columns, at::kLong));
  rule_low_ = here(at::tensor(low));
  rule_high_ = here(at::tensor(high));
}

std::shared_ptr<PolicyNet> make_policy_net(const PpoSettings& settings, const PolicyShape& shape) {
  std::shared_ptr<PolicyNet> net;
  if (settings.net.kind == "clstm")
    net = std::make_shared<ClstmNetImpl>(settings, shape);
  else
    net = std::make_shared<MlpNetImpl>(settings, shape);
  net->obey(shape);
  return net;
}

}  // namespace tandem
