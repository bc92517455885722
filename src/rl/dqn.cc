#include "rl/dqn.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "nn/here.h"
#include "nn/sites.h"
#include "rl/draws_of_step.h"
#include "rl/dueling_cpu.h"
#include "rl/dueling_net.h"
#include "rl/priority.h"

namespace tandem {
namespace {

enum Site : uint32_t { kExplore, kMove, kLuck, kNewEpisode, kDraw, kFirstMove, kFirstLuck, kFirstEpisode, kDropout };

enum LearnSum { kLoss, kMeanQ, kErrors };
enum Average { kReturn, kEpisodes };
constexpr double kAveragedEpisodes = 200;
constexpr int64_t kNoPriority = int64_t{1} << 40;  // a shard tells its least priority as this minus it: maxima grow

// A transition as it travels; two observations follow.
struct RowHead {
  int64_t priority;
  int32_t draw;
  Transition transition;
};
static_assert(sizeof(RowHead) == 24);

}  // namespace

Dqn::Dqn(const DqnSettings& settings, std::unique_ptr<Environment> environment)
    : s_(settings),
      environment_(std::move(environment)),
      shape_{settings.environments, settings.rows(), environment_->state_size(), settings.n_step, settings.gamma},
      net_(std::make_shared<DuelingNetImpl>(environment_->state_size(), environment_->actions(), settings.net)),
      target_(std::make_shared<DuelingNetImpl>(environment_->state_size(), environment_->actions(), settings.net)) {}

Dqn::~Dqn() = default;

void Dqn::build(JobState& state) {
  state.add_model(net_);
  state.add_shadow(target_, "target");
  sums_ = state.add_replicated("priority_sums", at::zeros({s_.shards}, at::kLong));
  errors_ = state.add_replicated("errors", at::full({s_.batch_size}, -1.0f));  // below 0: none to write
  const int64_t first = priority_of(1.0f, s_.alpha);
  tops_ = state.add_replicated("priority_top_and_least", at::full({2}, first, at::kLong));
  average_ = state.add_replicated("average_return", at::zeros({2}, at::kDouble));
  const int64_t n = s_.environments;
  states_ = state.add_shard_field("environments", {n, environment_->bytes()}, at::kByte);
  returns_ = state.add_shard_field("returns", {n}, at::kFloat);
  seen_ = state.add_shard_field("replay.seen", {n, shape_.rows, shape_.state_size}, at::kFloat);
  rows_ = state.add_shard_field("replay.rows", {n, shape_.rows, static_cast<int64_t>(sizeof(ReplayRow))}, at::kByte);
  written_ = state.add_shard_field("replay.written", {n}, at::kLong);
  priorities_ = state.add_shard_field("replay.priorities", {PriorityTree::words(shape_.leaves())}, at::kLong);
  drawn_ = state.add_shard_field("replay.drawn", {s_.batch_size}, at::kInt);
}

std::vector<Phase> Dqn::phases() const {
  return {{.name = "act", .floats = 1, .counts = static_cast<int>(1 + s_.shards)},
          {.name = "serve", .maxima = 1, .mail = true},
          {.name = "learn",
           .gradients = true,
           .one_backward = true,
           .floats = static_cast<int>(kErrors + s_.batch_size),
           .recordable = true}};
}

Replay Dqn::replay(ShardContext& context) {
  at::Tensor& priorities = context.state(priorities_);
  return {shape_,
          context.state(seen_).data_ptr<float>(),
          reinterpret_cast<ReplayRow*>(context.state(rows_).data_ptr<uint8_t>()),
          context.state(written_).data_ptr<int64_t>(),
          {priorities.data_ptr<int64_t>(), static_cast<size_t>(priorities.numel())}};
}

namespace {

// Stores what n environments did.
struct Storing {
  Replay& replay;
  const Environment& environment;
  std::byte* states;
  int64_t priority;

