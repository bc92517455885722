// telemetry/telemetry_bench.cc -- what one record costs the train loop: all files and the progress display together.
//
// Prints the mean and the worst of batches in microseconds; run by hand or by `make bench`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/temp_dir.h"
#include "telemetry/metrics_file.h"
#include "telemetry/report.h"
#include "telemetry/telemetry.h"

int main(int argc, char** argv) {
  using namespace tandem;
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 200000;
  const TempDir dir;
  TelemetryOptions options;
  options.run_dir = dir.path();
  options.total_steps = steps;
  options.tty = true;
  options.terminal = [](std::string_view) {};
  options.report = false;
  Telemetry telemetry(options);
  StepRecord record;
  record.metrics = {{"accuracy", 0.0}, {"entropy", 0.0}, {"reward", 0.0}};
  record.phase_seconds = {{"act", 0.00123}, {"learn", 0.00876}, {"combine", 0.000213}};
  constexpr int64_t kBatch = 1000;
  std::vector<double> batches;
  for (int64_t s = 1; s <= steps;) {
    const double start = monotonic_seconds();
    for (int64_t i = 0; i < kBatch; ++i, ++s) {
      const double x = 1.0 / static_cast<double>(s);
      record.step = s, record.loss = 0.123456789 + x, record.seconds = 0.0102 + x * 1e-3, record.samples = 96;
      record.learning_rate = 1e-3 * (1 - x), record.grad_norm = 1.5 + x;
      for (auto& [name, value] : record.metrics) value += x;
      telemetry.record(record);
    }
    batches.push_back((monotonic_seconds() - start) / kBatch * 1e6);
  }
  std::sort(batches.begin(), batches.end());
  telemetry.finish(RunSummary{});
  const auto bytes = std::filesystem::file_size(dir / "metrics.jsonl");
  fmt::print("record: median {:.2f} us, worst batch {:.2f} us, {:.0f} bytes a line ({} records, 3 metrics, 3 phases)\n",
             batches[batches.size() / 2], batches.back(), static_cast<double>(bytes) / static_cast<double>(steps),
             steps);
  double start = monotonic_seconds();
  const auto read = read_metrics(dir / "metrics.jsonl", [](const StepRecord&) {});
  double took = monotonic_seconds() - start;
  fmt::print("read: {:.2f} us a record, {:.0f} MB/s\n", took / static_cast<double>(read.records) * 1e6,
             static_cast<double>(bytes) / took / 1e6);
  start = monotonic_seconds();
  const size_t page = make_report(dir.path()).size();
  fmt::print("report: {:.2f} s, {} bytes\n", monotonic_seconds() - start, page);
}
