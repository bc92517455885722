#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>
#include <set>
#include <stdexcept>

#include "base/errors.h"
#include "base/sha256.h"
#include "kernels/cpu/random_fill.h"
#include "nn/embedding.h"
#include "nn/init.h"
#include "nn/sites.h"

namespace tandem {
namespace {

using Values = InitialValues;

Values checked(Values values) {
  const bool uniform = values.kind == Values::Kind::kUniform;
  const bool normal = values.kind == Values::Kind::kNormal;
  if (!std::isfinite(values.first) || !std::isfinite(values.second) || (uniform && values.first > values.second) ||
      (normal && values.second < 0))
    throw ConfigError(fmt::format("initial weights with the figures {} and {}", values.first, values.second),
                      uniform  ? "a uniform distribution has a lower and an upper bound"
                      : normal ? "a deviation is a number from 0 up"
                               : "they must be numbers",
                      "correct the rule");
  return values;
}

bool fits(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

// One parameter of the model, by what a rule may ask for.
struct Parameter {
  std::string name, own_name, kind;
  torch::nn::Module* module = nullptr;
  at::Tensor tensor;
  bool attention_output = false;  // of MultiheadAttention, whose bias begins as 0
};

Values within(double bound) { return {Values::Kind::kUniform, -bound, bound}; }

// What torch's reset_parameters() does; none: nothing is known of this module.
std::optional<Values> torchs_default(const Parameter& p) {
  torch::nn::Module& module = *p.module;
  const auto fan_in_of_weight = [&] {
    return static_cast<double>(fans_of(module.named_parameters(false)["weight"].sizes().vec()).in);
  };
  if (p.attention_output && p.own_name == "bias") return init::zeros();
  if (p.kind == "Linear" || fits("Conv?d", p.kind) || fits("ConvTranspose?d", p.kind))
    return within(1 / std::sqrt(fan_in_of_weight()));
  if (auto* bilinear = module.as<torch::nn::Bilinear>())
    return within(1 / std::sqrt(static_cast<double>(bilinear->weight.size(1))));
  for (const char* recurrent : {"RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"}) {
    if (p.kind != recurrent) continue;
    // Each gate has `hidden` rows; weight_hh is [gates x hidden, hidden] in every one of them.
    for (const auto& item : module.named_parameters(false))
      if (item.key().starts_with("weight_hh")) return within(1 / std::sqrt(static_cast<double>(item.value().size(1))));
  }
  if (p.kind == "Embedding" || p.kind == "EmbeddingBag") return init::normal(1);
  if (p.kind.ends_with("Norm") || fits("*Norm?d", p.kind))
    return p.own_name == "weight" ? init::ones() : p.own_name == "bias" ? std::optional(init::zeros()) : std::nullopt;
  if (p.kind == "MultiheadAttention")
    return p.own_name.ends_with("weight") ? init::xavier_uniform() : std::optional(init::zeros());
  return std::nullopt;
}

std::vector<Parameter> parameters_of(torch::nn::Module& module, const std::string& prefix) {
  std::vector<Parameter> all;
  std::set<const void*> known;
  std::set<std::string> attention;
  for (const auto& part : module.named_modules(prefix, /*include_self=*/true)) {
    const std::string kind = module_kind(*part.value());
    if (kind == "MultiheadAttention") attention.insert(part.key());
    const size_t dot = part.key().rfind('.');
    const bool output = part.key().ends_with(".out_proj") && attention.contains(part.key().substr(0, dot));
    for (const auto& item : part.value()->named_parameters(/*recurse=*/false))
      if (known.insert(item.value().unsafeGetTensorImpl()).second)
        all.push_back({part.key().empty() ? item.key() : part.key() + "." + item.key(), item.key(), kind,
                       part.value().get(), item.value(), output});
  }
  return all;
}

Fans fans_for(const Parameter& p) {
  try {
    return fans_of(p.tensor.sizes().vec());
  } catch (const std::invalid_argument& error) {
    throw ConfigError(fmt::format("no initial values for parameter '{}'", p.name), error.what(),
                      "give it a rule of its own, behind this one: init::zeros(), init::normal(...)");
  }
}

std::optional<int64_t> padding_row(torch::nn::Module& module) {
  if (auto* embedding = module.as<torch::nn::Embedding>()) return embedding->options.padding_idx();
  if (auto* embedding = module.as<Embedding>()) return embedding->padding_idx();
  return std::nullopt;
}

void draw(const Parameter& p, const Values& values, const RandomKey& key) {
  using Kind = Values::Kind;
  at::Tensor drawn = at::empty(p.tensor.sizes(), at::kFloat);
  const auto normal = [&](double mean, double deviation) {
    fill_normal(drawn.data_ptr<float>(), drawn.numel(), key, 0, static_cast<float>(mean),
                static_cast<float>(deviation));
  };
  const auto uniform = [&](double low, double high) {
    fill_uniform(drawn.data_ptr<float>(), drawn.numel(), key, 0, static_cast<float>(low), static_cast<float>(high));
  };
  const auto kaiming = [&] {
    const Fans fans = fans_for(p);
    return values.first / std::sqrt(static_cast<double>(values.fan == Fan::kIn ? fans.in : fans.out));
  };
  const auto xavier = [&] {
    const Fans fans = fans_for(p);
    return values.first * std::sqrt(2.0 / static_cast<double>(fans.in + fans.out));
  };
  switch (values.kind) {
    case Kind::kDefault:
      return;
    case Kind::kConstant:
      drawn.fill_(values.first);
      break;
    case Kind::kNormal:
      normal(values.first, values.second);
      break;
    case Kind::kUniform:
      uniform(values.first, values.second);
      break;
    case Kind::kKaimingNormal:
      normal(0, kaiming());
      break;
    case Kind::kKaimingUniform:
      uniform(-std::sqrt(3.0) * kaiming(), std::sqrt(3.0) * kaiming());
      break;
    case Kind::kXavierNormal:
      normal(0, xavier());
      break;
    case Kind::kXavierUniform:
      uniform(-std::sqrt(3.0) * xavier(), std::sqrt(3.0) * xavier());
      break;
  }
  if (const auto padding = padding_row(*p.module)) drawn[*padding].zero_();
  at::Tensor(p.tensor).copy_(drawn);
}

// The first 48 bits of its SHA-256: what a key has room for.
uint64_t number_of_name(const std::string& name) {
  Sha256 sum;
  sum.update(name);
  return std::stoull(sum.hex().substr(0, 12), nullptr, 16);
}

[[noreturn]] void refuse_unused(const std::string& rule, const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& p : parameters) {
    if (names.size() == 12) {
      names.push_back("...");
      break;
    }
    names.push_back(fmt::format("{} ({})", p.name, p.kind));
  }
  throw ConfigError(fmt::format("the rule for initial weights {} matches no parameter of the model", rule),
                    fmt::format("the model has {}", fmt::join(names, ", ")),
                    "correct the pattern (* stands for any text), or leave the rule out");
}

}  // namespace

std::string module_kind(const torch::nn::Module& module) {
  std::string kind = module.name();
  if (const size_t colons = kind.rfind("::"); colons != std::string::npos) kind.erase(0, colons + 2);
  if (kind.ends_with("Impl")) kind.erase(kind.size() - 4);
  return kind == "Lstm" ? "LSTM" : kind;
}

Fans fans_of(const std::vector<int64_t>& sizes) {
  if (sizes.size() < 2) throw std::invalid_argument("a fan needs two dimensions, outputs and inputs; it is a vector");
  int64_t kernel = 1;
  for (size_t d = 2; d < sizes.size(); ++d) kernel *= sizes[d];
  return {.in = sizes[1] * kernel, .out = sizes[0] * kernel};
}

namespace init {

double leaky_relu_gain(double slope) { return std::sqrt(2 / (1 + slope * slope)); }
Values torch_default() { return {}; }
Values zeros() { return constant(0); }
Values ones() { return constant(1); }
Values constant(double value) { return checked({Values::Kind::kConstant, value}); }
Values normal(double deviation, double mean) { return checked({Values::Kind::kNormal, mean, deviation}); }
Values uniform(double low, double high) { return checked({Values::Kind::kUniform, low, high}); }
Values kaiming_normal(Fan fan, double gain) { return checked({Values::Kind::kKaimingNormal, gain, 0, fan}); }
Values kaiming_uniform(Fan fan, double gain) { return checked({Values::Kind::kKaimingUniform, gain, 0, fan}); }
Values xavier_normal(double gain) { return checked({Values::Kind::kXavierNormal, gain}); }
Values xavier_uniform(double gain) { return checked({Values::Kind::kXavierUniform, gain}); }

}  // namespace init

InitRules& InitRules::name(std::string pattern, InitialValues values) {
  rules_.push_back({std::move(pattern), "", "", values});
  return *this;
}

InitRules& InitRules::kind(std::string module, std::string parameter, InitialValues values) {
  rules_.push_back({"", std::move(module), std::move(parameter), values});
  return *this;
}

bool InitRules::Rule::matches(const std::string& full_name, const std::string& module_kind,
                              const std::string& own_name) const {
  return name.empty() ? fits(module, module_kind) && fits(parameter, own_name) : fits(name, full_name);
}

std::string InitRules::Rule::text() const {
  return name.empty() ? fmt::format("for '{}' of '{}'", parameter, module) : fmt::format("for '{}'", name);
}

void init_weights(torch::nn::Module& module, const InitRules& rules, uint64_t seed, const std::string& prefix) {
  at::NoGradGuard no_grad;
  const std::vector<Parameter> parameters = parameters_of(module, prefix);
  std::vector<bool> used(rules.rules_.size());
  for (const Parameter& p : parameters) {
    Values values;
    for (size_t r = 0; r < rules.rules_.size(); ++r) {
      if (!rules.rules_[r].matches(p.name, p.kind, p.own_name)) continue;
      used[r] = true;
      values = rules.rules_[r].values;
    }
    if (values.kind == Values::Kind::kDefault) values = torchs_default(p).value_or(values);
    if (p.tensor.numel() > 0)
      draw(p, values, {.seed = seed, .step = number_of_name(p.name), .shard = 0, .site = kNamedWeights});
  }
  for (size_t r = 0; r < used.size(); ++r)
    if (!used[r]) refuse_unused(rules.rules_[r].text(), parameters);
}

}  // namespace tandem
