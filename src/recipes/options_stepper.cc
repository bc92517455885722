#include "recipes/options_stepper.h"

#include <ATen/ATen.h>

#include "market/cuda_options_environment.h"
#include "nn/here.h"
#include "nn/kernel_choice.h"

namespace tandem {
namespace {

template <class T>
at::Tensor bytes_on_gpu(const T* from, int64_t count) {
  const auto size = count * static_cast<int64_t>(sizeof(T));
  return here(at::from_blob(const_cast<T*>(from), {size}, at::kByte)).clone();
}

class OptionsStepper : public RolloutStepper {
 public:
  explicit OptionsStepper(const OptionsEnvironment& environment)
      : rules_(environment.rules()),
        days_(bytes_on_gpu(environment.market().days, environment.market().rows)),
        ranges_(bytes_on_gpu(environment.market().ranges, environment.market().range_count)),
        market_(environment.market()),
        kernels_(kernels_of_gpu<OptionsKernels>()) {
    market_.days = reinterpret_cast<const MarketDay*>(days_.const_data_ptr<uint8_t>());
    market_.ranges = reinterpret_cast<const MarketView::Range*>(ranges_.const_data_ptr<uint8_t>());
    market_.features = market_.forecasts = nullptr;  // the net's, not the environment's
  }
  void queue(const RolloutEnvironments& shard, int64_t n, const RolloutClock& clock, const RandomSource& key, int64_t t,
             void* stream) const override {
    kernels_.step_rollout(shard, n, market_, rules_, clock, key, t, static_cast<CUstream_st*>(stream));
  }

 private:
  OptionsRules rules_;
  at::Tensor days_, ranges_;
  MarketView market_;
  const OptionsKernels& kernels_;
};

class SteppedOptions : public OptionsEnvironment {
 public:
  using OptionsEnvironment::OptionsEnvironment;
  std::unique_ptr<RolloutStepper> rollout_stepper() const override { return std::make_unique<OptionsStepper>(*this); }
};

}  // namespace

std::unique_ptr<OptionsEnvironment> stepped_beside_the_policy(const OptionsEnvironment& environment) {
  if (!device().is_cuda()) return std::make_unique<OptionsEnvironment>(environment);
  return std::make_unique<SteppedOptions>(environment.market(), environment.rules());
}

}  // namespace tandem
