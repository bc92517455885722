// checkpoint/safetensors.h -- reads and writes the safetensors format (the PyPI package reads ours, and we read its).
//
// The reader is strict: names are unique, tensors lie one after another without holes or overlap, sizes follow from
// type and shape, nothing is left over. It trusts nothing and needs less than 64 MB beside the file itself. The writer
// lays out wide types first, so that every tensor is aligned to its element, and writes blocks of 8 MB in one pass
// that also computes the sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/dtype.h"

namespace tandem {

class SafetensorsFile {
 public:
  SafetensorsFile() = default;  // no tensors
  // Both throw CheckpointError that says what is wrong with the file; read() also IoError.
  static SafetensorsFile read(FileSystem& fs, const std::filesystem::path& path);
  static SafetensorsFile parse(std::vector<std::byte> bytes);
  // `source` names the bytes in messages: "model.safetensors".
  static SafetensorsFile parse(FileBytes bytes, const std::string& source);

  // In the order of their bytes. The views stay valid as long as this object, or a copy of it, lives.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;  // nullptr if there is none
  // Those whose name begins with `prefix`, named without it: one model of a file that holds several.
  SafetensorsFile under(const std::string& prefix) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  static SafetensorsFile parse(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                               const std::string& source);
  std::shared_ptr<const void> owner_;
  std::vector<TensorView> tensors_;
  std::vector<std::uint32_t> by_name_;  // places in tensors_, sorted
  std::map<std::string, std::string> metadata_;
};

// What was written: enough to know later that it is the same.
struct FileSums {
  std::uint64_t size = 0;
  std::string checksum;                        // XXH3-128 of the whole file
  std::map<std::string, std::string> tensors;  // name -> XXH3-64 of its bytes
  // Of a compressed file: what lies on the disk. All above is of the safetensors file inside.
  std::uint64_t packed_size = 0;  // 0: not compressed
  std::string packed_checksum;
};

enum class Packing { kNone, kZstd };

// Two steps, so that a caller with several files can reserve room for all of them before writing any.
class SafetensorsWriter {
 public:
  // Opens the new file and, if it is not compressed, reserves its whole size. The tensors must outlive write().
  SafetensorsWriter(FileSystem& fs, std::filesystem::path path, std::span<const TensorView> tensors,
                    const std::map<std::string, std::string>& metadata, Packing packing = Packing::kNone);
  FileSums write();  // writes, fsyncs, closes

 private:
  FileSystem& fs_;
  std::string header_;                     // with the 8 bytes of its length
  std::vector<const TensorView*> layout_;  // in the order of their bytes
  std::uint64_t size_ = 0;                 // before compression
  Packing packing_;
  OpenFile file_;
};

FileSums write_safetensors(FileSystem& fs, const std::filesystem::path& path, std::span<const TensorView> tensors,
                           const std::map<std::string, std::string>& metadata = {});

// The size such a file will have.
std::uint64_t safetensors_size(std::span<const TensorView> tensors, const std::map<std::string, std::string>& metadata);

}  // namespace tandem
