#include "rl/dueling_cpu.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/norm_relu.h"
#include "kernels/products.h"
#include "kernels/random_fill.h"
#include "rl/dueling_net.h"

namespace tandem {
namespace {

// The activations of one pass over `rows` rows.
struct Pass {
  Pass(const DuelingNetImpl& net, int64_t rows, int64_t head, int64_t actions) {
    for (const torch::nn::Linear& layer : net.layers) {
      sums.push_back(at::empty({rows, layer->options.out_features()}));
      outputs.push_back(at::empty({rows, layer->options.out_features()}));
    }
    both = at::empty({rows, 2 * head});
    value = at::empty({rows, 1});
    advantage = at::empty({rows, actions});
    q = at::empty({rows, actions});
  }
  std::vector<at::Tensor> sums, outputs;  // of each hidden layer; of rows that are learned from, sums become `normed`
  at::Tensor both, value, advantage, q;
};

const float* data(const at::Tensor& t) { return t.const_data_ptr<float>(); }
float* out(const at::Tensor& t) { return t.data_ptr<float>(); }

// A net's weights as the products want them.
struct Packed {
  std::vector<Panels> layers, layers_back;  // there: transposed; back: as they are, of all layers but the first
  Panels heads, heads_back, advantage, advantage_back;
  int64_t version = -1;

  void pack(const DuelingNetImpl& net, bool back) {
    const auto there = [](Panels& to, const torch::nn::Linear& layer) {
      to.pack_transposed(data(layer->weight), layer->options.in_features(), layer->options.out_features());
    };
    const auto as_is = [](Panels& to, const torch::nn::Linear& layer) {
      to.pack(data(layer->weight), layer->options.out_features(), layer->options.in_features());
    };
    layers.resize(net.layers.size());
    layers_back.resize(net.layers.size());
    for (size_t l = 0; l < net.layers.size(); ++l) {
      there(layers[l], net.layers[l]);
      if (back && l > 0) as_is(layers_back[l], net.layers[l]);
    }
    there(heads, net.heads);
    there(advantage, net.advantage);
    if (!back) return;
    as_is(heads_back, net.heads);
    as_is(advantage_back, net.advantage);
  }
};

// The first `learning` rows take dropout's masks and keep what the way back needs.
void forward(DuelingNetImpl& net, const Packed& packed, const float* states, int64_t rows, Pass& pass, int64_t learning,
             const std::vector<at::Tensor>& masks, const std::vector<at::Tensor>& inverses) {
  const float* x = states;
  for (size_t l = 0; l < net.layers.size(); ++l) {
    const Panels& panels = packed.layers[l];
    product(x, panels.depth(), panels, data(net.layers[l]->bias), out(pass.sums[l]), panels.width(), rows);
    const int64_t width = pass.sums[l].size(1);
    const float *weight = data(net.norms[l]->weight), *bias = data(net.norms[l]->bias);
    const float eps = static_cast<float>(net.norms[l]->options.eps());
    float *const sums = out(pass.sums[l]), *const y = out(pass.outputs[l]);
    if (learning > 0)
      norm_relu(sums, weight, bias, masks.empty() ? nullptr : data(masks[l]), y, sums, out(inverses[l]), learning,
                width, eps);
    norm_relu(sums + learning * width, weight, bias, nullptr, y + learning * width, nullptr, nullptr, rows - learning,
              width, eps);
    x = y;
  }
  float* const both = out(pass.both);
  const int64_t head = pass.both.size(1) / 2, actions = pass.q.size(1);
  product(x, packed.heads.depth(), packed.heads, data(net.heads->bias), both, 2 * head, rows);
  tandem::relu(both, rows * 2 * head);
  row_dots(both, 2 * head, data(net.value->weight), data(net.value->bias)[0], out(pass.value), rows, head);
  product(both + head, 2 * head, packed.advantage, data(net.advantage->bias), out(pass.advantage), actions, rows);
  const float *value = data(pass.value), *advantage = data(pass.advantage);
  float* const q = out(pass.q);
  for (int64_t r = 0; r < rows; ++r) {
    const float* const a = advantage + r * actions;
    float mean = 0;
    for (int64_t i = 0; i < actions; ++i) mean += a[i];
    mean /= static_cast<float>(actions);
    for (int64_t i = 0; i < actions; ++i) q[r * actions + i] = value[r] + (a[i] - mean);
  }
}

// weight.grad += dy^T x and bias.grad += the sum of dy's rows; x's rows lie `stride` apart.
void add_gradient(const torch::nn::Linear& layer, const at::Tensor& dy, const float* x, int64_t stride) {
  add_outer(data(dy), dy.size(1), x, stride, out(layer->weight.mutable_grad()), dy.size(1),
            layer->options.in_features(), dy.size(0));
  add_rows(out(layer->bias.mutable_grad()), data(dy), dy.size(0), dy.size(1));
}

}  // namespace

struct DuelingCpu::Work {
  Work(const DuelingNetImpl& net, const NetSettings& settings, int64_t r)
      : rows(r),
        actions(net.advantage->options.out_features()),
        states(at::empty({2 * r, net.layers[0]->options.in_features()})),
        online(net, 2 * r, settings.head, actions),
        judged(net, r, settings.head, actions),
        value_grad(at::empty({r, 1})),
        advantage_grad(at::empty({r, actions})),
        both_grad(at::empty({r, 2 * settings.head})),
        q_grad(static_cast<size_t>(r)),
        action(static_cast<size_t>(r)) {
    for (const torch::nn::Linear& layer : net.layers) {
      const int64_t width = layer->options.out_features();
      if (settings.dropout > 0) masks.push_back(at::empty({r, width}));
      inverses.push_back(at::empty({r}));
      grads.push_back(at::empty({r, width}));
    }
  }
  int64_t rows, actions;
  at::Tensor states;  // before, then after
  Pass online, judged;
  Packed packed, packed_target;
  std::vector<at::Tensor> masks, inverses, grads;
  at::Tensor value_grad, advantage_grad, both_grad;
  std::vector<float> q_grad;
  std::vector<int64_t> action;
  std::map<int64_t, Pass> acting;  // by rows
};

// A node of autograd whose backward is ours: so the loss is scaled and its backward() watched as every other's.
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
    return {at::Tensor(), at::Tensor(), at::Tensor()};  // the gradients are where they belong
  }
};

