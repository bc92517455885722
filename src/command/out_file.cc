#include "command/out_file.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>

#include "base/errors.h"
#include "base/file_system.h"
#include "config/spelling.h"

namespace tandem {

namespace fs = std::filesystem;

void check_out_file(const std::string& file, const char* flag) {
  if (file.empty() || file == "-") return;
  std::error_code none;
  const fs::path path = file;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::string why;
  if (fs::is_directory(path, none) || !path.has_filename())
    why = "it is a folder";
  else if (!fs::is_directory(folder, none))
    why = fmt::format("there is no folder {}", printable(folder.string()));
  else if (access(folder.c_str(), W_OK | X_OK) != 0)
    why = fmt::format("{}: {}", printable(folder.string()), strerror(errno));
  if (!why.empty())
    throw ConfigError(fmt::format("cannot write {}", printable(file)), why,
                      fmt::format("choose a file in a folder that exists and is writable with {}", flag));
}

void write_out_file(const std::string& file, std::string_view text, const char* flag) {
  try {
    replace_file(FileSystem::real(), file, text);
  } catch (const IoError& error) {
    throw ConfigError(error.what(), error.why(),
                      fmt::format("choose a file in a folder that exists and is writable with {}", flag));
  }
}

void refuse_csv_with_json(const std::string& csv, bool json) {
  if (csv == "-" && json)
    throw ConfigError("--json and --csv - both want stdout", "one answer goes there",
                      "leave one out, or name a file: --csv table.csv");
}

std::string csv_cell(std::string_view text) {
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? std::string("\"\"") : std::string(1, c);
  return cell + "\"";
}

}  // namespace tandem
