// apps/chess/match/match_score.h -- what a match has shown: score, Elo difference and likelihood of superiority, with
// 95 % intervals.
//
// The two games of a pair have one opening and colours exchanged, so their results are not independent: an opening that
// favours White gives 1-1. What is counted is therefore the pair, with 0, 1/2, 1, 3/2 or 2 points ("pentanomial").
//
// ScoreInterval of the mean score: Wilson's, with the pairs' own variance. Let m be the mean of n pairs on a scale from
// 0 to 1, v their variance, r = v / (m (1 - m)) the share of the largest variance that this mean allows, and r' = (n r
// + 1) / (n + 1), as if one more pair had come out as widely as it can. The interval holds every mean u with (m - u)^2
// <= z^2 r' u (1 - u) / n. It never leaves 0..1, and is not empty where all pairs ended alike.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace tandem::chess {

struct ScoreInterval {
  double low, high;
};

// Games and pairs from the side of the first player.
struct MatchScore {
  int64_t wins = 0, draws = 0, losses = 0;
  std::array<int64_t, 5> pairs = {};  // with 0, 1/2, 1, 3/2 and 2 points

  // `points` of one game, times two: 0, 1 or 2.
  void add_game(int points);
  // Of both games of a pair, each times two.
  void add_pair(int first, int second) { ++pairs[static_cast<size_t>(first + second)]; }

  int64_t games() const { return wins + draws + losses; }
};

inline constexpr double kNinetyFive = 1.959963984540054;  // of the normal distribution, two-sided

// What is known of a mean: of outcomes 0, 1/(k-1), ..., 1 that came out counts[0..k-1] times.
struct MeanEstimate {
  double mean, variance;
  int64_t count;
  double share;  // r' above
  ScoreInterval interval(double z = kNinetyFive) const;
  // That the true mean is above 1/2, by the same rule: Phi((m - 1/2) / sqrt(r' / (4 n))).
  double above_half() const;
};
// Nothing of nothing.
std::optional<MeanEstimate> estimate_pairs(const MatchScore& score);
std::optional<MeanEstimate> estimate_games(const MatchScore& score);  // as if they were independent
// Of a share: wins of games, say.
ScoreInterval share_interval(int64_t of_these, int64_t of_all);

// 400 log10(s / (1 - s)); infinite at 0 and 1.
double elo_of_score(double score);

}  // namespace tandem::chess
