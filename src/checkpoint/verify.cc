#include "checkpoint/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/errors.h"
#include "base/plain_file.h"
#include "checkpoint/checksum.h"
#include "checkpoint/zstd_file.h"

namespace tandem {
namespace {

[[noreturn]] void refuse_file(const std::string& what) {
  throw CheckpointError(what, "the file is not the one that was saved: damaged, cut, mixed up or edited",
                        "use an older checkpoint, or another copy of this one");
}

FileBytes read_file(FileSystem& fs, const std::filesystem::path& dir, const std::string& name, std::uint64_t limit) {
  if (const std::string kind = not_a_file(dir / name); !kind.empty())
    refuse_file(fmt::format("{}: is not a regular file, but {}", name, kind));
  try {
    return read_whole_file(fs, dir / name, limit);
  } catch (const IoError& error) {
    switch (error.error_number()) {
      case ENOENT:
        refuse_file(name + ": is missing");
      case ENOTDIR:
        refuse_file(name + ": is missing (no folder)");
      case EISDIR:
      case EINVAL:
      case ELOOP:
        refuse_file(name + ": is not a regular file");
      case EFBIG:
        refuse_file(fmt::format("{}: has more than the {} bytes that were written", name, limit));
      case EIO:
        refuse_file(fmt::format("{}: cannot be read ({})", name, std::strerror(EIO)));
      default:
        throw;
    }
  }
}

// The sum of the whole file is wrong: finds the words that help most.
[[noreturn]] void name_the_damage(FileBytes bytes, const std::string& name, const FileSums& sums,
                                  const Manifest& manifest) {
  SafetensorsFile file;
  try {
    file = SafetensorsFile::parse(std::move(bytes), name);
  } catch (const CheckpointError& error) {
    refuse_file(fmt::format("{} (it differs from its checksum)", error.what()));
  }
  const auto& found = file.metadata();
  const auto tie = tie_metadata(manifest);
  const bool tied = std::ranges::all_of(tie, [&](const auto& item) {
    const auto there = found.find(item.first);
    return there != found.end() && there->second == item.second;
  });
  if (!tied && found.count("run_id") && found.count("step"))
    refuse_file(fmt::format("{}: belongs to step {} of run {}, or its header is damaged", name, found.at("step"),
                            found.at("run_id")));
  for (const TensorView& tensor : file.tensors()) {
    const auto sum = sums.tensors.find(tensor.name);
    if (sum == sums.tensors.end()) refuse_file(fmt::format("{}: tensor '{}' was not saved with it", name, tensor.name));
    if (checksum_of(ChecksumKind::kXxh64, tensor.bytes) != sum->second)
      refuse_file(fmt::format("{}: tensor '{}' differs from its checksum", name, tensor.name));
  }
  refuse_file(name + ": its header differs from its checksum");
}

[[noreturn]] void refuse_size(const std::string& name, std::uint64_t size, std::uint64_t written) {
  refuse_file(fmt::format("{}: has {} bytes where {} were written", name, size, written));
}

// The content. A frame that is whole but not the one that was saved is unpacked too: what is in it tells whose it is.
FileBytes unpack(FileBytes frame, const std::string& name, const FileSums& sums, const Manifest& manifest) {
  const bool right_size = frame.size == sums.packed_size;
  if (right_size && checksum_of(ChecksumKind::kXxh128, frame.span()) == sums.packed_checksum)
    return unpack_zstd(frame.span(), sums.size, name);
  FileBytes content;
  try {
    content = unpack_zstd(frame.span(), sums.size, name);
  } catch (const CheckpointError& error) {
    if (!right_size) refuse_size(name, frame.size, sums.packed_size);
    refuse_file(fmt::format("{} (it differs from its checksum)", error.what()));
  }
  if (checksum_of(ChecksumKind::kXxh128, content.span()) == sums.checksum)
    refuse_file(name + ": was compressed again, and differs from its checksum");
  name_the_damage(std::move(content), name, sums, manifest);
}

SafetensorsFile read_tensors(FileSystem& fs, const std::filesystem::path& dir, const std::string& name,
                             const Manifest& manifest) {
  const auto entry = manifest.files.find(name);
  if (entry == manifest.files.end()) refuse_file(fmt::format("{}: does not list {}", kManifestFile, name));
  const FileSums& sums = entry->second;
  const bool packed = sums.packed_size > 0;
  FileBytes bytes = read_file(fs, dir, name, packed ? std::max(sums.packed_size, zstd_bound(sums.size)) : sums.size);
  if (packed) bytes = unpack(std::move(bytes), name, sums, manifest);
  if (bytes.size != sums.size) refuse_size(name, bytes.size, sums.size);
  if (checksum_of(ChecksumKind::kXxh128, bytes.span()) != sums.checksum)
    name_the_damage(std::move(bytes), name, sums, manifest);
  SafetensorsFile file = SafetensorsFile::parse(std::move(bytes), name);
  // Against damage in memory between the two sums when it was written, and here between the sum and the use.
  if (file.tensors().size() != sums.tensors.size())
    refuse_file(name + ": has another number of tensors than was saved");
  for (const TensorView& tensor : file.tensors()) {
    const auto sum = sums.tensors.find(tensor.name);
    if (sum == sums.tensors.end() || checksum_of(ChecksumKind::kXxh64, tensor.bytes) != sum->second)
      refuse_file(fmt::format("{}: tensor '{}' differs from its checksum", name, tensor.name));
  }
  return file;
}

}  // namespace

std::map<std::string, std::string> tie_metadata(const Manifest& manifest) {
  // "format": "pt" is what Hugging Face's loaders ask for: row-major tensors under PyTorch's names.
  return {{"format", "pt"}, {"run_id", manifest.run_id}, {"step", std::to_string(manifest.step)}};
}

VerifiedCheckpoint read_and_verify(FileSystem& fs, const std::filesystem::path& dir, CheckpointParts parts) {
  VerifiedCheckpoint checkpoint;
  checkpoint.manifest = Manifest::parse(read_file(fs, dir, kManifestFile, kMaxManifest).text());
  checkpoint.model = read_tensors(fs, dir, kModelFile, checkpoint.manifest);
  if (parts == CheckpointParts::kAll)
    checkpoint.state =
        read_tensors(fs, dir, checkpoint.manifest.format == 1 ? kPlainStateFile : kStateFile, checkpoint.manifest);
  return checkpoint;
}

}  // namespace tandem
