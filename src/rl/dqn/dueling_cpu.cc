#include "rl/dqn/dueling_cpu.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/norm_relu.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/cpu/sums.h"
#include "kernels/random_fill_math.h"
#include "rl/dqn/dueling_net.h"

namespace tandem {
namespace {

const float* data(const at::Tensor& t) { return t.const_data_ptr<float>(); }
float* out(const at::Tensor& t) { return t.data_ptr<float>(); }

// A net's weights, packed for the GEMMs.
struct Packed {
  std::vector<Panels> layers, layers_backward;  // forward: transposed; backward: as stored, all layers but the first
  Panels heads, heads_backward, advantage, advantage_backward;
  int64_t version = -1;

  void pack(const DuelingNetImpl& net, bool for_backward) {
    const auto pack_forward = [](Panels& to, const torch::nn::Linear& layer) {
      to.pack_transposed(data(layer->weight), layer->options.in_features(), layer->options.out_features());
    };
    const auto pack_backward = [](Panels& to, const torch::nn::Linear& layer) {
      to.pack(data(layer->weight), layer->options.out_features(), layer->options.in_features());
    };
    layers.resize(net.layers.size());
    layers_backward.resize(net.layers.size());
    for (size_t l = 0; l < net.layers.size(); ++l) {
      pack_forward(layers[l], net.layers[l]);
      if (for_backward && l > 0) pack_backward(layers_backward[l], net.layers[l]);
    }
    pack_forward(heads, net.heads);
    pack_forward(advantage, net.advantage);
    if (!for_backward) return;
    pack_backward(heads_backward, net.heads);
    pack_backward(advantage_backward, net.advantage);
  }
};

// Activations of one forward pass.
struct Activations {
  void resize(const DuelingNetImpl& net, int64_t rows, int64_t head, int64_t actions) {
    const size_t layers = net.layers.size(), n = static_cast<size_t>(rows);
    sums.resize(layers);
    outputs.resize(layers);
    inverses.resize(layers);
    for (size_t l = 0; l < layers; ++l) {
      const size_t width = static_cast<size_t>(net.layers[l]->options.out_features());
      sums[l].resize(n * width);
      outputs[l].resize(n * width);
      inverses[l].resize(n);
    }
    head_features.resize(n * static_cast<size_t>(2 * head));
    value.resize(n);
    advantage.resize(n * static_cast<size_t>(actions));
  }
  std::vector<LineFloats> sums, outputs, inverses;  // of each hidden layer; when learning, sums become `normed`
  LineFloats head_features, value, advantage;
};

// Dropout streams of rows that are learned from: batch row r is row r % rows of shard r / rows.
struct Masks {
  const std::vector<std::vector<RandomSource>>& streams;
  int64_t rows;
  double dropout;
};

constexpr int64_t kBlockRows = 64;  // their activations fit L2 beside the weights
constexpr int64_t kMaskRows = 4;    // their masks fit L1

// Forward of rows [first, first + rows) of the activations; x and q are those rows' own. With masks the rows are
// learned from: what backward needs is saved.
void forward(const DuelingNetImpl& net, const Packed& packed, const float* x, int64_t first, int64_t rows,
             Activations& pass, const Masks* masks, float* q) {
  LineFloats mask;
  for (size_t l = 0; l < net.layers.size(); ++l) {
    const Panels& panels = packed.layers[l];
    const int64_t width = panels.n();
    float *const sums = pass.sums[l].data() + first * width, *const y = pass.outputs[l].data() + first * width;
    gemm(x, panels.k(), panels, data(net.layers[l]->bias), sums, width, rows);
    const float *weight = data(net.norms[l]->weight), *bias = data(net.norms[l]->bias);
    const float eps = static_cast<float>(net.norms[l]->options.eps());
    if (!masks) {
      norm_relu(sums, weight, bias, nullptr, sums, nullptr, nullptr, rows, width, eps);
      x = sums;
      continue;
    }
    x = y;
    const bool drops = masks->dropout > 0;
    mask.resize(static_cast<size_t>(kMaskRows * width));
    for (int64_t r = 0, n; r < rows; r += n) {
      const int64_t shard = (first + r) / masks->rows, row = (first + r) % masks->rows;
      n = std::min({kMaskRows, rows - r, masks->rows - row});
      if (drops)
        fill_dropout_mask(mask.data(), n * width, masks->streams[shard][l], static_cast<uint64_t>(row * width),
                          masks->dropout);
      norm_relu(sums + r * width, weight, bias, drops ? mask.data() : nullptr, y + r * width, sums + r * width,
                pass.inverses[l].data() + first + r, n, width, eps);
    }
  }
  const int64_t head = packed.heads.n() / 2, actions = packed.advantage.n();
  float *const head_features = pass.head_features.data() + first * 2 * head, *const value = pass.value.data() + first,
               *const advantage = pass.advantage.data() + first * actions;
  gemm(x, packed.heads.k(), packed.heads, data(net.heads->bias), head_features, 2 * head, rows);
  tandem::relu(head_features, rows * 2 * head);
  row_dots(head_features, 2 * head, data(net.value->weight), data(net.value->bias)[0], value, rows, head);
  gemm(head_features + head, 2 * head, packed.advantage, data(net.advantage->bias), advantage, actions, rows);
  for (int64_t r = 0; r < rows; ++r) {
    const float* const a = advantage + r * actions;
    float mean = 0;
    for (int64_t i = 0; i < actions; ++i) mean += a[i];
    mean /= static_cast<float>(actions);
    for (int64_t i = 0; i < actions; ++i) q[r * actions + i] = value[r] + (a[i] - mean);
  }
}

// Where the gradients of some shards go: accumulated into the net's own, or written to a vector laid out as the
// parameters.
struct GradientOutput {
  int64_t first, last;  // shards
  std::span<const int> merges;
  float* gradient = nullptr;
  const float* parameters = nullptr;

