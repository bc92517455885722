#include "apps/chess/player_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "apps/chess/uci/find_engine.h"
#include "apps/chess/uci/uci_player.h"
#include "apps/chess/uci/uci_words.h"
#include "base/printable.h"
#include "config/spelling.h"
#include "world/chess/players/builtin_players.h"

namespace tandem::chess {
namespace {

using Kind = PlayerName::Kind;

constexpr std::string_view kOptionKey = "option.";
constexpr int64_t kMostNumber = 1'000'000'000'000;
constexpr size_t kLongestWord = 64;  // that may be a misspelling

struct KnownPlayer {
  Kind kind;
  std::string_view word, spelling, what;
};
constexpr KnownPlayer kKnown[] = {
    {Kind::kRandom, "random", "random", "any legal move, each as likely"},
    {Kind::kGreedy, "greedy", "greedy", "the best capture, else any move"},
    {Kind::kMinimax, "minimax", "minimax, minimax:depth=3", "full search to depth 2, or to another one up to 6"},
    {Kind::kStockfish, "stockfish", "stockfish, stockfish:1500, stockfish:nodes=1000",
     "Debian's package, or the first in PATH; as strong as an Elo, or after so many nodes"},
    {Kind::kUci, "uci", "uci:/path/to/engine, uci:/path,option.Hash=64", "any engine that speaks UCI"},
};

std::string all_spellings() {
  std::vector<std::string_view> spellings;
  for (const KnownPlayer& player : kKnown) spellings.push_back(player.spelling);
  return fmt::format("{}", fmt::join(spellings, ", "));
}

std::string near_word(std::string_view word, const std::vector<std::string>& words) {
  return word.size() > kLongestWord ? "" : nearest_word(word, words);
}

[[noreturn]] void refuse(std::string_view text, const std::string& why, const std::string& todo) {
  throw ConfigError(fmt::format("\"{}\" is no player", printable(text)), why, todo);
}

int64_t whole_number(std::string_view text, std::string_view key, std::string_view value, int64_t most) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > most)
    refuse(text, fmt::format("{}={}: not a whole number from 1 to {}", key, printable(value), most),
           fmt::format("write {}={}, for example", key,
                       key == "elo"        ? 1500
                       : key == "depth"    ? 3
                       : key == "movetime" ? 100
                                           : 1000));
  return number;
}

void read_setting(PlayerName& name, std::string_view part) {
  if (std::ranges::any_of(part, [](unsigned char c) { return c < ' '; }))  // a line end would begin another command
    refuse(name.text, "a setting is one line of text", "take the control characters out");
  const std::string_view key = part.substr(0, part.find('='));
  const std::string_view value = part.substr(std::min(key.size() + 1, part.size()));
  const bool minimax = name.kind == Kind::kMinimax;
  const auto number = [&](int64_t most) { return whole_number(name.text, key, value, most); };
  if (key == "depth") {
    name.depth = number(minimax ? MinimaxPlayer::kDeepest : 1000);
  } else if (minimax) {
    refuse(name.text, fmt::format("minimax has a depth and no \"{}\"", printable(part)), "write minimax:depth=3");
  } else if (key == "elo") {
    name.elo = number(10000);
  } else if (key == "nodes") {
    name.nodes = number(kMostNumber);
  } else if (key == "movetime") {
    name.move_time_ms = number(24 * 3600 * 1000);
  } else if (key == "args" && name.kind == Kind::kUci && part.size() > key.size()) {
    for (const std::string_view word : words_of(value)) name.arguments.emplace_back(word);
  } else if (key.starts_with(kOptionKey) && key.size() > kOptionKey.size() && part.size() > key.size()) {
    name.options.emplace_back(key.substr(kOptionKey.size()), value);
  } else if (name.kind == Kind::kStockfish && part.size() == key.size()) {
    name.elo = whole_number(name.text, "elo", part, 10000);  // stockfish:1500
  } else {
    const std::string near = near_word(key, {"elo", "nodes", "depth", "movetime", "args", "option."});
    refuse(name.text, fmt::format("an engine has no \"{}\" here", printable(part)),
           near.empty() ? "it takes elo=, nodes=, depth=, movetime= and option.NAME="
                        : fmt::format("did you mean {}=?", near));
  }
}

