#include "apps/chess/match/openings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <numeric>
#include <string>

#include "apps/chess/uci/uci_words.h"
#include "base/errors.h"
#include "base/printable.h"
#include "kernels/philox.h"
#include "world/chess/fen.h"
#include "world/chess/pgn.h"
#include "world/chess/players/random_opening.h"
#include "world/chess/players/sites.h"

namespace tandem::chess {
namespace {

constexpr size_t kLongestEpdLine = 4096, kMostOpenings = 1'000'000;

[[noreturn]] void refuse_opening(const std::filesystem::path& file, const std::string& where, const std::string& why) {
  throw ConfigError(fmt::format("{}, {}: no opening", printable(file.string()), where), why,
                    "correct it, or take it out of the file");
}

bool is_number(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

// A new game: one whose moves were taken back keeps the memory for all of them.
Game first_moves(const Game& game, int plies) {
  Game first(game.start());
  for (const Move move : game.moves().first(std::min(game.moves().size(), static_cast<size_t>(plies))))
    first.play(move);
  return first;
}

// The position of an EPD line is its first four words; those of a FEN may follow.
Game read_epd_line(const std::filesystem::path& file, int64_t number, std::string_view line, const DrawRules& rules) {
  const std::string where = fmt::format("line {}", number);
  const std::vector<std::string_view> words = words_of(line);
  std::string fen;
  for (size_t i = 0; i < std::min<size_t>(words.size(), 6); ++i)
    if (i < 4 || (words.size() >= 6 && is_number(words[4]) && is_number(words[5])))
      fen += (i ? " " : "") + std::string(words[i]);
  const FenReading reading = read_fen(fen);
  if (!reading.good()) refuse_opening(file, where, reading.complaint());
  Game game(reading.position);
  if (game.result(rules).over()) refuse_opening(file, where, "the game is over there");
  return game;
}

std::vector<Game> read_epd(const std::filesystem::path& file, std::istream& in, const DrawRules& rules) {
  std::vector<Game> games;
  std::vector<char> line(kLongestEpdLine + 1);
  for (int64_t number = 1; in.getline(line.data(), static_cast<std::streamsize>(line.size())) || in.gcount() > 0;
       ++number) {
    if (!in && !in.eof())
      refuse_opening(file, fmt::format("line {}", number), "a line of more than 4096 bytes is no position");
    const std::string_view text(line.data());
    const size_t begin = text.find_first_not_of(" \t\r");
    if (begin == text.npos || text[begin] == '#') continue;
    if (games.size() == kMostOpenings) refuse_opening(file, fmt::format("line {}", number), "a million are enough");
    games.push_back(read_epd_line(file, number, text, rules));
  }
  return games;
}

std::vector<Game> read_pgn(const std::filesystem::path& file, std::istream& in, std::optional<int> plies,
                           const DrawRules& rules) {
  std::vector<Game> games;
  PgnReader reader(in);
  while (std::optional<PgnGame> read = reader.next()) {
    const std::string where = fmt::format("game {}", games.size() + 1);
    if (reader.fault())
      throw ConfigError(fmt::format("{}: not all of it can be read", printable(file.string())),
                        printable(reader.fault()->text()), "correct the game, or take it out of the file");
    if (games.size() == kMostOpenings) refuse_opening(file, where, "a million are enough");
    Game game = plies ? first_moves(read->game, *plies) : std::move(read->game);
    if (game.result(rules).over())
      refuse_opening(file, where, "the game is over at its end; --opening-plies takes its first moves alone");
    games.push_back(std::move(game));
  }
  return games;
}

bool is_pgn_name(const std::filesystem::path& file) {
  return same_uci_name(file.extension().string(), ".pgn");  // GAMES.PGN too
}

// By a number that is drawn for each: a file of any length, in an order that the seed alone decides.
void shuffle_games(std::vector<Game>& games, uint64_t seed) {
  const RandomKey key{.seed = seed, .site = kOpeningOrder};
  std::vector<size_t> order(games.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&key](size_t i) { return random_u32(key, i); });
  std::vector<Game> shuffled;
  for (const size_t i : order) shuffled.push_back(std::move(games[i]));
  games = std::move(shuffled);
}

}  // namespace

Openings Openings::by_rule(uint64_t seed, int plies) {
  Openings openings;
  openings.seed_ = seed, openings.plies_ = plies;
  return openings;
}

Openings Openings::of_file(const std::filesystem::path& file, uint64_t seed, std::optional<int> plies,
                           const DrawRules& rules) {
  std::ifstream in(file, std::ios::binary);
  std::error_code error;
  if (!in || std::filesystem::is_directory(file, error))
    throw ConfigError(fmt::format("cannot read the openings {}", printable(file.string())),
                      std::filesystem::exists(file, error) ? "it can't be opened as a file" : "there is no such file",
                      "give an .epd or .pgn file, or leave --openings out");
  Openings openings;
  const bool pgn = is_pgn_name(file);
  if (plies && !pgn)
    throw ConfigError(fmt::format("--opening-plies {}: {} holds positions", *plies, printable(file.string())),
                      "they have no moves that could be cut; it is for openings by rule and for those of a .pgn",
                      "leave --opening-plies out, or give a .pgn");
  openings.games_ = pgn ? read_pgn(file, in, plies, rules) : read_epd(file, in, rules);
  if (openings.games_.empty())
    throw ConfigError(fmt::format("no openings in {}", printable(file.string())), "it holds no position and no game",
                      "give an .epd file with a position a line, or a .pgn");
  shuffle_games(openings.games_, seed);
  return openings;
}

Game Openings::opening(int64_t number) const {
  if (games_.empty()) return random_opening(seed_, number, plies_);
  return games_[static_cast<size_t>(number) % games_.size()];
}

int Openings::most_plies() const {
  size_t most = 0;
  for (const Game& game : games_) most = std::max(most, game.moves().size());
  return games_.empty() ? plies_ : static_cast<int>(most);
}

std::optional<int64_t> Openings::count() const {
  if (games_.empty()) return std::nullopt;
  return static_cast<int64_t>(games_.size());
}

}  // namespace tandem::chess
