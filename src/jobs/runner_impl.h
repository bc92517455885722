// jobs/runner_impl.h -- the class behind run_set(): the loop over a set's jobs. Included by its own .cc files only.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "config/devices.h"
#include "jobs/live_job.h"
#include "jobs/runner.h"
#include "jobs/set_display.h"
#include "launch/signal_queue.h"

namespace tandem {

class SetRunner {
 public:
  explicit SetRunner(SetRequest request);
  SetOutcome run();

 private:
  double now() const { return monotonic_seconds() - begin_; }
  std::vector<PlannedJob> planned() const;
  void plan();
  void make_ready();
  void drop_what_is_ready_elsewhere();
  void open_process(int j, const std::vector<int>& devices, bool wait);
  bool has_room_beside(const LiveJob& live) const;
  void start(int j, const std::vector<int>& devices);
  void join(int j, const std::vector<int>& devices);
  void release(int j);
  void note_device(int j, int device);
  void look();
  void look_at(int j);
  bool look_for_joiners(int j);
  void send_away(int j, double steps_per_second);
  void leave(int j, const std::vector<int>& devices, const std::string& why);
  void reap(int j);
  void handle(int signal);
  void stop(int code, const std::string& why);
  void draw(bool last);
  double seconds_left() const;
  void add_forecast();
  bool any_running() const;
  bool only_saves(size_t j) const;
  double speed_now(int j) const;
  std::string device_names(const std::vector<int>& devices) const;
  std::vector<DeviceSpec> specs(const std::vector<int>& devices) const;

  SetRequest request_;
  SignalQueue signals_;
  std::vector<JobStatus> status_;
  std::vector<LiveJob> live_;
  SetOutcome outcome_;
  SetDisplay display_;
  double begin_ = monotonic_seconds(), looked_ = -1, planned_ = -1, noted_ = 0;
  int interrupts_ = 0, stop_code_ = 0;
  bool forecast_made_ = false;
};

}  // namespace tandem
