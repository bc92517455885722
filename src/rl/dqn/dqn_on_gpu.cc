#include "rl/dqn/dqn_on_gpu.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "engine/gpu_device.h"
#include "nn/here.h"
#include "reduce/sum_tree.h"
#include "rl/dqn/dqn.h"
#include "rl/replay/priority_tree.h"

namespace tandem {
namespace {

constexpr int64_t kNoPriority = int64_t{1} << 40;  // as in dqn.cc

CUstream_st* stream() { return static_cast<CUstream_st*>(gpu()->current_stream()); }

// TANDEM_DQN_TILES: how products are cut into blocks changes no bit, so that it is no setting.
int blocks_asked_for() {
  const char* asked = std::getenv("TANDEM_DQN_TILES");
  if (!asked || !*asked) return 0;
  for (const int known : {1, 2, 4, 16, 24, 32, 40})
    if (asked == std::to_string(known)) return known;
  throw ConfigError(
      fmt::format("TANDEM_DQN_TILES={} is not known", asked),
      "it says what a block of threads makes: 1, 2 or 4 tiles of a product, or all layers of 16, 24, 32 or 40 rows",
      "set one of these, or unset it");
}

Precision precision_of(const std::string& name) {
  using enum Precision;
  return name == "tf32" ? kTf32 : name == "bf16" ? kBf16 : name == "fp16" ? kFp16 : kFp32;
}

// How often sums of shards are joined after each shard, when they come in order (Stack of cuda_dqn_products.h). False
// where more would wait than there is room for.
bool merges_of(int shards, int32_t* merges) {
  const SumTree tree(shards);
  int waiting = 0, most = 0;
  for (int s = 0; s < shards; ++s) {
    merges[s] = 0;
    for (int id = tree.leaf(s); tree.node(id).parent >= 0; id = tree.node(id).parent) {
      const SumTree::Node& node = tree.node(id);
      if (node.place > 0) ++merges[s];
      if (node.place + 1 < static_cast<int>(tree.node(node.parent).children.size())) break;
    }
    waiting += 1 - merges[s];
    most = std::max(most, waiting + merges[s] - (merges[s] > 0 ? 1 : 0));
  }
  return most <= kMostGpuDepth;
}

}  // namespace

std::unique_ptr<DqnOnGpu> DqnOnGpu::make(Dqn& dqn, std::string* why) {
  const DqnSettings& s = dqn.s_;
  const auto no = [&](const char* reason) {
    if (gpu()) *why = reason;
    return nullptr;
  };
  if (!gpu()) return nullptr;
  if (!s.experience.files.empty()) return no("experience of a real system");
  if (s.net.attention) return no("net.attention");
  if (s.accumulation != 1) return no("accumulation");
  if (s.net.hidden.size() != 2) return no("other than two hidden layers");
  if (s.shards > 32) return no("more than 32 shards");
  if (s.batch_size > kMostGpuBatch) return no("a batch above 4096");
  if (s.n_step > kMostGpuSteps) return no("n_step above 32");
  const auto* const kernels = static_cast<const DqnKernels*>(gpu()->part("dqn"));
  if (!kernels) return no("a GPU library without them");
  const auto odd = [](int64_t width) { return width % 4 != 0; };
  if (std::ranges::any_of(s.net.hidden, [&](int64_t width) { return odd(width) || width > kMostGpuWidth; }) ||
      odd(s.net.head) || odd(dqn.shape_.state_size))
    return no("widths that four does not divide, or above 1024");
  if (dqn.environment().actions() > kMostGpuActions) return no("more than 16 actions");
  GpuAdvance advance = nullptr;
  for (int agent = 0; agent < dqn.agents(); ++agent) {
    const auto world = dqn.environment(agent).on_gpu();
    if (!world || (advance && world->advance != advance)) return no("environments that live on the host");
    advance = world->advance;
  }
  return std::unique_ptr<DqnOnGpu>(new DqnOnGpu(dqn, *kernels, advance));
}

DqnOnGpu::Launch DqnOnGpu::make_launch(JobState& state, int first, int count) {
  const DqnSettings& s = dqn_.s_;
  const int jobs = dqn_.agents(), sets = jobs * count, asked = blocks_asked_for();
  Launch made;
  DqnShape& h = made.shape;
  h = {.jobs = jobs,
       .shards = static_cast<int32_t>(s.shards),
       .tiles_of_block = asked <= 4 ? asked : 0,
       .rows_of_block = asked <= 4 ? 0 : asked,
       .first = first,
       .count = count,
       .piece = static_cast<int32_t>(s.piece()),
       .batch = static_cast<int32_t>(s.batch_size),
       .environments = static_cast<int32_t>(s.environments),
       .state = static_cast<int32_t>(dqn_.shape_.state_size),
       .wide = static_cast<int32_t>(s.net.hidden[0]),
       .narrow = static_cast<int32_t>(s.net.hidden[1]),
       .head = static_cast<int32_t>(s.net.head),
       .actions = static_cast<int32_t>(dqn_.environment().actions()),
       .n_step = static_cast<int32_t>(s.n_step),
       .rows = dqn_.shape_.rows,
       .gamma = static_cast<float>(s.gamma),
       .alpha = s.alpha,
       .dropout = s.net.dropout,
       .precision = precision_of(s.precision)};
  h.levels = PriorityTree::places(dqn_.shape_.leaves(), h.level_first);
  if (count > 1) merges_of(count, h.merges);

  const std::string prefix = jobs > 1 ? dqn_.agents_[0].name + "." : "";
  const auto place = [&](const std::string& name) {
    for (const ParameterSlot& slot : state.slots())
      if (slot.name == prefix + name) return slot.offset;
    throw std::logic_error("the net has no " + name);
  };
  made.places = {place("hidden1.weight"),   place("hidden1.bias"),  place("norm1.weight"), place("norm1.bias"),
                 place("hidden2.weight"),   place("hidden2.bias"),  place("norm2.weight"), place("norm2.bias"),
                 place("heads.weight"),     place("heads.bias"),    place("value.weight"), place("value.bias"),
                 place("advantage.weight"), place("advantage.bias")};

  const auto bytes = [&](size_t n) {
    made.memory.push_back(at::zeros({static_cast<int64_t>(std::max<size_t>(n, 16))}, here(at::kByte)));
    return made.memory.back().data_ptr();
  };
  const auto floats = [&](int64_t n) { return static_cast<float*>(bytes(static_cast<size_t>(n) * sizeof(float))); };
  const auto ints = [&](int64_t n) { return static_cast<int32_t*>(bytes(static_cast<size_t>(n) * sizeof(int32_t))); };
  const auto longs = [&](int64_t n) { return static_cast<int64_t*>(bytes(static_cast<size_t>(n) * sizeof(int64_t))); };
  DqnWork& w = made.work;
  const int64_t all = sets, playing = all * h.environments, learning = all * h.piece;
  const int64_t passing = std::max(playing, 3 * learning);
  w.observed = floats(playing * h.state);
  w.rewards = floats(playing);
  w.actions = ints(playing);
  w.ends = ints(playing);
  w.states = floats(2 * learning * h.state);
  w.reward = floats(learning);
  w.discount = floats(learning);
  w.action = ints(learning);
  w.priority = longs(learning);
  w.sums1 = floats(passing * h.wide);
  w.sums2 = floats(passing * h.narrow);
  w.both = floats(passing * 2 * h.head);
  w.out1 = floats(learning * h.wide);
  w.out2 = floats(learning * h.narrow);
  w.inverse1 = floats(learning);
  w.inverse2 = floats(learning);
  w.both_grad = floats(learning * 2 * h.head);
  w.dz2 = floats(learning * h.narrow);
  w.dx2 = floats(learning * h.narrow);
  w.dz1 = floats(learning * h.wide);
  w.dx1 = floats(learning * h.wide);
  w.out_grad = floats(learning * (1 + h.actions));
  w.row_loss = floats(learning);
  w.row_q = floats(learning);
  w.job_sums = floats(2 * jobs);
  w.shard_returns = floats(all);
  w.shard_episodes = longs(all);
  w.left = nullptr;
  w.halves = nullptr;
  if (is_of_halves(h.precision))
    w.halves = bytes(size_t{kHalvesBytes} * static_cast<size_t>(jobs) * static_cast<size_t>(DqnHalves(h).all));
  w.halves_kept = false;
  w.order = static_cast<const StepParams*>(bytes(sizeof(StepParams)));
  w.told = static_cast<StepOutputs*>(bytes(sizeof(StepOutputs) * static_cast<size_t>(jobs)));

  std::vector<DqnJob> job_table;
  std::vector<DqnShard> shard_table;
  std::vector<GpuSet> world_table;
  for (int j = 0; j < jobs; ++j) {
    const DqnAgent& a = dqn_.agents_[j];
    const int64_t begin = j * (state.parameter_floats() / jobs);
    job_table.push_back({state.parameters().data() + begin, state.shadow(0).data() + begin, a.errors.data_ptr<float>(),
                         a.tops.data_ptr<int64_t>(), a.sums.data_ptr<int64_t>(), begin});
    for (int shard = first; shard < first + count; ++shard) {
      const int64_t set = j * count + shard - first, row = set * h.environments;
      const auto field = [&](ShardField f) { return state.shard(f, shard).data_ptr(); };
      shard_table.push_back({static_cast<float*>(field(a.returns)), static_cast<float*>(field(a.seen)),
                             static_cast<ReplayRow*>(field(a.rows)), static_cast<int64_t*>(field(a.written)),
                             static_cast<int64_t*>(field(a.priorities)), static_cast<int32_t*>(field(a.drawn))});
      world_table.push_back({a.environment->on_gpu()->kind, static_cast<uint32_t>(shard),
                             static_cast<std::byte*>(field(a.states)), w.actions + row, w.rewards + row, w.ends + row,
                             w.observed + row * h.state});
    }
  }
  const auto table = [&](const auto& rows) {
    void* const there = bytes(rows.size() * sizeof(rows[0]));
    device().from_host(there, rows.data(), rows.size() * sizeof(rows[0]));
    return there;
  };
  w.jobs = static_cast<const DqnJob*>(table(job_table));
  w.shards = static_cast<const DqnShard*>(table(shard_table));
  w.worlds = static_cast<const GpuSet*>(table(world_table));
  made.version = state.version();
  return made;
}

StepParams DqnOnGpu::order(uint64_t seed, int64_t step, double loss_scale) const {
  return {{.seed = seed, .step = static_cast<uint64_t>(step)},
          dqn_.epsilon(step),
          dqn_.beta(step),
          static_cast<float>(loss_scale)};
}

// ---- phase by phase, one shard at a time ----

DqnOnGpu::Launch& DqnOnGpu::launch_of(ShardContext& context) {
  Launch& launch = launches_[context.shard];
  if (launch.version != context.job().version()) launch = make_launch(context.job(), context.shard, 1);
  return launch;
}

void DqnOnGpu::run(const std::string& phase, ShardContext& context) {
  Launch& launch = launch_of(context);
  if (phase == "act")
    act(launch, context);
  else if (phase == "serve")
    serve(launch, context);
  else
    learn(launch, context);
}

void DqnOnGpu::act(Launch& launch, ShardContext& context) {
  const StepParams now = order(context.random(0).seed, context.step, context.loss_scale());
  device().from_host(const_cast<StepParams*>(launch.work.order), &now, sizeof(now));
  k_.observe(launch.shape, launch.work, advance_, stream());
  k_.act(launch.shape, launch.places, launch.work, advance_, stream());
  const int64_t root = launch.shape.level_first[launch.shape.levels - 1];
  for (int j = 0; j < dqn_.agents(); ++j) {
    int64_t* const counts = context.counts.data() + j * (1 + context.shards);
    device().to_host(&context.floats[j], launch.work.shard_returns + j, sizeof(float));
    device().to_host(counts, launch.work.shard_episodes + j, sizeof(int64_t));
    const at::Tensor& tree = context.state(dqn_.agents_[j].priorities);
    device().to_host(counts + 1 + context.shard, tree.data_ptr<int64_t>() + root, sizeof(int64_t));
  }
}

void DqnOnGpu::serve(Launch& launch, ShardContext& context) {
  const int64_t batch = launch.shape.batch, width = launch.shape.state, each = batch / context.shards;
  const size_t observations = 2 * static_cast<size_t>(width) * sizeof(float);
  const at::Tensor heads = at::empty({dqn_.agents() * batch, static_cast<int64_t>(sizeof(cuda::DrawnRow))},
                                     here(at::kByte)),
                   states = at::empty({dqn_.agents() * batch, 2, width}, here());
  const StepParams now = order(context.random(0).seed, context.step, context.loss_scale());
  device().from_host(const_cast<StepParams*>(launch.work.order), &now, sizeof(now));
  k_.serve(launch.shape, launch.work, reinterpret_cast<cuda::DrawnRow*>(heads.data_ptr()), states.data_ptr<float>(),
           stream());
  const at::Tensor heads_here = heads.cpu(), states_here = states.cpu();
  for (int j = 0; j < dqn_.agents(); ++j) {
    int64_t least = kNoPriority;
    for (int64_t learner = 0; learner < context.shards; ++learner) {
      std::vector<std::byte> letter;
      for (int64_t k = learner * each; k < (learner + 1) * each; ++k) {
        const auto& head = reinterpret_cast<const cuda::DrawnRow*>(heads_here.data_ptr())[j * batch + k];
        if (head.draw < 0) continue;
        const TravellingRow row{head.priority, head.draw, j, {head.reward, head.discount, head.action}};
        const size_t at = letter.size();
        letter.resize(at + sizeof(row) + observations);
        std::memcpy(letter.data() + at, &row, sizeof(row));
        std::memcpy(letter.data() + at + sizeof(row), states_here.data_ptr<float>() + (j * batch + k) * 2 * width,
                    observations);
        least = std::min(least, head.priority);
      }
      if (!letter.empty()) context.send(static_cast<int>(learner), letter);
    }
    context.maxima[j] = kNoPriority - least;
  }
}

std::vector<at::Tensor> DqnOnGpu::inputs(const ShardContext& context, const at::Tensor& states,
                                         const at::Tensor& reward, const at::Tensor& discount, const at::Tensor& action,
                                         const at::Tensor& priority) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof(StepParams))}, at::kByte);
  const StepParams now = order(context.random(0).seed, context.step, context.loss_scale());
  std::memcpy(bytes.data_ptr(), &now, sizeof(now));
  return {states, reward, discount, action.to(at::kInt), priority, bytes};
}

