// command/out_file.h -- files that a command writes beside its answer, named by the user: --output, --csv, --record.
//
// A regular file is replaced, whole or not at all. What is there and is no regular file (/dev/null, /dev/stdout, a
// pipe) is written to and stays what it is: a rename would put a file in the place of the device.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tandem {

class Output;

// Is it there, and no regular file and no folder? Links are followed: /dev/stdout is one.
bool is_stream(const std::filesystem::path& file);

// Before minutes of measuring: throws ConfigError if the file could not be written at their end. "-" and "" are fine.
void check_out_file(const std::string& file, const char* flag);
// Throws ConfigError; IoError (EPIPE) if a reader has gone.
void write_out_file(const std::string& file, std::string_view text, const char* flag);
// The bytes of a file to what is_stream(). Throws as write_out_file.
void copy_to_stream(const std::filesystem::path& from, const std::filesystem::path& stream, const char* flag);
// The name of what was written, on stdout; on stderr where stdout may have taken it.
void say_where(const Output& output, const std::filesystem::path& file);
// stdout takes one of them.
void refuse_csv_with_json(const std::string& csv, bool json);

std::string csv_cell(std::string_view text);  // quoted

}  // namespace tandem
