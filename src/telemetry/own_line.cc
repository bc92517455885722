// telemetry/own_line.cc -- the fast reader of lines that append_metrics_line wrote (declared in metrics_line.h).
//
// A report of a million steps reads a million lines, nearly all in our own order of keys without a space. Anything
// else, an escape, a foreign key, a number at the edge of a double, is left to the full parser: this one only ever says
// yes to what that one would read the same way.
#include <charconv>

#include "telemetry/metrics_line.h"

namespace tandem {
namespace {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool take(std::string_view expected) {
    if (static_cast<size_t>(end_ - at_) < expected.size() || std::string_view(at_, expected.size()) != expected)
      return false;
    at_ += expected.size();
    return true;
  }
  bool done() const { return at_ == end_; }

  bool whole(int64_t& value) {
    const char* end = number_end();
    if (end == nullptr) return false;
    const auto [stop, error] = std::from_chars(at_, end, value);
    if (error != std::errc() || stop != end) return false;  // a fraction, or too large
    at_ = end;
    return true;
  }
  bool number(double& value) {
    if (take("null")) return value = kAbsent, true;
    const char* end = number_end();
    if (end == nullptr) return false;
    // "-0" is the integer 0 to the full parser.
    if (end - at_ == 2 && at_[0] == '-' && at_[1] == '0') return false;
    const auto [stop, error] = std::from_chars(at_, end, value);
    if (error != std::errc() || stop != end || end - at_ > 32) return false;
    at_ = end;
    return true;
  }
  bool text(std::string& value) {
    if (!take("\"")) return false;
    const char* begin = at_;
    while (at_ < end_ && *at_ != '"') {
      const auto c = static_cast<unsigned char>(*at_++);
      if (c < 0x20 || c >= 0x7F || c == '\\') return false;
    }
    if (at_ == end_) return false;
    value.assign(begin, at_);
    ++at_;
    return true;
  }
  bool object(NamedValues& values) {
    if (!take("{")) return false;
    if (take("}")) return true;
    do {
      if (values.size() >= kMostNamesPerRecord) return false;
      auto& [name, value] = values.emplace_back();
      if (!text(name) || !take(":") || !number(value)) return false;
    } while (take(","));
    return take("}");
  }

 private:
  // The end of a number as JSON defines it (from_chars alone would take "01", ".5" and "inf"), or nothing.
  const char* number_end() const {
    const char* p = at_;
    const auto digits = [&] {
      const char* begin = p;
      while (p < end_ && *p >= '0' && *p <= '9') ++p;
      return p - begin;
    };
    if (p < end_ && *p == '-') ++p;
    const bool zero = p < end_ && *p == '0';
    const auto count = digits();
    if (count == 0 || (zero && count > 1)) return nullptr;
    if (p < end_ && *p == '.') {
      ++p;
      if (digits() == 0) return nullptr;
    }
    if (p < end_ && (*p == 'e' || *p == 'E')) {
      ++p;
      if (p < end_ && (*p == '-' || *p == '+')) ++p;
      if (digits() == 0) return nullptr;
    }
    return p;
  }

  const char *at_, *end_;
};

}  // namespace

bool parse_own_line(std::string_view line, StepRecord& record) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.size() > kLongestMetricsLine) return false;
  record.metrics.clear();
  record.phase_seconds.clear();
  record.job.clear();
  Cursor c(line);
  const auto flag = [&] {
    record.skipped = c.take("true");
    return record.skipped || c.take("false");
  };
  return c.take("{\"step\":") && c.whole(record.step) && record.step >= 0 && c.take(",\"loss\":") &&
         c.number(record.loss) && c.take(",\"seconds\":") && c.number(record.seconds) && c.take(",\"samples\":") &&
         c.number(record.samples) && c.take(",\"lr\":") && c.number(record.learning_rate) &&
         c.take(",\"grad_norm\":") && c.number(record.grad_norm) && c.take(",\"scale\":") &&
         c.number(record.loss_scale) && c.take(",\"skipped\":") && flag() && c.take(",\"epoch\":") &&
         c.whole(record.epoch) && (!c.take(",\"job\":") || c.text(record.job)) && c.take(",\"metrics\":") &&
         c.object(record.metrics) && c.take(",\"phases\":") && c.object(record.phase_seconds) && c.take(",\"t\":") &&
         c.number(record.time) && c.take("}") && c.done();
}

}  // namespace tandem
