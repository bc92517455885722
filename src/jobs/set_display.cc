#include "jobs/set_display.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/clock.h"
#include "base/printable.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

void write_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;  // nobody watches any more: the set goes on
    text.remove_prefix(static_cast<size_t>(n));
  }
}

bool terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && !(term && std::string_view(term) == "dumb");
}

std::string digits_or_dash(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

std::string score_words(const JobStatus& status) {
  if (std::isfinite(status.score)) return fmt::format("score {:.2f}", status.score);
  double least = kAbsent, most = kAbsent;
  for (const auto& [agent, figures] : status.of) {
    least = std::isfinite(least) ? std::min(least, figures.score) : figures.score;
    most = std::isfinite(most) ? std::max(most, figures.score) : figures.score;
  }
  return std::isfinite(least) ? fmt::format("scores {:.2f} to {:.2f}", least, most) : "";
}

}  // namespace

SetDisplay::SetDisplay(Options options)
    : options_(std::move(options)),
      tty_(terminal()),
      display_({.tty = tty_, .color = options_.color, .out = write_stderr, .width = stderr_columns},
               monotonic_seconds()) {}

void SetDisplay::say(std::string_view line) {
  if (!options_.quiet) display_.say(printable_lines(line));
}

void SetDisplay::warn(std::string_view line) {
  const std::string text = printable_lines(line);
  display_.say(options_.color ? fmt::format("\x1b[33mwarning:\x1b[0m {}", text) : fmt::format("warning: {}", text));
}

void SetDisplay::draw(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status,
                      const std::vector<std::string>& places, const std::vector<double>& left, bool last) {
  if (options_.quiet) return;
  if (last) return display_.clear();
  const double now = monotonic_seconds();
  while (meters_.size() < jobs.size()) {
    const JobStatus& one = status[meters_.size()];
    meters_.emplace_back(one.step, jobs[meters_.size()].steps, 0, now);
    seen_.push_back(one.step);
    moving_.push_back(false);
  }
  for (size_t j = 0; j < jobs.size(); ++j) {
    // Its speed counts from its first step of this start on, and anew where it was resumed.
    const bool moves = status[j].state == JobStatus::State::kRunning && status[j].step != seen_[j];
    if (status[j].step < seen_[j] || (!moving_[j] && !moves))
      meters_[j] = ProgressMeter(status[j].step, jobs[j].steps, 0, now);
    moving_[j] = (moving_[j] && status[j].state == JobStatus::State::kRunning && status[j].step >= seen_[j]) || moves;
    meters_[j].record(seen_[j] = status[j].step, 0, kAbsent);
  }
  if (!display_.due(now)) return;
  ProgressState state;
  state.unicode = locale_is_utf8();
  state.most_rows = 18;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const JobStatus& one = status[j];
    const bool running = one.state == JobStatus::State::kRunning;
    if (!running && !tty_) continue;  // a log needs no line about what does not move
    ProgressRow row = meters_[j].row(now);
    row.title = jobs[j].name;
    row.units_per_second = kAbsent;
    row.eta_seconds = left[j];
    if (!running || row.steps_per_second <= 0) row.steps_per_second = kAbsent;
    row.result = score_words(one);
    row.place = running ? places[j] : name_of(one.state);
    state.rows.push_back(std::move(row));
  }
  display_.show(state, now);
}

std::string duration_words(double seconds) {
  if (!std::isfinite(seconds)) return "never";
  if (seconds < 119.5) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 20 * 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  const auto minutes = static_cast<int64_t>(seconds / 60 + 0.5);
  if (minutes < 100) return fmt::format("{} min", minutes);
  return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

std::string done_line(const SetJob& job, const JobStatus& status) {
  std::string line = fmt::format("{} is done: {} steps in {}", job.name, status.step, duration_words(status.seconds));
  if (const std::string words = score_words(status); !words.empty()) line += fmt::format(", {} in training", words);
  return line;
}

std::string set_table(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status) {
  size_t width = 5;
  for (const SetJob& job : jobs) width = std::max(width, job.name.size());
  std::string text = fmt::format("{:<{}}  {:>7}  {:>8}  {:>8}  {:>6}  {:>6}  {:<8}  {}\n", "agent", width, "steps",
                                 "time", "return", "score", "rule", "digest", "devices");
  for (size_t j = 0; j < jobs.size(); ++j) {
    const JobStatus& one = status[j];
    const bool done = one.state == JobStatus::State::kDone;
    text += fmt::format("{:<{}}  {:>7}  {:>8}  {:>8}  {:>6}  {:>6}  {:<8}  {}{}\n", jobs[j].name, width, one.step,
                        duration_text(one.seconds), digits_or_dash(one.average_return, 1), digits_or_dash(one.score, 2),
                        digits_or_dash(jobs[j].rule_score, 2), one.digest.substr(0, 8), fmt::join(one.devices, " "),
                        done ? "" : fmt::format("{}{}", one.devices.empty() ? "" : "  ", name_of(one.state)));
  }
  return text;
}

}  // namespace tandem
