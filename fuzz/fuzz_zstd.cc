// fuzz/fuzz_zstd.cc -- any bytes as a compressed state: refused with CheckpointError, or exactly of the asked size.
//
// The first two bytes are the size that is expected; few inputs state the one they hold.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/errors.h"
#include "checkpoint/zstd_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  if (size < 2) return 0;
  const std::uint64_t expected = data[0] | data[1] << 8;
  try {
    const FileBytes content = unpack_zstd(std::as_bytes(std::span(data + 2, size - 2)), expected, "input");
    if (content.size != expected) std::abort();
    std::uint8_t sum = 0;
    for (const std::byte byte : content.span()) sum ^= std::to_integer<std::uint8_t>(byte);
    static volatile std::uint8_t seen;
    seen = sum;  // every byte is read, so that the sanitizer sees one that nobody wrote
  } catch (const CheckpointError&) {
  }
  return 0;
}
