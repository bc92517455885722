#include "telemetry/telemetry.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/printable.h"
#include "telemetry/atomic_file.h"
#include "telemetry/confusion_table.h"
#include "telemetry/event_log.h"
#include "telemetry/human.h"
#include "telemetry/learning_figures.h"
#include "telemetry/metrics_file.h"
#include "telemetry/progress.h"
#include "telemetry/report.h"
#include "telemetry/tfevents.h"
#include "telemetry/training_stats.h"

namespace tandem {
namespace {

constexpr double kFlushSeconds = 1;
// TensorBoard keeps 1,000 points of a tag; a file with every one of a million fast steps would only be slow to load.
constexpr int64_t kEventStepsInFull = 10000;
constexpr double kEventSeconds = 0.05;

bool terminal_is_dumb() {
  const char* term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) == "dumb";
}

void write_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;  // a closed pipe or a terminal that went away: the run goes on unwatched
    text.remove_prefix(static_cast<size_t>(n));
  }
}

TelemetryOptions with_defaults(TelemetryOptions options) {
  if (!options.monotonic_seconds) options.monotonic_seconds = monotonic_seconds;
  if (!options.unix_seconds) options.unix_seconds = unix_now;
  if (!options.terminal) options.terminal = write_stderr;
  if (!options.terminal_width) options.terminal_width = stderr_columns;
  if (options.title.empty()) options.title = options.run_dir.filename().string();
  if (terminal_is_dumb()) options.tty = false;
  options.resumed = options.resumed || options.resume_step > 0;
  return options;
}

bool has_records(const std::filesystem::path& metrics) {
  std::error_code none;
  const auto size = std::filesystem::file_size(metrics, none);
  return !none && size > 0;
}

// "train/loss" and its like, made once per name: building them at each step would cost as much as writing the record.
class Tags {
 public:
  explicit Tags(const std::string& job)
      : job_(job),
        prefix_(job.empty() ? "train/" : "train/" + job + "/"),
        loss(prefix_ + "loss"),
        learning_rate(prefix_ + "lr"),
        grad_norm(prefix_ + "grad_norm"),
        samples_per_s(prefix_ + "samples_per_s") {}
  const std::string& job() const { return job_; }
  const std::string& metric(size_t hint, const std::string& name) {
    if (hint < metrics_.size() && metrics_[hint].first == name) return metrics_[hint].second;
    for (const auto& [known, tag] : metrics_)
      if (known == name) return tag;
    return metrics_.emplace_back(name, prefix_ + name).second;
  }

 private:
  std::string job_, prefix_;
  std::deque<std::pair<std::string, std::string>> metrics_;  // deque: tags are handed out by reference

 public:
  const std::string loss, learning_rate, grad_norm, samples_per_s;
};

// What belongs to one model of the run.
struct Job {
  Tags tags;
  ProgressMeter meter;
  LearningFigures figures;
};

}  // namespace

struct Telemetry::Parts {
  TelemetryOptions options;
  LineFile log;
  ProgressDisplay display;
  // The rest is rank 0's.
  std::optional<LineFile> events;
  std::optional<MetricsWriter> metrics;
  std::optional<TfEventsWriter> tfevents;
  TrainingStats stats;
  std::deque<Job> jobs;
  ProgressState shown;
  std::vector<Scalar> scalars;
  std::set<std::string> failed;  // parts that have been complained about
  double start, last_flush, next_stats, last_event = 0;
  int64_t steps_seen = 0, last_step = 0;
  size_t stats_seen = 0;
  bool finished = false;
  nlohmann::json energy;

  explicit Parts(TelemetryOptions given)
      : options(with_defaults(std::move(given))),
        log((std::filesystem::create_directories(options.run_dir / "logs"),
             options.run_dir / "logs" /
                 (options.log_name.empty() ? fmt::format("rank-{}.log", options.rank) : options.log_name))),
        display({.tty = options.tty, .color = options.color, .out = options.terminal, .width = options.terminal_width},
                options.monotonic_seconds()),
        stats(options.total_steps),
        start(options.monotonic_seconds()),
        last_flush(start),
        next_stats(start),
        last_step(options.resume_step) {
    shown.unicode = locale_is_utf8();
  }

