#include "explain/live.h"

#include <algorithm>
#include <cstdlib>

#include "explain/read_run.h"

namespace tandem {
namespace {

constexpr double kEverySeconds = 2, kWindowSeconds = 10, kShortestSeconds = 5;
constexpr int kTimes = 3;
constexpr size_t kTailBytes = 64 << 10;

bool is_reported(const SlowDown& finding, const Evidence& evidence) {
  if (finding.cause == Cause::kThrottling || finding.cause == Cause::kJitter) return false;
  return finding.cause != Cause::kLaunches ||
         std::any_of(evidence.ranks.begin(), evidence.ranks.end(), [](const RankRow& row) { return row.on_gpu; });
}

}  // namespace

double explain_speed() {
  const char* text = std::getenv("TANDEM_EXPLAIN_SPEED");
  return text && std::atof(text) > 0 ? std::atof(text) : 1;
}

LiveWatch::LiveWatch(std::filesystem::path run_dir, std::string run, double speed)
    : run_dir_(std::move(run_dir)), speed_(speed) {
  shape_.run = std::move(run);
  shape_.dir = run_dir_.string();
  shape_.live = true;
}

std::optional<SlowDown> LiveWatch::look(const TimesLine& now, double monotonic_s) {
  const double time = monotonic_s * speed_;
  if (!window_.empty() && now.generation != window_.back().second.generation) {
    window_.clear();
    times_ = 0;
  }
  window_.emplace_back(time, now);
  while (window_.size() > 2 && time - window_[1].first >= kWindowSeconds) window_.pop_front();
  if (time < next_ || time - window_.front().first < kShortestSeconds) return std::nullopt;
  next_ = time + kEverySeconds;
  if (!std::exchange(settings_read_, true)) read_settings(run_dir_, shape_);
  Evidence evidence = shape_;
  const TimesLine& first = window_.front().second;
  evidence.ranks = between(first, now);
  read_machine(first, now, evidence);
  read_gpus(run_dir_, first.time, now.time, kTailBytes, evidence);
  const Explanation judged = explain(evidence);
  if (judged.findings.empty() || !is_reported(judged.findings.front(), evidence)) {
    times_ = 0;
    return std::nullopt;
  }
  const SlowDown& top = judged.findings.front();
  const std::pair key(top.cause, top.who);
  times_ = standing_ == key ? times_ + 1 : 1;
  standing_ = key;
  if (times_ < kTimes || reported_.size() >= 8 || !reported_.insert(key).second) return std::nullopt;
  // The same of one rank after the other: it is not that rank.
  if (!causes_reported_.insert(top.cause).second &&
      std::count_if(reported_.begin(), reported_.end(), [&](const auto& one) { return one.first == top.cause; }) > 2)
    return std::nullopt;
  return top;
}

}  // namespace tandem
