// fuzz/fuzz_manifest.cc -- any bytes as a manifest: refused with CheckpointError, or it survives being written again.
//
// Few inputs survive the manifest's own checksum, so each is tried twice: as it is, and with the right sum put in.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "checkpoint/manifest.h"

namespace {

void try_parse(const std::string& text) {
  using namespace tandem;
  try {
    const Manifest manifest = Manifest::parse(text);
    const std::string written = manifest.to_text();
    if (Manifest::parse(written).to_text() != written) std::abort();
  } catch (const CheckpointError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_parse(text);
  try {
    try_parse(tandem::seal_manifest(text));
  } catch (const tandem::CheckpointError&) {
  }
  return 0;
}
