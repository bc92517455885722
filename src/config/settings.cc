#include "config/settings.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace tandem {

bool Range::holds(double value) const {
  if (!std::isfinite(value)) return false;
  const bool low_ok = above_min ? value > min : value >= min;
  const bool high_ok = below_max ? value < max : value <= max;
  return low_ok && high_ok;
}

std::string Range::text() const {
  const bool low = std::isfinite(min), high = std::isfinite(max);
  const char* above = above_min ? "above" : "at least";
  const char* below = below_max ? "below" : "at most";
  if (low && high && !above_min && !below_max) return fmt::format("{:.12g} to {:.12g}", min, max);
  if (low && high) return fmt::format("{} {:.12g} and {} {:.12g}", above, min, below, max);
  if (low) return fmt::format("{} {:.12g}", above, min);
  if (high) return fmt::format("{} {:.12g}", below, max);
  return "";
}

void Describer::add(std::string name, Target target, Limit limit, std::string help, Role role) {
  for (const Entry& entry : entries_) {
    if (entry.name == name) throw std::logic_error("settings key described twice: " + name);
  }
  entries_.push_back({std::move(name), target, std::move(limit), std::move(help), role});
}

void Describer::key(std::string name, bool& value, std::string help, Role role) {
  add(std::move(name), &value, {}, std::move(help), role);
}
void Describer::key(std::string name, int64_t& value, std::string help, Role role) {
  add(std::move(name), &value, {}, std::move(help), role);
}
void Describer::key(std::string name, int64_t& value, Range range, std::string help, Role role) {
  add(std::move(name), &value, range, std::move(help), role);
}
void Describer::key(std::string name, int64_t& value, OrWord or_word, std::string help, Role role) {
  add(std::move(name), &value, std::move(or_word), std::move(help), role);
}
void Describer::key(std::string name, double& value, std::string help, Role role) {
  add(std::move(name), &value, {}, std::move(help), role);
}
void Describer::key(std::string name, double& value, Range range, std::string help, Role role) {
  add(std::move(name), &value, range, std::move(help), role);
}
void Describer::key(std::string name, std::string& value, std::string help, Role role) {
  add(std::move(name), &value, {}, std::move(help), role);
}
void Describer::key(std::string name, std::string& value, Choices choices, std::string help, Role role) {
  add(std::move(name), &value, std::move(choices), std::move(help), role);
}
void Describer::key(std::string name, std::string& value, Grammar grammar, std::string help, Role role) {
  add(std::move(name), &value, std::move(grammar), std::move(help), role);
}
void Describer::key(std::string name, std::vector<int64_t>& value, std::string help, Role role) {
  add(std::move(name), &value, {}, std::move(help), role);
}
void Describer::key(std::string name, std::vector<int64_t>& value, Range range, std::string help, Role role) {
  add(std::move(name), &value, range, std::move(help), role);
}

}  // namespace tandem
