// fuzz/fuzz_history.cc -- the reader of transitions (world/product_history.h): any bytes, in pieces of any size.
//
// Beyond not crashing: pieces and the whole give the same rows; what was read is within its bounds, and written and
// read again it gives the same line.
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "world/product_history.h"

namespace {

void require(bool good) {
  if (!good) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t piece = size == 0 ? 1 : 1 + data[0] % 16;
  const HistoryShape shape{3, 4, {"analysis", "evolution"}};

  std::string fused_mlp, piece_rows;
  const auto keep_in = [&](std::string& rows) {
    return [&](const HistoryRow& t) {
      require(t.state.size() == 3 && t.next_state.size() == 3 && t.action >= 0 && t.action < 4);
      require(t.agent >= 0 && t.agent < 2 && std::isfinite(t.reward));
      for (float x : t.state) require(std::isfinite(x));
      for (float x : t.next_state) require(std::isfinite(x));
      rows += history_line(shape.agents[static_cast<size_t>(t.agent)], t);
    };
  };
  HistoryReader whole(shape, keep_in(fused_mlp)), pieces(shape, keep_in(piece_rows));
  whole.feed(text);
  for (size_t at = 0; at < size; at += piece) pieces.feed(text.substr(at, piece));
  const HistoryRead a = whole.finish(), b = pieces.finish();
  require(fused_mlp == piece_rows && a.lines == b.lines && a.rows == b.rows && a.bad == b.bad);
  require(a.lines == a.rows + a.bad && a.complaint() == b.complaint());

  std::string again_rows;
  HistoryReader again(shape, keep_in(again_rows));
  again.feed(fused_mlp);
  require(again.finish().bad == 0 && again_rows == fused_mlp);
  return 0;
}
