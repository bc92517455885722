// config/spelling.h -- "did you mean": the nearest known word to one that is not known, and (base/printable.h)
// text made safe to print.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/printable.h"  // IWYU pragma: export

namespace tandem {

// Damerau-Levenshtein distance (insert, delete, replace, swap of neighbours), '-' and '_' and case alike.
int spelling_distance(std::string_view a, std::string_view b);

// The nearest candidate, or "" if none is near enough to be a guess worth making. A dotted candidate is also compared
// by its last part, so that "learning_rat" finds "optimizer.learning_rate".
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace tandem
