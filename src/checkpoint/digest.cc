#include "checkpoint/digest.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/sha256.h"

namespace tandem {
namespace {

// Little-endian whatever the machine, as the tensors are.
void add_number(Sha256& sum, std::uint64_t number) {
  std::byte bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(number >> (8 * i));
  sum.update(bytes);
}

void add_text(Sha256& sum, std::string_view text) {
  add_number(sum, text.size());
  sum.update(text);
}

}  // namespace

std::string weights_digest(std::span<const TensorView> model) {
  std::vector<const TensorView*> by_name;
  for (const TensorView& tensor : model) by_name.push_back(&tensor);
  std::sort(by_name.begin(), by_name.end(), [](auto* a, auto* b) { return a->name < b->name; });
  Sha256 sum;
  add_number(sum, by_name.size());
  for (const TensorView* tensor : by_name) {
    add_text(sum, tensor->name);
    add_text(sum, dtype_name(tensor->dtype));
    add_number(sum, tensor->shape.size());
    for (std::int64_t extent : tensor->shape) add_number(sum, static_cast<std::uint64_t>(extent));
    add_number(sum, tensor->bytes.size());
    sum.update(tensor->bytes);
  }
  return sum.hex();
}

}  // namespace tandem
