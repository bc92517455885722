// fuzz/fuzz_state_line.cc -- a line that `tandem act` is asked (rl/dqn/state_line.h): any bytes.
//
// Beyond not crashing: a line gives all its numbers, finite, or a reason and nothing; what it gave, written as an
// array, gives the same again.
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rl/dqn/state_line.h"

namespace {

void require(bool good) {
  if (!good) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<float> out{7.0f};
  const std::string reason = read_state_line(text, 3, out);
  require(out.size() == (reason.empty() ? 4u : 1u) && out[0] == 7.0f);
  if (!reason.empty()) return 0;
  std::string again = "[";
  for (size_t i = 1; i < out.size(); ++i) {
    require(std::isfinite(out[i]));
    again += (i > 1 ? "," : "") + std::to_string(static_cast<double>(out[i]));
  }
  std::vector<float> second;
  require(read_state_line(again + "]", 3, second).empty() && second.size() == 3);
  return 0;
}
