// telemetry/human.h -- numbers, durations and times as people read them. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

double unix_now();  // wall clock with its fraction, for stamps only: durations come from base/clock.h

std::string utc_iso(double unix_seconds, bool milliseconds = false);  // 2026-11-15T01:47:06Z
std::string duration_text(double seconds);  // 0:07  12:30  3:05:00  2d 04:00:00; "-" if unknown
std::string short_number(double value);     // 0.0123  12.3  1.25k  3.1M; "-" if absent
std::string bytes_text(uint64_t bytes);     // 12.3 MB
std::string loss_text(double loss);         // four or five significant digits

// Columns a terminal needs for UTF-8 text: wide characters count two, combining ones none.
int display_width(std::string_view text);
// At most `width` columns, with a mark where it was cut; control characters become spaces.
std::string fit(std::string_view text, int width);

}  // namespace tandem
