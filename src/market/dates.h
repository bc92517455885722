// market/dates.h -- calendar dates as 20241231, and days between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// "2024-12-31" or "20241231", also with a time of day after a space or a T ("2024-12-31 00:00:00"), which is left out.
// Nothing where it is no date of the years 1900 to 2199.
std::optional<int32_t> parse_date(std::string_view text);
std::string date_text(int32_t date);  // "2024-12-31"

int64_t day_number(int32_t date);   // days since 1970-01-01
int32_t date_of_day(int64_t days);  // back
int weekday(int32_t date);          // 0 Monday ... 6 Sunday
int32_t today_utc();

}  // namespace tandem