  void open_files() {
    const auto& dir = options.run_dir;
    const double time = options.unix_seconds();
    events.emplace(dir / "events.jsonl");
    // A run of a set is begun by `resume`: what never made a record is new, not resumed.
    if (options.resume_step == 0 && !has_records(dir / "metrics.jsonl")) options.resumed = false;
    if (options.resumed) {
      const int64_t cut = cut_metrics(dir / "metrics.jsonl", options.resume_step);
      read_metrics(dir / "metrics.jsonl", [&](const StepRecord& record) {
        stats.add(record);
        job_of(record).figures.take(record.metrics);
      });
      note("resume", options.resume_step,
           fmt::format("resumed after step {}{}", options.resume_step,
                       cut > 0 ? fmt::format("; {} later records dropped, they are made again", cut) : ""));
    }
    metrics.emplace(dir / "metrics.jsonl");
    tfevents.emplace(dir, time, options.resumed ? options.resume_step + 1 : 0);
    RunSummary running;
    running.step = options.resume_step;
    write_run_status(dir, running);
    update_run_json(dir, {{"total_steps", options.total_steps}, {"unit", options.unit}, {"title", options.title}});
  }

  // Runs one part's work; its first failure is reported, none ends the run.
  template <typename Work>
  void guard(const char* part, Work work) {
    try {
      work();
    } catch (const std::exception& error) {
      if (!failed.insert(part).second) return;
      const auto* known = dynamic_cast<const Error*>(&error);
      complain(fmt::format("{}: {}{}", part, error.what(), known ? " (" + known->why() + ")" : ""));
    }
  }

  void write_log(std::string_view level, std::string_view text) {
    guard("log", [&] { log.add(log_line(options.unix_seconds(), level, text)); });
  }
  void note(std::string_view kind, int64_t step, std::string_view text) {
    write_log(kind == "warning" ? "warn" : "info", text);
    if (!events) return;
    guard("events.jsonl", [&] {
      events->add(event_line({options.unix_seconds(), std::string(kind), step, std::string(text)}));
    });
  }
  void complain(const std::string& text) {
    display.say((options.color && options.tty ? "\x1b[33mwarning:\x1b[0m " : "warning: ") + printable_lines(text));
    note("warning", last_step, text);
  }

  Job& job_of(const StepRecord& record) {
    for (Job& job : jobs)
      if (job.tags.job() == record.job) return job;
    jobs.push_back(
        {Tags(record.job), ProgressMeter(options.resume_step, options.total_steps, options.max_seconds, start), {}});
    return jobs.back();
  }

  void add_event_scalars(Job& job, const StepRecord& record, double time) {
    scalars.clear();
    const auto put = [&](const std::string& tag, double value) {
      if (!std::isnan(value)) scalars.push_back({tag, static_cast<float>(value)});
    };
    put(job.tags.loss, record.loss);
    put(job.tags.learning_rate, record.learning_rate);
    put(job.tags.grad_norm, record.grad_norm);
    if (record.seconds > 0) put(job.tags.samples_per_s, record.samples / record.seconds);
    for (size_t i = 0; i < record.metrics.size(); ++i)
      if (!is_confusion_cell(record.metrics[i].first))
        put(job.tags.metric(i, record.metrics[i].first), record.metrics[i].second);
    tfevents->add(time, record.step, scalars);
    for (const ConfusionTable& table : confusion_tables(record.metrics)) {
      const Picture picture = confusion_picture(table);
      tfevents->add_image(time, record.step, table.set + "/confusion", picture.width, picture.height, picture.png);
    }
  }

  void show(double now) {
    shown.rows.clear();
    for (Job& job : jobs) {
      ProgressRow& row = shown.rows.emplace_back(job.meter.row(now));
      row.title = job.tags.job().empty() ? options.title : job.tags.job();
      row.unit = options.unit;
      row.result = job.figures.text();
    }
    display.show(shown, now);
  }

