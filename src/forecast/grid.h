// forecast/grid.h -- which numbers of workers and batches are tried, and how the model is fitted to them. Pure.
//
// A model of one and of two workers misses what happens where several share cores, caches and memory. So the corners
// are measured: one, two and the most workers that are asked for, at the smallest and the largest batch; the model says
// what lies between, and is stretched so that it passes through everything that was measured.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace tandem {

struct GridCell {
  int workers = 1;
  int64_t batch = 0;
  double weight = 1;       // of the time
  bool essential = false;  // measured however little time there is
};

struct GridQuestion {
  int most = 1;                  // workers
  std::vector<int64_t> batches;  // the first is the main one
  double seconds = 60;           // of measuring in all
  double start_seconds = 2.5;    // what a trial takes beside its training, with one worker
  int cores = 1;                 // workers beyond them start one after the other
};

// In the order to measure: the main one first. What is not essential is left out where time does not allow it.
std::vector<GridCell> calibration_grid(const GridQuestion& question);
// What a trial takes beside its training.
double start_guess(int workers, double alone, int cores);

// By how much what was measured differs from a model: a factor for each number of workers and each batch.
class Stretch {
 public:
  void add(int workers, int64_t batch, double factor);
  bool empty() const { return by_workers_.empty(); }
  bool measured(int workers) const { return workers == 1 || by_workers_.contains(workers); }
  // 1 for one worker, as the model says it exactly; between numbers that were measured on a line over their logarithm,
  // beyond them as at the last.
  double at(int workers, double batch) const;

 private:
  using Curve = std::map<double, std::vector<double>>;  // by batch
  const Curve* whole(int workers) const;                // tried at as many batches as any
  double between(int workers, double batch, bool whole_only) const;

  std::map<int, Curve> by_workers_;
};

}  // namespace tandem
