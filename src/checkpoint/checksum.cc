#include "checkpoint/checksum.h"

#define XXH_INLINE_ALL  // no library to link, and the sum of small tensors is inlined
#include <fmt/format.h>
#include <xxhash.h>

namespace tandem {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum(ChecksumKind kind) : kind_(kind), state_(std::make_unique<State>()) { reset(); }
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::reset() {
  if (kind_ == ChecksumKind::kXxh64)
    XXH3_64bits_reset(&state_->xxh);
  else
    XXH3_128bits_reset(&state_->xxh);
}

void Checksum::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;  // an empty span may hold a null pointer
  if (kind_ == ChecksumKind::kXxh64)
    XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
  else
    XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::string Checksum::text() const {
  if (kind_ == ChecksumKind::kXxh64) return fmt::format("xxh64:{:016x}", XXH3_64bits_digest(&state_->xxh));
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("xxh128:{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksum_of(ChecksumKind kind, std::span<const std::byte> bytes) {
  Checksum sum(kind);
  sum.update(bytes);
  return sum.text();
}

}  // namespace tandem
