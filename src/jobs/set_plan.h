// jobs/set_plan.h -- which agents of a set share a run and which GPU trains which run, by forecast. Pure: no process,
// no clock.
//
// Agents with equal settings may share a run, in which they share launches: on a GPU a batch of six takes far less than
// six times the step of one. Against that, every GPU works for itself, and each run has a start and a save of its own.
// So the ways of grouping the agents, of giving the runs to GPUs (equal or not) and of leaving GPUs out are forecast by
// one model, and the one that ends first is taken. `train`, `train --dry-run` and `plan` all ask here.
//
// A run of several GPUs is planned on equal ones only, as the first of each: between equal ones its bits are the same
// on any number of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

// Of one step of one agent on one GPU, in seconds.
struct RunCost {
  double fixed = 0;    // launches and latency: once a step, for any number of agents
  double divided = 0;  // arithmetic and memory of the first agent: divided among GPUs that share a run
  double more = 0;     // of each further agent in the run; divided too
  double alone() const { return fixed + divided; }
  RunCost scaled(double factor) const { return {fixed * factor, divided * factor, more * factor}; }
  bool operator==(const RunCost&) const = default;
};

// An agent that is still to begin, or a run that is there already, with all its agents.
struct SetUnit {
  std::string name;
  int alike = -1;  // units of one number may share a run; -1: it keeps a run of its own
  int agents = 1;
  double steps = 0;            // still to make
  int shards = 1;              // no more GPUs than this can work on it
  int pin = -1;                // the only device that it may begin on
  std::vector<RunCost> costs;  // by device
  double save_seconds = 0;     // of each agent, at the end: its GPU is taken until then
  double memory_bytes = 0;     // of each agent: what lies on its GPU from the first step on
  double combine_floats = 0;   // of each agent: what GPUs that share a run add up in a step
};

struct SetDevice {
  std::string name;          // "cuda:1", "RTX 3070"
  int model = 0;             // equal GPUs have equal numbers
  double memory_bytes = 0;   // that a run may take, without what the program itself needs; 0: not known
  double start_seconds = 0;  // from a run's start to its first step
  double sum_seconds = 0;    // of a sum over two GPUs, without its bytes
  double float_seconds = 0;  // of each number that is summed
};

inline constexpr double kMemoryMargin = 1.25;  // for agents that share a run: activations, what the allocator keeps

struct SetQuestion {
  enum class Together { kFree, kOn, kOff };  // kOn: a GPU's agents that are alike are in one run; kOff: none share one
  std::vector<SetUnit> units;
  std::vector<SetDevice> devices;
  Together together = Together::kFree;
  size_t most_devices = 0;    // 0: all may be used
  double seconds_beside = 0;  // of the set, on no GPU: what comes after the last run
};

struct PlannedRun {
  std::vector<int> units;
  std::vector<int> devices;  // the first is where it begins
  int agents = 0;
  double begin = 0, end = 0;  // seconds from the set's start
  double step_seconds = 0;
};

struct SetPlan {
  std::vector<PlannedRun> runs;
  double seconds = 0;                // until all is done
  std::vector<int> devices() const;  // that have anything to do, ascending
};

struct SetChoice {
  SetPlan best;
  std::optional<SetPlan> runner_up;  // the best that differs in sizes of runs or in GPU models; none: there is no other
  bool exact = true;         // no way ends sooner; false: there were too many, and it is the best that was found
  double least_seconds = 0;  // no way can end before: how far the best may be off where it is not exact
  double gap() const { return least_seconds > 0 ? best.seconds / least_seconds - 1 : 0; }
};

// The model, of one step and of a whole run: of units that are alike, or of so many agents of one unit. The slowest
// agent takes what it takes alone, and each other one adds its `more`.
double step_seconds(const SetQuestion& question, const std::vector<int>& units, const std::vector<int>& devices);
double run_seconds(const SetQuestion& question, const std::vector<int>& units, const std::vector<int>& devices);
double step_seconds(const SetQuestion& question, const SetUnit& unit, int agents, const std::vector<int>& devices);
double run_seconds(const SetQuestion& question, const SetUnit& unit, int agents, const std::vector<int>& devices);

// Whether so many agents like these fit on a device; several need kMemoryMargin, what can't be made smaller does not.
bool fits(const SetQuestion& question, const SetUnit& unit, int agents, int device);
// The first unit that fits on no device that it may begin on, or -1: then there is no plan.
int fits_nowhere(const SetQuestion& question);

// Branch and bound, up to a fixed number of nodes: one question has one answer, on any machine and under any load.
// Within it the plan is exact; beyond it the choice says so, and `least_seconds` how far it may be off. Needs a device.
// Without any runs: units fit nowhere, or are pinned to more devices than may be used.
SetChoice choose_set_plan(const SetQuestion& question);

// "2 agents on cuda:0, 2 on cuda:1, 1 + 1 on cuda:2": by GPU; 1 + 1 are two runs one after the other. Where names say
// the model alone: "2 agents on RTX 3060 Ti, 2 on each of 2 x RTX 3070". "1 on cuda:0 with cuda:1": a run of two GPUs.
std::string words_of(const SetQuestion& question, const SetPlan& plan);

}  // namespace tandem
