#include "telemetry/crc32c.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tandem {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t step_table(uint32_t crc, std::string_view bytes) {
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (crc >> 8);
  return crc;
}

// Inline assembly rather than intrinsics: the instruction is chosen when the program runs, and this way no file has to
// be compiled for a newer CPU than the rest.
#if defined(__x86_64__)
#define TANDEM_CRC32C_INSTRUCTION 1
bool cpu_has_crc32c() { return __builtin_cpu_supports("sse4.2"); }
inline uint32_t crc_word(uint32_t crc, uint64_t word) {
  uint64_t wide = crc;
  asm("crc32q %1, %0" : "+r"(wide) : "rm"(word));
  return static_cast<uint32_t>(wide);
}
#elif defined(__aarch64__)
#define TANDEM_CRC32C_INSTRUCTION 1
bool cpu_has_crc32c() { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
inline uint32_t crc_word(uint32_t crc, uint64_t word) {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  return crc;
}
#endif

#if defined(TANDEM_CRC32C_INSTRUCTION)
uint32_t step_words(uint32_t crc, std::string_view bytes) {
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    crc = crc_word(crc, word);
    bytes.remove_prefix(8);
  }
  return step_table(crc, bytes);
}
#endif

}  // namespace

uint32_t crc32c_by_table(std::string_view bytes) { return ~step_table(~0u, bytes); }

uint32_t crc32c(std::string_view bytes) {
#if defined(TANDEM_CRC32C_INSTRUCTION)
  static const bool fast = cpu_has_crc32c();
  if (fast) return ~step_words(~0u, bytes);
#endif
  return crc32c_by_table(bytes);
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace tandem
