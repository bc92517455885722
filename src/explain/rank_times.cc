#include "explain/rank_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// In the order of the array; to which later versions may add.
constexpr double RankTimes::*kSums[] = {&RankTimes::steps,      &RankTimes::step,         &RankTimes::work,
                                        &RankTimes::load,       &RankTimes::combine,      &RankTimes::late,
                                        &RankTimes::update,     &RankTimes::snapshot,     &RankTimes::gpu_wait,
                                        &RankTimes::operations, &RankTimes::counted_steps};
// After `operation`, which is no sum.
constexpr double RankTimes::*kLaterSums[] = {&RankTimes::delay, &RankTimes::made, &RankTimes::asleep};

double rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

double number_at(const nlohmann::json& array, size_t at) {
  if (at >= array.size() || !array[at].is_number()) return 0;
  const double value = array[at].get<double>();
  return std::isfinite(value) && value >= 0 && value < 1e15 ? value : 0;
}

template <class T>
T value_of(const nlohmann::json& from, const char* key, T otherwise) {
  try {
    return from.value(key, otherwise);
  } catch (const nlohmann::json::exception&) {
    return otherwise;
  }
}

}  // namespace

RankTimes& RankTimes::operator+=(const RankTimes& other) {
  for (const auto sum : kSums) this->*sum += other.*sum;
  for (const auto sum : kLaterSums) this->*sum += other.*sum;
  operation = other.operation > 0 ? other.operation : operation;
  return *this;
}

RankTimes RankTimes::operator-(const RankTimes& earlier) const {
  RankTimes out = *this;
  for (const auto sum : kSums) out.*sum = std::max(0.0, this->*sum - earlier.*sum);
  for (const auto sum : kLaterSums) out.*sum = std::max(0.0, this->*sum - earlier.*sum);
  return out;
}

RankTimes times_in(const WorkerPage& page) {
  const auto seconds = [](const std::atomic<uint64_t>& ns) {
    return static_cast<double>(ns.load(std::memory_order_relaxed)) * 1e-9;
  };
  const auto count = [](const std::atomic<uint64_t>& n) {
    return static_cast<double>(n.load(std::memory_order_relaxed));
  };
  return {.steps = count(page.steps_run),
          .step = seconds(page.step_ns),
          .work = seconds(page.work_ns),
          .load = seconds(page.load_ns),
          .combine = seconds(page.combine_ns),
          .late = seconds(page.wait_ns),
          .update = seconds(page.update_ns),
          .snapshot = seconds(page.snapshot_ns),
          .gpu_wait = seconds(page.gpu_ns),
          .operations = count(page.operations),
          .counted_steps = count(page.counted_steps),
          .operation = count(page.operation_ps) * 1e-12,
          .delay = seconds(page.delay_ns),
          .made = seconds(page.made_ns),
          .asleep = seconds(page.asleep_ns)};
}

nlohmann::json to_json(const RankTimes& times) {
  nlohmann::json out = nlohmann::json::array();
  for (const auto sum : kSums) out.push_back(rounded(times.*sum));
  out.push_back(times.operation);
  for (const auto sum : kLaterSums) out.push_back(rounded(times.*sum));
  return out;
}

RankTimes times_from(const nlohmann::json& json) {
  RankTimes out;
  if (!json.is_array()) return out;
  size_t at = 0;
  for (const auto sum : kSums) out.*sum = number_at(json, at++);
  out.operation = number_at(json, at++);
  for (const auto sum : kLaterSums) out.*sum = number_at(json, at++);
  return out;
}

std::string RankRow::name() const {
  return gpu ? fmt::format("GPU {}", *gpu) : fmt::format("worker {} ({})", rank, device);
}

nlohmann::json to_json(const TimesLine& line) {
  nlohmann::json out{{"t", std::round(line.time * 1000) / 1000}, {"step", line.step}, {"generation", line.generation}};
  out["ranks"] = nlohmann::json::array();
  for (const RankRow& row : line.ranks) {
    nlohmann::json one{
        {"rank", row.rank}, {"device", row.device}, {"shards", row.shards}, {"times", to_json(row.times)}};
    if (row.gpu) one["gpu"] = *row.gpu;
    if (row.on_gpu) one["card"] = true;
    if (row.pinned) one["pinned"] = true;
    out["ranks"].push_back(std::move(one));
  }
  if (line.cores > 0) out["cores"] = line.cores;
  if (line.loader_threads > 0) out["loader_threads"] = line.loader_threads;
  if (line.idle) out["idle"] = std::round(*line.idle * 100) / 100;
  for (const OtherProgram& other : line.others)
    out["others"].push_back({{"pid", other.pid}, {"name", other.name}, {"cores", std::round(other.cores * 100) / 100}});
  return out;
}

std::optional<TimesLine> line_from(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("ranks") || !json["ranks"].is_array()) return std::nullopt;
  TimesLine line{.time = value_of(json, "t", 0.0),
                 .step = value_of(json, "step", int64_t{0}),
                 .generation = value_of(json, "generation", uint64_t{0})};
  for (const nlohmann::json& one : json["ranks"]) {
    if (!one.is_object() || line.ranks.size() >= 4096) continue;
    RankRow row{.rank = value_of(one, "rank", 0), .device = value_of(one, "device", std::string())};
    if (const int gpu = value_of(one, "gpu", -1); gpu >= 0) row.gpu = gpu;
    row.on_gpu = value_of(one, "card", false);
    row.pinned = value_of(one, "pinned", false);
    row.shards = value_of(one, "shards", 0);
    if (one.contains("times")) row.times = times_from(one["times"]);
    line.ranks.push_back(std::move(row));
  }
  line.cores = std::max(0, value_of(json, "cores", 0));
  line.loader_threads = std::max(0, value_of(json, "loader_threads", 0));
  if (json.contains("idle") && json["idle"].is_number()) line.idle = json["idle"].get<double>();
  if (json.contains("others") && json["others"].is_array())
    for (const nlohmann::json& one : json["others"])
      if (one.is_object() && line.others.size() < 8)
        line.others.push_back(
            {value_of(one, "pid", int64_t{0}), value_of(one, "name", std::string()), value_of(one, "cores", 0.0)});
  return line;
}

}  // namespace tandem
