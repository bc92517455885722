// telemetry/metrics_line.h -- one StepRecord as one line of metrics.jsonl, and back.
//
// Numbers are written with the fewest digits that read back as the same double (times are rounded to nanoseconds); NaN
// and infinities, which JSON does not have, as null. The reader ignores keys it does not know, so a newer tandem may
// add some.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "telemetry/step_record.h"

namespace tandem {

inline constexpr size_t kLongestMetricsLine = size_t{1} << 20;  // a longer one is nobody's record
inline constexpr size_t kMostNamesPerRecord = 4096;

using TextBuffer = fmt::basic_memory_buffer<char, 4096>;

// With its newline; `time` stands in for an absent record.time, so that no record is copied for it.
void append_metrics_line(TextBuffer& out, const StepRecord& record, double time = kAbsent);

// The same as text: libtorch brings another fmt, whose buffers are other types, so callers above it use this one.
std::string metrics_line(const StepRecord& record);

// True and the record, or false and the reason, e.g. "'loss' is not a number". Never throws on bad input.
bool parse_metrics_line(std::string_view line, StepRecord& record, std::string& reason);

// The same by a full JSON parser alone. parse_metrics_line first tries parse_own_line (eight times faster), which knows
// only lines as append_metrics_line writes them and gives up on anything else; fuzz_metrics checks that they agree.
bool parse_any_metrics_line(std::string_view line, StepRecord& record, std::string& reason);
bool parse_own_line(std::string_view line, StepRecord& record);

void append_json_string(TextBuffer& out, std::string_view text);  // quoted; bytes that are not UTF-8 are replaced

}  // namespace tandem
