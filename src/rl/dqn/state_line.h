// rl/dqn/state_line.h -- one line of input of `tandem act`: {"state": [numbers]} or the bare array.
//
// Other fields may stand beside "state" if they hold plain values; they are not read. Nothing is built from a hostile
// line beyond its longest string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

inline constexpr size_t kLongestStateLine = size_t{1} << 20;

// Appends `size` floats to `out`, or returns what is wrong ("has 127 numbers, not 128") and leaves `out` as it was.
std::string read_state_line(std::string_view line, int64_t size, std::vector<float>& out);

}  // namespace tandem
