#include "telemetry/metrics_line.h"

#include <fmt/compile.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace tandem {
namespace {

void append(TextBuffer& out, std::string_view text) { out.append(text.data(), text.data() + text.size()); }

void append_number(TextBuffer& out, double value) {
  if (!std::isfinite(value)) return append(out, "null");
  // Counts and rates are often whole; an integer prints in a tenth of the time.
  const bool whole = std::abs(value) < 1e15 && value == static_cast<double>(static_cast<int64_t>(value));
  if (value == 0 && std::signbit(value)) return append(out, "-0.0");  // "-0" would read back as the integer 0
  if (whole)
    fmt::format_to(fmt::appender(out), FMT_COMPILE("{}"), static_cast<int64_t>(value));
  else
    fmt::format_to(fmt::appender(out), FMT_COMPILE("{}"), value);
}

// A clock's digits below a nanosecond are noise, and they would be half of the file.
void append_seconds(TextBuffer& out, double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return append_number(out, seconds);
  const auto nanos = static_cast<uint64_t>(seconds * 1e9 + 0.5);
  char digits[24];
  char* end = digits + sizeof digits;
  char* begin = end;
  uint64_t fraction = nanos % 1000000000;
  for (int i = 0; i < 9; ++i, fraction /= 10) *--begin = static_cast<char>('0' + fraction % 10);
  *--begin = '.';
  uint64_t whole = nanos / 1000000000;
  do *--begin = static_cast<char>('0' + whole % 10);
  while (whole /= 10);
  while (end[-1] == '0') --end;
  if (end[-1] == '.') --end;
  out.append(begin, end);
}

template <typename AppendValue>
void append_object(TextBuffer& out, std::string_view key, const NamedValues& values, AppendValue append_value) {
  append(out, key);
  char separator = '{';
  for (const auto& [name, value] : values) {
    out.push_back(separator);
    append_json_string(out, name);
    out.push_back(':');
    append_value(out, value);
    separator = ',';
  }
  append(out, values.empty() ? "{}" : "}");
}

// Receives the parser's events one by one, so that no tree is built for a line whatever it holds.
class RecordSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  RecordSax(StepRecord& record, std::string& reason) : record_(record), reason_(reason) {}
  bool saw_step() const { return saw_step_; }

  bool null() override { return value(kAbsent, false, "null"); }
  bool boolean(bool flag) override {
    if (depth_ == 1 && key_ == "skipped") return record_.skipped = flag, true;
    return value(0, false, "a truth value");
  }
  bool number_integer(int64_t number) override { return value(static_cast<double>(number), true, "", number); }
  bool number_unsigned(uint64_t number) override {
    if (number > static_cast<uint64_t>(INT64_MAX)) return number_float(static_cast<double>(number), "");
    return value(static_cast<double>(number), true, "", static_cast<int64_t>(number));
  }
  bool number_float(double number, const std::string&) override { return value(number, true, "a fraction"); }
  bool string(std::string& text) override {
    if (depth_ == 1 && key_ == "job") return record_.job = text, true;
    return value(0, false, "a text");
  }
  bool binary(nlohmann::json::binary_t&) override { return fail("not JSON"); }
  bool start_object(std::size_t) override {
    if (++depth_ == 2)
      inner_ = key_ == "metrics" ? &record_.metrics : key_ == "phases" ? &record_.phase_seconds : nullptr;
    if (depth_ == 2 && !inner_ && known_scalar()) return fail(quoted() + " is not a number but an object");
    return depth_ <= kDeepest || fail("nested too deep");
  }
  bool end_object() override {
    if (--depth_ == 1) inner_ = nullptr;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return fail("not an object");
    if (depth_ == 1 && (known_scalar() || key_ == "metrics" || key_ == "phases"))
      return fail(quoted() + " is an array");
    ++depth_;
    return depth_ <= kDeepest || fail("nested too deep");
  }
  bool end_array() override { return --depth_, true; }
  bool key(std::string& name) override {
    (depth_ == 2 && inner_ ? inner_key_ : key_at(depth_)) = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail(fmt::format("not JSON at byte {}", position));
  }

 private:
  static constexpr int kDeepest = 16;

  bool fail(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return false;
  }
  std::string quoted() const { return "'" + key_ + "'"; }
  std::string& key_at(int depth) { return depth == 1 ? key_ : ignored_; }
  double* scalar() {
    if (key_ == "loss") return &record_.loss;
    if (key_ == "seconds") return &record_.seconds;
    if (key_ == "samples") return &record_.samples;
    if (key_ == "lr") return &record_.learning_rate;
    if (key_ == "grad_norm") return &record_.grad_norm;
    if (key_ == "scale") return &record_.loss_scale;
    if (key_ == "t") return &record_.time;
    return nullptr;
  }
  bool known_scalar() { return scalar() || key_ == "step" || key_ == "epoch" || key_ == "skipped" || key_ == "job"; }

