// tests/long_phase_program.cc -- a program with a recipe whose phase takes very long at one step, on two shards:
//   shard 0   says that it is alive, from a thread of its own, and goes on until the worker of shard 1 has ended
//   shard 1   says nothing and never ends: somebody must take it out
// That happens once: the file `silent`, where the program was started, has the process of shard 1, and who finds it
// there does the step as any other.
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <thread>

#include "program.h"

namespace tandem {
namespace {

struct LongPhaseSettings : RecipeSettings {
  int64_t long_step = 0;
  LongPhaseSettings() {
    shards = 2;
    batch_size = 2;
    steps = 20;
  }
  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    d.key("long_step", long_step, Range::at_least(0), "the step that takes so long; 0: none");
  }
};

constexpr const char* kSilent = "silent";

// 0: nobody has come to it yet.
pid_t silent_process() {
  pid_t pid = 0;
  std::ifstream(kSilent) >> pid;
  return pid;
}

void never_end() {
  const std::string written = std::string(kSilent) + ".new";
  std::ofstream(written) << getpid() << "\n";
  if (rename(written.c_str(), kSilent) != 0) throw std::runtime_error("the silent shard can't write its file");
  alarm(60);  // so that a test without a watch ends too, and fails
  while (true) pause();
}

void wait_for_the_end_of_the_other(const ShardContext& context) {
  for (pid_t silent = 0; silent == 0 || kill(silent, 0) == 0; silent = silent ? silent : silent_process()) {
    context.alive();
    sched_yield();
  }
}

class LongPhase : public Recipe {
 public:
  explicit LongPhase(const LongPhaseSettings& settings) : settings_(settings) {}
  void build(JobState& state) override {
    net_ = std::make_shared<torch::nn::LinearImpl>(3, 1);
    state.add_model(net_);
  }
  std::vector<Phase> phases() const override { return {{.name = "learn", .gradients = true, .floats = 1}}; }
  void run(const Phase&, ShardContext& context) override {
    if (settings_.long_step > 0 && context.step == settings_.long_step) take_long(context);
    const at::Tensor x = at::full({1, 3}, 1.0 + context.shard);
    const at::Tensor loss = (net_->forward(x) - static_cast<double>(context.step % 3)).pow(2).sum() / 2;
    context.backward(loss);
    context.add(0, loss.detach());
  }
  void apply(const Phase&, const Total& total, StepContext& context) override {
    context.record->loss = total.floats[0];
    context.record->samples = 2;
  }

 private:
  void take_long(const ShardContext& context) {
    if (context.shard == 1 && silent_process() == 0) never_end();
    if (context.shard == 0) std::thread(wait_for_the_end_of_the_other, std::cref(context)).join();
  }

  const LongPhaseSettings& settings_;
  std::shared_ptr<torch::nn::LinearImpl> net_;
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  return program_main(argc, argv, "long_phase",
                      {recipe_entry<LongPhase, LongPhaseSettings>("long-phase", "a phase that takes very long once")});
}
