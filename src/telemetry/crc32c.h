// telemetry/crc32c.h -- CRC-32C (Castagnoli), the checksum of TensorBoard's record format.
//
// Uses the CPU's instruction where it has one (SSE4.2, ARMv8 CRC), a table otherwise; both give the same value.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

uint32_t crc32c(std::string_view bytes);
uint32_t crc32c_by_table(std::string_view bytes);
// Rotated and shifted as the format wants it, so that a checksum of data that holds checksums stays a good one.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace tandem
