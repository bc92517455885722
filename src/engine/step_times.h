// engine/step_times.h -- where the time of a worker's steps goes, written to its page.
//
// Costs some clock readings a step. The launcher reads the page whenever it likes (explain/rank_times.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fleet/worker_page.h"

namespace tandem {

class OperationCount;
class SlowWorker;
class TrainLoop;

class StepTimes {
 public:
  StepTimes();
  ~StepTimes();
  void page(WorkerPage& page) { page_ = &page; }

  void step_begins(TrainLoop& loop, bool on_gpu);  // one step, without validation and snapshot
  void step_ends(TrainLoop& loop);

  void shard_begins(const TrainLoop& loop);
  void shard_ends(const TrainLoop& loop);
  void rest(SlowWorker& slow, const TrainLoop& loop);     // a slower worker's part of its work
  void combined_inside(TrainLoop& loop, double seconds);  // of the shard's time
  void combine_begins(TrainLoop& loop);
  void combine_ends(TrainLoop& loop);
  void applied();
  std::string text() const;  // all of it, for the worker's log

 private:
  void look_for_delay(double now);

  WorkerPage* page_ = nullptr;
  double step_began_ = 0, load_at_step_ = 0, gpu_at_step_ = 0, made_at_step_ = 0, asleep_at_step_ = 0;
  double shard_began_ = 0, load_at_shard_ = 0;
  double combine_began_ = 0, late_at_combine_ = 0, combine_ended_ = 0;
  double load_at_rest_ = 0, delay_at_look_ = -1, looked_ = 0;
  bool slowed_ = false;
  uint64_t steps_ = 0;
  std::unique_ptr<OperationCount> count_;
};

}  // namespace tandem
