// base/sha256.h -- SHA-256 of bytes that arrive in pieces.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // 64 lower-case digits. Ends the sum: call it once, last.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
