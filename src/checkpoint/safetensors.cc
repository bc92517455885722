#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/errors.h"
#include "checkpoint/safetensors_header.h"

namespace tandem {
namespace {

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw CheckpointError(source + ": " + what, "it does not follow the safetensors format",
                        "use another copy of this file");
}

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t number = 0;
  for (int i = 7; i >= 0; --i) number = number << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return number;
}

}  // namespace

SafetensorsFile SafetensorsFile::read(FileSystem& fs, const std::filesystem::path& path) {
  return parse(read_whole_file(fs, path), path.filename().string());
}

SafetensorsFile SafetensorsFile::parse(std::vector<std::byte> bytes) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return parse(owner, *owner, "safetensors data");
}

SafetensorsFile SafetensorsFile::parse(FileBytes bytes, const std::string& source) {
  const auto owner = std::make_shared<const FileBytes>(std::move(bytes));
  return parse(owner, owner->span(), source);
}

SafetensorsFile SafetensorsFile::parse(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                                       const std::string& source) {
  if (bytes.size() < 8) refuse(source, fmt::format("has {} bytes, too few for a header", bytes.size()));
  const std::uint64_t length = little_endian(bytes);
  if (length > kMaxSafetensorsHeader) refuse(source, fmt::format("claims a header of {} bytes", length));
  if (length > bytes.size() - 8) refuse(source, "ends inside its header");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  const std::span<const std::byte> data = bytes.subspan(8 + length);
  SafetensorsHeader header = parse_safetensors_header(text, data.size(), source);
  for (std::size_t i = 0; i < header.tensors.size(); ++i)
    header.tensors[i].bytes = data.subspan(header.offsets[i], header.offsets[i + 1] - header.offsets[i]);

  SafetensorsFile file;
  file.owner_ = std::move(owner);
  file.tensors_ = std::move(header.tensors);
  file.metadata_ = std::move(header.metadata);
  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), 0u);
  std::sort(file.by_name_.begin(), file.by_name_.end(),
            [&](auto a, auto b) { return file.tensors_[a].name < file.tensors_[b].name; });
  return file;
}

SafetensorsFile SafetensorsFile::under(const std::string& prefix) const {
  SafetensorsFile part;
  part.owner_ = owner_;
  part.metadata_ = metadata_;
  for (const TensorView& view : tensors_) {
    if (!view.name.starts_with(prefix)) continue;
    part.tensors_.push_back(view);
    part.tensors_.back().name.erase(0, prefix.size());
  }
  for (std::uint32_t i = 0; i < part.tensors_.size(); ++i) part.by_name_.push_back(i);
  std::sort(part.by_name_.begin(), part.by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return part.tensors_[a].name < part.tensors_[b].name; });
  return part;
}

const TensorView* SafetensorsFile::find(const std::string& name) const {
  const auto place = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](auto index, auto& wanted) { return tensors_[index].name < wanted; });
  return place != by_name_.end() && tensors_[*place].name == name ? &tensors_[*place] : nullptr;
}

}  // namespace tandem
