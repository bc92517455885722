#include "launch/worker_handle.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cores.h"
#include "hardware/machine.h"

namespace tandem {

int cores_of_worker(int workers, int ranks) {
  const CpuFacts cpu = machine_facts().cpu;
  return CoreShare{.usable = usable_cores(),
                   .online = cpu.logical,
                   .quota = cpu.quota,
                   .workers = workers,
                   .gpus = gpus_in_place(),
                   .ranks = ranks}
      .cores();
}

std::string WorkerHandle::name() const { return fmt::format("rank {} ({})", rank_, device_.name()); }

std::string position_text(const WorkerState& state, const std::vector<std::string>& phases) {
  if (state.stage == Stage::kStarting) return "its start";
  const bool in_phase =
      state.stage == Stage::kComputing || state.stage == Stage::kCombining || state.stage == Stage::kApplying;
  if (!in_phase || state.phase < 0 || state.phase >= static_cast<int>(phases.size()))
    return fmt::format("{} after step {}", stage_name(state.stage), state.step);
  const std::string at =
      state.stage == Stage::kComputing ? fmt::format("computing shard {}", state.shard) : stage_name(state.stage);
  return fmt::format("phase '{}' of step {} ({})", phases[state.phase], state.step + 1, at);
}

int phase_number(const std::string& name, const std::vector<std::string>& phases, int training) {
  if (const auto found = std::ranges::find(phases, name); found != phases.end())
    return static_cast<int>(found - phases.begin());
  return name == "validate" ? training : training - 1;
}

void WorkerHandle::use_own_words(Death& death) const {
  if (failed_kind.empty()) return;
  death.cause = fmt::format("{}: {}", failed_kind, failed_why);
  death.out_of_memory = failed_kind == "out of memory";
}

}  // namespace tandem
