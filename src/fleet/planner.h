// fleet/planner.h -- which shards go to whom: by speed, counting what whole shards, partial sums and moving cost.
//
// A step takes as long as its slowest worker: shards / speed, plus the combine, whose bytes grow with the number of
// partial sums p that a range consists of ((p+1)/2 of a ring's). A contiguous range whose ends lie on the tree's nodes
// has fewer partials, so the planner may prefer 8 8 8 to 9 8 7 even if speeds say otherwise by a little.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fleet/generation.h"

namespace tandem {

struct PlannerOptions {
  double combine_seconds = 0;    // of one combine with one partial per worker; 0: not known yet
  double min_gain = 0.03;        // a plan must be this much faster per step to be worth a move
  double pay_back_seconds = 30;  // ... and win back the cost of moving within this time
};

struct PlanCost {
  double step_seconds = 0;  // predicted: the slowest worker, plus the combine
  double efficiency = 1;    // share of the summed speed that whole shards and partials leave
  int most_partials = 1;
};

// Ranks in ascending order get ascending ranges; every rank gets at least one shard (if there are more ranks than
// shards the slowest ones are left out: they wait as spares). Deterministic.
std::vector<ShardAssignment> make_plan(int shards, const std::map<int, double>& speeds, const PlannerOptions& options);
// The same, and among equally good plans one that moves few shards away from whom has them now.
std::vector<ShardAssignment> make_plan(int shards, const std::map<int, double>& speeds, const PlannerOptions& options,
                                       const std::vector<ShardAssignment>& now);
PlanCost cost_of(int shards, const std::vector<ShardAssignment>& plan, const std::map<int, double>& speeds,
                 const PlannerOptions& options);
// Is it worth moving from one to the other? step_seconds: measured time of a step now.
bool worth_moving(int shards, const std::vector<ShardAssignment>& now, const std::vector<ShardAssignment>& next,
                  const std::map<int, double>& speeds, double step_seconds, double move_seconds,
                  const PlannerOptions& options);
// "24 shards on 3 workers: 8 8 8" with the loss by whole shards when it is 0.5 % or more.
std::string plan_text(int shards, const std::vector<ShardAssignment>& plan, const std::map<int, double>& speeds,
                      const PlannerOptions& options);

}  // namespace tandem
