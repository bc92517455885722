#include "world/product_history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/errors.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

enum Field { kNone = -1, kAgent, kState, kAction, kReward, kNext, kDone, kFieldCount };
constexpr const char* kFieldNames[kFieldCount] = {"agent", "state", "action", "reward", "next_state", "done"};

// Takes a line's events without building a tree, so a hostile line costs no more memory than its longest string.
struct HistoryLineReader : nlohmann::json_sax<Json> {
  HistoryLineReader(std::string_view text, const HistoryShape& shape, std::vector<float>& state,
                    std::vector<float>& next)
      : text(text), shape(shape), state(state), next(next) {
    state.clear();
    next.clear();
  }

  std::string_view text;
  const HistoryShape& shape;
  std::vector<float>&state, &next;
  std::string reason;
  Field field = kNone;
  unsigned seen = 0;
  int depth = 0;
  int32_t agent = 0;
  double action = -1, reward = 0;
  bool done_value = false;

  bool fail(std::string why) {
    if (reason.empty()) reason = std::move(why);
    return false;
  }
  std::string quoted(Field f) const { return std::string("\"") + kFieldNames[f] + "\""; }

  bool number_value(double value) {
    if (depth == 0) return fail("is not an object");
    if (depth == 2) {
      std::vector<float>& row = field == kState ? state : next;
      const int32_t most = shape.states > 0 ? shape.states : kMostHistoryStates;
      if (static_cast<int32_t>(row.size()) >= most)
        return fail(quoted(field) + " has more than " + std::to_string(most) + " numbers");
      const float narrow = static_cast<float>(value);
      if (!std::isfinite(narrow))
        return fail(quoted(field) + " has a number at place " + std::to_string(row.size()) + " that no float holds");
      row.push_back(narrow);
      return true;
    }
    const int32_t actions = shape.actions > 0 ? shape.actions : kMostHistoryActions;
    switch (field) {
      case kAction:
        if (value < 0 || value >= actions || value != std::floor(value))
          return fail("\"action\" is not a whole number from 0 to " + std::to_string(actions - 1));
        action = value;
        return true;
      case kReward:
        if (!std::isfinite(static_cast<float>(value))) return fail("\"reward\" is a number that no float holds");
        reward = value;
        return true;
      case kNone:
        return true;
      default:
        return fail(quoted(field) + " is a number");
    }
  }

  bool null() override { return wrong_kind("null"); }
  bool boolean(bool value) override {
    if (depth != 1 || field != kDone) return wrong_kind("true or false");
    done_value = value;
    return true;
  }
  bool number_integer(int64_t value) override { return number_value(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) override { return number_value(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return number_value(value); }
  bool string(std::string& value) override {
    if (depth != 1 || field != kAgent) return wrong_kind("a string");
    for (size_t a = 0; a < shape.agents.size(); ++a)
      if (shape.agents[a] == value) {
        agent = static_cast<int32_t>(a);
        return true;
      }
    return shape.agents.empty() ? true : fail("\"agent\" is '" + value.substr(0, 40) + "', which is not known");
  }
  bool binary(binary_t&) override { return wrong_kind("binary"); }
  bool start_object(size_t) override {
    if (depth != 0) return wrong_kind("an object");
    ++depth;
    return true;
  }
  bool end_object() override {
    --depth;
    return true;
  }
  bool start_array(size_t) override {
    if (depth == 0) return fail("is not an object");
    if (depth != 1 || (field != kState && field != kNext)) return wrong_kind("an array");
    ++depth;
    return true;
  }
  bool end_array() override {
    --depth;
    return true;
  }
  bool key(std::string& name) override {
    field = kNone;
    for (int f = 0; f < kFieldCount; ++f)
      if (name == kFieldNames[f]) field = static_cast<Field>(f);
    if (field == kNone) return true;
    if ((seen >> field & 1u) != 0) return fail(quoted(field) + " is there twice");
    seen |= 1u << field;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    const std::string_view at = position > 0 && position <= text.size() ? text.substr(position - 1, 3) : "";
    if (at == "NaN" || at == "Inf") return fail("has NaN or Infinity at byte " + std::to_string(position));
    return fail("is not JSON from byte " + std::to_string(position) + " on");
  }

  // A field that is not ours may hold a plain value; arrays and objects there are refused.
  bool wrong_kind(std::string_view kind) {
    if (depth == 0) return fail("is not an object");
    const bool nests = kind == "an array" || kind == "an object";
    if (field == kNone && !nests) return true;
    if (field == kNone) return fail("a field that is not known holds " + std::string(kind));
    return fail(quoted(field) + (depth == 2 ? " holds " : " is ") + std::string(kind));
  }
};

void append_numbers(std::string& out, std::span<const float> row) {
  char digits[32];
  for (size_t i = 0; i < row.size(); ++i) {
    const auto end = std::to_chars(digits, digits + sizeof(digits), row[i]).ptr;
    if (i != 0) out += ',';
    out.append(digits, end);
  }
}

}  // namespace

std::string HistoryRead::complaint() const {
  if (bad == 0) return "";
  std::string out = std::to_string(bad) + " of " + std::to_string(lines) + " lines are bad: ";
  for (size_t i = 0; i < first_bad.size(); ++i)
    out += (i == 0 ? "line " : "; line ") + std::to_string(first_bad[i].number) + " " + first_bad[i].reason;
  if (bad > static_cast<int64_t>(first_bad.size())) out += "; ...";
  return out;
}

HistoryReader::HistoryReader(HistoryShape shape, Taker taker) : shape_(std::move(shape)), taker_(std::move(taker)) {
  read_.rows_of.assign(std::max<size_t>(shape_.agents.size(), 1), 0);
}

void HistoryReader::refuse(std::string reason) {
  ++read_.bad;
  if (read_.first_bad.size() < kNamed) read_.first_bad.push_back({number_, std::move(reason)});
}

void HistoryReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (!too_long_) {
      too_long_ = rest_.size() + piece.size() > kLongestLine;
      if (too_long_)
        rest_.clear();
      else
        rest_ += piece;
    }
    if (end == std::string_view::npos) return;
    line(rest_);
    rest_.clear();
    too_long_ = false;
    bytes.remove_prefix(end + 1);
  }
}