  float* of(const at::Tensor& parameter) const {
    return gradient ? gradient + (data(parameter) - parameters) : out(parameter.mutable_grad());
  }
  Write write() const { return gradient ? Write::kSet : Write::kAdd; }
};

// Vectors of one length, one per shard, to be summed along the tree. A single shard accumulates into the net's gradient
// directly.
struct ShardSums {
  float* of(int64_t shard) { return own ? own : parts.data() + shard * width; }
  void begin(int64_t n, int64_t shards, float* lone) {
    width = n;
    own = lone;
    if (!own) parts.assign(static_cast<size_t>(shards * n), 0.0f);
  }
  void finish(const GradientOutput& output, const at::Tensor& parameter) const {
    if (own) return;
    std::vector<const float*> vectors;
    for (int64_t p = output.first; p < output.last; ++p) vectors.push_back(parts.data() + p * width);
    add_along_tree(output.of(parameter), vectors, output.merges, width);
  }
  int64_t width = 0;
  float* own = nullptr;
  LineFloats parts;
};

}  // namespace

struct DuelingCpu::Work {
  Work(const DuelingNetImpl& net, const NetSettings& settings, int64_t r)
      : rows(r),
        observation_size(net.layers[0]->options.in_features()),
        actions(net.advantage->options.out_features()) {
    blocks.resize(net, kBlockRows, settings.head, actions);
    grads.resize(net.layers.size());
    norm_weights.resize(net.layers.size());
    norm_biases.resize(net.layers.size());
    biases.resize(net.layers.size());
  }
  void reserve(const DuelingNetImpl& net, const NetSettings& settings, int64_t count) {
    shards = count;
    const int64_t n = shards * rows;
    if (n == static_cast<int64_t>(action.size())) return;
    const size_t size = static_cast<size_t>(n);
    saved.resize(net, n, settings.head, actions);
    for (LineFloats* const states : {&before, &after}) states->resize(size * static_cast<size_t>(observation_size));
    for (LineFloats* const numbers : {&q, &q_next, &q_target, &advantage_grad})
      numbers->resize(size * static_cast<size_t>(actions));
    for (LineFloats* const numbers : {&reward, &discount, &weight, &td_errors, &q_grad}) numbers->resize(size);
    action.resize(size);
    head_features_grad.resize(size * static_cast<size_t>(2 * settings.head));
    for (size_t l = 0; l < net.layers.size(); ++l)
      grads[l].resize(size * static_cast<size_t>(net.layers[l]->options.out_features()));
  }
  // Gradients of the shards in blocks of rows, then their tree sums.
  void backward(const DuelingNetImpl& net, float scale, float mask_kept, std::span<const GradientOutput> outputs);
  void backward_block(const DuelingNetImpl& net, int64_t first, int64_t last, float scale, float mask_kept);

