// checkpoint/json_bounds.h -- how much JSON we are willing to hand to the JSON library.
//
// A parser's memory is many times its input in the worst case ("[[[[", "{},{},", one string of 90 MB). This looks at
// the text once, without memory of its own, so that a hostile file cannot make the parser behind it exhaust the
// machine.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

struct JsonBounds {
  std::size_t depth;   // of nested objects and arrays
  std::size_t values;  // in all
  std::size_t token;   // bytes of one string or number
};

// nullopt, or the bound that is crossed, for a message: "is nested deeper than 8 levels". Does not check the syntax.
std::optional<std::string> json_bound_crossed(std::string_view text, const JsonBounds& bounds);

}  // namespace tandem
