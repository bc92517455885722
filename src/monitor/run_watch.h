// monitor/run_watch.h -- one run as its folder shows it, read bit by bit: run.json and live.json when they change, and
// the new ends of metrics.jsonl and events.jsonl.
//
// How long ago something happened is measured by the monotonic clock from the first sight of it on: a wall clock that
// is set, or another machine's that goes wrong, makes no run stall and hides none that does.
#pragma once

#include <sys/stat.h>

#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "monitor/host_meter.h"
#include "monitor/sample.h"
#include "monitor/tail.h"
#include "telemetry/step_record.h"

namespace tandem {

// A small file that is replaced now and then: read again only when it was.
class ChangingJson {
 public:
  explicit ChangingJson(std::filesystem::path path) : path_(std::move(path)) {}
  const nlohmann::json& read();                 // {} where there is none, or it is damaged
  double modified() const;                      // Unix; 0: no file
  int64_t changes() const { return changes_; }  // how often another file was found there

 private:
  std::filesystem::path path_;
  struct stat stamp_ {};
  int64_t changes_ = 0;
  nlohmann::json value_ = nlohmann::json::object();
};

class RunWatch {
 public:
  // `name`: what it is called where it is not by its own id (an agent of a set of runs).
  explicit RunWatch(const std::filesystem::path& dir, std::string name = "");
  RunReading read(double unix_now, double monotonic, HostMeter& meter);
  double last_sign_of_life() const;  // Unix: the newest change of its files

 private:
  void read_metrics(RunReading& run, double unix_now, double monotonic);
  void read_steps(RunReading& run);
  void read_events(RunReading& run);
  void read_ranks(RunReading& run, double unix_now, double monotonic, HostMeter& meter);

  std::filesystem::path dir_;
  std::string name_;
  ChangingJson run_json_, live_json_;
  Tail metrics_, events_;
  StepRecord record_, last_;
  std::string reason_;
  bool any_ = false;
  double stepped_at_ = 0;  // monotonic: when the newest step was made
  double begun_at_ = 0;    // monotonic: when run.json last changed
  double live_at_ = 0;     // monotonic: when live.json last changed
  int64_t run_changes_ = 0, live_changes_ = 0;
  double mean_samples_ = 0;  // of a step
  std::map<std::string, double> job_losses_;
  LearningFigures figures_;
  std::string shown_name_;  // run_name(), read again when run.json changes
  int64_t name_changes_ = -1;
  struct Point {
    double time = 0;
    int64_t step = 0;
  };
  std::deque<Point> pace_;  // of the last seconds
  std::string event_kind_, event_text_, warning_;
  double event_time_ = 0;
};

}  // namespace tandem
