#include "apps/chess/uci/engine_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "apps/chess/uci/uci_words.h"
#include "base/printable.h"

namespace tandem::chess {
namespace {

constexpr size_t kLongestLine = 256;  // moves of a variation that are kept
constexpr int kMostMateMoves = 10'000, kMostCentipawns = 1'000'000;

template <class Number>
std::optional<Number> number_of(std::string_view word) {
  Number number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

EngineOption::Type type_of(std::string_view word) {
  using Type = EngineOption::Type;
  if (word == "check") return Type::kCheck;
  if (word == "spin") return Type::kSpin;
  if (word == "combo") return Type::kCombo;
  if (word == "button") return Type::kButton;
  return word == "string" ? Type::kString : Type::kUnknown;
}

// Names and values may be several words; each ends where the next keyword begins.
EngineOption read_option(UciWords words) {
  EngineOption option;
  std::string key, text;
  const auto keep = [&option, &key, &text] {
    if (key == "name") option.name = text;
    if (key == "type") option.type = type_of(text);
    if (key == "min") option.least = number_of<int64_t>(text);
    if (key == "max") option.most = number_of<int64_t>(text);
    if (key == "var") option.choices.push_back(text);
    text.clear();
  };
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == "name" || word == "type" || word == "default" || word == "min" || word == "max" || word == "var") {
      keep();
      key = word;
    } else {
      if (!text.empty()) text += ' ';
      text += word;
    }
  }
  keep();
  return option;
}

EngineInfo read_info(UciWords words) {
  EngineInfo info;
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == "depth") info.depth = number_of<int64_t>(words.next());
    if (word == "nodes") info.nodes = number_of<int64_t>(words.next());
    if (word == "multipv") info.multipv = number_of<int64_t>(words.next());
    if (word == "score") {
      const bool mate = words.next() == "mate";
      if (const auto number = number_of<int>(words.next()))
        info.score = mate ? Score{.mate_in = std::clamp(*number, -kMostMateMoves, kMostMateMoves)}
                          : Score{.centipawns = std::clamp(*number, -kMostCentipawns, kMostCentipawns)};
    }
    if (word == "pv")
      for (word = words.next(); !word.empty(); word = words.next())
        if (info.line.size() < kLongestLine) info.line.emplace_back(word);
    if (word == "string" || word.empty()) break;  // the rest is for people
  }
  return info;
}

}  // namespace

EngineLine read_engine_line(std::string_view line) {
  UciWords words(line);
  const std::string_view first = words.next();
  if (first == "uciok") return EngineUciOk{};
  if (first == "readyok") return EngineReadyOk{};
  if (first == "bestmove") return EngineBestMove{std::string(words.next())};
  if (first == "info") return read_info(words);
  if (first == "option") return read_option(words);
  if (first == "id") {
    const std::string_view what = words.next();
    if (what == "name" || what == "author") return EngineId{what == "author", std::string(words.rest())};
  }
  return EngineNoise{};
}

const EngineOption* find_option(const std::vector<EngineOption>& options, std::string_view name) {
  const auto at = std::ranges::find_if(options, [name](const EngineOption& o) { return same_uci_name(o.name, name); });
  return at == options.end() ? nullptr : &*at;
}

FittedOption fit_option(const EngineOption& option, std::string_view value) {
  FittedOption fitted{.value = std::string(value)};
  const std::string name = printable(option.name);
  switch (option.type) {
    case EngineOption::Type::kSpin: {
      const auto number = number_of<int64_t>(value);
      if (!number) {
        fitted.trouble = fmt::format("{} takes a whole number", name);
      } else if (option.least && *number < *option.least) {
        fitted.value = std::to_string(*option.least);
        fitted.note = fmt::format("{} {} is below its least, {} is used", name, *number, *option.least);
      } else if (option.most && *number > *option.most) {
        fitted.value = std::to_string(*option.most);
        fitted.note = fmt::format("{} {} is above its most, {} is used", name, *number, *option.most);
      }
      break;
    }
    case EngineOption::Type::kCheck:
      if (!same_uci_name(value, "true") && !same_uci_name(value, "false"))
        fitted.trouble = fmt::format("{} is true or false", name);
      break;
    case EngineOption::Type::kCombo:
      if (std::ranges::none_of(option.choices, [value](const std::string& c) { return same_uci_name(c, value); }))
        fitted.trouble =
            fmt::format("{} is one of: {}", name, printable(fmt::format("{}", fmt::join(option.choices, ", "))));
      break;
    case EngineOption::Type::kButton:
    case EngineOption::Type::kString:
    case EngineOption::Type::kUnknown:
      break;
  }
  return fitted;
}

}  // namespace tandem::chess
