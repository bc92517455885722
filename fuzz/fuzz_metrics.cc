// fuzz/fuzz_metrics.cc -- the reader of metrics.jsonl: any bytes, in pieces of any size.
//
// Beyond not crashing: pieces and the whole give the same records; the fast reader agrees with the full parser; a
// record that was read can be written and read again with the same result.
#include <cstdlib>
#include <string>
#include <string_view>

#include "telemetry/metrics_file.h"

namespace {

std::string line_of(const tandem::StepRecord& record) {
  tandem::TextBuffer out;
  tandem::append_metrics_line(out, record);
  return fmt::to_string(out);
}

void require(bool good) {
  if (!good) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t piece = size == 0 ? 1 : 1 + data[0] % 16;

  std::string whole_records, piece_records;
  MetricsParser whole([&](const StepRecord& record) { whole_records += line_of(record); });
  MetricsParser pieces([&](const StepRecord& record) { piece_records += line_of(record); });
  whole.feed(text);
  for (size_t at = 0; at < size; at += piece) pieces.feed(text.substr(at, piece));
  const MetricsRead a = whole.finish(), b = pieces.finish();
  require(whole_records == piece_records && a.records == b.records && a.bad_count == b.bad_count && a.torn == b.torn);

  const std::string_view line = text.substr(0, text.find('\n'));
  StepRecord fast, slow, again;
  std::string reason;
  const bool fast_good = parse_own_line(line, fast), slow_good = parse_any_metrics_line(line, slow, reason);
  require(slow_good || (!fast_good && !reason.empty()));
  if (fast_good) require(line_of(fast) == line_of(slow));
  if (slow_good) {
    require(parse_metrics_line(line_of(slow), again, reason));
    require(line_of(again) == line_of(slow));
  }
  return 0;
}
