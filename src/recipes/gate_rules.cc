#include "recipes/gate_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace tandem {
namespace {

constexpr GateRule kAll[] = {GateRule::kRefuse, GateRule::kWarn, GateRule::kOff};

// Either reads the text into `rules` or says what is wrong with it.
std::optional<std::string> read_rules(const std::string& text, GateRules& rules) {
  bool seen_old = false, seen_new = false;
  if (text.empty()) return std::nullopt;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t equals = part.find('=');
    const std::string gate = part.substr(0, equals), word = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (gate != "old" && gate != "new")
      return fmt::format("there is no gate \"{}\"; they are old and new", printable(gate).substr(0, 40));
    bool& seen = gate == "old" ? seen_old : seen_new;
    if (seen) return fmt::format("{} is there twice", gate);
    seen = true;
    const auto* const rule =
        std::find_if(std::begin(kAll), std::end(kAll), [&](GateRule r) { return word == word_of(r); });
    if (rule == std::end(kAll))
      return fmt::format("{} is \"{}\"; it can be refuse, warn or off", gate, printable(word).substr(0, 40));
    (gate == "old" ? rules.old_one : rules.fresh) = *rule;
    at = end + 1;
  }
  return std::nullopt;
}

}  // namespace

const char* word_of(GateRule rule) {
  return rule == GateRule::kRefuse ? "refuse" : rule == GateRule::kWarn ? "warn" : "off";
}

std::optional<std::string> wrong_gate_rules(const std::string& text) {
  GateRules rules;
  return read_rules(text, rules);
}

GateRules gate_rules_of(const std::string& text) {
  GateRules rules;
  read_rules(text, rules);
  return rules;
}

}  // namespace tandem