// Where a comma begins a setting: it is followed by a word and '='. Other commas belong to the path or value before.
size_t next_setting(std::string_view text, size_t from) {
  for (size_t at = text.find(',', from); at != text.npos; at = text.find(',', at + 1)) {
    const std::string_view rest = text.substr(at + 1);
    const size_t end = rest.find_first_of("=,/");
    if (end != rest.npos && end > 0 && rest[end] == '=') return at;
  }
  return text.npos;
}

void read_settings(PlayerName& name, std::string_view rest) {
  for (bool first = true; !rest.empty() || first; first = false) {
    const size_t end = next_setting(rest, 0);
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    if (first && name.kind == Kind::kUci)
      name.engine = part;
    else
      read_setting(name, part);
  }
}

[[noreturn]] void refuse_unknown(std::string_view text, std::string_view word) {
  std::vector<std::string> words;
  for (const KnownPlayer& player : kKnown) words.emplace_back(player.word);
  const std::string near = near_word(word, words);
  std::string todo = near.empty() ? "" : fmt::format("did you mean {}? ", near);
  if (word.find('/') != word.npos) todo = fmt::format("did you mean uci:{}? ", printable(text));
  refuse(text, fmt::format("players are: {}", all_spellings()), todo + "`--help` tells what each of them does");
}

std::unique_ptr<Player> make_uci_player(const PlayerName& name, const UciPatience& patience) {
  UciSettings settings;
  settings.program = name.kind == Kind::kStockfish ? find_stockfish() : find_engine(name.engine.string());
  settings.arguments = name.arguments;
  settings.called = printable(name.text);
  settings.elo = name.elo, settings.nodes = name.nodes;
  if (name.depth) settings.depth = static_cast<int>(*name.depth);
  if (name.move_time_ms) settings.move_time = std::chrono::milliseconds(*name.move_time_ms);
  settings.options = name.options;
  settings.patience = patience;
  return std::make_unique<UciPlayer>(std::move(settings));
}

}  // namespace

PlayerName read_player_name(std::string_view text) {
  PlayerName name;
  name.text = text;
  const size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  const auto* const player = std::ranges::find(kKnown, word, &KnownPlayer::word);
  if (player == std::end(kKnown)) refuse_unknown(text, word);
  name.kind = player->kind;
  const std::string_view rest = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  if (name.kind == Kind::kUci) {
    if (rest.empty() || rest.front() == ',') refuse(text, "it names no program", "write uci:/path/to/engine");
    read_settings(name, rest);
  } else if (colon != text.npos) {
    if (name.kind == Kind::kRandom || name.kind == Kind::kGreedy)
      refuse(text, fmt::format("{} has no settings", word), fmt::format("write {}", word));
    read_settings(name, rest);
  }
  return name;
}

std::unique_ptr<Player> make_player(const PlayerName& name, const UciPatience& patience) {
  switch (name.kind) {
    case Kind::kRandom:
      return std::make_unique<RandomPlayer>();
    case Kind::kGreedy:
      return std::make_unique<GreedyPlayer>();
    case Kind::kMinimax:
      return std::make_unique<MinimaxPlayer>(static_cast<int>(name.depth.value_or(MinimaxPlayer::kDepth)));
    case Kind::kStockfish:
    case Kind::kUci:
      break;
  }
  return make_uci_player(name, patience);
}

std::string players_help() {
  std::string help;
  for (const KnownPlayer& player : kKnown)
    help += fmt::format("{}{} ({})", help.empty() ? "" : "; ", player.spelling, player.what);
  return help;
}

}  // namespace tandem::chess
