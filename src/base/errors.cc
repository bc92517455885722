#include "base/errors.h"

#include <cstring>

namespace tandem {

std::string Error::render() const {
  std::string text = std::string("error: ") + what() + "\n";
  if (!why_.empty()) text += "  why    " + why_ + "\n";
  if (!todo_.empty()) text += "  do     " + todo_ + "\n";
  return text;
}

IoError::IoError(const std::string& what, int error_number, std::string todo)
    : Error(ExitCode::kFailed, what, std::strerror(error_number), std::move(todo)), error_number_(error_number) {}

}  // namespace tandem
