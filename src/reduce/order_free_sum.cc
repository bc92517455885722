#include "reduce/order_free_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr int kDigits = kSumWords - 1, kBits = 32;
constexpr int64_t kBase = int64_t{1} << kBits;
constexpr int kLowest = -149;  // exponent of a float's last bit
using Digits = std::array<int64_t, kDigits>;

// Each digit but the last into [0, 2^32).
void carry_digits(std::span<int64_t> digits) {
  for (size_t i = 0; i + 1 < digits.size(); ++i) {
    const int64_t carry = digits[i] >> kBits;  // rounds down: right for negative digits too
    digits[i] -= carry * kBase;
    digits[i + 1] += carry;
  }
}

bool bit(const Digits& digits, int at) { return (digits[static_cast<size_t>(at / kBits)] >> (at % kBits)) & 1; }

}  // namespace

void add_to_words(std::span<int64_t> words, std::span<const float> values) {
  for (const float value : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(value), exponent = (bits >> 23) & 0xFF, fraction = bits & 0x7FFFFF;
    if (exponent == 0xFF) {
      ++words[kDigits];
      continue;
    }
    const uint64_t whole = exponent == 0 ? fraction : fraction | 0x800000;
    const uint32_t at = exponent == 0 ? 0 : exponent - 1;  // of the last bit, above 2^-149
    const uint64_t shifted = whole << (at % kBits);
    const int64_t low = static_cast<int64_t>(shifted & (kBase - 1)), high = static_cast<int64_t>(shifted >> kBits);
    const int64_t sign = bits >> 31 ? -1 : 1;
    words[at / kBits] += sign * low;
    words[at / kBits + 1] += sign * high;
  }
}

void carry_words(std::span<int64_t> words) { carry_digits(words.first(kDigits)); }

double sum_of_words(std::span<const int64_t> words) {
  if (words[kDigits] != 0) return std::numeric_limits<double>::quiet_NaN();
  Digits digits;
  for (size_t i = 0; i < digits.size(); ++i) digits[i] = words[i];
  carry_digits(digits);
  const bool negative = digits.back() < 0;
  if (negative) {
    for (int64_t& digit : digits) digit = -digit;
    carry_digits(digits);
  }
  int top = kDigits * kBits - 1;
  while (top >= 0 && !bit(digits, top)) --top;
  if (top < 0) return 0;
  const int last = std::max(0, top - 52);  // of the 53 bits that a double keeps
  uint64_t kept = 0;
  for (int at = top; at >= last; --at) kept = kept << 1 | static_cast<uint64_t>(bit(digits, at));
  if (last > 0 && bit(digits, last - 1)) {  // half or more of the last bit: up, and a tie to the even one
    bool more = kept & 1;
    for (int at = last - 2; at >= 0 && !more; --at) more = bit(digits, at);
    kept += more;
  }
  const double size = std::ldexp(static_cast<double>(kept), last + kLowest);
  return negative ? -size : size;
}

}  // namespace tandem
