#include "rl/dqn/dqn.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "nn/here.h"
#include "nn/sites.h"
#include "reduce/sum_tree.h"
#include "rl/dqn/dqn_on_gpu.h"
#include "rl/dqn/dueling_cpu.h"
#include "rl/dqn/dueling_net.h"
#include "rl/dqn/initial_weights.h"
#include "rl/replay/draws_of_step.h"
#include "rl/replay/experience.h"
#include "rl/replay/priority.h"

namespace tandem {
namespace {

// Several agents have one vector of weights, and their target networks another: one module that holds them all.
struct AllTargetsImpl : torch::nn::Module {
  explicit AllTargetsImpl(const std::vector<DqnAgent>& agents) {
    for (const DqnAgent& agent : agents) register_module(agent.name, agent.target);
  }
};

std::vector<Dqn::Named> alone(std::unique_ptr<Environment> environment) {
  std::vector<Dqn::Named> agents;
  agents.push_back({"", std::move(environment)});
  return agents;
}

}  // namespace

Dqn::Dqn(const DqnSettings& settings, std::unique_ptr<Environment> environment)
    : Dqn(settings, alone(std::move(environment))) {}

Dqn::Dqn(const DqnSettings& settings, std::vector<Named> agents) : s_(settings) {
  for (Named& named : agents) {
    const int64_t width = named.environment->observation_size(), actions = named.environment->actions();
    if (!agents_.empty() && (width != environment().observation_size() || actions != environment().actions()))
      throw std::logic_error("agents of one job must have the same state size and number of actions");
    agents_.push_back({.name = named.name,
                       .environment = std::move(named.environment),
                       .net = std::make_shared<DuelingNetImpl>(width, actions, settings.net),
                       .target = std::make_shared<DuelingNetImpl>(width, actions, settings.net)});
  }
  shape_ = {settings.environments, settings.rows(), environment().observation_size(), settings.n_step, settings.gamma};
  const SumTree tree(static_cast<int>(settings.shards));
  merges_ = tree.merges(tree.root());
  std::string why;
  on_gpu_ = DqnOnGpu::make(*this, &why);
  if (!why.empty())
    note_ = fmt::format("the step goes through library kernels and the host, not the GPU's own: {}", why);
}

Dqn::~Dqn() = default;

void Dqn::build(JobState& state) {
  const bool several = agents() > 1, there = on_gpu_ != nullptr;
  const int64_t n = s_.environments, first = priority_of(1.0f, s_.alpha);
  for (DqnAgent& agent : agents_) {
    if (several)
      state.add_group(agent.net, agent.name);
    else
      state.add_model(agent.net);
    if (!s_.from.empty()) load_weights(*agent.net, s_.from, s_.from_digest);
  }
  if (several)
    state.add_target_network(std::make_shared<AllTargetsImpl>(agents_), "target");
  else
    state.add_target_network(agents_[0].target, "target");
  for (int index = 0; index < agents(); ++index) {
    DqnAgent& agent = agents_[index];
    const auto named = [&](const std::string& name) { return several ? agent.name + "." + name : name; };
    const auto replicated = [&](const std::string& name, at::Tensor initial,
                                at::Tensor (DqnReplicated::*on_gpu)(int) const) {
      if (there) initial = (on_gpu_->replicated().*on_gpu)(index).copy_(initial);
      return state.add_replicated(named(name), initial);
    };
    const auto field = [&](const std::string& name, std::vector<int64_t> sizes, at::ScalarType type) {
      return state.add_shard_field(named(name), std::move(sizes), type, there);
    };
    agent.priority_sums = replicated("priority_sums", at::zeros({s_.shards}, at::kLong), &DqnReplicated::priority_sums);
    agent.td_errors =  // below 0: none to write
        replicated("errors", at::full({s_.batch_size}, -1.0f), &DqnReplicated::td_errors);
    agent.priority_range =
        replicated("priority_top_and_least", at::full({2}, first, at::kLong), &DqnReplicated::priority_range);
    agent.average = state.add_replicated(named("average_return"), at::zeros({2}, at::kDouble));
    agent.states = field("environments", {n, agent.environment->state_bytes()}, at::kByte);
    agent.returns = field("returns", {n}, at::kFloat);
    agent.seen = field("replay.seen", {n, shape_.rows, shape_.observation_size}, at::kFloat);
    agent.rows = field("replay.rows", {n, shape_.rows, static_cast<int64_t>(sizeof(ReplayRow))}, at::kByte);
    agent.written = field("replay.written", {n}, at::kLong);
    agent.priorities = field("replay.priorities", {PriorityTree::words(shape_.leaves())}, at::kLong);
    agent.drawn = field("replay.drawn", {s_.batch_size}, at::kInt);
  }
}

std::vector<Phase> Dqn::phases() const {
  const int n = agents();
  const bool batched = on_gpu_ || uses_cpu_kernels();
  return {
      {.name = "act", .id = kActPhase, .counts = static_cast<int>(n * ActCounts::words(s_.shards)), .batched = batched},
      {.name = "serve",
       .id = kServePhase,
       .maxima = n,
       .exchange = true,
       .joined_floats = ServedDraws::floats(n, s_.batch_size, shape_.observation_size),
       .batched = on_gpu_ != nullptr},
      {.name = "learn",
       .id = kLearnPhase,
       .gradients = true,
       .one_backward = n == 1 && !on_gpu_,
       .floats = static_cast<int>(n * (kTdErrors + s_.batch_size)),
       .capturable = true,
       .batched = on_gpu_ ? on_gpu_->learns_batched() : batched}};
}

// Of a shard whose state lies in host memory.
Replay Dqn::replay(DqnAgent& agent, ShardContext& context) {
  at::Tensor& priorities = context.state(agent.priorities);
  return {shape_,
          context.state(agent.seen).data_ptr<float>(),
          reinterpret_cast<ReplayRow*>(context.state(agent.rows).data_ptr<uint8_t>()),
          context.state(agent.written).data_ptr<int64_t>(),
          {priorities.data_ptr<int64_t>(), static_cast<size_t>(priorities.numel())}};
}

namespace {

// Stores one step of n environments.
struct Storing {
  Replay& replay;
  const Environment& environment;
  std::byte* states;
  int64_t priority;