  int64_t rows, observation_size, actions, shards = 0;
  Packed packed, packed_target;
  Activations saved, blocks;  // of the rows that are learned from; of one block of other rows
  LineFloats before, after, reward, discount, weight, q, q_next, q_target, td_errors;
  std::vector<int64_t> action;
  std::vector<float> losses, q_sums;
  LineFloats q_grad, advantage_grad, head_features_grad;
  std::vector<LineFloats> grads;  // of each hidden layer
  ShardSums value_bias, advantage_bias, heads_bias;
  std::vector<ShardSums> norm_weights, norm_biases, biases;
  WeightGradientScratch scratch;
};

// An autograd node whose backward is ours, so that loss scaling and gradient hooks work as for any other loss.
struct DuelingCpuBackward : torch::autograd::Function<DuelingCpuBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& anchor, float loss,
                            int64_t self) {
    context->saved_data["self"] = self;
    return at::full({}, loss);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    at::NoGradGuard no_grad;
    reinterpret_cast<DuelingCpu*>(context->saved_data["self"].toInt())->backward(grads[0].item<float>());
    return {at::Tensor(), at::Tensor(), at::Tensor()};  // the gradients are in place already
  }
};

DuelingCpu::DuelingCpu(std::shared_ptr<DuelingNetImpl> net, std::shared_ptr<DuelingNetImpl> target,
                       const NetSettings& settings, int64_t rows)
    : net_(std::move(net)),
      target_(std::move(target)),
      settings_(settings),
      work_(std::make_unique<Work>(*net_, settings, rows)) {}
DuelingCpu::~DuelingCpu() = default;

DuelingCpu::Rows DuelingCpu::rows(int64_t shards) {
  Work& w = *work_;
  w.reserve(*net_, settings_, shards);
  return {w.before.data(), w.after.data(), w.reward.data(), w.discount.data(), w.weight.data(), w.action.data()};
}

DuelingCpu::Result DuelingCpu::learn(const Batch& batch, const std::vector<RandomSource>& masks, double share,
                                     int64_t version) {
  const Rows to = rows(1);
  const auto copy = [](float* out, const at::Tensor& t) {
    const at::Tensor from = t.contiguous();
    std::copy_n(data(from), from.numel(), out);
  };
  copy(to.before, batch.before);
  copy(to.after, batch.after);
  copy(to.reward, batch.reward);
  copy(to.discount, batch.discount);
  copy(to.weight, batch.weight);
  const at::Tensor action = batch.action.contiguous();
  std::copy_n(action.const_data_ptr<int64_t>(), action.numel(), to.action);
  const Learned learned = learn_batched({masks}, share, version);
  at::Tensor td_errors = at::empty({work_->rows});
  std::ranges::copy(learned.td_errors, out(td_errors));
  return {DuelingCpuBackward::apply(net_->heads->weight, learned.losses[0], reinterpret_cast<int64_t>(this)),
          learned.q_sums[0], td_errors};
}

