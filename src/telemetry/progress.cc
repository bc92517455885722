#include "telemetry/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "telemetry/human.h"

namespace tandem {
namespace {

constexpr int kGap = 2;  // between parts
constexpr int kLongestTitle = 28;
constexpr int kSmallestBar = 8, kLargestBar = 40;

// The parts of a row as text, empty where unknown.
struct Parts {
  std::string title, percent, count, step_rate, unit_rate, eta, result, loss, place;
};

Parts parts_of(const ProgressRow& row) {
  Parts parts;
  parts.title = row.title;
  if (std::isfinite(row.fraction))
    parts.percent = fmt::format("{:3.0f}%", std::floor(std::clamp(row.fraction, 0.0, 1.0) * 100));
  parts.count = row.total > 0 ? fmt::format("{}/{}", row.step, row.total) : fmt::format("{} {}", row.counted, row.step);
  if (std::isfinite(row.steps_per_second)) parts.step_rate = short_number(row.steps_per_second) + " steps/s";
  if (std::isfinite(row.units_per_second)) parts.unit_rate = short_number(row.units_per_second) + " " + row.unit + "/s";
  if (std::isfinite(row.eta_seconds)) parts.eta = "ETA " + duration_text(row.eta_seconds);
  if (!std::isnan(row.loss)) parts.loss = "loss " + loss_text(row.loss);
  parts.result = row.result;
  parts.place = row.place;
  return parts;
}

// Columns a part takes in every row, so that parts stand under each other; 0: no row has it or it was left out.
struct Widths {
  int title = 0, percent = 0, bar = 0, count = 0, step_rate = 0, unit_rate = 0, eta = 0, result = 0, loss = 0;
  int place = 0;
  int total() const {
    int sum = 0;
    for (const int w : {title, percent, bar, count, step_rate, unit_rate, eta, result, loss, place})
      sum += w > 0 ? w + kGap : 0;
    return std::max(0, sum - kGap);
  }
};

Widths choose(const std::vector<Parts>& rows, int width) {
  Widths w;
  for (const Parts& p : rows) {
    const auto grow = [](int& column, const std::string& text) { column = std::max(column, display_width(text)); };
    grow(w.title, p.title);
    grow(w.percent, p.percent);
    grow(w.count, p.count);
    grow(w.step_rate, p.step_rate);
    grow(w.unit_rate, p.unit_rate);
    grow(w.eta, p.eta);
    grow(w.result, p.result);
    grow(w.loss, p.loss);
    grow(w.place, p.place);
  }
  w.title = std::min(w.title, kLongestTitle);
  w.bar = w.percent > 0 ? kSmallestBar : 0;
  const int wanted_title = w.title;
  int none = 0;
  int& beside = w.result > 0 ? w.loss : none;  // what users of that recipe look at last
  for (int* part : {&w.unit_rate, &w.count, &w.place, &beside, &w.step_rate, &w.eta, &w.bar, &w.loss, &w.result}) {
    if (w.total() <= width) break;
    // A long title gives way before a part does, down to a length at which jobs can still be distinguished.
    w.title = std::max(std::min(wanted_title, 12), w.title - (w.total() - width));
    if (w.total() > width) *part = 0;
  }
  if (w.total() > width) w.title = std::max(0, w.title - (w.total() - width));
  if (w.bar > 0) w.bar = std::min(kLargestBar, w.bar + std::max(0, width - w.total()));
  return w;
}

std::string bar_of(double fraction, int width, bool unicode, bool color) {
  const double filled = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) * width : 0;
  const int whole = static_cast<int>(filled);
  std::string full, rest;
  if (!unicode) {
    for (int i = 0; i < width; ++i) (i < whole ? full : rest) += i < whole ? '#' : '-';
  } else {
    // A half cell at the front makes the bar move twice as smoothly.
    const bool half = whole < width && filled - whole >= 0.5;
    for (int i = 0; i < whole; ++i) full += "━";
    if (half) full += "╸";
    for (int i = whole + half; i < width; ++i) rest += color ? "━" : "─";
  }
  return color ? fmt::format("\x1b[32m{}\x1b[90m{}\x1b[0m", full, rest) : full + rest;
}

std::string padded(const std::string& text, int width, bool right) {
  const std::string cut = fit(text, width);
  const std::string space(static_cast<size_t>(std::max(0, width - display_width(cut))), ' ');
  return right ? space + cut : cut + space;
}

}  // namespace

