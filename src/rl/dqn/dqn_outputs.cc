// rl/dqn/dqn_outputs.cc -- the learner outside its phases: Q values, evaluation, metrics, schedules, notes.
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "nn/here.h"
#include "rl/dqn/dqn.h"
#include "rl/dqn/dqn_on_gpu.h"
#include "rl/dqn/dueling_cpu.h"
#include "rl/dqn/dueling_net.h"
#include "rl/replay/experience.h"

namespace tandem {
namespace {

enum AverageReturn { kReturn, kEpisodes };
constexpr double kAveragedEpisodes = 200;

}  // namespace

void Dqn::rest(bool resting) {
  if (on_gpu_) on_gpu_->rest(resting);
}

std::unique_ptr<FusedStep> Dqn::fused_step(JobState& state) { return on_gpu_ ? on_gpu_->fused_step(state) : nullptr; }

int64_t Dqn::steps_in(const std::string& unit, int64_t count) const {
  if (unit == "iterations") return count;
  const int64_t moves = std::max<int64_t>(1, s_.playing() * s_.shards);
  return unit == "episodes" ? (count * environment().max_episode_steps() + moves - 1) / moves : 0;
}

at::Tensor Dqn::q_values(const at::Tensor& states, int agent) const {
  return cpu_net(agent) ? cpu_net(agent)->q_values(states) : agents_[agent].net->forward(states);
}

std::string Dqn::take_note() {
  std::string notes = std::exchange(note_, "");
  for (const DqnAgent& agent : agents_)
    if (const std::string note = agent.environment->take_note(); !note.empty())
      notes += (notes.empty() ? "" : "; ") + note;
  return notes;
}

std::vector<int32_t> Dqn::best_actions(std::span<const float> observations) const {
  at::NoGradGuard no_grad;
  const int64_t n = static_cast<int64_t>(observations.size()) / shape_.observation_size;
  const at::Tensor seen = at::empty({n, shape_.observation_size});
  std::copy_n(observations.begin(), n * shape_.observation_size, seen.data_ptr<float>());
  const at::Tensor best = q_values(here(seen)).argmax(1).cpu();
  return {best.data_ptr<int64_t>(), best.data_ptr<int64_t>() + n};
}

Evaluation Dqn::evaluate(int64_t episodes, uint64_t seed, int agent) const {
  return tandem::evaluate(
      environment(agent), [&](const at::Tensor& states) { return q_values(states, agent); }, episodes, seed);
}

std::string Dqn::metric(int agent, const std::string& name) const {
  return agents() > 1 ? agents_[agent].name + "." + name : name;
}

void Dqn::record_returns(int agent, double ended, double returns, StepContext& context) {
  double* const average = agents_[agent].average.data_ptr<double>();
  if (ended > 0) {
    average[kEpisodes] += ended;
    const double share = ended / std::min(average[kEpisodes], std::max(kAveragedEpisodes, ended));
    average[kReturn] += share * (returns / ended - average[kReturn]);
  }
  auto& metrics = context.record->metrics;
  if (average[kEpisodes] == 0) return;
  metrics.emplace_back(metric(agent, "average_return"), average[kReturn]);
  if (const auto score = environment(agent).score(average[kReturn]))
    metrics.emplace_back(metric(agent, "score"), *score);
}

double Dqn::share_done(int64_t step, int64_t steps) const {
  return std::min(1.0, static_cast<double>(step) / static_cast<double>(steps));
}
double Dqn::epsilon(int64_t step) const {
  return s_.epsilon_start + (s_.epsilon_end - s_.epsilon_start) * share_done(step, s_.epsilon_steps);
}
double Dqn::beta(int64_t step) const {
  return s_.beta_start + (s_.beta_end - s_.beta_start) * share_done(step, s_.beta_steps);
}

}  // namespace tandem
