// recipes/tiny_rl.cc -- Q-learning on the catch game, small but whole: every form of combining is used.
//
// A shard owns games and a ring of what it saw; the rings together are one replay buffer. A step:
//   act     each shard plays one move in its games and stores it        counts: games ended, returns, fill of each ring
//   ask     each shard draws rows of the whole buffer and asks the owners              exchange
//   answer  owners send the rows back                                                  exchange
//   learn   the Q update on the rows received                                          gradients
#include <torch/torch.h>

#include <cstring>

#include "engine/recipe.h"
#include "nn/here.h"
#include "nn/sites.h"
#include "recipes/makers.h"
#include "recipes/tiny_rl_settings.h"
#include "world/catch_game.h"

namespace tandem {
namespace {

enum DrawSite : uint32_t { kExplore, kMove, kNewGame, kDraw };

// One transition, as it is stored and as it travels.
struct Row {
  float before[CatchGame::kFeatures], after[CatchGame::kFeatures];
  float reward, done;
  int32_t action, unused;
};
static_assert(sizeof(Row) == 56);

struct QNetImpl : torch::nn::Module {
  explicit QNetImpl(int64_t hidden)
      : fc1(register_module("fc1", torch::nn::Linear(CatchGame::kFeatures, hidden))),
        fc2(register_module("fc2", torch::nn::Linear(hidden, hidden))),
        out(register_module("out", torch::nn::Linear(hidden, CatchGame::kMoves))) {}
  at::Tensor forward(const at::Tensor& x) { return out(at::relu(fc2(at::relu(fc1(x))))); }  // [B, 5] -> [B, 3]
  torch::nn::Linear fc1, fc2, out;
};
TORCH_MODULE(QNet);

class TinyRl : public Recipe {
  enum PhaseId { kAct, kAsk, kAnswer, kLearn };

 public:
  explicit TinyRl(const TinyRlSettings& s) : s_(s), net_(s.hidden), target_(s.hidden) {}

  void build(JobState& state) override {
    state.add_model(net_.ptr());
    state.add_target_network(target_.ptr(), "target");
    fill_ = state.add_replicated("ring_fill", at::zeros({s_.shards}, at::kLong));
    average_ = state.add_replicated("average_return", at::zeros({1}, at::kDouble));
    games_ = state.add_shard_field("games", {s_.games, 3}, at::kInt);
    ring_ = state.add_shard_field("ring", {s_.ring, static_cast<int64_t>(sizeof(Row))}, at::kByte);
    written_ = state.add_shard_field("written", {1}, at::kLong);
  }

  std::vector<Phase> phases() const override {
    return {{.name = "act", .id = kAct, .counts = static_cast<int>(2 + s_.shards)},
            {.name = "ask", .id = kAsk, .exchange = true},
            {.name = "answer", .id = kAnswer, .exchange = true},
            {.name = "learn", .id = kLearn, .gradients = true, .floats = 1, .capturable = true}};
  }

  void init_shard(ShardContext& context) override {
    for (int64_t g = 0; g < s_.games; ++g) game(context, g) = new_game(context.random(kInitialState), g);
  }

  std::vector<at::Tensor> inputs(const Phase& phase, ShardContext& context) override {
    if (phase.id != kLearn) return {};
    const int64_t micro_rows = s_.micro_batch_size(), first = context.micro_batch * micro_rows;
    at::Tensor before = at::empty({micro_rows, CatchGame::kFeatures}),
               after = at::empty({micro_rows, CatchGame::kFeatures});
    at::Tensor reward = at::empty({micro_rows}), done = at::empty({micro_rows}),
               action = at::empty({micro_rows}, at::kLong);
    for (int64_t i = 0; i < micro_rows; ++i) {
      Row r;
      std::memcpy(&r, context.messages()[first + i].row.data(), sizeof(r));
      std::memcpy(before.data_ptr<float>() + i * CatchGame::kFeatures, r.before, sizeof(r.before));
      std::memcpy(after.data_ptr<float>() + i * CatchGame::kFeatures, r.after, sizeof(r.after));
      reward.data_ptr<float>()[i] = r.reward;
      done.data_ptr<float>()[i] = r.done;
      action.data_ptr<int64_t>()[i] = r.action;
    }
    return {before, after, reward, done, action};
  }

  void run(const Phase& phase, ShardContext& context) override {
    switch (static_cast<PhaseId>(phase.id)) {
      case kAct:
        return act(context);
      case kAsk:
        return ask(context);
      case kAnswer:
        return answer(context);
      case kLearn:
        return learn(context);
    }
    throw std::logic_error("tiny-rl has no phase '" + phase.name + "'");
  }

  void apply(const Phase& phase, const Total& total, StepContext& context) override {
    StepRecord& record = *context.record;
    if (phase.id == kAct) {
      std::copy(total.counts.begin() + 2, total.counts.end(), fill_.data_ptr<int64_t>());
      double& average = *average_.data_ptr<double>();
      if (total.counts[0] > 0)
        average += 0.05 * (static_cast<double>(total.counts[1]) / static_cast<double>(total.counts[0]) - average);
      record.metrics.emplace_back("average_return", average);
    } else if (phase.id == kLearn) {
      record.loss = total.floats[0];
      record.samples = static_cast<double>(s_.batch_size);
      const std::span<float> target = context.state->target_network(0);
      device().soft_update(target.data(), context.state->parameters().data(), static_cast<float>(s_.target_rate),
                           static_cast<int64_t>(target.size()));
    }
  }

