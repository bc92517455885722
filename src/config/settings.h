// config/settings.h -- how a struct of plain fields describes its keys, ranges and help, once.
//
// A default lives in the field's initializer and nowhere else. Help, error messages, the resolved copy in the run's
// folder and the check on resume are all printed from what describe() says. A Describer keeps pointers to the fields:
// the struct must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tandem {

// kResult keys decide the weights and must be equal on resume; kRunning keys (stop rule, folders, threads) may change.
enum class Role { kResult, kRunning };

// Bounds of a number; of each element for a list. Inclusive unless said.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
  bool below_max = false;  // max itself is not allowed

  static Range at_least(double min) { return {.min = min}; }
  static Range above(double min) { return {.min = min, .above_min = true}; }
  static Range between(double min, double max) { return {.min = min, .max = max}; }
  static Range from_up_to_below(double min, double max) { return {.min = min, .max = max, .below_max = true}; }

  bool holds(double value) const;
  std::string text() const;  // "at least 1", "above 0", "0 to 1"; "" if unbounded
};

struct Choices {
  std::vector<std::string> words;
};

// A text with a grammar, such as "90s". `reason` says what is wrong with a text, or nothing if it is good.
struct Grammar {
  std::string expected;  // "a time such as 90s, 10m or 2h"
  std::function<std::optional<std::string>(const std::string&)> reason;
};

// A number that may also be given by one word: `shards = "devices"` stores 0 and raises the flag.
struct OrWord {
  std::string word;
  bool* flag = nullptr;
  Range range;
};

class Describer {
 public:
  using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*>;
  using Limit = std::variant<std::monostate, Range, Choices, Grammar, OrWord>;
  struct Entry {
    std::string name;  // dotted: "optimizer.learning_rate"
    Target target;
    Limit limit;
    std::string help;
    Role role;
  };

  void key(std::string name, bool& value, std::string help, Role role = Role::kResult);
  void key(std::string name, int64_t& value, std::string help, Role role = Role::kResult);
  void key(std::string name, int64_t& value, Range range, std::string help, Role role = Role::kResult);
  void key(std::string name, int64_t& value, OrWord or_word, std::string help, Role role = Role::kResult);
  void key(std::string name, double& value, std::string help, Role role = Role::kResult);
  void key(std::string name, double& value, Range range, std::string help, Role role = Role::kResult);
  void key(std::string name, std::string& value, std::string help, Role role = Role::kResult);
  void key(std::string name, std::string& value, Choices choices, std::string help, Role role = Role::kResult);
  void key(std::string name, std::string& value, Grammar grammar, std::string help, Role role = Role::kResult);
  void key(std::string name, std::vector<int64_t>& value, std::string help, Role role = Role::kResult);
  void key(std::string name, std::vector<int64_t>& value, Range range, std::string help, Role role = Role::kResult);

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void add(std::string name, Target target, Limit limit, std::string help, Role role);
  std::vector<Entry> entries_;
};

class Settings {
 public:
  virtual ~Settings() = default;
  virtual void describe(Describer& describer) = 0;
};

}  // namespace tandem
