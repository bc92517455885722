#include "config/units.h"

#include <charconv>
#include <cmath>

namespace tandem {
namespace {

void skip_spaces(std::string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

}  // namespace

std::optional<double> parse_duration(std::string_view text) {
  skip_spaces(text);
  if (text.empty()) return std::nullopt;
  double total = 0;
  double last_unit = INFINITY;  // units must fall: 1h30m is a time, 30m1h is a slip
  while (!text.empty()) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc() || number < 0 || !std::isfinite(number)) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    skip_spaces(text);
    double unit = 1;
    if (take_word(text, "ms")) {
      unit = 1e-3;
    } else if (take_word(text, "s")) {
      unit = 1;
    } else if (take_word(text, "min") || take_word(text, "m")) {
      unit = 60;
    } else if (take_word(text, "h")) {
      unit = 3600;
    } else if (take_word(text, "d")) {
      unit = 86400;
    } else if (!text.empty()) {
      return std::nullopt;
    } else if (std::isfinite(last_unit)) {
      return std::nullopt;  // "1h30": thirty what?
    }
    if (unit >= last_unit) return std::nullopt;
    last_unit = unit;
    total += number * unit;
    skip_spaces(text);
  }
  return total;
}

std::optional<Interval> parse_interval(std::string_view text) {
  skip_spaces(text);
  if (text == "never") return Interval{};
  if (text == "auto") return Interval{.automatic = true};
  std::string_view rest = text;
  int64_t steps = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), steps);
  if (error == std::errc() && steps > 0) {
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    skip_spaces(rest);
    if (rest == "steps" || rest == "step") return Interval{.steps = steps};
  }
  const auto seconds = parse_duration(text);
  if (!seconds || *seconds <= 0) return std::nullopt;
  return Interval{.seconds = *seconds};
}

std::optional<ValidationInterval> parse_validation_interval(std::string_view text) {
  skip_spaces(text);
  if (text == "never") return ValidationInterval{};
  if (text == "auto") return ValidationInterval{.automatic = true};
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || count <= 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  skip_spaces(text);
  if (text == "steps" || text == "step") return ValidationInterval{.steps = count};
  if (text == "epochs" || text == "epoch") return ValidationInterval{.epochs = count};
  return std::nullopt;
}

std::optional<PowerLimit> parse_power(std::string_view text) {
  skip_spaces(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !(number > 0) || !std::isfinite(number)) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  skip_spaces(text);
  if (text == "%") return number <= 100 ? std::optional(PowerLimit{.share = number / 100}) : std::nullopt;
  if (!text.empty() && text != "W" && text != "w") return std::nullopt;
  return PowerLimit{.watts = number};
}

}  // namespace tandem
