// monitor/clean_text.h -- what strangers named (folders, processes, recipes, events), made fit to be shown anywhere.
//
// A name on disk may hold any bytes. Every view, file and scraper downstream gets one line of valid UTF-8 of bounded
// length, without control characters: no escape sequence reaches a terminal, no broken byte a scraper.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline constexpr size_t kLongestName = 200, kLongestText = 1000;  // bytes

// Bytes that are not UTF-8 become U+FFFD, control characters (C0, DEL, C1, line separators, changes of direction)
// spaces; what is longer than `most` bytes is cut and ends in U+2026.
std::string clean_text(std::string_view text, size_t most = kLongestName);

}  // namespace tandem
