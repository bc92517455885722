#include "rl/dqn/gpu_agent.h"

#include <torch/torch.h>

#include <cstdlib>
#include <cstring>

#include "engine/gpu_device.h"
#include "nn/here.h"
#include "rl/dqn/dueling_net.h"
#include "rl/dqn/initial_weights.h"

namespace tandem {
namespace {

constexpr double kMemoryFraction = 0.2;  // others train on the GPU

class GpuAgent : public QFunction {
 public:
  GpuAgent(int64_t states, int64_t actions, const NetSettings& settings, const SafetensorsFile& model,
           const std::string& name)
      : states_(states), actions_(actions), net_(states, actions, settings) {
    at::NoGradGuard no_grad;
    copy_weights(*net_, model, name);
    for (auto& item : net_->named_parameters()) item.value().set_data(here(item.value().detach()));
  }
  int64_t observation_size() const override { return states_; }
  int64_t actions() const override { return actions_; }
  void q_values(const float* states, int64_t n, float* out) const override {
    at::NoGradGuard no_grad;
    const at::Tensor host = at::from_blob(const_cast<float*>(states), {n, states_});
    const at::Tensor q = DuelingNet(net_)->forward(here(host)).cpu().contiguous();
    std::memcpy(out, q.const_data_ptr<float>(), static_cast<size_t>(n * actions_) * sizeof(float));
  }

 private:
  int64_t states_, actions_;
  DuelingNet net_;
};

}  // namespace

std::shared_ptr<const QFunction> agent_on_gpu(const TrainedAgent& trained) {
  const char* const name = std::getenv("TANDEM_ACT_DEVICE");
  if (name && std::string_view(name).starts_with("cuda") && !gpu()) open_gpu(kMemoryFraction);
  if (gpu()) gpu()->prepare_thread();
  NetSettings net;
  const nlohmann::json& s = trained.settings;
  net.hidden = s.value("net.hidden", net.hidden);
  net.head = s.value("net.head", net.head);
  net.attention = s.value("net.attention", net.attention);
  net.tokens = s.value("net.tokens", net.tokens);
  net.attention_heads = s.value("net.attention_heads", net.attention_heads);
  return std::make_shared<GpuAgent>(trained.net->observation_size(), trained.net->actions(), net, trained.model,
                                    trained.run.string());
}

}  // namespace tandem
