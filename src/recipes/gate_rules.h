// recipes/gate_rules.h -- `--gate old=warn,new=refuse`: what a gate of apps/web_test/gate.h does where it is not
// passed.
#pragma once

#include <optional>
#include <string>

namespace tandem {

// Refuse the new model; say so and take it; do not even look.
enum class GateRule { kRefuse, kWarn, kOff };
const char* word_of(GateRule rule);

struct GateRules {
  GateRule old_one = GateRule::kRefuse;  // simulator, first model, experience learned from before
  GateRule fresh = GateRule::kRefuse;    // the new experience
};

// What is wrong with the text, or nothing.
std::optional<std::string> wrong_gate_rules(const std::string& text);
// Of a text that nothing is wrong with; gates that it does not name refuse.
GateRules gate_rules_of(const std::string& text);

}  // namespace tandem
