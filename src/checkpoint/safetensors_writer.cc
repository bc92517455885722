#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/checksum.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/zstd_file.h"

namespace tandem {
namespace {

using Metadata = std::map<std::string, std::string>;
using nlohmann::json;

constexpr std::size_t kBlock = 8 << 20;  // large enough for any disk, small beside any model

// Wide types first, then by name: every tensor is then aligned to its element, without holes.
std::vector<const TensorView*> lay_out(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> layout;
  for (const TensorView& tensor : tensors) layout.push_back(&tensor);
  std::sort(layout.begin(), layout.end(), [](auto* a, auto* b) {
    const std::size_t left = dtype_size(a->dtype), right = dtype_size(b->dtype);
    return left != right ? left > right : a->name < b->name;
  });
  return layout;
}

std::uint64_t data_size(std::span<const TensorView> tensors) {
  std::uint64_t bytes = 0;
  for (const TensorView& tensor : tensors) bytes += tensor.bytes.size();
  return bytes;
}

std::string make_header(const std::vector<const TensorView*>& layout, const Metadata& metadata) {
  // Written directly: a JSON object that keeps its order looks through all its keys for each new one.
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + json(metadata).dump() + ",";
  std::uint64_t offset = 0;
  for (const TensorView* tensor : layout) {
    const std::uint64_t end = offset + tensor->bytes.size();
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", json(tensor->name).dump(),
                        dtype_name(tensor->dtype), fmt::join(tensor->shape, ","), offset, end);
    offset = end;
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string framed(8, '\0');
  for (int i = 0; i < 8; ++i) framed[i] = static_cast<char>(text.size() >> (8 * i));
  return framed + text;
}

// Joins small pieces into blocks; large ones go to the file from where they are.
class BlockWriter {
 public:
  // `packer` may be null.
  BlockWriter(OpenFile& file, ZstdWriter* packer) : file_(file), packer_(packer), sum_(ChecksumKind::kXxh128) {
    block_.reserve(kBlock);
  }

  // `tensor_sum` may be null.
  void write(std::span<const std::byte> bytes, Checksum* tensor_sum) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), kBlock - block_.size()));
      bytes = bytes.subspan(piece.size());
      if (tensor_sum) tensor_sum->update(piece);
      sum_.update(piece);  // while the piece is still in the cache
      size_ += piece.size();
      if (piece.size() == kBlock) {
        put(piece);
        continue;
      }
      block_.insert(block_.end(), piece.begin(), piece.end());
      if (block_.size() == kBlock) flush();
    }
  }
  void flush() {
    put(block_);
    block_.clear();
  }
  std::string checksum() const { return sum_.text(); }
  std::uint64_t size() const { return size_; }

 private:
  void put(std::span<const std::byte> bytes) { packer_ ? packer_->write(bytes) : file_.write_all(bytes); }
  OpenFile& file_;
  ZstdWriter* packer_;
  Checksum sum_;
  std::vector<std::byte> block_;
  std::uint64_t size_ = 0;
};

}  // namespace

SafetensorsWriter::SafetensorsWriter(FileSystem& fs, std::filesystem::path path, std::span<const TensorView> tensors,
                                     const Metadata& metadata, Packing packing)
    : fs_(fs), layout_(lay_out(tensors)), packing_(packing) {
  header_ = make_header(layout_, metadata);
  const std::uint64_t bytes = data_size(tensors);
  // The reader's own rules, so that we never write what we would refuse: two of one name, bytes that do not fit a
  // shape.
  parse_safetensors_header(std::string_view(header_).substr(8), bytes, path.filename().string());
  file_ = OpenFile(fs, fs.open_new(path));
  size_ = header_.size() + bytes;
  if (packing_ == Packing::kNone) fs_.allocate(file_.handle(), size_);
}

FileSums SafetensorsWriter::write() {
  FileSums sums;
  std::optional<ZstdWriter> packer;
  if (packing_ == Packing::kZstd) packer.emplace(file_, size_);
  BlockWriter out(file_, packer ? &*packer : nullptr);
  out.write(std::as_bytes(std::span(header_)), nullptr);
  Checksum sum(ChecksumKind::kXxh64);
  for (const TensorView* tensor : layout_) {
    sum.reset();
    out.write(tensor->bytes, &sum);
    sums.tensors[tensor->name] = sum.text();
  }
  out.flush();
  if (packer) {
    packer->finish();
    sums.packed_size = packer->size();
    sums.packed_checksum = packer->checksum();
  }
  fs_.fsync(file_.handle());
  file_.close();
  sums.size = out.size();
  sums.checksum = out.checksum();
  return sums;
}

FileSums write_safetensors(FileSystem& fs, const std::filesystem::path& path, std::span<const TensorView> tensors,
                           const Metadata& metadata) {
  return SafetensorsWriter(fs, path, tensors, metadata).write();
}

std::uint64_t safetensors_size(std::span<const TensorView> tensors, const Metadata& metadata) {
  return make_header(lay_out(tensors), metadata).size() + data_size(tensors);
}

}  // namespace tandem
