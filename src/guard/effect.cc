#include "guard/effect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr double kKeptSeconds = 120;

std::string change(double before, double after) {
  const double share = before > 0 ? after / before - 1 : 0;
  return fmt::format("{:.1f} % {}", std::abs(share) * 100, share <= 0 ? "less" : "more");
}

}  // namespace

std::optional<double> Effect::lost_share() const {
  if (!before_rate || !after_rate || !(*before_rate > 0)) return std::nullopt;
  return 1 - *after_rate / *before_rate;
}

std::string Effect::text(const std::string& unit) const {
  std::string text = fmt::format("GPU {}: limit {:.0f} -> {:.0f} W: power {:.0f} -> {:.0f} W ({})", gpu, from_w, to_w,
                                 before_w, after_w, change(before_w, after_w));
  if (before_rate && after_rate)
    text += fmt::format(", speed {:.4g} -> {:.4g} {}/s ({})", *before_rate, *after_rate, unit,
                        change(*before_rate, *after_rate));
  else
    text += ", no run on it to measure the speed of";
  return text;
}

void EffectMeter::add(double time, double real_time, const std::map<int, double>& power_w,
                      std::optional<double> progress) {
  if (!points_.empty() && progress && points_.back().progress && *progress > *points_.back().progress)
    for (const auto& [gpu, joules] : step_joules_)
      if (const auto now = power_w.find(gpu); now != power_w.end())
        saved_joules_ +=
            joules * (*progress - *points_.back().progress) - now->second * (real_time - points_.back().real_time);
  for (Mark& mark : marks_)  // held, or going on: what it draws now says nothing about the limit
    if (mark.going != progress.has_value()) mark.until = std::min(mark.until, time - 1e-6);
  points_.push_back({time, real_time, power_w, progress});
  while (points_.size() > 2 && points_.front().time < time - kKeptSeconds) points_.pop_front();
}

void EffectMeter::changed(double time, int gpu, double from_w, double to_w) {
  for (Mark& mark : marks_)
    if (mark.effect.gpu == gpu) mark.until = std::min(mark.until, time - 1e-6);
  const auto last = changed_at_.find(gpu);
  const double from = std::max(time - kWindowSeconds, last == changed_at_.end() ? -1e9 : last->second + kSettleSeconds);
  changed_at_[gpu] = time;
  const auto before = mean_power(gpu, from, time);
  const bool going = !points_.empty() && points_.back().progress;
  const auto speed = going ? rate(from, time) : std::nullopt;  // while held it draws what no step took
  if (to_w >= from_w)
    step_joules_.erase(gpu);  // on its way back: what it would draw now is not known
  else if (before && speed && *speed > 0)
    step_joules_.try_emplace(gpu, *before / *speed);
  if (!before) return;
  marks_.push_back({time,
                    1e300,
                    going,
                    {.gpu = gpu,
                     .from_w = from_w,
                     .to_w = to_w,
                     .before_w = *before,
                     .before_rate = speed,
                     .after_rate = std::nullopt}});
}

std::vector<Effect> EffectMeter::finished() {
  std::vector<Effect> out;
  for (auto mark = marks_.begin(); mark != marks_.end();) {
    const double from = mark->time + kSettleSeconds, to = std::min(from + kWindowSeconds, mark->until);
    if (to - from < kLeastSeconds) {  // the next change came before anything could be seen
      mark = marks_.erase(mark);
      continue;
    }
    if (points_.empty() || points_.back().time < to) {
      ++mark;
      continue;
    }
    if (const auto after = mean_power(mark->effect.gpu, from, to)) {
      mark->effect.after_w = *after;
      mark->effect.after_rate = rate(from, to);
      out.push_back(mark->effect);
    }
    mark = marks_.erase(mark);
  }
  return out;
}

std::optional<double> EffectMeter::mean_power(int gpu, double from, double to) const {
  double sum = 0;
  int count = 0;
  for (const Point& point : points_)
    if (const auto found = point.power_w.find(gpu);
        point.time >= from && point.time <= to && found != point.power_w.end())
      sum += found->second, ++count;
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::optional<double> EffectMeter::rate(double from, double to) const {
  const Point *first = nullptr, *last = nullptr;
  for (const Point& point : points_) {
    if (point.time < from || point.time > to || !point.progress) continue;
    if (!first) first = &point;
    last = &point;
  }
  if (!first || last->real_time <= first->real_time || *last->progress < *first->progress) return std::nullopt;
  return (*last->progress - *first->progress) / (last->real_time - first->real_time);
}

}  // namespace tandem
