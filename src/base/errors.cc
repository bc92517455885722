#include "base/errors.h"

#include <cerrno>
#include <cstring>

namespace tandem {

std::string Error::render() const {
  std::string text = std::string("error: ") + what() + "\n";
  if (!why_.empty()) text += "  why    " + why_ + "\n";
  if (!todo_.empty()) text += "  do     " + todo_ + "\n";
  return text;
}

namespace {

// Descriptors run out in any call; what the caller would advise (free memory, say) does not help then.
std::string advice_for(int error_number, std::string given) {
  if (error_number != EMFILE && error_number != ENFILE) return given;
  if (given.find("ulimit -n") != std::string::npos) return given;
  return error_number == EMFILE ? "raise the limit of open files: `ulimit -n 65536`"
                                : "close other programs, or raise the system's limit of open files (fs.file-max)";
}

}  // namespace

IoError::IoError(const std::string& what, int error_number, std::string todo)
    : Error(ExitCode::kFailed, what, std::strerror(error_number), advice_for(error_number, std::move(todo))),
      error_number_(error_number) {}

}  // namespace tandem