DuelingCpu::DuelingCpu(std::shared_ptr<DuelingNetImpl> net, std::shared_ptr<DuelingNetImpl> target,
                       const NetSettings& settings, int64_t rows)
    : net_(std::move(net)),
      target_(std::move(target)),
      settings_(settings),
      work_(std::make_unique<Work>(*net_, settings, rows)) {}
DuelingCpu::~DuelingCpu() = default;

DuelingCpu::Result DuelingCpu::learn(const Batch& batch, const std::vector<RandomSource>& masks, double share,
                                     int64_t version) {
  Work& w = *work_;
  float loss = 0, q_sum = 0;
  at::Tensor errors = at::empty({w.rows});
  {
    at::NoGradGuard no_grad;
    w.states.narrow(0, 0, w.rows).copy_(batch.before);
    w.states.narrow(0, w.rows, w.rows).copy_(batch.after);
    for (size_t l = 0; l < w.masks.size(); ++l)
      fill_dropout_mask(out(w.masks[l]), w.masks[l].numel(), masks[l], 0, settings_.dropout);
    pack_online(version);
    if (version < 0 || w.packed_target.version != version) {
      w.packed_target.pack(*target_, false);
      w.packed_target.version = version;
    }
    forward(*net_, w.packed, data(w.states), 2 * w.rows, w.online, w.rows, w.masks, w.inverses);
    forward(*target_, w.packed_target, data(w.states) + w.rows * w.states.size(1), w.rows, w.judged, 0, {}, {});
    const float *q = data(w.online.q), *judged = data(w.judged.q), *reward = data(batch.reward),
                *discount = data(batch.discount), *weights = data(batch.weight);
    const int64_t* const actions = batch.action.const_data_ptr<int64_t>();
    float* const sizes = out(errors);
    for (int64_t r = 0; r < w.rows; ++r) {
      const float* const next = q + (w.rows + r) * w.actions;
      const int64_t best = std::max_element(next, next + w.actions) - next;  // double Q: the net chooses
      const float goal = reward[r] + discount[r] * judged[r * w.actions + best];
      w.action[r] = actions[r];
      const float own = q[r * w.actions + w.action[r]], error = own - goal, size = std::abs(error);
      const float weight = weights[r] * static_cast<float>(share);
      loss += weight * (size < 1 ? 0.5f * error * error : size - 0.5f);
      w.q_grad[r] = weight * std::clamp(error, -1.0f, 1.0f);
      q_sum += own;
      sizes[r] = size;
    }
  }
  return {DuelingCpuBackward::apply(net_->heads->weight, loss, reinterpret_cast<int64_t>(this)), q_sum, errors};
}