  void store(const float* seen, const int32_t* actions, const std::vector<Outcome>& outcomes) {
    const int64_t n = static_cast<int64_t>(outcomes.size()), width = environment.state_size();
    const bool cut = std::ranges::any_of(outcomes, [](const Outcome& o) { return o.end == End::kCut; });
    std::vector<float> last(cut ? static_cast<size_t>(n * width) : 0);
    if (cut) environment.observe(states, last.data(), n);
    for (int64_t e = 0; e < n; ++e)
      replay.add(e, seen + e * width, actions[e], outcomes[e].reward, outcomes[e].end,
                 cut ? last.data() + e * width : nullptr, priority);
  }
};

}  // namespace

void Dqn::init_shard(ShardContext& context) {
  context.state(drawn_).fill_(-1);
  const int64_t n = s_.environments;
  std::byte* const states = reinterpret_cast<std::byte*>(context.state(states_).data_ptr<uint8_t>());
  environment_->reset(states, n, context.random(kInitialState), nullptr);
  Replay store = replay(context);
  Storing storing{store, *environment_, states, tops_.data_ptr<int64_t>()[0]};
  std::vector<float> seen(static_cast<size_t>(n * shape_.state_size));
  std::vector<int32_t> actions(static_cast<size_t>(n));
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  float* const returns = context.state(returns_).data_ptr<float>();
  // At least so many that every environment has a transition to draw.
  const int64_t moves = std::max((s_.learning_starts + n * s_.shards - 1) / (n * s_.shards), s_.n_step + 1);
  for (int64_t move = 0; move < moves; ++move) {
    const auto key = [&](Site site) {
      RandomKey k = context.random(site);
      k.step = static_cast<uint64_t>(move);
      return k;
    };
    environment_->observe(states, seen.data(), n);
    for (int64_t e = 0; e < n; ++e)
      actions[e] =
          static_cast<int32_t>(random_below(key(kFirstMove), e, static_cast<uint32_t>(environment_->actions())));
    environment_->step(states, actions.data(), outcomes.data(), n, key(kFirstLuck));
    storing.store(seen.data(), actions.data(), outcomes);
    for (int64_t e = 0; e < n; ++e) returns[e] = outcomes[e].end == End::kNone ? returns[e] + outcomes[e].reward : 0;
    environment_->reset(states, n, key(kFirstEpisode), outcomes.data());
  }
}

std::vector<at::Tensor> Dqn::inputs(const Phase& phase, ShardContext& context) {
  if (phase.name != "learn") return {};
  const int64_t piece = s_.piece(), width = shape_.state_size;
  const int64_t first = context.shard * (s_.batch_size / s_.shards) + context.micro * piece;
  at::Tensor before = at::empty({piece, width}), after = at::empty({piece, width});
  at::Tensor reward = at::empty({piece}), discount = at::empty({piece}), weight = at::empty({piece});
  at::Tensor action = at::empty({piece}, at::kLong);
  const size_t bytes = static_cast<size_t>(width) * sizeof(float);
  const double power = beta(context.step);
  for (const Letter& letter : context.mail()) {
    const std::byte* const end = letter.row.data() + letter.row.size();
    for (const std::byte* at = letter.row.data(); at < end; at += sizeof(RowHead) + 2 * bytes) {
      RowHead head;
      std::memcpy(&head, at, sizeof(head));
      const int64_t i = head.draw - first;
      if (i < 0 || i >= piece) continue;  // another accumulation piece's
      std::memcpy(before.data_ptr<float>() + i * width, at + sizeof(head), bytes);
      std::memcpy(after.data_ptr<float>() + i * width, at + sizeof(head) + bytes, bytes);
      reward.data_ptr<float>()[i] = head.transition.reward;
      discount.data_ptr<float>()[i] = head.transition.discount;
      action.data_ptr<int64_t>()[i] = head.transition.action;
      weight.data_ptr<float>()[i] = importance_weight(head.priority, tops_.data_ptr<int64_t>()[1], power);
    }
  }
  return {before, after, reward, discount, action, weight};
}

void Dqn::run(const Phase& phase, ShardContext& context) {
  if (phase.name == "act")
    act(context);
  else if (phase.name == "serve")
    serve(context);
  else
    learn(context);
}

void Dqn::act(ShardContext& context) {
  at::NoGradGuard no_grad;
  Replay store = replay(context);
  const int32_t* drawn = context.state(drawn_).data_ptr<int32_t>();
  const float* errors = errors_.data_ptr<float>();
  for (int64_t k = 0; k < s_.batch_size; ++k)
    if (drawn[k] >= 0 && errors[k] >= 0) store.priorities().set(drawn[k], priority_of(errors[k], s_.alpha));

  const int64_t n = s_.environments;
  std::byte* const states = reinterpret_cast<std::byte*>(context.state(states_).data_ptr<uint8_t>());
  const at::Tensor seen = at::empty({n, shape_.state_size});
  environment_->observe(states, seen.data_ptr<float>(), n);
  const at::Tensor values = by_hand() ? by_hand()->q_values(seen, context.step) : net_->forward(here(seen));
  const at::Tensor best = values.argmax(1).cpu();
  std::vector<int32_t> actions(static_cast<size_t>(n));
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  const double explore = epsilon(context.step);
  for (int64_t e = 0; e < n; ++e)
    actions[e] = random_uniform(context.random(kExplore), e) < explore
                     ? static_cast<int32_t>(
                           random_below(context.random(kMove), e, static_cast<uint32_t>(environment_->actions())))
                     : static_cast<int32_t>(best.data_ptr<int64_t>()[e]);
  environment_->step(states, actions.data(), outcomes.data(), n, context.random(kLuck));
  Storing{store, *environment_, states, tops_.data_ptr<int64_t>()[0]}.store(seen.data_ptr<float>(), actions.data(),
                                                                            outcomes);
  float* const returns = context.state(returns_).data_ptr<float>();
  for (int64_t e = 0; e < n; ++e) {
    returns[e] += outcomes[e].reward;
    if (outcomes[e].end == End::kNone) continue;
    context.counts[0] += 1;
    context.floats[0] += returns[e];
    returns[e] = 0;
  }
  environment_->reset(states, n, context.random(kNewEpisode), outcomes.data());
  context.counts[1 + context.shard] = store.priorities().total();
}

void Dqn::serve(ShardContext& context) {
  Replay store = replay(context);
  int32_t* const drawn = context.state(drawn_).data_ptr<int32_t>();
  std::fill_n(drawn, s_.batch_size, -1);
  RandomKey key = context.random(kDraw);
  key.shard = 0;  // the draws belong to the job
  const ShardDraws draws =
      draws_of_shard({sums_.data_ptr<int64_t>(), static_cast<size_t>(s_.shards)}, context.shard, s_.batch_size);
  const int64_t width = shape_.state_size, each = s_.batch_size / s_.shards;
  const size_t bytes = sizeof(RowHead) + 2 * static_cast<size_t>(width) * sizeof(float);
  std::vector<std::byte> letter;  // one for each learner: draws of one learner follow each other
  int64_t least = kNoPriority, learner = -1;
  const auto send = [&] {
    if (!letter.empty()) context.send(static_cast<int>(learner), letter);
    letter.clear();
  };
  for (int64_t k = draws.first; k < draws.last; ++k) {
    const int64_t place = draws.place(key, k, s_.batch_size);
    if (place < 0) continue;
    if (k / each != learner) send();
    learner = k / each;
    const int64_t row = store.priorities().find(place);
    drawn[k] = static_cast<int32_t>(row);
    letter.resize(letter.size() + bytes);
    std::byte* const at = letter.data() + letter.size() - bytes;
    float* const before = reinterpret_cast<float*>(at + sizeof(RowHead));
    const RowHead head{store.priorities().get(row), static_cast<int32_t>(k), store.take(row, before, before + width)};
    std::memcpy(at, &head, sizeof(head));
    least = std::min(least, head.priority);
  }
  send();
  context.maxima[0] = kNoPriority - least;
}

DuelingCpu* Dqn::by_hand() const {
  if (s_.precision != "fp32" || s_.net.attention || device().is_cuda()) return nullptr;
  if (!by_hand_) by_hand_ = std::make_unique<DuelingCpu>(net_, target_, s_.net, s_.piece());
  return by_hand_.get();
}

std::vector<RandomSource> Dqn::masks(const ShardContext& context) const {
  std::vector<RandomSource> masks;
  for (size_t i = 0; i < s_.net.hidden.size(); ++i)
    masks.push_back(context.random(kDropout + static_cast<uint32_t>(i)));
  return masks;
}

int Dqn::first_error(const ShardContext& context) const {
  return static_cast<int>(kErrors + context.shard * (s_.batch_size / s_.shards) + context.micro * s_.piece());
}

void Dqn::learn_by_hand(ShardContext& context) {
  const std::vector<at::Tensor>& in = context.inputs();
  const double share = 1 / static_cast<double>(s_.batch_size);
  const DuelingCpu::Result result =
      by_hand()->learn({in[0], in[1], in[2], in[3], in[4], in[5]}, masks(context), share, context.step);
  context.backward(result.loss);
  context.add(kLoss, result.loss);
  context.floats[kMeanQ] += result.q_sum * static_cast<float>(share);
  context.add(first_error(context), result.errors);
}

void Dqn::learn(ShardContext& context) {
  if (by_hand()) return learn_by_hand(context);
  const at::Tensor &before = context.inputs()[0], &after = context.inputs()[1], &reward = context.inputs()[2],
                   &discount = context.inputs()[3], &action = context.inputs()[4], &weight = context.inputs()[5];
  at::Tensor goal;
  {
    at::NoGradGuard no_grad;  // double Q: the net chooses, the target judges
    const at::Tensor chosen = net_->forward(after).argmax(1, /*keepdim=*/true);
    const at::Tensor worth = target_->forward(after).gather(1, chosen).squeeze(1).to(at::kFloat);
    goal = reward + discount * worth;
  }
  const std::vector<RandomSource> dropped = masks(context);
  const at::Tensor q = net_->forward(before, &dropped).gather(1, action.unsqueeze(1)).squeeze(1).to(at::kFloat);
  const double share = 1 / static_cast<double>(s_.batch_size);
  const at::Tensor loss = (at::huber_loss(q, goal, at::Reduction::None) * weight).sum() * share;
  context.backward(loss);
  context.add(kLoss, loss);
  const at::Tensor values = q.detach();
  context.add(kMeanQ, values.sum() * share);
  context.add(first_error(context), (values - goal).abs());
}

void Dqn::apply(const Phase& phase, const Total& total, StepContext& context) {
  if (phase.name == "act")
    acted(total, context);
  else if (phase.name == "serve")
    tops_.data_ptr<int64_t>()[1] = kNoPriority - total.maxima[0];
  else
    learned(total, context);
}

void Dqn::acted(const Total& total, StepContext& context) {
  std::copy(total.counts.begin() + 1, total.counts.end(), sums_.data_ptr<int64_t>());
  double* const average = average_.data_ptr<double>();
  if (const double ended = static_cast<double>(total.counts[0]); ended > 0) {
    average[kEpisodes] += ended;
    const double share = ended / std::min(average[kEpisodes], std::max(kAveragedEpisodes, ended));
    average[kReturn] += share * (total.floats[0] / ended - average[kReturn]);
  }
  auto& metrics = context.record->metrics;
  metrics.emplace_back("epsilon", epsilon(context.step));
  if (average[kEpisodes] == 0) return;
  metrics.emplace_back("average_return", average[kReturn]);
  if (const auto score = environment_->score(average[kReturn])) metrics.emplace_back("score", *score);
}

void Dqn::learned(const Total& total, StepContext& context) {
  context.record->loss = total.floats[kLoss];
  context.record->samples = static_cast<double>(s_.batch_size);
  context.record->metrics.emplace_back("mean_q", total.floats[kMeanQ]);
  float* const errors = errors_.data_ptr<float>();
  if (context.skipped) {
    std::fill_n(errors, s_.batch_size, -1.0f);
    return;
  }
  std::copy_n(total.floats.begin() + kErrors, s_.batch_size, errors);
  int64_t& top = tops_.data_ptr<int64_t>()[0];
  top = std::max(top, priority_of(*std::max_element(errors, errors + s_.batch_size), s_.alpha));
  const std::span<float> target = context.state->shadow(0);
  device().soft_update(target.data(), context.state->parameters().data(), static_cast<float>(s_.target_rate),
                       static_cast<int64_t>(target.size()));
}

int64_t Dqn::steps_in(const std::string& unit, int64_t count) const {
  if (unit == "iterations") return count;
  const int64_t moves = s_.environments * s_.shards;
  return unit == "episodes" ? (count * environment_->longest() + moves - 1) / moves : 0;
}

at::Tensor Dqn::q_values(const at::Tensor& states) const {
  return by_hand() ? by_hand()->q_values(states) : net_->forward(states);
}

std::vector<int32_t> Dqn::best_actions(std::span<const float> observations) const {
  at::NoGradGuard no_grad;
  const int64_t n = static_cast<int64_t>(observations.size()) / shape_.state_size;
  const at::Tensor seen = at::empty({n, shape_.state_size});
  std::copy_n(observations.begin(), n * shape_.state_size, seen.data_ptr<float>());
  const at::Tensor best = q_values(here(seen)).argmax(1).cpu();
  return {best.data_ptr<int64_t>(), best.data_ptr<int64_t>() + n};
}

Evaluation Dqn::evaluate(int64_t episodes, uint64_t seed) const {
  return tandem::evaluate(
      *environment_, [&](const at::Tensor& states) { return q_values(states); }, episodes, seed);
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
