#include "apps/chess/match/match_score.h"

#include <cmath>
#include <numeric>
#include <span>

namespace tandem::chess {
namespace {

std::optional<MeanEstimate> estimate(std::span<const int64_t> counts) {
  MeanEstimate e{};
  e.count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (e.count == 0) return std::nullopt;
  const double n = static_cast<double>(e.count), top = static_cast<double>(counts.size() - 1);
  for (size_t i = 0; i < counts.size(); ++i)
    e.mean += static_cast<double>(i) / top * static_cast<double>(counts[i]) / n;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double off = static_cast<double>(i) / top - e.mean;
    e.variance += off * off * static_cast<double>(counts[i]) / n;
  }
  const double largest = e.mean * (1 - e.mean);
  const double share = largest > 0 ? e.variance / largest : 1;
  e.share = (n * share + 1) / (n + 1);
  return e;
}

}  // namespace

void MatchScore::add_game(int points) {
  if (points == 2) ++wins;
  if (points == 1) ++draws;
  if (points == 0) ++losses;
}

// (m - u)^2 = z^2 r' u (1 - u) / n, solved for u.
ScoreInterval MeanEstimate::interval(double z) const {
  const double k = z * z * share / static_cast<double>(count);
  const double centre = (mean + k / 2) / (1 + k);
  const double half = std::sqrt(k * (mean * (1 - mean) + k / 4)) / (1 + k);
  return {std::fmax(0, centre - half), std::fmin(1, centre + half)};
}

double MeanEstimate::above_half() const {
  return 0.5 * std::erfc(-(mean - 0.5) / std::sqrt(share / (4 * static_cast<double>(count))) / std::sqrt(2.0));
}

std::optional<MeanEstimate> estimate_pairs(const MatchScore& score) { return estimate(score.pairs); }

std::optional<MeanEstimate> estimate_games(const MatchScore& score) {
  return estimate(std::array{score.losses, score.draws, score.wins});
}

ScoreInterval share_interval(int64_t of_these, int64_t of_all) {
  return MeanEstimate{
      .mean = static_cast<double>(of_these) / static_cast<double>(of_all), .variance = 0, .count = of_all, .share = 1}
      .interval();
}

double elo_of_score(double score) { return 400 * std::log10(score / (1 - score)); }

}  // namespace tandem::chess