  void store(const float* seen, const int32_t* actions, const std::vector<Outcome>& outcomes) {
    const int64_t n = static_cast<int64_t>(outcomes.size()), width = environment.observation_size();
    const bool cut = std::ranges::any_of(outcomes, [](const Outcome& o) { return o.end == End::kTruncated; });
    std::vector<float> last(cut ? static_cast<size_t>(n * width) : 0);
    if (cut) environment.observe(states, last.data(), n);
    for (int64_t e = 0; e < n; ++e)
      replay.add(e, seen + e * width, actions[e], outcomes[e].reward, outcomes[e].end,
                 cut ? last.data() + e * width : nullptr, priority);
  }
};

}  // namespace

void Dqn::init_shard(ShardContext& context) {
  for (DqnAgent& agent : agents_) {
    if (!on_gpu_) {
      begin_agent(agent, context);
      continue;
    }
    // In host memory at first: environments and buffer have the same bits there.
    std::vector<at::Tensor> there;
    const ShardField fields[] = {agent.states,  agent.returns,    agent.seen, agent.rows,
                                 agent.written, agent.priorities, agent.drawn};
    for (const ShardField field : fields) {
      there.push_back(context.state(field));
      context.state(field) = at::zeros_like(there.back(), at::TensorOptions(at::kCPU));
    }
    begin_agent(agent, context);
    for (size_t i = 0; i < there.size(); ++i) {
      there[i].copy_(context.state(fields[i]));
      context.state(fields[i]) = there[i];
    }
  }
}

void Dqn::begin_agent(DqnAgent& agent, ShardContext& context) {
  context.state(agent.drawn).fill_(-1);
  const int64_t n = s_.playing();  // the other rings hold experience
  const Environment& environment = *agent.environment;
  if (n < s_.environments) {
    if (!experience_)
      experience_ = std::make_unique<const Experience>(
          Experience::read(experience_files(s_.experience.files), s_.history_shape().value(), s_.history_agent(),
                           {s_.experience.holdout, split_named(s_.experience.split)}, s_.experience.digest));
    Replay store = replay(agent, context);
    experience_->fill(store, context.shard, s_.shards, n, s_.environments - n,
                      agent.priority_range.data_ptr<int64_t>()[0]);
    if (n == 0) return;
  }
  std::byte* const states = reinterpret_cast<std::byte*>(context.state(agent.states).data_ptr<uint8_t>());
  environment.reset(states, n, context.random(kInitialState), nullptr);
  Replay store = replay(agent, context);
  Storing storing{store, environment, states, agent.priority_range.cpu().data_ptr<int64_t>()[0]};
  std::vector<float> seen(static_cast<size_t>(n * shape_.observation_size));
  std::vector<int32_t> actions(static_cast<size_t>(n));
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  float* const returns = context.state(agent.returns).data_ptr<float>();
  // At least so many that every environment has a transition to draw.
  const int64_t moves = std::max((s_.learning_starts + n * s_.shards - 1) / (n * s_.shards), s_.n_step + 1);
  for (int64_t move = 0; move < moves; ++move) {
    const auto key = [&](DqnSite site) {
      RandomKey k = context.random(site);
      k.step = static_cast<uint64_t>(move);
      return k;
    };
    environment.observe(states, seen.data(), n);
    for (int64_t e = 0; e < n; ++e)
      actions[e] = static_cast<int32_t>(random_below(key(kFirstMove), e, static_cast<uint32_t>(environment.actions())));
    environment.step(states, actions.data(), outcomes.data(), n, key(kFirstLuck));
    storing.store(seen.data(), actions.data(), outcomes);
    for (int64_t e = 0; e < n; ++e) returns[e] = outcomes[e].end == End::kNone ? returns[e] + outcomes[e].reward : 0;
    environment.reset(states, n, key(kFirstEpisode), outcomes.data());
  }
}

std::vector<at::Tensor> Dqn::inputs(const Phase& phase, ShardContext& context) {
  if (phase.id != kLearnPhase) return {};
  const int64_t micro_rows = s_.micro_batch_size(), width = shape_.observation_size, n = agents();
  const int64_t first = context.shard * (s_.batch_size / s_.shards) + context.micro_batch * micro_rows;
  at::Tensor states = at::empty({n, 2, micro_rows, width});  // before, after
  at::Tensor reward = at::empty({n, micro_rows}), discount = at::empty({n, micro_rows}),
             weight = at::empty({n, micro_rows});
  at::Tensor action = at::empty({n, micro_rows}, at::kLong), priority = at::empty({n, micro_rows}, at::kLong);
  const size_t bytes = static_cast<size_t>(width) * sizeof(float);
  for (const ExchangeMessage& message : context.messages()) {
    const std::byte* const end = message.row.data() + message.row.size();
    for (const std::byte* at = message.row.data(); at < end; at += sizeof(TravellingRow) + 2 * bytes) {
      TravellingRow head;
      std::memcpy(&head, at, sizeof(head));
      const int64_t i = head.draw - first;
      if (i < 0 || i >= micro_rows) continue;  // of another micro-batch
      const int64_t to = head.agent * micro_rows + i;
      float* const seen = states.data_ptr<float>() + (head.agent * 2 * micro_rows + i) * width;
      std::memcpy(seen, at + sizeof(head), bytes);
      std::memcpy(seen + micro_rows * width, at + sizeof(head) + bytes, bytes);
      reward.data_ptr<float>()[to] = head.transition.reward;
      discount.data_ptr<float>()[to] = head.transition.discount;
      action.data_ptr<int64_t>()[to] = head.transition.action;
      priority.data_ptr<int64_t>()[to] = head.priority;
    }
  }
  if (on_gpu_) return on_gpu_->inputs(context, states, reward, discount, action, priority);
  const double power = beta(context.step);
  for (int64_t i = 0; i < n * micro_rows; ++i)
    weight.data_ptr<float>()[i] = importance_weight(
        priority.data_ptr<int64_t>()[i], agents_[i / micro_rows].priority_range.data_ptr<int64_t>()[1], power);
  return {states, reward, discount, action, weight};
}

void Dqn::run(const Phase& phase, ShardContext& context) {
  if (on_gpu_) return on_gpu_->run(static_cast<DqnPhase>(phase.id), context);
  for (int agent = 0; agent < agents(); ++agent) {
    switch (static_cast<DqnPhase>(phase.id)) {
      case kActPhase:
        act(agent, context);
        break;
      case kServePhase:
        serve(agent, context);
        break;
      case kLearnPhase:
        learn(agent, context);
        break;
      default:
        throw std::logic_error("the DQN has no phase '" + phase.name + "'");
    }
  }
}

void Dqn::act(int index, ShardContext& context) {
  at::NoGradGuard no_grad;
  DqnAgent& agent = agents_[index];
  give_priorities(agent, context);
  const at::Tensor seen = at::empty({s_.playing(), shape_.observation_size});
  if (s_.playing() == 0) return step_environments(index, context, nullptr, nullptr);
  agent.environment->observe(reinterpret_cast<std::byte*>(context.state(agent.states).data_ptr<uint8_t>()),
                             seen.data_ptr<float>(), s_.playing());
  const at::Tensor values =
      cpu_net(index) ? cpu_net(index)->q_values(seen, context.step) : agent.net->forward(here(seen));
  const at::Tensor best = values.argmax(1).cpu();
  step_environments(index, context, seen.data_ptr<float>(), best.data_ptr<int64_t>());
}

void Dqn::give_priorities(DqnAgent& agent, ShardContext& context) {
  Replay store = replay(agent, context);
  const int32_t* drawn = context.state(agent.drawn).data_ptr<int32_t>();
  const float* errors = agent.td_errors.data_ptr<float>();
  for (int64_t k = 0; k < s_.batch_size; ++k)
    if (drawn[k] >= 0 && errors[k] >= 0) store.priorities().set(drawn[k], priority_of(errors[k], s_.alpha));
}

// One step of each environment. `seen`: its observation; `best`: the net's greedy action.
void Dqn::step_environments(int index, ShardContext& context, const float* seen, const int64_t* best) {
  DqnAgent& agent = agents_[index];
  const Environment& environment = *agent.environment;
  Replay store = replay(agent, context);
  const int64_t n = s_.playing();
  const ActCounts counts = ActCounts::of(context.counts, index, s_.shards);
  if (n == 0) {
    counts.priority_sum(context.shard) = store.priorities().total();
    return;
  }
  std::byte* const states = reinterpret_cast<std::byte*>(context.state(agent.states).data_ptr<uint8_t>());
  std::vector<int32_t> actions(static_cast<size_t>(n));
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  const double explore = epsilon(context.step);
  for (int64_t e = 0; e < n; ++e)
    actions[e] =
        random_uniform(context.random(kExplore), e) < explore
            ? static_cast<int32_t>(random_below(context.random(kMove), e, static_cast<uint32_t>(environment.actions())))
            : static_cast<int32_t>(best[e]);
  environment.step(states, actions.data(), outcomes.data(), n, context.random(kLuck));
  Storing{store, environment, states, agent.priority_range.data_ptr<int64_t>()[0]}.store(seen, actions.data(),
                                                                                         outcomes);
  float* const returns = context.state(agent.returns).data_ptr<float>();
  float returned = 0;
  for (int64_t e = 0; e < n; ++e) {
    returns[e] += outcomes[e].reward;
    if (outcomes[e].end == End::kNone) continue;
    counts.episodes() += 1;
    returned += returns[e];
    returns[e] = 0;
  }
  environment.reset(states, n, context.random(kNewEpisode), outcomes.data());
  counts.set_returns(context.shard, returned);
  counts.priority_sum(context.shard) = store.priorities().total();
}

void Dqn::serve(int index, ShardContext& context) {
  DqnAgent& agent = agents_[index];
  Replay store = replay(agent, context);
  int32_t* const drawn = context.state(agent.drawn).data_ptr<int32_t>();
  std::fill_n(drawn, s_.batch_size, -1);
  RandomKey key = context.random(kDraw);
  key.shard = 0;  // the draws belong to the job
  const ShardDraws draws = draws_of_shard({agent.priority_sums.data_ptr<int64_t>(), static_cast<size_t>(s_.shards)},
                                          context.shard, s_.batch_size);
  const int64_t width = shape_.observation_size, each = s_.batch_size / s_.shards;
  const size_t bytes = sizeof(TravellingRow) + 2 * static_cast<size_t>(width) * sizeof(float);
  std::vector<std::byte> message;  // one per learning shard, whose draws are contiguous
  int64_t least = kNoPriority, learner = -1;
  const auto send = [&] {
    if (!message.empty()) context.send(static_cast<int>(learner), std::exchange(message, {}));
    message.reserve(static_cast<size_t>(each) * bytes);
  };
  std::vector<int64_t> own, rows;  // draws of this shard, and where they fall
  for (int64_t k = draws.first; k < draws.last; ++k)
    if (const int64_t place = draws.place(key, k, s_.batch_size); place >= 0) {
      own.push_back(k);
      rows.push_back(place);
    }
  store.priorities().find_all(rows);
  for (size_t i = 0; i < own.size(); ++i) {
    drawn[own[i]] = static_cast<int32_t>(rows[i]);
    store.prefetch(rows[i]);  // scattered rows: prefetch all before the first is read
  }
  for (const int64_t k : own) {
    const int64_t row = drawn[k];
    if (k / each != learner) send();
    learner = k / each;
    message.resize(message.size() + bytes);
    std::byte* const at = message.data() + message.size() - bytes;
    float* const before = reinterpret_cast<float*>(at + sizeof(TravellingRow));
    const TravellingRow head{store.priorities().get(row), static_cast<int32_t>(k), index,
                             store.take(row, before, before + width)};
    std::memcpy(at, &head, sizeof(head));
    least = std::min(least, head.priority);
  }
  send();
  context.maxima[index] = kNoPriority - least;
}

bool Dqn::uses_cpu_kernels() const { return s_.precision == "fp32" && !s_.net.attention && !device().is_cuda(); }

DuelingCpu* Dqn::cpu_net(int index) const {
  if (!uses_cpu_kernels()) return nullptr;
  DqnAgent& agent = agents_[index];
  if (!agent.cpu_net)
    agent.cpu_net = std::make_shared<DuelingCpu>(agent.net, agent.target, s_.net, s_.micro_batch_size());
  return agent.cpu_net.get();
}

std::vector<RandomSource> Dqn::masks(const ShardContext& context) const {
  std::vector<RandomSource> masks;
  for (size_t i = 0; i < s_.net.hidden.size(); ++i)
    masks.push_back(context.random(kDropout + static_cast<uint32_t>(i)));
  return masks;
}

int Dqn::first_sum(int agent) const { return static_cast<int>(agent * (kTdErrors + s_.batch_size)); }

int Dqn::first_td_error(int agent, const ShardContext& context) const {
  return static_cast<int>(first_sum(agent) + kTdErrors + context.shard * (s_.batch_size / s_.shards) +
                          context.micro_batch * s_.micro_batch_size());
}

void Dqn::learn_on_cpu(int agent, ShardContext& context) {
  std::vector<at::Tensor> in;
  for (const at::Tensor& all : context.inputs()) in.push_back(all.select(0, agent));
  const double share = 1 / static_cast<double>(s_.batch_size);
  const DuelingCpu::Result result = cpu_net(agent)->learn(
      {in[0].select(0, 0), in[0].select(0, 1), in[1], in[2], in[3], in[4]}, masks(context), share, context.step);
  context.backward(result.loss);
  context.add(first_sum(agent) + kLoss, result.loss);
  context.floats[first_sum(agent) + kMeanQ] += result.q_sum * static_cast<float>(share);
  context.add(first_td_error(agent, context), result.td_errors);
}

void Dqn::learn(int index, ShardContext& context) {
  if (cpu_net(index)) return learn_on_cpu(index, context);
  DqnAgent& agent = agents_[index];
  std::vector<at::Tensor> in;
  for (const at::Tensor& all : context.inputs()) in.push_back(all.select(0, index));
  const at::Tensor before = in[0].select(0, 0), after = in[0].select(0, 1), &reward = in[1], &discount = in[2],
                   &action = in[3], &weight = in[4];
  at::Tensor goal;
  {
    at::NoGradGuard no_grad;  // double Q: the net chooses, the target network evaluates
    const at::Tensor chosen = agent.net->forward(after).argmax(1, /*keepdim=*/true);
    const at::Tensor worth = agent.target->forward(after).gather(1, chosen).squeeze(1).to(at::kFloat);
    goal = reward + discount * worth;
  }
  const std::vector<RandomSource> dropped = masks(context);
  const at::Tensor q = agent.net->forward(before, &dropped).gather(1, action.unsqueeze(1)).squeeze(1).to(at::kFloat);
  const double share = 1 / static_cast<double>(s_.batch_size);
  const at::Tensor loss = (at::huber_loss(q, goal, at::Reduction::None) * weight).sum() * share;
  context.backward(loss);
  context.add(first_sum(index) + kLoss, loss);
  const at::Tensor values = q.detach();
  context.add(first_sum(index) + kMeanQ, values.sum() * share);
  context.add(first_td_error(index, context), (values - goal).abs());
}

}  // namespace tandem
