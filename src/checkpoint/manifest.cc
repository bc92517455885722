#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>

#include "base/printable.h"
#include "checkpoint/checksum.h"
#include "checkpoint/json_bounds.h"

namespace tandem {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kSumPrefix = "\"checksum\": \"xxh128:";
constexpr std::size_t kSumDigits = 32;
constexpr std::size_t kHeadBytes = 256;  // format and checksum stand at the very beginning
constexpr JsonBounds kBounds{.depth = 64, .values = 250'000, .token = 1'000'000};

[[noreturn]] void damaged(const std::string& what) {
  throw CheckpointError("manifest.json: " + what, "the file changed after it was written, or tandem did not write it",
                        "use an older checkpoint, or another copy of this one");
}

// Where the digits of the manifest's own sum begin.
std::optional<std::size_t> find_digits(std::string_view text) {
  const std::size_t found = text.substr(0, kHeadBytes).find(kSumPrefix);
  if (found == std::string_view::npos || text.size() - found < kSumPrefix.size() + kSumDigits) return std::nullopt;
  return found + kSumPrefix.size();
}

std::string sum_with_zeroed_digits(std::string_view text, std::size_t digits) {
  const std::string zeros(kSumDigits, '0');
  Checksum sum(ChecksumKind::kXxh128);
  sum.update(std::as_bytes(std::span(text.substr(0, digits))));
  sum.update(std::as_bytes(std::span(zeros)));
  sum.update(std::as_bytes(std::span(text.substr(digits + kSumDigits))));
  return sum.text().substr(sum.text().find(':') + 1);
}

// JSON knows no NaN and no infinity, and a counter such as "best loss so far" begins as one.
template <class Json>
void encode_floats(Json& value) {
  if (value.is_number_float() && !std::isfinite(value.template get<double>())) {
    const double number = value.template get<double>();
    value = Json{{"$float", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
  } else if (value.is_structured()) {
    for (auto& item : value) encode_floats(item);
  }
}

void decode_floats(json& value) {
  if (!value.is_structured()) return;
  if (value.is_object() && value.size() == 1 && value.contains("$float")) {
    const json& text = value["$float"];
    const double infinity = std::numeric_limits<double>::infinity();
    if (text == "nan")
      value = std::numeric_limits<double>::quiet_NaN();
    else if (text == "inf")
      value = infinity;
    else if (text == "-inf")
      value = -infinity;
    return;
  }
  for (auto& item : value) decode_floats(item);
}

template <class T>
T take(json& from, const char* key) {
  return std::move(from.at(key)).get<T>();
}

json take_object(json& from, const char* key) {
  json value = std::move(from.at(key));
  if (!value.is_object()) damaged(fmt::format("'{}' is not an object", key));
  decode_floats(value);
  return value;
}

std::uint64_t size_from(const json& value) {
  if (!value.is_number_unsigned()) damaged("a size is not a whole number");
  return value.get<std::uint64_t>();
}

std::int64_t integer_from(const json& from, const char* key, std::int64_t most) {
  const json& value = from.at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    damaged(fmt::format("'{}' is not a whole number in its range", key));
  return value.get<std::int64_t>();
}

// The format is read even from a manifest whose sum we cannot check, for the message.
int claimed_format(std::string_view text) {
  constexpr std::string_view kFormat = "\"format\": ";
  const std::size_t found = text.substr(0, kHeadBytes).find(kFormat);
  if (found == std::string_view::npos) return 0;
  int format = 0;
  for (char c : text.substr(found + kFormat.size(), 6)) {
    if (!std::isdigit(static_cast<unsigned char>(c))) break;
    format = format * 10 + (c - '0');
  }
  return format;
}

// "tandem 0.3.0", as far as a manifest of a format that we do not know tells it.
std::string writer_of(std::string_view text) {
  const json root = json_bound_crossed(text, kBounds) ? json() : json::parse(text, nullptr, false);
  const json* versions = root.is_object() && root.contains("versions") ? &root["versions"] : nullptr;
  if (!versions || !versions->is_object() || !versions->contains("tandem") || !(*versions)["tandem"].is_string())
    return "a newer tandem";
  return "a newer tandem, " + printable((*versions)["tandem"].get<std::string>().substr(0, 40));
}

Manifest from_json(json&& root) {
  Manifest manifest;
  manifest.step = integer_from(root, "step", std::numeric_limits<std::int64_t>::max());
  manifest.run_id = take<std::string>(root, "run_id");
  manifest.recipe = take<std::string>(root, "recipe");
  manifest.settings = take_object(root, "settings");
  manifest.shards = static_cast<int>(integer_from(root, "shards", std::numeric_limits<int>::max()));
  manifest.kind = take<std::string>(root, "kind");
  manifest.versions = take_object(root, "versions");
  manifest.scalars = take_object(root, "scalars");
  json files = take_object(root, "files");
  for (auto& [name, entry] : files.items()) {
    FileSums& sums = manifest.files[name];
    sums.size = size_from(entry.at("size"));
    sums.checksum = take<std::string>(entry, "checksum");
    if (entry.contains("packed")) {
      json& packed = entry.at("packed");
      sums.packed_size = size_from(packed.at("size"));
      if (sums.packed_size == 0) damaged("a packed file has no bytes");
      sums.packed_checksum = take<std::string>(packed, "checksum");
    }
    json tensors = std::move(entry.at("tensors"));
    if (!tensors.is_object()) damaged("'tensors' is not an object");
    for (auto& [tensor, sum] : tensors.items()) sums.tensors[tensor] = std::move(sum).get<std::string>();
  }
  return manifest;
}

}  // namespace

std::string seal_manifest(std::string text) {
  const auto digits = find_digits(text);
  if (!digits) damaged("has no checksum of its own");
  text.replace(*digits, kSumDigits, sum_with_zeroed_digits(text, *digits));
  return text;
}

std::string Manifest::to_text() const {
  ordered_json root = ordered_json::object();
  root["format"] = format;
  root["checksum"] = "xxh128:" + std::string(kSumDigits, '0');
  root["step"] = step;
  root["run_id"] = run_id;
  root["recipe"] = recipe;
  root["shards"] = shards;
  root["kind"] = kind;
  root["settings"] = settings;
  root["versions"] = versions;
  root["scalars"] = scalars;
  json listed = json::object();
  for (const auto& [name, sums] : files) {
    listed[name] = {{"size", sums.size}, {"checksum", sums.checksum}, {"tensors", sums.tensors}};
    if (sums.packed_size > 0) listed[name]["packed"] = {{"size", sums.packed_size}, {"checksum", sums.packed_checksum}};
  }
  root["files"] = std::move(listed);
  for (const char* key : {"settings", "versions", "scalars"}) encode_floats(root[key]);
  std::string text = seal_manifest(root.dump(2) + "\n");
  if (text.size() > kMaxManifest || json_bound_crossed(text, kBounds))
    throw CheckpointError(
        "manifest.json: would be too large to be read again",
        fmt::format("{} bytes; at most {} bytes and {} values are taken in", text.size(), kMaxManifest, kBounds.values),
        "join small tensors of the state into larger ones");
  return text;
}

Manifest Manifest::parse(std::string_view text) {
  if (text.empty()) damaged("is empty");
  if (text.size() > kMaxManifest) damaged(fmt::format("has {} bytes, more than any manifest", text.size()));
  const auto digits = find_digits(text);
  if (!digits) damaged("has no checksum of its own where one must be");
  const int format = claimed_format(text);
  if (text.substr(*digits, kSumDigits) != sum_with_zeroed_digits(text, *digits))
    damaged(format > kCheckpointFormat
                ? fmt::format("differs from its own checksum (or a newer tandem wrote it: it claims format {})", format)
                : "differs from its own checksum");
  if (format > kCheckpointFormat)
    throw NewerFormatError(
        fmt::format("manifest.json: has format {}, this tandem reads formats up to {}", format, kCheckpointFormat),
        fmt::format("{} wrote this checkpoint", writer_of(text)),
        fmt::format("update tandem, or resume with the version that wrote it ({})", writer_of(text)));
  if (format < 1) damaged("has no format");
  if (auto crossed = json_bound_crossed(text, kBounds)) damaged(*crossed);
  try {
    Manifest manifest = from_json(json::parse(text));
    manifest.format = format;
    return manifest;
  } catch (const json::exception& error) {
    damaged(fmt::format("does not read as a manifest ({})", error.what()));
  }
}

}  // namespace tandem
