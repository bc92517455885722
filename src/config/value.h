// config/value.h -- one setting's value on its way between text, TOML, JSON and the field it belongs to.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/settings.h"

namespace tandem {

// A TOML value that no setting can hold (a date, a table in an array, a mixed list), by its name.
struct ForeignValue {
  std::string type;
};
using Value = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, ForeignValue>;

std::string toml_text(const Value& value);  // a whole number in a double field is written "3.0"
nlohmann::json to_json(const Value& value);

Value value_of(const Describer::Entry& entry);  // what the field holds now
// The value as the field takes it (a whole number becomes a double where one is needed), or ConfigError: wrong type,
// out of range, not one of. `where` opens the message: "tiny.toml:3", "--lr".
Value checked(const Describer::Entry& entry, Value value, std::string_view where);
void store(const Describer::Entry& entry, const Value& value);  // a value that checked() returned

// A value as a person types it on a command line, by the field's type. Throws ConfigError.
Value typed_in(const Describer::Entry& entry, std::string_view text, std::string_view where);

std::string type_name(const Describer::Entry& entry);  // "whole number"
std::string allowed_text(const Describer::Entry& entry);

}  // namespace tandem
