#include "rl/dqn/q_net.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/errors.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm_relu.h"

namespace tandem {
namespace {

constexpr float kEps = 1e-5f;  // libtorch's LayerNorm

// Takes tensors out of a file and says which one is not as it must be.
struct Reader {
  const SafetensorsFile& model;
  const std::string& name;

  [[noreturn]] void refuse(const std::string& why) const {
    throw CheckpointError(fmt::format("{} is not a dueling Q network", name), why,
                          "name a run of web-agent or of another recipe of the DQN learner");
  }
  const TensorView& tensor(const std::string& key, size_t dimensions) const {
    const TensorView* const found = model.find(key);
    if (!found) refuse(fmt::format("it has no tensor '{}'", key));
    if (found->dtype != DType::kF32 || found->shape.size() != dimensions)
      refuse(fmt::format("'{}' is no float32 tensor of {} dimension{}", key, dimensions, dimensions == 1 ? "" : "s"));
    return *found;
  }
  std::vector<float> vector(const std::string& key, int64_t size) const {
    const TensorView& view = tensor(key, 1);
    if (view.shape[0] != size) refuse(fmt::format("'{}' has {} numbers, not {}", key, view.shape[0], size));
    std::vector<float> out(static_cast<size_t>(size));
    std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
    return out;
  }
};

void add(std::vector<float>& to, const std::vector<float>& x) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += x[i];
}

}  // namespace

QNet::QNet(const SafetensorsFile& model, int64_t attention_heads, const std::string& name)
    : attention_heads_(attention_heads) {
  const Reader read{model, name};
  const auto linear_of = [&](const std::string& key, int64_t in) {
    const TensorView& view = read.tensor(key + ".weight", 2);  // [out, in]
    Linear l{view.shape[1], view.shape[0], {}, {}};
    if ((in > 0 && l.in != in) || l.in < 1 || l.out < 1)
      read.refuse(fmt::format("'{}.weight' takes {} numbers, not {}", key, l.in, in));
    std::vector<float> rows(view.bytes.size() / sizeof(float));
    std::memcpy(rows.data(), view.bytes.data(), view.bytes.size());
    l.weight.resize(rows.size());
    for (int64_t o = 0; o < l.out; ++o)
      for (int64_t i = 0; i < l.in; ++i) l.weight[i * l.out + o] = rows[o * l.in + i];
    l.bias = read.vector(key + ".bias", l.out);
    return l;
  };
  const auto norm_of = [&](const std::string& key, int64_t width) {
    return Norm{read.vector(key + ".weight", width), read.vector(key + ".bias", width)};
  };
  int64_t width = 0;
  for (int i = 1; i == 1 || model.find(fmt::format("hidden{}.weight", i)); ++i) {
    layers_.push_back(linear_of(fmt::format("hidden{}", i), width));
    width = layers_.back().out;
    norms_.push_back(norm_of(fmt::format("norm{}", i), width));
  }
  attention_ = model.find("query_key_value.weight") != nullptr;
  if (attention_) {
    query_key_value_ = linear_of("query_key_value", 0);
    const int64_t token = query_key_value_.in;
    attended_ = linear_of("attended", token);
    attention_norm_ = norm_of("attention_norm", token);
    if (query_key_value_.out != 3 * token || attended_.out != token || width % token != 0 || attention_heads < 1 ||
        token % attention_heads != 0)
      read.refuse(
          fmt::format("tokens of {} numbers do not fit {} features and {} heads", token, width, attention_heads));
  }
  heads_ = linear_of("heads", width);
  if (heads_.out % 2 != 0) read.refuse("'heads' does not divide into two");
  value_ = linear_of("value", heads_.out / 2);
  advantage_ = linear_of("advantage", heads_.out / 2);
  if (value_.out != 1) read.refuse("'value' gives more than one number");
}

