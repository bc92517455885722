#include "forecast/grid.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tandem {
namespace {

constexpr double kUseful = 2.5;     // seconds of training below which a further cell is not worth the others' time
constexpr double kStartEach = .15;  // of a start alone: what each further worker adds while there are cores

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// On lines between the points, level beyond them.
double on_curve(const std::map<double, std::vector<double>>& curve, double x) {
  const auto above = curve.lower_bound(x);
  if (above == curve.end()) return mean(curve.rbegin()->second);
  if (above == curve.begin() || above->first == x) return mean(above->second);
  const auto below = std::prev(above);
  const double share = (x - below->first) / (above->first - below->first);
  return mean(below->second) + share * (mean(above->second) - mean(below->second));
}

}  // namespace

double start_guess(int workers, double alone, int cores) {
  const double turns = std::max(1.0, static_cast<double>(workers) / std::max(1, cores));
  return alone * (turns + kStartEach * (workers - 1));
}

std::vector<GridCell> calibration_grid(const GridQuestion& question) {
  std::vector<GridCell> cells;
  std::set<std::pair<int, int64_t>> chosen;
  double needed = 0;
  const auto add = [&](int workers, int64_t batch, double weight, bool essential) {
    const double cost = start_guess(workers, question.start_seconds, question.cores) + kUseful;
    if (workers > question.most || (!essential && needed + cost > question.seconds)) return;
    if (!chosen.insert({workers, batch}).second) return;
    needed += cost;
    cells.push_back({workers, batch, weight, essential});
  };
  const int64_t main = question.batches.front();
  const auto [smallest, largest] = std::ranges::minmax(question.batches);
  const int most = question.most;
  add(1, main, 1.5, true);
  for (const int64_t batch : {smallest, largest}) add(1, batch, 1, true);
  for (const int workers : {2, most})
    for (const int64_t batch : {smallest, largest}) add(workers, batch, 1, true);
  for (const int64_t batch : question.batches) add(1, batch, 1, false);
  add((2 + most) / 2, main, 1, false);
  add(most, main, 1, false);
  return cells;
}

void Stretch::add(int workers, int64_t batch, double factor) {
  if (workers > 1 && factor > 0) by_workers_[workers][static_cast<double>(batch)].push_back(factor);
}

const Stretch::Curve* Stretch::whole(int workers) const {
  size_t most = 0;
  for (const auto& [count, curve] : by_workers_) most = std::max(most, curve.size());
  const auto found = by_workers_.find(workers);
  return found != by_workers_.end() && found->second.size() == most ? &found->second : nullptr;
}

double Stretch::between(int workers, double batch, bool whole_only) const {
  int below = 1, above = 0;
  for (const auto& [count, curve] : by_workers_) {
    if (whole_only && !whole(count)) continue;
    if (count <= workers) below = count;
    if (count >= workers && above == 0) above = count;
  }
  const auto value = [&](int count) {
    if (count == 1) return 1.0;
    if (const Curve* curve = whole(count)) return on_curve(*curve, batch);
    return at(count, batch);
  };
  if (above == 0 || above == below) return value(below);
  const double share = std::log2(static_cast<double>(workers) / below) / std::log2(static_cast<double>(above) / below);
  return value(below) + share * (value(above) - value(below));
}

double Stretch::at(int workers, double batch) const {
  if (workers <= 1 || by_workers_.empty()) return 1;
  const auto own = by_workers_.find(workers);
  if (own == by_workers_.end()) return between(workers, batch, false);
  if (const Curve* curve = whole(workers)) return on_curve(*curve, batch);
  // Tried at fewer batches than others: their shape, moved to where it was tried.
  double moved = 0;
  for (const auto& [where, factors] : own->second) moved += mean(factors) / between(workers, where, true);
  return between(workers, batch, true) * moved / static_cast<double>(own->second.size());
}

}  // namespace tandem
