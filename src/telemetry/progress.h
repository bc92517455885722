// telemetry/progress.h -- how a run shows that it moves: rows redrawn in place on a terminal, a line now and then
// elsewhere.
//
// What is shown (ProgressState), how it looks (render, progress_line: pure functions) and when it is written
// (ProgressDisplay) are apart, so looks are tested at every width and timing with a clock of the test's own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/step_record.h"

namespace tandem {

struct ProgressRow {
  std::string title;
  int64_t step = 0, total = 0;  // total 0: unknown
  double fraction = kAbsent;    // 0..1; absent: unknown
  double steps_per_second = kAbsent;
  double units_per_second = kAbsent;
  std::string unit = "samples";
  std::string counted = "step";  // what `step` and `total` count, in a line of text
  double eta_seconds = kAbsent;
  double loss = kAbsent;
  std::string result = {};  // before the loss: "return 187.4  score 0.73"
  std::string place = {};   // the devices at work on it
};

struct ProgressState {
  std::vector<ProgressRow> rows;  // one per job
  bool unicode = true;
  size_t most_rows = 12;  // more are counted in one last line
};

// One line per row, none wider than `width` columns (escape codes of colour not counted). Titles share one column. As
// the terminal narrows, parts go in this order: unit rate, step count, place, loss beside a result, step rate, ETA,
// bar; percentage and result (loss where there is none) stay longest.
std::vector<std::string> render(const ProgressState& state, int width, bool color);
// A row as plain text, for files and pipes.
std::string progress_line(const ProgressRow& row);

// Speed of one job, smoothed over about ten seconds, and what follows from it.
class ProgressMeter {
 public:
  ProgressMeter(int64_t first_step, int64_t total_steps, double max_seconds, double now);
  void record(int64_t step, double samples, double loss) { step_ = step, samples_ += samples, loss_ = loss; }
  ProgressRow row(double now);  // at most every tenth of a second brings a new speed

 private:
  int64_t step_, total_steps_, last_step_;
  double max_seconds_, start_, last_, samples_ = 0, last_samples_ = 0, loss_ = kAbsent;
  double weight_ = 0, steps_rate_ = 0, samples_rate_ = 0;
};

struct ProgressDisplayOptions {
  bool tty = false, color = false;
  std::function<void(std::string_view)> out;
  std::function<int()> width;
};

class ProgressDisplay {
 public:
  static constexpr double kRedrawSeconds = 0.1;
  static constexpr double kLineSeconds = 5;
  ProgressDisplay(ProgressDisplayOptions options, double now) : options_(std::move(options)), last_(now) {}

  bool due(double now) const { return now - last_ >= (options_.tty ? kRedrawSeconds : kLineSeconds); }
  void show(const ProgressState& state, double now);  // whoever calls asks due() first
  void say(std::string_view line);                    // above the rows
  void clear();                                       // takes the rows away

 private:
  ProgressDisplayOptions options_;
  double last_;
  std::vector<std::string> drawn_;
};

// What LC_ALL, LC_CTYPE or LANG says of the terminal: may a ProgressState be unicode?
bool locale_is_utf8();

// Columns of the terminal on stderr: its own answer, else COLUMNS, else 80.
int stderr_columns();

}  // namespace tandem
