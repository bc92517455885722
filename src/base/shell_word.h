// base/shell_word.h -- a name or path as one word of a command that people copy into a shell.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// Quoted where a shell would not take it as one word. Control characters and bytes that are no UTF-8 become escapes
// ($'\033'; bash, zsh and ksh know them), so that the word neither steers the terminal nor loses a byte.
std::string shell_word(std::string_view text);

}  // namespace tandem
