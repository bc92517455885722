// command/out_file.h -- files that a command writes beside its answer: --csv, --plot.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// Before minutes of measuring: throws ConfigError if the file could not be written at their end. "-" and "" are fine.
void check_out_file(const std::string& file, const char* flag);
// Whole or not at all. Throws ConfigError.
void write_out_file(const std::string& file, std::string_view text, const char* flag);
// stdout takes one of them.
void refuse_csv_with_json(const std::string& csv, bool json);

std::string csv_cell(std::string_view text);  // quoted

}  // namespace tandem
