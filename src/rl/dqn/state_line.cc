#include "rl/dqn/state_line.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

struct StateLineReader : nlohmann::json_sax<nlohmann::json> {
  StateLineReader(std::string_view text, int64_t size, std::vector<float>& out) : text(text), size(size), out(out) {}

  std::string_view text;
  int64_t size;
  std::vector<float>& out;
  std::string reason;
  bool object = false, ours = false, in_array = false, seen = false;
  int depth = 0;
  int64_t count = 0;

  bool fail(std::string why) {
    if (reason.empty()) reason = std::move(why);
    return false;
  }
  bool plain(const char* kind) {  // a value that is no number
    if (depth == 0) return fail("is neither an array nor an object");
    if (in_array) return fail("holds " + std::string(kind) + " at place " + std::to_string(count));
    return ours ? fail("\"state\" is " + std::string(kind)) : true;
  }
  bool number(double value) {
    if (depth == 0) return fail("is neither an array nor an object");
    if (!in_array) return ours ? fail("\"state\" is a number") : true;
    const float narrow = static_cast<float>(value);
    if (!std::isfinite(narrow)) return fail("has a number at place " + std::to_string(count) + " that no float holds");
    if (++count > size) return fail("has more than " + std::to_string(size) + " numbers");
    out.push_back(narrow);
    return true;
  }
  bool null() override { return plain("null"); }
  bool boolean(bool) override { return plain("true or false"); }
  bool number_integer(int64_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) override { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return number(value); }
  bool string(std::string&) override { return plain("a string"); }
  bool binary(binary_t&) override { return plain("binary"); }
  bool start_object(size_t) override {
    if (depth > 0) return in_array || ours ? plain("an object") : fail("a field beside \"state\" holds an object");
    object = true;
    ++depth;
    return true;
  }
  bool end_object() override {
    --depth;
    return true;
  }
  bool start_array(size_t) override {
    if (in_array) return plain("an array");
    if (depth > 0 && !ours) return fail("a field beside \"state\" holds an array");
    in_array = seen = true;
    ++depth;
    return true;
  }
  bool end_array() override {
    in_array = false;
    --depth;
    return true;
  }
  bool key(std::string& name) override {
    ours = name == "state";
    return ours && seen ? fail("\"state\" is there twice") : true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    const std::string_view at = position > 0 && position <= text.size() ? text.substr(position - 1, 3) : "";
    if (at == "NaN" || at == "Inf") return fail("has NaN or Infinity at byte " + std::to_string(position));
    return fail("is not JSON from byte " + std::to_string(position) + " on");
  }
};

}  // namespace

std::string read_state_line(std::string_view line, int64_t size, std::vector<float>& out) {
  const size_t before = out.size();
  StateLineReader reader(line, size, out);
  bool good = line.size() <= kLongestStateLine || reader.fail("is longer than 1 MiB");
  good = good && nlohmann::json::sax_parse(line, &reader);
  if (good && !reader.seen) reader.fail("has no \"state\"");
  if (good && reader.seen && reader.count != size)
    reader.fail("has " + std::to_string(reader.count) + " numbers, not " + std::to_string(size));
  if (!good && reader.reason.empty()) reader.reason = "is not JSON";
  if (!reader.reason.empty()) out.resize(before);
  return reader.reason;
}

}  // namespace tandem