// All rows through the net, then all through the target network: only one net's weights are in the cache at a time.
DuelingCpu::Learned DuelingCpu::learn_batched(const std::vector<std::vector<RandomSource>>& masks, double share,
                                              int64_t version) {
  Work& w = *work_;
  const int64_t n = w.shards * w.rows;
  pack_online(version);
  if (version < 0 || w.packed_target.version != version) {
    w.packed_target.pack(*target_, false);
    w.packed_target.version = version;
  }
  const Masks streams{masks, w.rows, settings_.dropout};
  const auto in_blocks = [&](const auto& work) {
    for (int64_t first = 0; first < n; first += kBlockRows) work(first, std::min(kBlockRows, n - first));
  };
  in_blocks([&](int64_t first, int64_t rows) {
    forward(*net_, w.packed, w.before.data() + first * w.observation_size, first, rows, w.saved, &streams,
            w.q.data() + first * w.actions);
  });
  in_blocks([&](int64_t first, int64_t rows) {
    forward(*net_, w.packed, w.after.data() + first * w.observation_size, 0, rows, w.blocks, nullptr,
            w.q_next.data() + first * w.actions);
  });
  in_blocks([&](int64_t first, int64_t rows) {
    forward(*target_, w.packed_target, w.after.data() + first * w.observation_size, 0, rows, w.blocks, nullptr,
            w.q_target.data() + first * w.actions);
  });
  w.losses.assign(static_cast<size_t>(w.shards), 0.0f);
  w.q_sums.assign(static_cast<size_t>(w.shards), 0.0f);
  for (int64_t r = 0; r < n; ++r) {
    const float* const next = w.q_next.data() + r * w.actions;
    const int64_t best = std::max_element(next, next + w.actions) - next;  // double Q: the net chooses
    const float goal = w.reward[r] + w.discount[r] * w.q_target[r * w.actions + best];
    const float own = w.q[r * w.actions + w.action[r]], error = own - goal, size = std::abs(error);
    const float weight = w.weight[r] * static_cast<float>(share);
    w.losses[r / w.rows] += weight * (size < 1 ? 0.5f * error * error : size - 0.5f);
    w.q_grad[r] = weight * std::clamp(error, -1.0f, 1.0f);
    w.q_sums[r / w.rows] += own;
    w.td_errors[r] = size;
  }
  return {w.losses, w.q_sums, w.td_errors};
}

void DuelingCpu::backward_batched(float scale, std::span<const Subtree> sums, const float* parameters) {
  std::vector<GradientOutput> outputs;
  for (const Subtree& sum : sums) outputs.push_back({sum.first, sum.last, sum.merges, sum.gradient.data(), parameters});
  work_->backward(*net_, scale, dropout_shape(settings_.dropout).kept_value, outputs);
}

void DuelingCpu::backward(float scale) {
  const int alone[] = {0};
  const GradientOutput output{0, 1, alone};
  work_->backward(*net_, scale, dropout_shape(settings_.dropout).kept_value, {&output, 1});
}

void DuelingCpu::Work::backward(const DuelingNetImpl& net, float scale, float mask_kept,
                                std::span<const GradientOutput> outputs) {
  struct Small {
    ShardSums& sums;
    const at::Tensor& parameter;
  };
  std::vector<Small> small{
      {value_bias, net.value->bias}, {advantage_bias, net.advantage->bias}, {heads_bias, net.heads->bias}};
  for (size_t l = 0; l < net.layers.size(); ++l) {
    small.push_back({norm_weights[l], net.norms[l]->weight});
    small.push_back({norm_biases[l], net.norms[l]->bias});
    small.push_back({biases[l], net.layers[l]->bias});
  }
  for (const auto& [sums, parameter] : small)
    sums.begin(parameter.numel(), shards, outputs[0].gradient ? nullptr : outputs[0].of(parameter));
  const int64_t block = std::max<int64_t>(1, kBlockRows / rows);
  for (int64_t first = 0; first < shards; first += block)
    backward_block(net, first, std::min(shards, first + block), scale, mask_kept);
  for (const GradientOutput& output : outputs) {
    for (const auto& [sums, parameter] : small) sums.finish(output, parameter);
    const auto add_weight_gradient = [&](const torch::nn::Linear& layer, const LineFloats& dy, const float* x,
                                         int64_t stride) {
      const int64_t height = layer->options.out_features(), begin = output.first * rows;
      weight_gradient(dy.data() + begin * height, height, x + begin * stride, stride, output.of(layer->weight), height,
                      layer->options.in_features(), rows, output.merges, output.write(), scratch);
    };
    const int64_t head = net.value->options.in_features(), last = static_cast<int64_t>(net.layers.size()) - 1;
    add_weight_gradient(net.value, q_grad, saved.head_features.data(), 2 * head);
    add_weight_gradient(net.advantage, advantage_grad, saved.head_features.data() + head, 2 * head);
    add_weight_gradient(net.heads, head_features_grad, saved.outputs[last].data(), net.heads->options.in_features());
    for (int64_t l = last; l >= 0; --l)
      add_weight_gradient(net.layers[l], grads[l], l > 0 ? saved.outputs[l - 1].data() : before.data(),
                          net.layers[l]->options.in_features());
  }
}