void DqnOnGpu::learn(Launch& launch, ShardContext& context) {
  const std::vector<at::Tensor>& in = context.inputs();
  DqnWork work = launch.work;
  work.states = in[0].data_ptr<float>();
  work.reward = in[1].data_ptr<float>();
  work.discount = in[2].data_ptr<float>();
  work.action = in[3].data_ptr<int32_t>();
  work.priority = in[4].data_ptr<int64_t>();
  work.order = static_cast<const StepParams*>(in[5].data_ptr());
  k_.learn(launch.shape, launch.places, work, context.gradient().data(), context.sums_on_gpu(), stream());
}

// ---- a whole step ----

class DqnFusedStep : public FusedStep {
 public:
  DqnFusedStep(DqnOnGpu& gpu, JobState& state)
      : gpu_(gpu),
        seed_(state.seed()),
        launch_(gpu.make_launch(state, 0, state.shards())),
        targets_(state.shadow(0).data()) {
    launch_.work.halves_kept = true;
    const DqnShape& h = launch_.shape;
    if (h.dropout <= 0) return;
    launch_.memory.push_back(at::zeros({int64_t{2} * h.sets() * h.piece * 32}, here(at::kInt)));
    launch_.work.left = static_cast<uint32_t*>(launch_.memory.back().data_ptr());
  }