void DuelingCpu::backward(float scale) {
  Work& w = *work_;
  const int64_t head = settings_.head;
  float *const value_grad = out(w.value_grad), *const advantage_grad = out(w.advantage_grad);
  for (int64_t r = 0; r < w.rows; ++r) {
    const float g = w.q_grad[r] * scale;
    value_grad[r] = g;
    for (int64_t i = 0; i < w.actions; ++i)
      advantage_grad[r * w.actions + i] = (i == w.action[r] ? g : 0.0f) - g / static_cast<float>(w.actions);
  }
  const float* const both = data(w.online.both);
  float* const both_grad = out(w.both_grad);
  add_gradient(net_->value, w.value_grad, both, 2 * head);
  add_gradient(net_->advantage, w.advantage_grad, both + head, 2 * head);
  const float* const value_weight = data(net_->value->weight);
  for (int64_t r = 0; r < w.rows; ++r)
    for (int64_t i = 0; i < head; ++i) both_grad[r * 2 * head + i] = value_grad[r] * value_weight[i];
  product(advantage_grad, w.actions, w.packed.advantage_back, nullptr, both_grad + head, 2 * head, w.rows);
  relu_backward(both_grad, both, w.both_grad.numel());

  const int64_t last = static_cast<int64_t>(net_->layers.size()) - 1;
  const Panels& heads = w.packed.heads_back;
  add_gradient(net_->heads, w.both_grad, data(w.online.outputs[last]), heads.width());
  product(both_grad, 2 * head, heads, nullptr, out(w.grads[last]), heads.width(), w.rows);
  for (int64_t l = last; l >= 0; --l) {
    float* const dx = out(w.grads[l]);
    const int64_t width = w.grads[l].size(1);
    norm_relu_backward(dx, data(w.online.outputs[l]), data(w.online.sums[l]), data(w.inverses[l]),
                       data(net_->norms[l]->weight), w.masks.empty() ? nullptr : data(w.masks[l]), dx,
                       out(net_->norms[l]->weight.mutable_grad()), out(net_->norms[l]->bias.mutable_grad()), w.rows,
                       width);
    const int64_t below = net_->layers[l]->options.in_features();
    add_gradient(net_->layers[l], w.grads[l], data(l > 0 ? w.online.outputs[l - 1] : w.states), below);
    if (l > 0) product(dx, width, w.packed.layers_back[l], nullptr, out(w.grads[l - 1]), below, w.rows);
  }
}

void DuelingCpu::pack_online(int64_t version) {
  if (version >= 0 && work_->packed.version == version) return;
  work_->packed.pack(*net_, true);
  work_->packed.version = version;
}

at::Tensor DuelingCpu::q_values(const at::Tensor& states, int64_t version) {
  at::NoGradGuard no_grad;
  auto found = work_->acting.find(states.size(0));
  if (found == work_->acting.end())
    found = work_->acting.try_emplace(states.size(0), *net_, states.size(0), settings_.head, work_->actions).first;
  pack_online(version);
  const at::Tensor rows = states.contiguous();
  forward(*net_, work_->packed, data(rows), rows.size(0), found->second, 0, {}, {});
  return found->second.q;
}

}  // namespace tandem
