#include "apps/chess/match/match_game.h"

#include <fmt/format.h>

#include "kernels/philox.h"
#include "world/chess/players/sites.h"

namespace tandem::chess {
namespace {

// As cutechess writes it: "+0.34/8", "-M3/12", from the side that moved.
std::string comment_of(const Thought& thought) {
  if (!thought.score) return "";
  const Score& score = *thought.score;
  const std::string value = score.mate_in
                                ? fmt::format("{}M{}", *score.mate_in < 0 ? '-' : '+', std::abs(*score.mate_in))
                                : fmt::format("{:+.2f}", score.centipawns / 100.0);
  return fmt::format("{}/{}", value, thought.depth);
}

void lose_by_fault(FinishedGame& played, Side side, const PlayerFault& fault) {
  played.fault = GameFault{side, fault.kind(), fault.what(), fault.why()};
  played.winner = other(side);
}

void begin(FinishedGame& played, Player& player, Side side, uint64_t seed, const std::stop_token& stop) {
  if (played.fault || stop.stop_requested()) return;
  try {
    player.begin_game(seed, stop);
  } catch (const PlayerFault& fault) {
    if (!stop.stop_requested()) lose_by_fault(played, side, fault);
  }
}

// A side without mating material does not win by the other's flag.
void lose_by_flag(FinishedGame& played, Side side) {
  played.flag = side;
  if (has_mating_material(played.game.position(), other(side))) played.winner = other(side);
}

// One move; false where the game can't go on.
bool play_move(FinishedGame& played, Player& player, ThinkRequest request, std::optional<GameClocks>& clocks) {
  const Side side = played.game.position().side_to_move;
  if (clocks) request.clocks = clocks->left(side);
  try {
    const auto began = std::chrono::steady_clock::now();
    const Thought thought = player.think(played.game, request);
    const auto took = std::chrono::steady_clock::now() - began;
    if (request.stop.stop_requested()) return false;
    played.times[static_cast<size_t>(side)].add(took, player.move_time(request));
    if (clocks && !clocks->press(side, took)) {
      lose_by_flag(played, side);
      return false;
    }
    played.game.play(thought.move);
    played.comments.push_back(comment_of(thought));
    return true;
  } catch (const PlayerFault& fault) {
    if (!request.stop.stop_requested()) lose_by_fault(played, side, fault);
    return false;
  }
}

std::string termination_of(const FinishedGame& played) {
  if (played.broken_off) return "unterminated";
  if (played.flag) return "time forfeit";
  if (played.too_long) return "adjudication";
  if (!played.fault) return "normal";
  switch (played.fault->kind) {
    case PlayerFault::Kind::kSilent:
      return "time forfeit";
    case PlayerFault::Kind::kIllegalMove:
    case PlayerFault::Kind::kFlood:
      return "rules infraction";
    case PlayerFault::Kind::kNoEngine:
    case PlayerFault::Kind::kCrashed:
    case PlayerFault::Kind::kStopped:
      break;
  }
  return "abandoned";
}

}  // namespace

std::string FinishedGame::result_text() const {
  if (broken_off) return "*";
  if (!winner) return "1/2-1/2";
  return *winner == Side::kWhite ? "1-0" : "0-1";
}

std::string FinishedGame::ending() const {
  if (broken_off) return "broken off";
  if (fault) return fault->what;
  if (flag) return winner ? "time" : "time, and nothing to mate with";
  if (too_long) return fmt::format("{} half-moves", game.moves().size());
  return std::string(word_of(result.end));
}

int FinishedGame::points() const {
  if (!winner) return 1;
  return (*winner == Side::kWhite) == first_is_white ? 2 : 0;
}

uint64_t seed_of_player(uint64_t match_seed, int64_t game, Side side) {
  const RandomKey key{
      .seed = match_seed, .step = static_cast<uint64_t>(game), .shard = static_cast<uint32_t>(side), .site = kGameSeed};
  return uint64_t{random_u32(key, 0)} << 32 | random_u32(key, 1);
}

FinishedGame play_game(const Game& opening, Player& white, Player& black, uint64_t white_seed, uint64_t black_seed,
                       const MatchRules& rules, const std::stop_token& stop) {
  FinishedGame played;
  played.game = opening;
  played.comments.assign(opening.moves().size(), "");
  if (!played.comments.empty()) played.comments.back() = "end of the opening";
  begin(played, white, Side::kWhite, white_seed, stop);
  begin(played, black, Side::kBlack, black_seed, stop);
  ThinkRequest request = rules.limits;
  request.stop = stop;
  std::optional<GameClocks> clocks;
  if (rules.clock) clocks.emplace(*rules.clock);
  while (!played.fault && !stop.stop_requested()) {
    played.result = played.game.result(rules.draws);
    played.winner = played.result.winner;
    if (played.result.over()) break;
    played.too_long = static_cast<int>(played.game.moves().size()) >= rules.max_plies;
    if (played.too_long) break;
    Player& mover = played.game.position().side_to_move == Side::kWhite ? white : black;
    if (!play_move(played, mover, request, clocks)) break;
  }
  played.broken_off = !played.fault && !played.flag && !played.too_long && !played.result.over();
  return played;
}

PgnGame pgn_of_game(const FinishedGame& played, const std::string& white, const std::string& black,
                    const MatchTags& tags) {
  PgnGame pgn;
  pgn.game = played.game;
  pgn.result = played.result_text();
  pgn.comments = played.comments;
  if (played.fault) {
    pgn.comments.resize(played.game.moves().size());
    std::string& last = pgn.comments.empty() ? pgn.preface : pgn.comments.back();
    last += fmt::format("{}{}: {}", last.empty() ? "" : "; ", played.fault->what, played.fault->why);
  }
  if (played.flag) {
    pgn.comments.resize(played.game.moves().size());
    const bool white = *played.flag == Side::kWhite;
    (pgn.comments.empty() ? pgn.preface : pgn.comments.back()) =
        fmt::format("{}'s flag fell{}", white ? "White" : "Black",
                    played.winner ? "" : ", and the other side has nothing to mate with");
  }
  pgn.set_tag("Event", tags.event);
  pgn.set_tag("Site", "?");
  pgn.set_tag("Date", tags.date);
  pgn.set_tag("Round", fmt::format("{}.{}", played.number / 2 + 1, played.number % 2 + 1));
  pgn.set_tag("White", white);
  pgn.set_tag("Black", black);
  if (!tags.time_control.empty()) pgn.set_tag("TimeControl", tags.time_control);
  pgn.set_tag("PlyCount", std::to_string(played.game.moves().size()));
  pgn.set_tag("Termination", termination_of(played));
  return pgn;
}

}  // namespace tandem::chess
