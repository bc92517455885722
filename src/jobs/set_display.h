// jobs/set_display.h -- what a set shows on the terminal: a row per job while they run, a table at the end.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/job.h"
#include "telemetry/progress.h"

namespace tandem {

class SetDisplay {
 public:
  struct Options {
    bool quiet = false, color = true;
    std::string title;
  };
  explicit SetDisplay(Options options);

  void say(std::string_view line);   // above the rows, unless quiet
  void warn(std::string_view line);  // always
  // `places`: the devices at work on each job; `left`: seconds, or absent. The last one takes the rows away.
  void draw(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status,
            const std::vector<std::string>& places, const std::vector<double>& left, bool last);

 private:
  Options options_;
  bool tty_;
  ProgressDisplay display_;
  std::vector<ProgressMeter> meters_;
  std::vector<int64_t> seen_;
  std::vector<bool> moving_;
};

std::string duration_words(double seconds);  // "48 s", "3 min 56 s", "40 min", "3 h 05 min"

// "analysis is done: 4000 steps in 15 s, score 0.73 (rule of thumb 0.62)"
std::string done_line(const SetJob& job, const JobStatus& status);

// One line per job: steps, time, average return, score, the rule of thumb's, digest's start, devices.
std::string set_table(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status);

}  // namespace tandem
