// reduce/order_free_sum.h -- the exact sum of floats in whole numbers: the same in any order and any grouping.
//
// A float is a whole number of 2^-149. Its bits are added to words of 32 bits each, kept in int64 so that carries can
// wait; words of several sums add up like any integers. So shards, workers and passes may be cut as one likes, and the
// result is that of one loop over all values, rounded once (Python's math.fsum).
#pragma once

#include <cstdint>
#include <span>

namespace tandem {

inline constexpr int kSumWords = 11;  // ten of the number, lowest first; the last counts values that are not finite

// Adds values to `words` (kSumWords of them, zero at first). Up to 2^30 values between two calls of carry_words().
void add_to_words(std::span<int64_t> words, std::span<const float> values);
void carry_words(std::span<int64_t> words);
// The nearest double. NaN where one of the values was not finite.
double sum_of_words(std::span<const int64_t> words);

}  // namespace tandem
