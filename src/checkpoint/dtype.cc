#include "checkpoint/dtype.h"

#include <array>

namespace tandem {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::size_t size;
};

constexpr std::array<Row, 10> kRows{{{DType::kF32, "F32", 4},
                                     {DType::kF64, "F64", 8},
                                     {DType::kF16, "F16", 2},
                                     {DType::kBF16, "BF16", 2},
                                     {DType::kI64, "I64", 8},
                                     {DType::kI32, "I32", 4},
                                     {DType::kI16, "I16", 2},
                                     {DType::kI8, "I8", 1},
                                     {DType::kU8, "U8", 1},
                                     {DType::kBool, "BOOL", 1}}};

}  // namespace

std::string_view dtype_name(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)).name; }

std::size_t dtype_size(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)).size; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

}  // namespace tandem
