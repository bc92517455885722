// kernels/cuda_profile.h -- how long each kernel of a queue of work takes, for bench/ (Card::part("profile")).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda_kernels.h"

namespace tandem::cuda {

// Seconds of every launch that `work` queues on the stream, in order; copies count with the launch after them. `work`
// must not wait for the card.
std::vector<std::pair<std::string, double>> profile(Stream stream, const std::function<void()>& work);

}  // namespace tandem::cuda
