#include "market/dates.h"

#include <fmt/format.h>

#include <ctime>

namespace tandem {

namespace {

bool two_digits(std::string_view text, size_t at, int32_t& out) {
  if (at + 2 > text.size() || text[at] < '0' || text[at] > '9' || text[at + 1] < '0' || text[at + 1] > '9')
    return false;
  out = (text[at] - '0') * 10 + (text[at + 1] - '0');
  return true;
}

int32_t days_of_month(int32_t year, int32_t month) {
  constexpr int32_t kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return month == 2 && leap ? 29 : kDays[month - 1];
}

}  // namespace

std::optional<int32_t> parse_date(std::string_view text) {
  const bool dashes = text.size() >= 10 && text[4] == '-' && text[7] == '-';
  const size_t length = dashes ? 10 : 8;
  if (text.size() < length) return std::nullopt;
  if (text.size() > length && text[length] != ' ' && text[length] != 'T') return std::nullopt;
  int32_t century = 0, years = 0, month = 0, day = 0;
  if (!two_digits(text, 0, century) || !two_digits(text, 2, years) || !two_digits(text, dashes ? 5 : 4, month) ||
      !two_digits(text, dashes ? 8 : 6, day))
    return std::nullopt;
  const int32_t year = century * 100 + years;
  if (year < 1900 || year > 2199 || month < 1 || month > 12 || day < 1 || day > days_of_month(year, month))
    return std::nullopt;
  return year * 10000 + month * 100 + day;
}

std::string date_text(int32_t date) {
  return fmt::format("{:04}-{:02}-{:02}", date / 10000, date / 100 % 100, date % 100);
}

// Years begin in March, so that the leap day is a year's last; an era has 400 of them.
int64_t day_number(int32_t date) {
  const int64_t month = date / 100 % 100, day = date % 100;
  const int64_t year = date / 10000 - (month <= 2 ? 1 : 0);
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t of_era = year - era * 400;
  const int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

int32_t date_of_day(int64_t days) {
  const int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, of_era = z - era * 146097;
  const int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  const int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t shifted = (5 * of_year + 2) / 153, day = of_year - (153 * shifted + 2) / 5 + 1;
  const int64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
  const int64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
  return static_cast<int32_t>(year * 10000 + month * 100 + day);
}

int weekday(int32_t date) {
  const int64_t number = day_number(date) + 3;  // 1970-01-01 was a Thursday
  return static_cast<int>((number % 7 + 7) % 7);
}

int32_t today_utc() { return date_of_day(static_cast<int64_t>(std::time(nullptr)) / 86400); }

}  // namespace tandem
