#include "apps/chess/play/player_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/chess/player_name.h"
#include "base/errors.h"
#include "base/printable.h"
#include "runs/run_folder.h"
#include "world/chess/players/builtin_players.h"

namespace tandem::chess {
namespace {

bool is_run(const std::string& text, const std::filesystem::path& runs_root) {
  try {
    RunFolder::find(runs_root, text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

PlayerName player_of(const std::string& text, const std::filesystem::path& runs_root) {
  try {
    return read_player_name(text);
  } catch (const ConfigError& error) {
    if (!is_run(text, runs_root)) throw;
    throw ConfigError(fmt::format("{} can't play chess", printable(text)),
                      "it is a run, and no recipe of this version trains a network for chess",
                      "play one of the players by name: `tandem play chess minimax`");
  }
}

}  // namespace

PlayerChoice choose_player(const std::string& text, const std::filesystem::path& runs_root) {
  PlayerName name = player_of(text, runs_root);
  PlayerChoice choice;
  choice.name = printable(text);
  choice.keeps_time = name.is_process();
  if (name.is_process()) make_player(name);  // is there such a program?
  if (name.kind == PlayerName::Kind::kMinimax) {
    choice.depth = static_cast<int>(name.depth.value_or(MinimaxPlayer::kDepth));
    choice.deepest = MinimaxPlayer::kDeepest;
  }
  choice.make = [name](const PlaySettings& settings) -> std::unique_ptr<Player> {
    if (name.kind == PlayerName::Kind::kMinimax)
      return std::make_unique<MinimaxPlayer>(settings.depth, MinimaxPlayer::NodeLimit::kKept);
    return make_player(name, UciPatience::of_play());
  };
  return choice;
}

}  // namespace tandem::chess
