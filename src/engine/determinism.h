// engine/determinism.h -- the switchboard: every setting of libtorch and its libraries that bits depend on, in one
// place.
#pragma once

#include <string>

namespace tandem {

// Call once, before the first tensor: deterministic algorithms or an error (not a warning), no filling of fresh memory,
// cuDNN deterministic without benchmarking, TF32 off, cuBLAS workspace fixed, one thread per operator.
void set_determinism();

// Call first in every thread that computes: OpenMP keeps its thread count per thread, and with 2 the bits differ.
void prepare_thread();

// Throws std::logic_error("...") if the switches were changed since, by a recipe or a library.
void check_determinism();

// A fingerprint of ATen's generators. Recipes draw from Philox streams keyed by (seed, step, shard, site, index); a
// recipe that draws from ATen's would depend on the order of visits, and the loop uses this to catch it.
std::string aten_generator_state();

}  // namespace tandem
