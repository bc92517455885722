#include "fleet/messages.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tandem {

nlohmann::json to_json(const Order& order) {
  nlohmann::json members = nlohmann::json::array();
  for (const Assignment& a : order.members) members.push_back({a.rank, a.range.first, a.range.last});
  return {{"generation", order.generation},
          {"members", members},
          {"from", static_cast<int>(order.from)},
          {"snapshot_step", order.snapshot_step},
          {"cut", order.cut}};
}

Order order_from(const nlohmann::json& json) {
  Order order;
  order.generation = json.at("generation");
  int next = 0;
  for (const nlohmann::json& item : json.at("members")) {
    const Assignment a{item.at(0), {item.at(1), item.at(2)}};
    if (a.range.first != next || a.range.last <= a.range.first) throw std::runtime_error("an order with a hole");
    next = a.range.last;
    order.members.push_back(a);
  }
  const int from = json.at("from");
  if (from < 0 || from > 2) throw std::runtime_error("an order from nowhere");
  order.from = static_cast<Order::From>(from);
  order.snapshot_step = json.at("snapshot_step");
  order.cut = json.at("cut");
  return order;
}

}  // namespace tandem
