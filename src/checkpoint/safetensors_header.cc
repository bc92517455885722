#include "checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "checkpoint/json_bounds.h"

namespace tandem {
namespace {

using nlohmann::json;

struct Entry {
  TensorView tensor;
  std::uint64_t begin = 0, end = 0;
};

// Takes the events of the JSON parser and keeps only what the format allows, so no document tree is ever built.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  HeaderReader(const std::string& source) : source_(source) {}
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) return place_ = Place::kTop, true;
    if (place_ == Place::kTop) {
      if (name_ == "__metadata__") {
        if (std::exchange(has_metadata_, true)) refuse("has two __metadata__ entries");
        return place_ = Place::kMetadata, true;
      }
      if (entries.size() == kMaxTensors) refuse(fmt::format("holds more than {} tensors", kMaxTensors));
      entries.emplace_back();
      entries.back().tensor.name = std::move(name_);
      offsets_ = 0;
      seen_ = 0;
      return place_ = Place::kTensor, true;
    }
    return unexpected();
  }

  bool key(std::string& text) override {
    name_ = std::move(text);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTop) return place_ = Place::kEnd, true;
    if (place_ == Place::kTensor && seen_ != (kDType | kShape | kOffsets))
      refuse(fmt::format("tensor '{}' lacks one of dtype, shape, data_offsets", current().name));
    return place_ = Place::kTop, true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor) return unexpected();
    if (name_ == "shape") {
      mark(kShape);
      return place_ = Place::kShapeArray, true;
    }
    if (name_ == "data_offsets") {
      mark(kOffsets);
      return place_ = Place::kOffsetArray, true;
    }
    return unexpected();
  }

  bool end_array() override {
    if (place_ == Place::kOffsetArray && offsets_ != 2)
      refuse(fmt::format("tensor '{}' has {} data_offsets, not 2", current().name, offsets_));
    return place_ = Place::kTensor, true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadata) {
      if (metadata.size() == kMaxMetadata) refuse(fmt::format("holds more than {} metadata entries", kMaxMetadata));
      if (!metadata.emplace(name_, std::move(text)).second) refuse(fmt::format("has metadata '{}' twice", name_));
      return true;
    }
    if (place_ != Place::kTensor || name_ != "dtype") return unexpected();
    mark(kDType);
    const auto dtype = dtype_from_name(text);
    if (!dtype) refuse(fmt::format("tensor '{}' has a type we do not know ('{}')", current().name, text.substr(0, 32)));
    current().dtype = *dtype;
    return true;
  }

  bool number_unsigned(std::uint64_t number) override {
    if (place_ == Place::kShapeArray) {
      if (current().shape.size() == kMaxRank)
        refuse(fmt::format("tensor '{}' has more than {} dimensions", current().name, kMaxRank));
      if (number > INT64_MAX) refuse(fmt::format("tensor '{}' is too large", current().name));
      current().shape.push_back(static_cast<std::int64_t>(number));
      return true;
    }
    if (place_ != Place::kOffsetArray) return unexpected();
    if (offsets_++ == 0)
      entries.back().begin = number;
    else
      entries.back().end = number;
    return true;
  }

  bool null() override { return unexpected(); }
  bool boolean(bool) override { return unexpected(); }
  bool number_integer(std::int64_t) override { return unexpected(); }
  bool number_float(double, const std::string&) override { return unexpected(); }
  bool binary(json::binary_t&) override { return unexpected(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    refuse(fmt::format("the header is not JSON at byte {}", position));
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw CheckpointError(source_ + ": " + what, "it does not follow the safetensors format",
                          "use another copy of this file");
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShapeArray, kOffsetArray, kEnd };
  enum Seen : unsigned { kDType = 1, kShape = 2, kOffsets = 4 };

  TensorView& current() { return entries.back().tensor; }
  void mark(Seen part) {
    if (seen_ & part) refuse(fmt::format("tensor '{}' has {} twice", current().name, name_));
    seen_ |= part;
  }
  bool unexpected() { refuse(fmt::format("the header has something unexpected at '{}'", name_.substr(0, 64))); }

  const std::string& source_;
  Place place_ = Place::kStart;
  std::string name_;  // the key read last
  bool has_metadata_ = false;
  unsigned seen_ = 0, offsets_ = 0;
};

// The bytes a tensor must have, or nullopt if that number does not fit.
std::optional<std::uint64_t> expected_bytes(const TensorView& tensor) {
  std::uint64_t bytes = dtype_size(tensor.dtype);
  for (std::int64_t extent : tensor.shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) return std::nullopt;
  return bytes;
}

void check_names(std::vector<Entry>& entries, const HeaderReader& reader) {
  std::sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.tensor.name < b.tensor.name; });
  const auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                        [](auto& a, auto& b) { return a.tensor.name == b.tensor.name; });
  if (twice != entries.end()) reader.refuse(fmt::format("has tensor '{}' twice", twice->tensor.name));
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_size, const std::string& source) {
  HeaderReader reader(source);
  if (text.empty() || text.front() != '{') reader.refuse("the header does not begin with '{'");
  const std::size_t no_bound = SIZE_MAX;  // numbers and brackets cost us nothing: no tree is built
  if (auto crossed = json_bound_crossed(text, {.depth = 3, .values = no_bound, .token = kMaxHeaderToken}))
    reader.refuse("the header " + *crossed);
  json::sax_parse(text.begin(), text.end(), &reader);

  std::vector<Entry>& entries = reader.entries;
  check_names(entries, reader);
  // By name among equals, so that empty tensors come in a fixed order.
  std::stable_sort(entries.begin(), entries.end(),
                   [](auto& a, auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  SafetensorsHeader header;
  header.metadata = std::move(reader.metadata);
  header.tensors.reserve(entries.size());
  header.offsets.reserve(entries.size() + 1);
  header.offsets.push_back(0);
  for (Entry& entry : entries) {
    const std::string& name = entry.tensor.name;
    const std::uint64_t next = header.offsets.back();
    if (entry.begin != next)
      reader.refuse(
          fmt::format("tensor '{}' {} its neighbour", name, entry.begin < next ? "overlaps" : "leaves a hole after"));
    if (entry.end < entry.begin || entry.end > data_size)
      reader.refuse(fmt::format("tensor '{}' ends outside the file", name));
    if (expected_bytes(entry.tensor) != entry.end - entry.begin)
      reader.refuse(fmt::format("tensor '{}' has not the size that its type and shape ask for", name));
    header.offsets.push_back(entry.end);
    header.tensors.push_back(std::move(entry.tensor));
  }
  if (const std::uint64_t rest = data_size - header.offsets.back())
    reader.refuse(fmt::format("{} bytes at its end belong to no tensor", rest));
  return header;
}

}  // namespace tandem