  size_t order_bytes() const override { return sizeof(StepParams); }
  void fill_order(int64_t step, double loss_scale, std::byte* order) override {
    const StepParams now = gpu_.order(seed_, step, loss_scale);
    std::memcpy(order, &now, sizeof(now));
  }
  void queue_first(const std::byte* order) override {
    launch_.work.order = reinterpret_cast<const StepParams*>(order);
    gpu_.k_.observe(launch_.shape, launch_.work, gpu_.advance_, stream());
    queue_halves();
  }
  void queue_work(const std::byte* order, float* total) override {
    launch_.work.order = reinterpret_cast<const StepParams*>(order);
    const DqnWork& work = launch_.work;
    gpu_.k_.act(launch_.shape, launch_.places, work, gpu_.resting_ ? nullptr : gpu_.advance_, stream());
    gpu_.k_.draws(launch_.shape, work, stream());
    gpu_.k_.learn(launch_.shape, launch_.places, work, total, nullptr, stream());
  }
  size_t told_bytes() const override { return sizeof(StepOutputs) * static_cast<size_t>(launch_.shape.jobs); }
  TargetUpdate follower() const override { return {targets_, static_cast<float>(gpu_.dqn_.s_.target_rate)}; }
  void queue_applied(const UpdateDecision* plan, std::byte* told) override {
    launch_.work.told = reinterpret_cast<StepOutputs*>(told);
    gpu_.k_.applied(launch_.shape, launch_.places, launch_.work, plan, stream());
  }
  void acted(const std::byte* told, StepContext& context) override {
    const auto* const all = reinterpret_cast<const StepOutputs*>(told);
    Dqn& dqn = gpu_.dqn_;
    context.record->metrics.emplace_back("epsilon", dqn.epsilon(context.step));
    for (int j = 0; j < dqn.agents(); ++j)
      dqn.tell_returns(j, static_cast<double>(all[j].episodes), all[j].returns, context);
  }
  void apply(const std::byte* told, StepContext& context) override {
    const auto* const all = reinterpret_cast<const StepOutputs*>(told);
    Dqn& dqn = gpu_.dqn_;
    double loss = 0;
    for (int j = 0; j < dqn.agents(); ++j) {
      loss += all[j].loss;
      context.record->metrics.emplace_back(dqn.metric(j, "mean_q"), all[j].mean_q);
      if (context.skipped) dqn.agents_[j].errors.fill_(-1);  // again: a roll-back may have put older ones there
    }
    if (context.skipped) queue_halves();  // as it may have put older weights there
    context.record->loss = loss / dqn.agents();
    context.record->samples = static_cast<double>(dqn.s_.batch_size * dqn.agents());
  }

 private:
  void queue_halves() { gpu_.k_.halves(launch_.shape, launch_.places, launch_.work, stream()); }

  DqnOnGpu& gpu_;
  uint64_t seed_;
  DqnOnGpu::Launch launch_;
  float* targets_;  // of all jobs, as their weights lie
};

std::unique_ptr<FusedStep> DqnOnGpu::fused_step(JobState& state) {
  int32_t merges[32];
  if (!merges_of(state.shards(), merges)) return nullptr;
  return std::make_unique<DqnFusedStep>(*this, state);
}

}  // namespace tandem
