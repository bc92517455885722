#include "launch/usage_book.h"

#include <algorithm>

#include "launch/launcher.h"

namespace tandem {
namespace {

double number(const nlohmann::json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number() ? object[key].get<double>() : 0;
}

}  // namespace

void UsageBook::reported(int rank, const std::string& device, const nlohmann::json& message) {
  if (!message.contains("usage") || !message["usage"].is_object()) return;  // of another version
  const nlohmann::json& usage = message["usage"];
  Book& book = ranks_[rank];
  book.device = device;
  if (message.contains("hello")) {
    book = {device, usage, {}, {}, 0, 0};  // a replacement begins anew
    return;
  }
  ++book.snapshots;
  (book.first.is_null() ? book.first : book.last) = usage;
}

void UsageBook::holds(int rank, int shards) { ranks_[rank].shards = std::max(ranks_[rank].shards, shards); }

nlohmann::json UsageBook::to_json() const {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [rank, book] : ranks_) {
    const nlohmann::json& last = book.last.is_null() ? book.first : book.last;
    const nlohmann::json& from = book.last.is_null() ? book.hello : book.first;
    if (last.is_null()) continue;
    nlohmann::json one = {{"rank", rank}, {"device", book.device}, {"shards", book.shards}};
    for (const char* key : {"memory_bytes", "card_bytes", "shards_in_pass"})
      if (const double most = number(last, key); most > 0) one[key] = static_cast<uint64_t>(most);
    if (const double bytes = number(book.hello, "memory_now"); bytes > 0)
      one["memory_start_bytes"] = static_cast<uint64_t>(bytes);
    if (const double bytes = number(book.hello, "card_now"); bytes > 0)
      one["card_start_bytes"] = static_cast<uint64_t>(bytes);
    for (const char* key : {"steps", "compute_s", "combine_s", "load_s"})
      one[key] = number(last, key) - number(from, key);
    one["steps_all"] = number(last, "steps") - number(book.hello, "steps");
    one["step_all_s"] = number(last, "step_s") - number(book.hello, "step_s");
    one["snapshots"] = book.snapshots;
    one["snapshot_s"] = number(last, "snapshot_s") - number(book.hello, "snapshot_s");
    all.push_back(std::move(one));
  }
  return all;
}

nlohmann::json outcome_of(const RunForecast& forecast, double seconds, int64_t steps, const nlohmann::json& usage) {
  const double reported =
      forecast.start_seconds + static_cast<double>(steps) * forecast.step_seconds + forecast.end_seconds;
  nlohmann::json out = {{"forecast_seconds", reported}, {"took_seconds", seconds}};
  if (seconds > 0) out["forecast_error"] = reported / seconds - 1;
  double most = 0;
  for (const nlohmann::json& one : usage)
    most = std::max(most, number(one, one.contains("card_bytes") ? "card_bytes" : "memory_bytes"));
  if (most > 0) out["memory_bytes"] = most;
  if (forecast.memory_bytes > 0) {
    out["forecast_memory_bytes"] = forecast.memory_bytes;
    if (most > 0) out["forecast_memory_error"] = forecast.memory_bytes / most - 1;
  }
  return out;
}

nlohmann::json state_bytes(const SnapshotLayout& layout, int64_t combine_floats) {
  uint64_t weights = 0, optimizer = 0, other = 0, kept = 0;
  std::map<int, uint64_t> shards;
  for (const SnapshotTensor& tensor : layout.tensors()) {
    if (tensor.shard >= 0)
      shards[tensor.shard] += tensor.bytes;
    else if (tensor.model)
      weights += tensor.bytes;
    else
      (tensor.name.starts_with("optimizer") ? optimizer : other) += tensor.bytes;
    if (tensor.shard < 0 && tensor.name.starts_with("kept.")) kept += tensor.bytes;
  }
  uint64_t largest = 0;
  for (const auto& [shard, bytes] : shards) largest = std::max(largest, bytes);
  return {{"weights_bytes", weights}, {"optimizer_bytes", optimizer}, {"other_bytes", other},
          {"kept_bytes", kept},       {"shard_bytes", largest},       {"combine_floats", combine_floats}};
}

}  // namespace tandem
