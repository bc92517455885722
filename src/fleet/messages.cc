#include "fleet/messages.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tandem {

nlohmann::json to_json(const GenerationStart& start) {
  nlohmann::json members = nlohmann::json::array();
  for (const ShardAssignment& a : start.members) members.push_back({a.rank, a.range.first, a.range.last});
  return {{"generation", start.generation},
          {"members", members},
          {"from", static_cast<int>(start.from)},
          {"snapshot_step", start.snapshot_step},
          {"cut", start.cut}};
}

GenerationStart generation_start_from(const nlohmann::json& json) {
  GenerationStart start;
  start.generation = json.at("generation");
  int next = 0;
  for (const nlohmann::json& item : json.at("members")) {
    const ShardAssignment a{item.at(0), {item.at(1), item.at(2)}};
    if (a.range.first != next || a.range.last <= a.range.first)
      throw std::runtime_error("a generation whose ranges leave a hole");
    next = a.range.last;
    start.members.push_back(a);
  }
  const int from = json.at("from");
  if (from < 0 || from > 2) throw std::runtime_error("a generation that begins from nowhere");
  start.from = static_cast<GenerationStart::From>(from);
  start.snapshot_step = json.at("snapshot_step");
  start.cut = json.at("cut");
  return start;
}

}  // namespace tandem
