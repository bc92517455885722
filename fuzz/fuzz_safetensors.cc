// fuzz/fuzz_safetensors.cc -- any bytes as a safetensors file: refused with CheckpointError, or every view lies inside.
//
// The first 8 bytes of a file are the length of its header; a fuzzer seldom guesses it, so the input here is one byte
// that chooses (0: as it is; else that many bytes of data after the header), then the rest.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/errors.h"
#include "checkpoint/checksum.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  if (size < 1) return 0;
  const std::size_t tail = data[0];
  const auto* input = reinterpret_cast<const std::byte*>(data) + 1;
  std::vector<std::byte> bytes;
  if (tail != 0 && tail < size) {
    const std::uint64_t header = size - 1 - (tail - 1);
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>(header >> (8 * i)));
  }
  bytes.insert(bytes.end(), input, input + size - 1);
  try {
    const SafetensorsFile file = SafetensorsFile::parse(std::move(bytes));
    Checksum sum(ChecksumKind::kXxh64);
    for (const TensorView& tensor : file.tensors()) {
      sum.update(tensor.bytes);  // reads every byte, so that the sanitizer sees a view that is too long
      if (file.find(tensor.name) != &tensor) std::abort();
    }
  } catch (const CheckpointError&) {
  }
  return 0;
}
