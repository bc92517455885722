#include "apps/chess/uci/find_engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/errors.h"
#include "base/printable.h"

namespace tandem::chess {
namespace {

namespace fs = std::filesystem;

bool can_run(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0;
}

std::optional<fs::path> look_for(const std::string& word) {
  const char* const path = std::getenv("PATH");
  const std::string places = fmt::format("{}:/usr/games:/usr/local/games:/usr/local/bin", path ? path : "");
  for (std::string_view rest = places; !rest.empty();) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
    if (!folder.empty() && can_run(fs::path(folder) / word)) return fs::path(folder) / word;
  }
  return std::nullopt;
}

}  // namespace

fs::path find_engine(const std::string& path) {
  const std::string shown = printable(path);
  if (path.find('/') == path.npos) {
    if (const auto found = look_for(path)) return *found;
    if (std::error_code error; !fs::exists(path, error))
      throw ConfigError(fmt::format("no engine {}", shown), "it is in no folder of PATH and not in /usr/games",
                        "give its path: uci:/path/to/engine");
  }
  std::error_code error;
  if (!fs::exists(path, error))
    throw ConfigError(fmt::format("no engine at {}", shown), error ? error.message() : "there is no such file",
                      path.starts_with('~') ? "no shell replaces ~ after a colon: write $HOME instead"
                                            : "correct the path after `uci:`");
  if (!fs::is_regular_file(path, error))
    throw ConfigError(fmt::format("{} is no engine", shown), "it is no file", "name the program itself");
  if (!can_run(path))
    throw ConfigError(fmt::format("{} may not be run", shown), "its rights do not allow it",
                      fmt::format("`chmod +x {}`, if it is a program", shown));
  return fs::absolute(path);
}

fs::path find_stockfish() {
  if (const auto found = look_for("stockfish")) return *found;
  throw ConfigError("no Stockfish here", "there is no program `stockfish` in PATH or /usr/games",
                    "`sudo apt-get install stockfish` brings it; or name an engine, uci:/path/to/stockfish; random, "
                    "greedy and minimax need none");
}

}  // namespace tandem::chess