std::vector<std::string> render(const ProgressState& state, int width, bool color) {
  width = std::max(width, 1);
  std::vector<Parts> parts;
  const size_t shown = std::min(state.rows.size(), state.most_rows);
  for (size_t i = 0; i < shown; ++i) parts.push_back(parts_of(state.rows[i]));
  const Widths w = choose(parts, width);

  std::vector<std::string> lines;
  for (size_t i = 0; i < shown; ++i) {
    std::string line;
    const auto put = [&](int columns, const std::string& text) {
      if (columns == 0) return;
      if (!line.empty()) line.append(kGap, ' ');
      line += text;
    };
    const auto painted = [&](const char* code, const std::string& text) {
      return color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
    };
    const Parts& p = parts[i];
    put(w.title, painted("1", padded(p.title, w.title, false)));
    put(w.percent, padded(p.percent, w.percent, true));
    if (w.bar > 0) put(w.bar, bar_of(state.rows[i].fraction, w.bar, state.unicode, color));
    put(w.count, padded(p.count, w.count, true));
    put(w.step_rate, padded(p.step_rate, w.step_rate, true));
    put(w.unit_rate, padded(p.unit_rate, w.unit_rate, true));
    put(w.eta, painted("36", padded(p.eta, w.eta, true)));
    put(w.result, painted("33", padded(p.result, w.result, true)));
    put(w.loss, w.result > 0 ? padded(p.loss, w.loss, true) : painted("33", padded(p.loss, w.loss, true)));
    put(w.place, padded(p.place, w.place, false));
    lines.push_back(std::move(line));
  }
  if (shown < state.rows.size()) lines.push_back(fit(fmt::format("and {} more", state.rows.size() - shown), width));
  return lines;
}

std::string progress_line(const ProgressRow& row) {
  const Parts p = parts_of(row);
  std::string line = row.title;
  const auto put = [&](std::string_view text) {
    if (text.empty()) return;
    if (!line.empty()) line += "  ";
    line += text;
  };
  put(std::string_view(p.percent).substr(std::min(p.percent.find_first_not_of(' '), p.percent.size())));
  put(row.total > 0 ? row.counted + " " + p.count : p.count);
  for (const auto* part : {&p.step_rate, &p.unit_rate, &p.eta, &p.result, &p.loss, &p.place}) put(*part);
  return line;
}

ProgressMeter::ProgressMeter(int64_t first_step, int64_t total_steps, double max_seconds, double now)
    : step_(first_step),
      total_steps_(total_steps),
      last_step_(first_step),
      max_seconds_(max_seconds),
      start_(now),
      last_(now) {}

ProgressRow ProgressMeter::row(double now) {
  const double passed = now - last_;
  if (passed >= ProgressDisplay::kRedrawSeconds * 0.999) {
    // Exponential smoothing by time, divided by the weight collected so far: right from the first value on.
    const double keep = std::exp(-passed / 10);
    steps_rate_ = keep * steps_rate_ + (1 - keep) * static_cast<double>(step_ - last_step_) / passed;
    samples_rate_ = keep * samples_rate_ + (1 - keep) * (samples_ - last_samples_) / passed;
    weight_ = keep * weight_ + (1 - keep);
    last_ = now, last_step_ = step_, last_samples_ = samples_;
  }
  ProgressRow row;
  row.step = step_, row.total = total_steps_, row.loss = loss_;
  if (weight_ > 0) row.steps_per_second = steps_rate_ / weight_, row.units_per_second = samples_rate_ / weight_;
  if (total_steps_ > 0) {
    row.fraction = static_cast<double>(step_) / static_cast<double>(total_steps_);
    if (row.steps_per_second > 0)
      row.eta_seconds = static_cast<double>(std::max<int64_t>(0, total_steps_ - step_)) / row.steps_per_second;
  }
  if (max_seconds_ > 0) {  // whichever limit comes first
    const double by_time = std::clamp((now - start_) / max_seconds_, 0.0, 1.0);
    const double left = std::max(0.0, max_seconds_ - (now - start_));
    row.fraction = std::isnan(row.fraction) ? by_time : std::max(row.fraction, by_time);
    row.eta_seconds = std::isnan(row.eta_seconds) ? left : std::min(row.eta_seconds, left);
  }
  return row;
}

void ProgressDisplay::show(const ProgressState& state, double now) {
  last_ = now;
  if (!options_.tty) {
    std::string text;
    for (const ProgressRow& row : state.rows) text += progress_line(row) + "\n";
    options_.out(text);
    return;
  }
  // One column is left free: a character in the last one makes some terminals wrap.
  const auto lines = render(state, options_.width() - 1, options_.color);
  std::string text;
  if (drawn_.size() > 1) text += fmt::format("\x1b[{}A", drawn_.size() - 1);
  text += '\r';
  for (size_t i = 0; i < lines.size(); ++i) text += (i ? "\n" : "") + lines[i] + "\x1b[K";
  if (lines.size() < drawn_.size()) text += "\x1b[J";
  drawn_ = lines;
  options_.out(text);
}

void ProgressDisplay::say(std::string_view line) {
  std::string text;
  if (!drawn_.empty()) {
    if (drawn_.size() > 1) text += fmt::format("\x1b[{}A", drawn_.size() - 1);
    text += "\r\x1b[J";
  }
  text.append(line);
  text += '\n';
  for (size_t i = 0; i < drawn_.size(); ++i) text += (i ? "\n" : "") + drawn_[i] + "\x1b[K";
  options_.out(text);
}

void ProgressDisplay::clear() {
  if (drawn_.empty()) return;
  std::string text = drawn_.size() > 1 ? fmt::format("\x1b[{}A", drawn_.size() - 1) : "";
  options_.out(text + "\r\x1b[J");
  drawn_.clear();
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view text = value;
    return text.find("UTF-8") != text.npos || text.find("utf8") != text.npos || text.find("UTF8") != text.npos;
  }
  return false;
}

int stderr_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int number = columns ? std::atoi(columns) : 0;
  return number > 0 ? std::min(number, 1000) : 80;
}

}  // namespace tandem
