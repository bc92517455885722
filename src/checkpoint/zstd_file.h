// checkpoint/zstd_file.h -- one zstd frame as a file: written in pieces, read within bounds that the caller sets.
//
// The frame states the size of its content and carries zstd's own checksum, so `zstd -d` reads and proves it. The
// writer needs the memory of a compressor and 1 MB, whatever the content. The reader trusts nothing: what is not one
// whole frame of exactly the expected content is refused before its content gets memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/checksum.h"

namespace tandem {

class ZstdWriter {
 public:
  // Appends to `file`, which must outlive this. `content_size`: bytes that will be written in all.
  ZstdWriter(OpenFile& file, std::uint64_t content_size);
  ~ZstdWriter();
  ZstdWriter(const ZstdWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void finish();                                        // ends the frame; all of the content must be in
  std::uint64_t size() const { return size_; }          // of the frame, so far
  std::string checksum() const { return sum_.text(); }  // XXH3-128 of the frame, so far

 private:
  struct Context;
  void compress(std::span<const std::byte> bytes, bool end);
  OpenFile& file_;
  std::unique_ptr<Context> context_;
  std::vector<std::byte> out_;
  Checksum sum_;
  std::uint64_t size_ = 0;
};

// The content of a file that is one zstd frame of `content_size` bytes. Throws CheckpointError "<source>: <what is
// wrong>"; IoError (ENOMEM) if the content is larger than this machine's memory.
FileBytes unpack_zstd(std::span<const std::byte> frame, std::uint64_t content_size, const std::string& source);

// The most that a frame of this content may take.
std::uint64_t zstd_bound(std::uint64_t content_size);

}  // namespace tandem
