// launch/live_state.h -- live.json of a run's folder: how its workers are right now, for those who watch (`tandem
// monitor`).
//
// Replaced once a second while the run goes on, taken away at its end. It is a view, never state: nobody resumes from
// it, and a folder that can't be written costs the run nothing.
//   {"format":1,"time":1794769849.1,"generation":2,"step":84,"phases":["learn"],
//    "ranks":[{"rank":0,"device":"cuda:0","uuid":"GPU-...","pid":4711,"state":"computing","phase":"learn","first":0,
//              "shards":12,"shards_per_s":803.2,"busy":0.91,"restarts":0}]}
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fleet/generation.h"
#include "launch/worker_handle.h"

namespace tandem {

class LiveState {
 public:
  explicit LiveState(std::filesystem::path run_dir) : path_(std::move(run_dir) / "live.json") {}
  ~LiveState();
  LiveState(const LiveState&) = delete;
  LiveState& operator=(const LiveState&) = delete;

  bool due(double now) const { return now - written_at_ >= kSeconds; }
  // `start`: of this generation; null before the first one. The first `training_phases` are those of a step.
  void write(double now, int64_t step, const std::vector<std::string>& phases, int training_phases,
             const GenerationStart* start, const std::vector<const WorkerHandle*>& workers);

 private:
  static constexpr double kSeconds = 1;
  std::filesystem::path path_;
  double written_at_ = -kSeconds;
  std::map<int, Progress> before_;
};

}  // namespace tandem
