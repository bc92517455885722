// config/toml_guard.h -- refuses, before toml++ sees them, the broken texts that toml++ 3.3 does not survive.
//
// Found by fuzzing. In a build with NDEBUG its asserts are promises to the optimizer, so a text that breaks one is
// undefined behaviour: a brace that closes nothing, a letter outside of ASCII and of quotes, control characters, keys
// nested without end. All of them are forbidden by TOML or far outside of what a recipe can hold.
#pragma once

#include <string_view>

namespace tandem {

// Throws ConfigError that names the line.
void guard_toml(std::string_view text, std::string_view source_name);

}  // namespace tandem
