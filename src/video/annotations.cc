#include "video/annotations.h"

#include <fmt/format.h>

#include <charconv>

#include "base/printable.h"
#include "market/csv_rows.h"

namespace tandem {
namespace {

constexpr int64_t kMostFrameNumber = int64_t{1} << 40;

// "17"; "17.0" too, as tables of floats are written.
std::optional<int64_t> parse_frame(std::string_view field) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error != std::errc() || number < 0 || number > kMostFrameNumber) return std::nullopt;
  std::string_view rest = field.substr(static_cast<size_t>(end - field.data()));
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    while (rest.starts_with('0')) rest.remove_prefix(1);
  }
  if (!rest.empty()) return std::nullopt;
  return number;
}

// "3.0" is label 3.
std::string_view without_point_zero(std::string_view action) {
  const size_t point = action.find('.');
  if (point != std::string_view::npos && point > 0 && action.find_first_not_of("0", point + 1) == action.npos &&
      action.substr(0, point).find_first_not_of("0123456789") == action.npos)
    return action.substr(0, point);
  return action;
}

class TrialReader {
 public:
  TrialReader(const std::string& file, const ClassTable& table, bool accept_gaps, DataFindings& findings)
      : file_(file), table_(table), accept_gaps_(accept_gaps), findings_(findings) {}

  void row(int64_t line, std::string_view frame_field, std::string_view action) {
    // One finding for one fault: a row that can't be read still is the next frame.
    const std::optional<int64_t> read = parse_frame(frame_field);
    if (!read) findings_.error("frame", file_, line, fmt::format("\"{}\" is no frame number", short_text(frame_field)));
    const int64_t frame = read.value_or(annotation.classes.empty() ? 0 : last_ + 1);
    const int16_t of_class = class_of(line, action);
    if (place(line, frame, of_class)) {
      annotation.classes.push_back(of_class);
      annotation.lines.push_back(line);
      last_ = frame;
    }
  }

  Annotation annotation;

 private:
  static std::string short_text(std::string_view text) { return printable(text.substr(0, 40)); }

  void fault(const char* kind, int64_t line, std::string text) {
    findings_.add(accept_gaps_ ? FindingLevel::kWarning : FindingLevel::kError, kind, file_, line, std::move(text));
  }

  // kNoLabel where there is none, or none that is known.
  int16_t class_of(int64_t line, std::string_view action) {
    if (action.empty()) {
      fault("label", line, "no action");
      return kNoLabel;
    }
    const std::optional<int16_t> of_class = table_.class_of(without_point_zero(action));
    if (!of_class)
      findings_.error("label", file_, line,
                      fmt::format("unknown label \"{}\"; there are 0 to {} and {}", short_text(action),
                                  table_.labels().size() - 1, fmt::join(table_.labels(), ", ")));
    return of_class.value_or(kNoLabel);
  }

  // Whether the row is the trial's next frame; fills a gap before it, where gaps are accepted.
  bool place(int64_t line, int64_t frame, int16_t of_class) {
    if (annotation.classes.empty()) {
      annotation.first_number = frame;
      return true;
    }
    const int64_t missing = frame - last_ - 1;
    if (static_cast<int64_t>(annotation.classes.size()) + missing >= kMostTrialFrames) {
      findings_.error("gap", file_, line, fmt::format("a trial of more than {} frames", kMostTrialFrames));
      return false;
    }
    if (missing == 0) return true;
    if (missing > 0) {
      fault("gap", line, fmt::format("{} frame{} missing before {}", missing, missing == 1 ? "" : "s", frame));
      if (!accept_gaps_) return true;  // one finding for one gap
      annotation.classes.insert(annotation.classes.end(), static_cast<size_t>(missing), kNoLabel);
      annotation.lines.insert(annotation.lines.end(), static_cast<size_t>(missing), line);
      return true;
    }
    if (frame == last_ && of_class == annotation.classes.back())
      fault("duplicate", line, fmt::format("frame {} stands there twice", frame));
    else if (frame == last_)
      findings_.error("duplicate", file_, line, fmt::format("frame {} stands there twice, with two actions", frame));
    else
      findings_.error("order", file_, line, fmt::format("frame {} after {}", frame, last_));
    return false;
  }

  const std::string& file_;
  const ClassTable& table_;
  const bool accept_gaps_;
  DataFindings& findings_;
  int64_t last_ = 0;
};

}  // namespace

Annotation read_annotation(std::string_view text, const std::string& file, const ClassTable& table, bool accept_gaps,
                           DataFindings& findings) {
  static const MarketColumn columns[] = {{"frame"}, {"action"}};
  TrialReader reader(file, table, accept_gaps, findings);
  const bool usable =
      read_csv(text, file, columns, findings,
               [&](int64_t line, std::span<const std::string_view> fields) { reader.row(line, fields[0], fields[1]); });
  if (usable && reader.annotation.classes.empty()) findings.error("empty", file, 0, "it has a header and no frame");
  return std::move(reader.annotation);
}

std::optional<AnnotationName> read_annotation_name(std::string_view file) {
  constexpr std::string_view kBegin = "prediction_", kEnd = ".csv";
  if (!file.starts_with(kBegin) || !file.ends_with(kEnd) || file.size() <= kBegin.size() + kEnd.size())
    return std::nullopt;
  file.remove_prefix(kBegin.size());
  file.remove_suffix(kEnd.size());
  const size_t bar = file.rfind('_');
  if (bar == std::string_view::npos || bar == 0 || bar + 1 == file.size() || file.size() - bar > 10)
    return std::nullopt;
  AnnotationName name{std::string(file.substr(0, bar)), 0};
  const char* const last = file.data() + file.size();
  const auto [end, error] = std::from_chars(file.data() + bar + 1, last, name.trial);
  if (error != std::errc() || end != last || name.trial < 0) return std::nullopt;
  return name;
}

}  // namespace tandem
