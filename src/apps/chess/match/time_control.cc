#include "apps/chess/match/time_control.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/printable.h"

namespace tandem::chess {
namespace {

using std::chrono::milliseconds;

constexpr double kMostControlSeconds = 24 * 3600;
constexpr int kMostControlMoves = 1000;

// Whole milliseconds; nothing where it is no number or not within its bounds.
std::optional<milliseconds> read_seconds(std::string_view text, double least) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!(seconds >= least && seconds <= kMostControlSeconds)) return std::nullopt;
  return milliseconds(std::llround(seconds * 1000));
}

std::optional<TimeControl> parse_time_control(std::string_view text) {
  TimeControl control;
  if (const size_t slash = text.find('/'); slash != text.npos) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + slash, control.moves);
    if (error != std::errc() || end != text.data() + slash) return std::nullopt;
    if (control.moves < 1 || control.moves > kMostControlMoves) return std::nullopt;
    text.remove_prefix(slash + 1);
  }
  const size_t plus = text.find('+');
  const auto time = read_seconds(text.substr(0, plus), 0.001);
  const auto increment = plus == text.npos ? milliseconds(0) : read_seconds(text.substr(plus + 1), 0);
  if (!time || !increment) return std::nullopt;
  control.time = *time, control.increment = *increment;
  return control;
}

std::string seconds_text(milliseconds time) { return fmt::format("{:g}", static_cast<double>(time.count()) / 1000); }

}  // namespace

std::string TimeControl::text() const {
  std::string text = moves ? fmt::format("{}/{}", moves, seconds_text(time)) : seconds_text(time);
  if (increment.count() > 0) text += "+" + seconds_text(increment);
  return text;
}

TimeControl read_time_control(std::string_view text) {
  if (const auto control = parse_time_control(text)) return *control;
  throw ConfigError(
      fmt::format("--tc {}: no time control", printable(text)),
      "it is seconds for a side, and what each move adds: 60+0.6; with moves before it, 40/300+2, the "
      "time comes again after so many",
      fmt::format("give 60+0.6, for example; at most {:.0f} s and {} moves", kMostControlSeconds, kMostControlMoves));
}

GameClocks::GameClocks(const TimeControl& control) : control_(control), left_{control.time, control.time} {}

Clocks GameClocks::left(Side mover) const {
  const auto whole = [](std::chrono::nanoseconds time) { return std::chrono::floor<milliseconds>(time); };
  Clocks clocks{whole(left_[0]), whole(left_[1]), control_.increment, control_.increment, std::nullopt};
  if (control_.moves) clocks.moves_to_go = control_.moves - made_[static_cast<size_t>(mover)] % control_.moves;
  return clocks;
}

bool GameClocks::press(Side side, std::chrono::nanoseconds took) {
  std::chrono::nanoseconds& left = left_[static_cast<size_t>(side)];
  left -= took;
  if (left < -kFlagMargin) return false;
  left = std::max(left, std::chrono::nanoseconds(0)) + control_.increment;
  int& made = made_[static_cast<size_t>(side)];
  if (++made; control_.moves && made % control_.moves == 0) left += control_.time;
  return true;
}

}  // namespace tandem::chess
