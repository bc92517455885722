// checkpoint/checksum.h -- XXH3 sums of bytes that arrive in pieces, as text.
//
// These find damage, not malice: whoever can write a checkpoint can also write its sums. For a name that two machines
// compare, see checkpoint/digest.h.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tandem {

enum class ChecksumKind { kXxh64, kXxh128 };

class Checksum {
 public:
  explicit Checksum(ChecksumKind kind);
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void reset();
  std::string text() const;  // "xxh64:<16 digits>" or "xxh128:<32 digits>", lower case

 private:
  struct State;
  ChecksumKind kind_;
  std::unique_ptr<State> state_;
};

std::string checksum_of(ChecksumKind kind, std::span<const std::byte> bytes);

}  // namespace tandem
