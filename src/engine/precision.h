// engine/precision.h -- autocast for the length of a scope: fp32 and tf32 (off), bf16 or fp16. Weights stay float32.
#pragma once

#include <string_view>

namespace tandem {

class PrecisionScope {
 public:
  explicit PrecisionScope(std::string_view precision);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  bool was_enabled_, changed_;
  int was_dtype_ = 0;
};

}  // namespace tandem
