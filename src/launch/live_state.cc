#include "launch/live_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "telemetry/atomic_file.h"
#include "telemetry/human.h"

namespace tandem {

LiveState::~LiveState() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void LiveState::write(double now, int64_t step, const std::vector<std::string>& phases, int training_phases,
                      const GenerationStart* start, const std::vector<const WorkerHandle*>& workers) {
  const double seconds = now - written_at_;
  written_at_ = now;
  nlohmann::json ranks = nlohmann::json::array();
  std::map<int, Progress> here;
  for (const WorkerHandle* worker : workers) {
    nlohmann::json row = {{"rank", worker->rank()},
                          {"device", worker->device().name()},
                          {"restarts", worker->restarts},
                          {"state", "ended"}};
    if (!worker->device().gpu.uuid.empty()) row["uuid"] = worker->device().gpu.uuid;
    if (worker->pid() > 0) row["pid"] = worker->pid();
    if (worker->running()) {
      const WorkerFacts facts = worker->facts(start ? start->generation : 0);
      row["state"] = facts.stopped ? "stopped" : worker->leaving ? "leaving" : stage_name(facts.stage);
      if (facts.phase >= 0 && static_cast<size_t>(facts.phase) < phases.size()) row["phase"] = phases[facts.phase];
      const Progress p = here[worker->rank()] = worker->progress();
      const auto before = before_.find(worker->rank());
      if (before != before_.end() && p.shards_run >= before->second.shards_run &&
          p.compute_ns > before->second.compute_ns && seconds > 0) {
        const double compute = static_cast<double>(p.compute_ns - before->second.compute_ns) * 1e-9;
        const double shards = static_cast<double>(p.shards_run - before->second.shards_run);
        // A shard is counted once a phase.
        row["shards_per_s"] = shards / compute / std::max(1, training_phases);
        row["busy"] = std::min(1.0, compute / seconds);
      }
    }
    if (start) {
      for (const ShardAssignment& a : start->members)
        if (a.rank == worker->rank()) row["first"] = a.range.first, row["shards"] = a.range.size();
    }
    ranks.push_back(std::move(row));
  }
  before_ = std::move(here);
  const nlohmann::json live = {{"format", 1},  {"time", unix_now()}, {"generation", start ? start->generation : 0},
                               {"step", step}, {"phases", phases},   {"ranks", std::move(ranks)}};
  try {
    write_file_atomically(path_, live.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
                          Durability::kProcessDeath);
  } catch (const IoError&) {
    // A full disk is reported by those who keep something.
  }
}

}  // namespace tandem