// Shards [first, last): from the TD errors back to the gradient of the first layer's GEMM output.
void DuelingCpu::Work::backward_block(const DuelingNetImpl& net, int64_t first, int64_t last, float scale,
                                      float mask_kept) {
  const int64_t head = net.value->options.in_features(), begin = first * rows, n = (last - first) * rows;
  float *const value_grad = q_grad.data() + begin, *const advantage_dy = advantage_grad.data() + begin * actions;
  for (int64_t r = 0; r < n; ++r) {
    const float g = value_grad[r] * scale;
    value_grad[r] = g;
    for (int64_t i = 0; i < actions; ++i)
      advantage_dy[r * actions + i] = (i == action[begin + r] ? g : 0.0f) - g / static_cast<float>(actions);
  }
  const float *const head_features = saved.head_features.data() + begin * 2 * head, *const value_weight =
                                                                                        data(net.value->weight);
  float* const head_features_dy = head_features_grad.data() + begin * 2 * head;
  for (int64_t r = 0; r < n; ++r)
    for (int64_t i = 0; i < head; ++i) head_features_dy[r * 2 * head + i] = value_grad[r] * value_weight[i];
  gemm(advantage_dy, actions, packed.advantage_backward, nullptr, head_features_dy + head, 2 * head, n);
  relu_backward(head_features_dy, head_features, n * 2 * head);
  const auto add_bias = [&](ShardSums& sums, const float* dy) {
    for (int64_t p = first; p < last; ++p) add_rows(sums.of(p), dy + (p - first) * rows * sums.width, rows, sums.width);
  };
  add_bias(value_bias, value_grad);
  add_bias(advantage_bias, advantage_dy);
  add_bias(heads_bias, head_features_dy);

  const int64_t top = static_cast<int64_t>(net.layers.size()) - 1;
  const auto of = [&](std::vector<LineFloats>& layers, int64_t l, int64_t row) {
    return layers[l].data() + row * net.layers[l]->options.out_features();
  };
  gemm(head_features_dy, 2 * head, packed.heads_backward, nullptr, of(grads, top, begin), packed.heads_backward.n(), n);
  for (int64_t l = top; l >= 0; --l) {
    const int64_t width = net.layers[l]->options.out_features();
    for (int64_t p = first; p < last; ++p) {
      float* const dx = of(grads, l, p * rows);
      norm_relu_backward(dx, of(saved.outputs, l, p * rows), of(saved.sums, l, p * rows),
                         saved.inverses[l].data() + p * rows, data(net.norms[l]->weight), mask_kept, dx,
                         norm_weights[l].of(p), norm_biases[l].of(p), rows, width);
    }
    float* const dx = of(grads, l, begin);
    add_bias(biases[l], dx);
    if (l > 0)
      gemm(dx, width, packed.layers_backward[l], nullptr, of(grads, l - 1, begin), packed.layers_backward[l].n(), n);
  }
}

void DuelingCpu::pack_online(int64_t version) {
  if (version >= 0 && work_->packed.version == version) return;
  work_->packed.pack(*net_, true);
  work_->packed.version = version;
}

at::Tensor DuelingCpu::q_values(const at::Tensor& states, int64_t version) {
  Work& w = *work_;
  pack_online(version);
  const at::Tensor rows = states.contiguous(), q = at::empty({rows.size(0), w.actions});
  for (int64_t first = 0; first < rows.size(0); first += kBlockRows)
    forward(*net_, w.packed, data(rows) + first * w.observation_size, 0, std::min(kBlockRows, rows.size(0) - first),
            w.blocks, nullptr, out(q) + first * w.actions);
  return q;
}

}  // namespace tandem