void QNet::q_values(const float* states, int64_t n, float* out) const {
  std::vector<float> x, y;
  const float* in = states;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Linear& layer = layers_[l];
    y.resize(static_cast<size_t>(n * layer.out));
    linear(in, layer.weight.data(), layer.bias.data(), y.data(), n, layer.in, layer.out);
    norm_relu(y.data(), norms_[l].weight.data(), norms_[l].bias.data(), nullptr, y.data(), nullptr, nullptr, n,
              layer.out, kEps);
    std::swap(x, y);
    in = x.data();
  }
  if (attention_) attend(x, n);
  const int64_t head = value_.in, count = actions();
  std::vector<float> head_features(static_cast<size_t>(n * 2 * head)), own(static_cast<size_t>(n * head));
  linear(x.data(), heads_.weight.data(), heads_.bias.data(), head_features.data(), n, heads_.in, heads_.out);
  relu(head_features.data(), n * 2 * head);
  const auto features_from = [&](int64_t first) {
    for (int64_t r = 0; r < n; ++r)
      std::memcpy(own.data() + r * head, head_features.data() + r * 2 * head + first,
                  static_cast<size_t>(head) * sizeof(float));
    return own.data();
  };
  std::vector<float> value(static_cast<size_t>(n));
  linear(features_from(0), value_.weight.data(), value_.bias.data(), value.data(), n, head, 1);
  linear(features_from(head), advantage_.weight.data(), advantage_.bias.data(), out, n, head, count);
  for (int64_t r = 0; r < n; ++r) {
    float* const a = out + r * count;
    float mean = 0;
    for (int64_t i = 0; i < count; ++i) mean += a[i];
    mean /= static_cast<float>(count);
    for (int64_t i = 0; i < count; ++i) a[i] = value[r] + (a[i] - mean);
  }
}

// As DuelingNetImpl::attend: tokens of one row look at each other, and what they see is added to them.
void QNet::attend(std::vector<float>& features, int64_t n) const {
  const int64_t token = attended_.in, width = layers_.back().out, tokens = width / token;
  const int64_t part = token / attention_heads_, rows = n * tokens;
  std::vector<float> qkv(static_cast<size_t>(rows * 3 * token)), mixed(static_cast<size_t>(rows * token), 0.0f);
  linear(features.data(), query_key_value_.weight.data(), query_key_value_.bias.data(), qkv.data(), rows, token,
         3 * token);
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(part)));
  std::vector<float> looks(static_cast<size_t>(tokens));
  const auto at = [&](int64_t row, int64_t which, int64_t head) {
    return qkv.data() + row * 3 * token + which * token + head * part;
  };
  for (int64_t r = 0; r < n; ++r)
    for (int64_t h = 0; h < attention_heads_; ++h)
      for (int64_t t = 0; t < tokens; ++t) {
        const float* const query = at(r * tokens + t, 0, h);
        float most = -INFINITY, sum = 0;
        for (int64_t o = 0; o < tokens; ++o) {
          const float* const key = at(r * tokens + o, 1, h);
          float product = 0;
          for (int64_t i = 0; i < part; ++i) product += query[i] * key[i];
          looks[o] = product * scale;
          most = std::max(most, looks[o]);
        }
        for (float& look : looks) sum += look = std::exp(look - most);
        float* const to = mixed.data() + (r * tokens + t) * token + h * part;
        for (int64_t o = 0; o < tokens; ++o) {
          const float* const value = at(r * tokens + o, 2, h);
          for (int64_t i = 0; i < part; ++i) to[i] += looks[o] / sum * value[i];
        }
      }
  std::vector<float> seen(static_cast<size_t>(rows * token));
  linear(mixed.data(), attended_.weight.data(), attended_.bias.data(), seen.data(), rows, token, token);
  add(features, seen);
  for (int64_t r = 0; r < rows; ++r) {  // a layer norm without ReLU
    float* const x = features.data() + r * token;
    float mean = 0, variance = 0;
    for (int64_t i = 0; i < token; ++i) mean += x[i];
    mean /= static_cast<float>(token);
    for (int64_t i = 0; i < token; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const float inverse = 1.0f / std::sqrt(variance / static_cast<float>(token) + kEps);
    for (int64_t i = 0; i < token; ++i)
      x[i] = (x[i] - mean) * inverse * attention_norm_.weight[i] + attention_norm_.bias[i];
  }
}

}  // namespace tandem
