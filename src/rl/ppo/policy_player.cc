#include "rl/ppo/policy_player.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "nn/here.h"
#include "nn/kernel_choice.h"

namespace tandem {

PolicyPlayer::PolicyPlayer(PolicyNet& net, const Environment& environment, int64_t window, int64_t environments,
                           int64_t steps)
    : net_(net), environment_(environment) {
  const ObservationTable table = environment.table();
  shape_ = {.environments = environments,
            .horizon = steps,
            .window = window,
            .own = environment.observation_size(),
            .table = table.width,
            .actions = environment.actions(),
            .action_size = environment.action_size()};
  own_ = at::zeros({environments, shape_.slots(), shape_.own}, here());
  row_ = at::zeros({environments, shape_.slots()}, here(at::kInt));
  age_ = at::zeros({environments, shape_.slots()}, here(at::kInt));
  seen_ = at::empty({environments, window, shape_.width()}, here());
  number_ = at::empty({environments}, here(at::kLong));
  at::Tensor before = at::zeros({shape_.own});
  environment.observe_before(before.data_ptr<float>());
  before_ = here(before);
  if (table.width > 0)
    table_ = here(at::from_blob(const_cast<float*>(table.rows), {table.count, table.width}, at::kFloat)).clone();
}

at::Tensor PolicyPlayer::act(const std::byte* states) {
  if (step_ == shape_.horizon) throw std::logic_error("a player was made for fewer steps");
  const at::NoGradGuard no_grad;
  const int64_t n = shape_.environments, slot = shape_.window - 1 + step_;
  const at::Tensor own = at::empty({n, shape_.own}), row = at::zeros({n}, at::kInt);
  environment_.observe(states, own.data_ptr<float>(), n);
  environment_.table_rows(states, row.data_ptr<int32_t>(), n);
  own_.select(1, slot).copy_(own);
  row_.select(1, slot).copy_(row);
  age_.select(1, slot).fill_(step_);
  const Rollout rollout{
      .own = own_.data_ptr<float>(), .row = row_.data_ptr<int32_t>(), .age = age_.data_ptr<int32_t>()};
  const WindowSource source{table_.defined() ? table_.data_ptr<float>() : nullptr, before_.data_ptr<float>()};
  kernels_for<PpoKernels>(seen_).windows(rollout, shape_, source, step_++, {}, RandomKey{}, seen_.data_ptr<float>(),
                                         number_.data_ptr<int64_t>(), stream_for(seen_));
  policy_ = net_.forward(seen_, number_, std::nullopt).policy.cpu().contiguous();
  if (shape_.action_size > 0) return policy_;
  at::Tensor actions = at::empty({n, 1});
  for (int64_t e = 0; e < n; ++e)
    actions.data_ptr<float>()[e] =
        static_cast<float>(likeliest_action(policy_.data_ptr<float>() + e * shape_.actions, shape_.actions));
  return actions;
}

}  // namespace tandem
