#include "config/spelling.h"

#include <algorithm>
#include <vector>

namespace tandem {
namespace {

char folded(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

}  // namespace

int spelling_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: a swap of neighbours looks two rows back.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1]);
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > 200) return "";
  std::string best;
  // Twice the distance, so that a match by the last part alone loses a tie by one half.
  int best_score = 2 * std::max<int>(1, std::min<int>(4, static_cast<int>(word.size() + 1) / 3)) + 1;
  const auto consider = [&](const std::string& candidate, std::string_view form, int penalty) {
    const int score = 2 * spelling_distance(word, form) + penalty;
    if (score < best_score) {
      best_score = score;
      best = candidate;
    }
  };
  for (const std::string& candidate : candidates) {
    consider(candidate, candidate, 0);
    const size_t dot = candidate.rfind('.');
    if (dot != std::string::npos) consider(candidate, std::string_view(candidate).substr(dot + 1), 1);
  }
  return best;
}

}  // namespace tandem
