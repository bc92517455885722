// forecast/hardware_model.h -- what was measured here, as it would be on cards that are not here: scaled by what their
// makers say of them (hardware/card_book.h).
//
// A step has a share that waits for arithmetic, one that waits for memory, and one that waits for launches and latency.
// The first two follow peak and bandwidth of a card, the third stays as it is. Where no card could be measured here,
// the third comes from what was measured on an H200 (docs/gpu-results.md), or is a guess; the error says which.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "forecast/calibration.h"
#include "hardware/card_book.h"

namespace tandem {

// Of a step on some card, in seconds.
struct StepShares {
  double arithmetic = 0, memory = 0, latency = 0;
  double seconds() const { return arithmetic + memory + latency; }
};

struct Scaled {
  Calibration calibration;  // trials on one and on two of each of the cards, none of which was ever made
  std::string from;         // "NVIDIA H200 measured here", ...
  double error = 0;         // of the time, as a share; above 1: by a factor of 1 + error
  StepShares shares;        // of the first card at the first batch
};

// Peak of a card in this precision, in floating-point operations a second; fp32's where the maker says nothing.
double peak_flops(const BookCard& card, const std::string& precision);
bool states_peak(const BookCard& card, const std::string& precision);

// Moves shares from one card to another, and from one precision to another.
StepShares moved(const StepShares& shares, const BookCard& from, const std::string& from_precision, const BookCard& to,
                 const std::string& precision);

// `here` holds trials of `precision` (of fp32 if it has none) on one device. Throws ConfigError if it has none at all.
Scaled scale_to(const std::vector<const BookCard*>& cards, const Calibration& here, const JobShape& job,
                const std::vector<int64_t>& batches, const std::string& precision);

// Several agents side by side in one run, from the trials of one that is alone in its own: a step takes `slower` times
// as long, `job` is the shape of all of them, and what a step holds beside it is there for each.
Calibration side_by_side(Calibration alone, const JobShape& job, int agents, double slower);
// The shape of such a run: each has its own weights, optimizer and buffer.
JobShape sum_of(const std::vector<JobShape>& jobs);

}  // namespace tandem
