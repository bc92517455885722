// config/units.h -- texts with units: "90s", "1h30m", "500 steps", "180W".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

// Seconds of "90s", "10m", "2h", "1d", "1h30m", "250ms" or a bare number of seconds. Nothing if it is none of these.
std::optional<double> parse_duration(std::string_view text);

// A checkpoint interval: by time or by steps; both 0 means never ("never").
struct Interval {
  double seconds = 0;
  int64_t steps = 0;
  bool automatic = false;  // "auto": the engine chooses, so that checkpoints stay cheap
};
std::optional<Interval> parse_interval(std::string_view text);  // "auto", "60s", "10m", "500 steps", "never"

// Between validations: by steps or by epochs; both 0 means never ("never").
struct ValidationInterval {
  int64_t steps = 0, epochs = 0;
  bool automatic = false;
};
std::optional<ValidationInterval> parse_validation_interval(std::string_view text);  // "auto", "2 epochs", "500 steps"

// A power limit: a share of the GPU's own ("80%"), or watts ("180W", "180"). Nothing if it is neither; a share is
// above 0 and at most 1.
struct PowerLimit {
  double watts = 0, share = 0;  // one of them
};
std::optional<PowerLimit> parse_power(std::string_view text);

}  // namespace tandem