  void flush_files() {
    last_flush = options.monotonic_seconds();
    if (metrics) guard("metrics.jsonl", [&] { metrics->flush(); });
    if (tfevents) guard("TensorBoard file", [&] { tfevents->flush(); });
  }

  void write_stats() {
    guard("training_stats.json", [&] {
      const double before = options.monotonic_seconds();
      nlohmann::json entries = stats.to_json();
      if (energy.is_object() && !entries.empty()) entries.back()["energy"] = energy;
      write_file_atomically(options.run_dir / "training_stats.json",
                            entries.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
                            Durability::kProcessDeath);
      // A run of very many epochs has a long file: it may take a hundredth of the time, no more.
      const double after = options.monotonic_seconds();
      next_stats = after + std::max(kFlushSeconds, 100 * (after - before));
    });
  }
};

Telemetry::Telemetry(TelemetryOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {
  if (parts_->options.rank == 0) parts_->open_files();
}

Telemetry::~Telemetry() {
  if (parts_->finished) return;
  parts_->display.clear();
  flush();
}

void Telemetry::record(const StepRecord& record) {
  Parts& p = *parts_;
  p.last_step = record.step;
  if (p.options.rank != 0) return;
  const double now = p.options.monotonic_seconds();
  const double time = std::isnan(record.time) ? p.options.unix_seconds() : record.time;
  Job& job = p.job_of(record);
  p.guard("metrics.jsonl", [&] { p.metrics->add(record, time); });
  const bool validated =
      std::ranges::any_of(record.metrics, [](const auto& m) { return is_validation_metric(m.first); });
  if (++p.steps_seen <= kEventStepsInFull || validated || now - p.last_event >= kEventSeconds) {
    p.last_event = now;
    p.guard("TensorBoard file", [&] { p.add_event_scalars(job, record, time); });
  }
  p.stats.add(record);
  job.meter.record(record.step, record.samples, record.loss);
  job.figures.take(record.metrics);
  if (!p.options.quiet && p.display.due(now)) p.show(now);
  if (now - p.last_flush >= kFlushSeconds) p.flush_files();
  if (now >= p.next_stats && p.stats.changed_since(p.stats_seen)) p.write_stats();
}

void Telemetry::say(std::string_view line) {
  if (!parts_->options.quiet && parts_->options.rank == 0) parts_->display.say(printable_lines(line));
  parts_->write_log("info", line);
}

void Telemetry::warn(std::string_view line) { parts_->complain(std::string(line)); }

void Telemetry::event(std::string_view kind, int64_t step, std::string_view text) { parts_->note(kind, step, text); }

void Telemetry::energy(const nlohmann::json& energy) { parts_->energy = energy; }

void Telemetry::checkpoint_saved(int64_t step, double seconds_stalled, uint64_t bytes) {
  flush();
  parts_->note("checkpoint", step,
               fmt::format("checkpoint of step {} saved: {}, steps waited {:.1f} ms", step, bytes_text(bytes),
                           seconds_stalled * 1e3));
}

void Telemetry::flush() {
  parts_->flush_files();
  if (parts_->options.rank == 0) parts_->write_stats();
}

void Telemetry::finish(const RunSummary& summary) {
  Parts& p = *parts_;
  p.display.clear();
  if (p.options.rank != 0) {
    p.write_log("info", fmt::format("{} at step {}", summary.status, summary.step));
    p.finished = true;
    return;
  }
  flush();
  const std::string figures = p.jobs.size() == 1 ? p.jobs.front().figures.text() : "";
  const std::string line = fmt::format(
      "{}  {} at step {} after {}{}{}{}", p.options.title, summary.status, summary.step, duration_text(summary.seconds),
      figures.empty() ? "" : "  " + figures, std::isnan(summary.loss) ? "" : "  loss " + loss_text(summary.loss),
      summary.digest.empty() ? "" : "  digest " + summary.digest.substr(0, 16));
  p.note("finish", summary.step, line);
  p.guard("run.json", [&] { write_run_status(p.options.run_dir, summary); });
  if (p.options.report) p.guard("report.html", [&] { write_report(p.options.run_dir); });
  if (!p.options.quiet) p.display.say(line);
  p.finished = true;
}

}  // namespace tandem