  int64_t steps_in(const std::string& unit, int64_t count) const override {
    if (unit == "iterations") return count;
    const int64_t moves_a_step = s_.games * s_.shards;  // all games have the same length
    return unit == "episodes" ? (count * CatchGame::kLength + moves_a_step - 1) / moves_a_step : 0;
  }
  std::string unit() const override { return "transitions"; }

 private:
  CatchGame& game(ShardContext& context, int64_t g) {
    static_assert(sizeof(CatchGame) == 3 * sizeof(int32_t));
    return reinterpret_cast<CatchGame*>(context.state(games_).data_ptr<int32_t>())[g];
  }
  Row& row(ShardContext& context, int64_t at) {
    return reinterpret_cast<Row*>(context.state(ring_).data_ptr<uint8_t>())[at % s_.ring];
  }
  static CatchGame new_game(const RandomKey& key, int64_t g) {
    return CatchGame::start(random_below(key, 2 * g, CatchGame::kColumns),
                            random_below(key, 2 * g + 1, CatchGame::kColumns));
  }

  void act(ShardContext& context) {
    at::NoGradGuard no_grad;
    at::Tensor seen = at::empty({s_.games, CatchGame::kFeatures});
    for (int64_t g = 0; g < s_.games; ++g) game(context, g).observe(seen.data_ptr<float>() + g * CatchGame::kFeatures);
    const at::Tensor best = net_->forward(here(seen)).argmax(1).cpu();
    const double progress = std::min(1.0, static_cast<double>(context.step) / static_cast<double>(s_.epsilon_steps));
    const double epsilon = 1 + (s_.epsilon_end - 1) * progress;
    int64_t& written = *context.state(written_).data_ptr<int64_t>();
    for (int64_t g = 0; g < s_.games; ++g) {
      CatchGame& play = game(context, g);
      Row& stored = row(context, written++);
      std::memset(&stored, 0, sizeof(stored));
      play.observe(stored.before);
      stored.action = random_uniform(context.random(kExplore), g) < epsilon
                          ? static_cast<int32_t>(random_below(context.random(kMove), g, CatchGame::kMoves))
                          : static_cast<int32_t>(best.data_ptr<int64_t>()[g]);
      stored.reward = static_cast<float>(play.move(stored.action));
      play.observe(stored.after);
      stored.done = play.done() ? 1.0f : 0.0f;
      if (play.done()) {
        context.counts[0] += 1;
        context.counts[1] += static_cast<int64_t>(stored.reward);
        play = new_game(context.random(kNewGame), g);
      }
    }
    context.counts[2 + context.shard] = std::min(written, s_.ring);
  }

  // Uniform over the whole buffer: a number below the total, then the ring it falls into.
  void ask(ShardContext& context) {
    const int64_t* fill = fill_.data_ptr<int64_t>();
    int64_t all = 0;
    for (int64_t s = 0; s < s_.shards; ++s) all += fill[s];
    for (int64_t i = 0; i < s_.batch_size / s_.shards; ++i) {
      int64_t at = random_below(context.random(kDraw), i, static_cast<uint32_t>(all));
      int owner = 0;
      for (; at >= fill[owner]; ++owner) at -= fill[owner];
      context.send(owner, std::as_bytes(std::span(&at, 1)));
    }
  }

  void answer(ShardContext& context) {
    for (const ExchangeMessage& message : context.messages()) {
      int64_t at = 0;
      std::memcpy(&at, message.row.data(), sizeof(at));
      context.send(message.from, std::as_bytes(std::span(&row(context, at), 1)));
    }
  }

  void learn(ShardContext& context) {
    const at::Tensor &before = context.inputs()[0], &after = context.inputs()[1], &reward = context.inputs()[2],
                     &done = context.inputs()[3], &action = context.inputs()[4];
    at::Tensor goal;
    {
      at::NoGradGuard no_grad;  // double Q: the net chooses, the target judges
      const at::Tensor chosen = net_->forward(after).argmax(1, /*keepdim=*/true);
      const at::Tensor worth = target_->forward(after).gather(1, chosen).squeeze(1).to(at::kFloat);
      goal = reward + s_.gamma * (1 - done) * worth;
    }
    const at::Tensor q = net_->forward(before).gather(1, action.unsqueeze(1)).squeeze(1).to(at::kFloat);
    const at::Tensor loss = at::huber_loss(q, goal, at::Reduction::Sum) / static_cast<double>(s_.batch_size);
    context.backward(loss);
    context.add(0, loss);
  }

  const TinyRlSettings& s_;
  QNet net_, target_;
  at::Tensor fill_, average_;
  ShardField games_, ring_, written_;
};

}  // namespace

std::unique_ptr<Recipe> make_tiny_rl(const TinyRlSettings& settings) { return std::make_unique<TinyRl>(settings); }

}  // namespace tandem
