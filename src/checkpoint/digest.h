// checkpoint/digest.h -- the one name of a set of weights: equal digests mean equal weights, on any machine.
#pragma once

#include <span>
#include <string>

#include "checkpoint/dtype.h"

namespace tandem {

// SHA-256 over (name, dtype, shape, bytes) of every tensor in name order; each part is preceded by its length.
std::string weights_digest(std::span<const TensorView> model);

}  // namespace tandem
