// checkpoint/dtype.h -- the element types a checkpoint may hold, by their safetensors names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class DType { kF32, kF64, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

std::string_view dtype_name(DType dtype);  // "F32", "BF16", "BOOL", ...
std::size_t dtype_size(DType dtype);       // bytes of one element
std::optional<DType> dtype_from_name(std::string_view name);

// A tensor somebody else owns: row-major, little-endian, contiguous.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // {} is one element
  std::span<const std::byte> bytes;
};

}  // namespace tandem
