// apps/chess/play/player_choice.h -- whom `tandem play chess RUN` plays with.
//
// RUN is the name of a player (apps/chess/player_name.h). A run with a network becomes a choice here as well, once
// there are such runs: make() loads its weights, and the rest of play/ sees a Player.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "world/chess/players/player.h"

namespace tandem::chess {

// What a user may change about a player before a game.
struct PlaySettings {
  std::string weights_file;  // of a network; empty: the run's own
  double temperature = 0;    // of a network: how freely it draws among good moves
  int depth = 0;             // of a search

  bool operator==(const PlaySettings&) const = default;
};

struct PlayerChoice {
  std::string name;          // as the user wrote it
  bool has_network = false;  // weights and temperature mean something
  bool keeps_time = false;   // it manages its clock by itself
  int depth = 0;             // how deep it searches; 0: not a search whose depth can be chosen
  int deepest = 0;
  std::function<std::unique_ptr<Player>(const PlaySettings&)> make;  // may throw Error
};

// Throws ConfigError: what RUN is, if it is not a player, and what may stand there.
PlayerChoice choose_player(const std::string& text, const std::filesystem::path& runs_root);

}  // namespace tandem::chess
