#include "apps/chess/play/uci_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/chess/uci/uci_words.h"

namespace tandem::chess {
namespace {

constexpr double kHottest = 10;
constexpr size_t kLongestShown = 60;

std::string shown(std::string_view text) { return beginning_of(text, kLongestShown); }

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

UciOptions::UciOptions(const PlayerChoice& choice) : player_(choice.name), has_network_(choice.has_network) {
  const auto without_network = [this](const char* what) {
    return has_network_ ? std::string() : fmt::format("{} has no network, so that {} changes nothing", player_, what);
  };
  options_.push_back({"WeightsFile", "string default <empty>", [this, without_network](std::string_view value) {
                        const std::string_view file = value == "<empty>" ? "" : value;
                        if (!has_network_) return file.empty() ? "" : without_network("WeightsFile");
                        settings_.weights_file = file;
                        return std::string();
                      }});
  options_.push_back({"Temperature", "string default 0", [this, without_network](std::string_view value) {
                        double number = 0;
                        if (!read_number(value, number) || !std::isfinite(number) || number < 0 || number > kHottest)
                          return fmt::format("Temperature is a number from 0 to {}, not \"{}\"; it stays {}", kHottest,
                                             shown(value), settings_.temperature);
                        settings_.temperature = number;
                        return number == 0 ? "" : without_network("Temperature");
                      }});
  add_whole("Nodes", nodes_, 0, 1'000'000'000'000);
  if (choice.depth > 0) {
    settings_.depth = choice.depth;
    depth_ = choice.depth;
    add_whole("Depth", depth_, 1, choice.deepest, [this](int64_t depth) { settings_.depth = static_cast<int>(depth); });
  }
  add_whole("Seed", seed_, 0, 2'147'483'647);
  add_whole("Move Overhead", overhead_ms_, 0, 10'000);
}

void UciOptions::add_whole(const std::string& name, int64_t& value, int64_t least, int64_t most,
                           const std::function<void(int64_t)>& also) {
  options_.push_back({name, fmt::format("spin default {} min {} max {}", value, least, most),
                      [&value, name, least, most, also](std::string_view text) {
                        int64_t number = 0;
                        if (!read_number(text, number) || number < least || number > most)
                          return fmt::format("{} is a whole number from {} to {}, not \"{}\"; it stays {}", name, least,
                                             most, shown(text), value);
                        value = number;
                        if (also) also(number);
                        return std::string();
                      }});
}

std::vector<std::string> UciOptions::declarations() const {
  std::vector<std::string> lines;
  for (const Option& option : options_)
    lines.push_back(fmt::format("option name {} type {}", option.name, option.type_and_default));
  return lines;
}

std::string UciOptions::set(std::string_view name, std::string_view value) {
  for (const Option& option : options_)
    if (same_uci_name(option.name, name)) return option.set(value);
  return fmt::format("there is no option \"{}\"", shown(name));
}

}  // namespace tandem::chess
