// telemetry/telemetry.h -- everything a run reports while it goes on: one object per worker process.
//
// Rank 0 writes metrics.jsonl, the TensorBoard file, events.jsonl, training_stats.json, run.json, the progress display
// (on stderr; nothing here ever writes to stdout) and, at the end, report.html. Every rank writes logs/rank-N.log.
// record() costs about a microsecond (bench in telemetry_bench.cc). Telemetry is never worth a run: after the
// constructor nothing throws for a full disk or a lost file; the first failure is shown once as a warning and the part
// that failed stays silent. Not thread-safe: one thread, the train loop's, calls it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "telemetry/run_summary.h"
#include "telemetry/step_record.h"

namespace tandem {

struct TelemetryOptions {
  std::filesystem::path run_dir;  // exists; logs/ is made if absent
  int rank = 0;
  std::string log_name;  // in logs/; empty: rank-N.log
  bool json = false;     // the caller prints one object on stdout at the end; talk stays on stderr
  bool quiet = false;    // no progress and no talk, warnings only
  bool color = true;
  bool tty = false;  // stderr is a terminal: a bar redrawn in place; otherwise a line every 5 seconds
  std::string title;
  int64_t total_steps = 0;  // 0: unknown
  double max_seconds = 0;   // 0: no limit
  int64_t resume_step = 0;  // > 0: records past this step are cut away; the run goes on at resume_step + 1
  std::string unit = "samples";
  bool report = true;    // finish() writes report.html
  bool resumed = false;  // a resume at step 0 is one too

  // Seams for tests; empty means the real thing.
  std::function<double()> monotonic_seconds;
  std::function<double()> unix_seconds;
  std::function<void(std::string_view)> terminal;  // stderr
  std::function<int()> terminal_width;             // asked before each redraw
};

class Telemetry {
 public:
  // Throws IoError if the run folder can't be written.
  explicit Telemetry(TelemetryOptions options);
  ~Telemetry();  // flushes; a run whose finish() was never called keeps status "running" and reads as "died"

  void record(const StepRecord& record);
  void say(std::string_view line);   // above the bar, and into the log
  void warn(std::string_view line);  // the same, marked, and kept for the report's timeline
  // Into the log and the timeline only; kinds shown in the report: warning, checkpoint, resume, skip, plan, fault.
  void event(std::string_view kind, int64_t step, std::string_view text);
  void checkpoint_saved(int64_t step, double seconds_stalled, uint64_t bytes);
  // What the run has used so far, as in energy.json: into the last entry of training_stats.json.
  void energy(const nlohmann::json& energy);
  // Makes what was recorded durable against a death of this process. Called by checkpoint_saved and finish.
  void flush();
  // Flushes, writes run.json and report.html, takes the bar away and prints the last line.
  void finish(const RunSummary& summary);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