  // A value met at the present place; `integer` is given for whole numbers, `found` says what a non-number is.
  bool value(double number, bool is_number, const char* found, std::optional<int64_t> integer = std::nullopt) {
    if (depth_ == 0) return fail("not an object");
    const bool absent = !is_number && std::isnan(number);
    if (depth_ == 2 && inner_) {
      if (!is_number && !absent) return fail(fmt::format("{}: '{}' is not a number but {}", key_, inner_key_, found));
      if (inner_->size() >= kMostNamesPerRecord)
        return fail(fmt::format("more than {} names in {}", kMostNamesPerRecord, quoted()));
      inner_->emplace_back(inner_key_, number);
      return true;
    }
    if (depth_ != 1) return true;  // inside something unknown
    if (key_ == "step" || key_ == "epoch") {
      if (!integer) return fail(fmt::format("{} is not a whole number but {}", quoted(), found));
      if (key_ == "epoch") return record_.epoch = *integer, true;
      if (*integer < 0) return fail("'step' is negative");
      record_.step = *integer;
      return saw_step_ = true;
    }
    if (key_ == "metrics" || key_ == "phases") return absent || fail(quoted() + " is not an object");
    if (key_ == "skipped") return fail("'skipped' is neither true nor false");
    if (key_ == "job") return fail("'job' is not a text");
    if (double* target = scalar()) {
      if (!is_number && !absent) return fail(fmt::format("{} is not a number but {}", quoted(), found));
      *target = number;
    }
    return true;
  }

  StepRecord& record_;
  std::string& reason_;
  std::string key_, inner_key_, ignored_;
  NamedValues* inner_ = nullptr;
  int depth_ = 0;
  bool saw_step_ = false;
};

}  // namespace

void append_json_string(TextBuffer& out, std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7F && c != '"' && c != '\\';
  });
  if (!plain)
    return append(out,
                  nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  out.push_back('"');
  append(out, text);
  out.push_back('"');
}

void append_metrics_line(TextBuffer& out, const StepRecord& record, double time) {
  fmt::format_to(fmt::appender(out), FMT_COMPILE("{{\"step\":{},\"loss\":"), record.step);
  append_number(out, record.loss);
  append(out, ",\"seconds\":");
  append_seconds(out, record.seconds);
  append(out, ",\"samples\":");
  append_number(out, record.samples);
  append(out, ",\"lr\":");
  append_number(out, record.learning_rate);
  append(out, ",\"grad_norm\":");
  append_number(out, record.grad_norm);
  append(out, ",\"scale\":");
  append_number(out, record.loss_scale);
  append(out, record.skipped ? ",\"skipped\":true,\"epoch\":" : ",\"skipped\":false,\"epoch\":");
  fmt::format_to(fmt::appender(out), FMT_COMPILE("{}"), record.epoch);
  if (!record.job.empty()) {
    append(out, ",\"job\":");
    append_json_string(out, record.job);
  }
  append_object(out, ",\"metrics\":", record.metrics, append_number);
  append_object(out, ",\"phases\":", record.phase_seconds, append_seconds);
  append(out, ",\"t\":");
  // Milliseconds: enough to place a step in a day, and seven digits shorter.
  append_number(out, std::round((std::isnan(record.time) ? time : record.time) * 1000) / 1000);
  append(out, "}\n");
}

std::string metrics_line(const StepRecord& record) {
  TextBuffer line;
  append_metrics_line(line, record);
  return {line.data(), line.size()};
}

bool parse_metrics_line(std::string_view line, StepRecord& record, std::string& reason) {
  return parse_own_line(line, record) || parse_any_metrics_line(line, record, reason);
}

bool parse_any_metrics_line(std::string_view line, StepRecord& record, std::string& reason) {
  record = StepRecord{};
  reason.clear();
  if (line.size() > kLongestMetricsLine) return reason = "longer than a record can be", false;
  RecordSax sax(record, reason);
  try {
    if (!nlohmann::json::sax_parse(line.begin(), line.end(), &sax)) {
      if (reason.empty()) reason = "not JSON";
      return false;
    }
  } catch (const std::exception& error) {  // the parser's own throws, e.g. for a number past any double
    return reason = error.what(), false;
  }
  if (!sax.saw_step()) return reason = "no 'step'", false;
  return true;
}

}  // namespace tandem