void HistoryReader::line(std::string_view text) {
  ++number_;
  if (!too_long_ && text.find_first_not_of(" \t\r") == std::string_view::npos) return;
  ++read_.lines;
  if (too_long_) return refuse("is longer than " + std::to_string(kLongestLine) + " bytes");
  HistoryLineReader reader(text, shape_, state_, next_);
  if (!Json::sax_parse(text, &reader) || !reader.reason.empty())
    return refuse(reader.reason.empty() ? "is not JSON" : reader.reason);
  for (int f = shape_.agents.empty() ? kState : kAgent; f < kFieldCount; ++f)
    if ((reader.seen >> f & 1u) == 0) return refuse(std::string("has no \"") + kFieldNames[f] + "\"");
  const int32_t size = shape_.states > 0 ? shape_.states : static_cast<int32_t>(state_.size());
  if (size == 0) return refuse("\"state\" has no numbers");
  for (const auto* row : {&state_, &next_})
    if (static_cast<int32_t>(row->size()) != size)
      return refuse(std::string(row == &state_ ? "\"state\"" : "\"next_state\"") + " has " +
                    std::to_string(row->size()) + " numbers, not " + std::to_string(size));
  shape_.states = read_.states = size;
  read_.largest_action = std::max(read_.largest_action, static_cast<int32_t>(reader.action));
  ++read_.rows;
  ++read_.rows_of[static_cast<size_t>(reader.agent)];
  taker_({reader.agent, static_cast<int32_t>(reader.action), static_cast<float>(reader.reward), reader.done_value,
          state_, next_});
}

HistoryRead HistoryReader::finish() {
  if (!rest_.empty() || too_long_) line(rest_);
  rest_.clear();
  too_long_ = false;
  return read_;
}

HistoryRead read_history(const std::filesystem::path& file, const HistoryShape& shape,
                         const HistoryReader::Taker& taker) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw IoError("can't read " + file.string(), errno, "name a file of JSON lines that exists");
  HistoryReader reader(shape, taker);
  std::vector<char> buffer(size_t{1} << 16);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0)
    reader.feed({buffer.data(), static_cast<size_t>(in.gcount())});
  if (in.bad())
    throw IoError("can't read " + file.string() + " to its end", errno, "look after the disk, then try again");
  HistoryRead read = reader.finish();
  if (read.rows == 0)
    throw ConfigError(file.string() + " holds no transition that can be used",
                      read.lines == 0 ? "it is empty" : read.complaint(),
                      "write it as docs/continuous-learning.md says");
  return read;
}

std::string history_line(std::string_view agent, const HistoryRow& row) {
  std::string out = "{\"agent\":" + Json(agent).dump() + ",\"state\":[";
  append_numbers(out, row.state);
  out += "],\"action\":" + std::to_string(row.action) + ",\"reward\":";
  append_numbers(out, std::span(&row.reward, 1));
  out += ",\"next_state\":[";
  append_numbers(out, row.next_state);
  out += std::string("],\"done\":") + (row.done ? "true" : "false") + "}\n";
  return out;
}

}  // namespace tandem
