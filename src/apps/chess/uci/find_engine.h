// apps/chess/uci/find_engine.h -- where the program of an engine is.
#pragma once

#include <filesystem>
#include <string>

namespace tandem::chess {

// `path` as the user gave it: a file, or a word that is looked for as find_stockfish() does. Throws ConfigError: there
// is none, it is a folder, or it may not be run.
std::filesystem::path find_engine(const std::string& path);

// The first `stockfish` of PATH, /usr/games (where Debian puts it), /usr/local/games and /usr/local/bin. Throws
// ConfigError with how to get it.
std::filesystem::path find_stockfish();

}  // namespace tandem::chess
