// world/chess_games_for_tests.h -- games of chess played beside a GPU's: what the kernels of cuda_chess.h must give,
// computed with the functions of chess/.
#pragma once

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/philox.h"
#include "world/chess_mover_view.h"
#include "world/cuda_chess.h"

namespace tandem {

// Of a good FEN alone. (fen.h would bring a library of formats along, and tests/gpu/twins_chess.cu is to build
// without.)
inline chess::Position chess_test_position(const std::string& fen) {
  static constexpr std::string_view kPieces = "pnbrqk", kRights = "KQkq";
  std::istringstream words(fen);
  std::string board, side, rights, en_passant;
  chess::Position position;
  words >> board >> side >> rights >> en_passant >> position.halfmove_clock >> position.fullmove_number;
  chess::Square square = 56;
  for (const char c : board) {
    if (c == '/')
      square -= 16;
    else if (c >= '1' && c <= '8')
      square += c - '0';
    else
      position.put(c < 'a' ? chess::Side::kWhite : chess::Side::kBlack,
                   static_cast<chess::PieceType>(kPieces.find(static_cast<char>(c | 32))), square++);
  }
  if (side == "b") position.side_to_move = chess::Side::kBlack;
  for (size_t i = 0; i < kRights.size(); ++i)
    if (rights.find(kRights[i]) != std::string::npos) position.castling |= static_cast<uint8_t>(1 << i);
  if (en_passant != "-")
    position.en_passant = static_cast<uint8_t>(chess::square_at(en_passant[0] - 'a', en_passant[1] - '1'));
  position.hash = chess::hash_of(position);
  return position;
}

// Where games begin: the start, positions full of special moves, endgames that come to every kind of end.
inline std::vector<chess::Position> chess_test_positions() {
  static constexpr const char* kFens[] = {
      "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
      "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
      "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",                           // en passant would open the rank
      "r2q1rk1/pP1p2pp/Q4n2/bbp1p3/Np6/1B3NBn/pPPP1PPP/R3K2R b KQ - 0 1",    // promotions of both sides
      "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1",                             // nothing but promotions
      "8/8/8/2k5/2pP4/8/B7/4K3 b - d3 0 3",                                  // en passant ends a check
      "3k4/3p4/8/K1P4r/8/8/8/8 b - - 0 1",                                   // en passant would open the rank
      "r3k2r/1b4bq/8/8/8/8/7B/R3K2R w KQkq - 0 1",                           // castling rights lost to captures
      "r3k2r/8/3Q4/8/8/5q2/8/R3K2R b KQkq - 0 1",                            // castling through attacks
      "2K2r2/4P3/8/8/8/8/8/3k4 w - - 0 1",                                   // promotion out of a check
      "8/8/1P2K3/8/2n5/1q6/8/5k2 b - - 0 1",                                 // a discovered check
      "R6R/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBNN1KB1 w - - 0 1",                // 218 moves
      "1Q4QK/4Q3/Q1Q4Q/Q4Q2/3Q4/1Q4Q1/pp2Q3/kBQ4Q w - - 0 1",                // 241: more than any game has
      "8/8/8/8/4k3/8/1R6/K7 w - - 90 120",                                   // soon 50 moves, then 75
      "8/8/4k3/8/8/3nK3/8/8 w - - 140 200",                                  // dead
      "8/8/4k3/1n6/8/3BK3/8/8 b - - 3 90",                                   // dead as soon as one is taken
      "8/5k2/8/8/8/2KQ4/8/8 w - - 139 200",                                  // mate, stalemate, 75 moves
      "7k/5Q2/6K1/8/8/8/8/8 b - - 12 80",                                    // stalemate
      "r1bqkb1r/pppp1Qpp/2n2n2/4p3/2B1P3/8/PPPP1PPP/RNB1K1NR b KQkq - 0 4",  // mate
      "4k2r/6K1/8/8/8/8/8/8 w k - 150 300",                                  // over by the clock at its start
      "8/8/8/8/8/1k6/8/K6r w - - 400 300",                                   // mate comes before the clock
  };
  std::vector<chess::Position> positions;
  for (const char* fen : kFens) positions.push_back(chess_test_position(fen));
  return positions;
}

// All arrays of n games, in host memory.
struct ChessArrays {
  explicit ChessArrays(size_t n)
      : positions(n), histories(n), ends(n), counts(n), moves(n * chess::kMostMoves), masks(n), actions(n) {}

  std::vector<chess::Position> positions;
  std::vector<ChessHistory> histories;
  std::vector<chess::GameEnd> ends;
  std::vector<int32_t> counts;
  std::vector<chess::Move> moves;
  std::vector<chess::ActionMask> masks;
  std::vector<int32_t> actions;
};

// The moves of a list, in the order that cuda_chess.h promises.
inline void gpu_order(const chess::Position& position, chess::MoveList& list) {
  chess::legal_moves(chess::seen_by_mover(position), list);
  if (position.side_to_move == chess::Side::kBlack)
    for (int i = 0; i < list.size; ++i) list.moves[i] = chess::turned(list.moves[i]);
}

class ChessGamesBeside {
 public:
  // Game i begins with starts[i % starts.size()].
  ChessGamesBeside(std::vector<chess::Position> starts, size_t n) : starts_(std::move(starts)), lists_(n) {
    for (size_t i = 0; i < n; ++i) games_.push_back({chess::Game(starts_[i % starts_.size()])});
  }

  void begin_those_over() {
    for (size_t i = 0; i < games_.size(); ++i)
      if (over(i)) games_[i] = {chess::Game(starts_[i % starts_.size()])};
  }
  bool over(size_t i) const { return games_[i].end != chess::GameEnd::kNone; }
  const chess::Game& game(size_t i) const { return games_[i].game; }

  // Judges all games, and says where a GPU found something else; "" where it is the same.
  std::string look(const ChessArrays& found, const chess::DrawRules& rules) {
    for (size_t i = 0; i < games_.size(); ++i) {
      const chess::Position& position = games_[i].game.position();
      games_[i].end = games_[i].game.result(rules).end;
      ++ends_[static_cast<int>(games_[i].end)];
      gpu_order(position, lists_[i]);
      chess::MoveList legal;
      chess::legal_moves(position, legal);
      const chess::ActionMask mask = chess::legal_action_mask(legal, position.side_to_move);
      const chess::Move* const moves = &found.moves[i * chess::kMostMoves];
      if (!same_set(legal, lists_[i])) return wrong("the legal moves seen from the other side", i);
      if (found.counts[i] != legal.size) return wrong("the number of moves", i);
      if (!std::equal(lists_[i].begin(), lists_[i].end(), moves)) return wrong("the list of moves", i);
      if (std::memcmp(&found.masks[i], &mask, sizeof(mask)) != 0) return wrong("the mask", i);
      if (found.ends[i] != games_[i].end) return wrong("the end", i);
    }
    return "";
  }

  // An action for each game, -1 where it is over. Of every eight games four play at random; the others look for
  // repetitions, for quiet moves, for captures, for special moves.
  std::vector<int32_t> choose(uint64_t step) const {
    std::vector<int32_t> actions(games_.size(), -1);
    for (size_t i = 0; i < games_.size(); ++i)
      if (!over(i)) actions[i] = chess::action_of(chosen(i, step), games_[i].game.position().side_to_move);
    return actions;
  }

  void play(const std::vector<int32_t>& actions) {
    for (size_t i = 0; i < games_.size(); ++i)
      if (actions[i] >= 0 && !over(i)) {
        const chess::Move move = chess::move_of_action(games_[i].game.position(), actions[i]);
        ++kinds_[static_cast<int>(move.kind())];
        games_[i].game.play(move);
      }
  }

  std::string played(const ChessArrays& found) const {
    for (size_t i = 0; i < games_.size(); ++i) {
      const chess::Game& game = games_[i].game;
      const chess::Position& position = game.position();
      const ChessHistory& history = found.histories[i];
      if (!(found.positions[i] == position)) return wrong("the position", i);
      if (history.repetitions != game.repetitions()) return wrong("the number of repetitions", i);
      const int clock = std::min<int>(position.halfmove_clock, kLongestClock);
      const auto hashes = game.hashes();
      const int oldest = std::max(0, clock - static_cast<int>(hashes.size()) + 1);
      if (history.first != oldest) return wrong("the oldest position remembered", i);
      for (int c = oldest; c <= clock; ++c)
        if (history.hashes[c] != hashes[hashes.size() - 1 - static_cast<size_t>(clock - c)])
          return wrong("a hash remembered", i);
    }
    return "";
  }

  // How often look() saw each end, and play() each kind of move.
  int64_t ended(chess::GameEnd end) const { return ends_[static_cast<int>(end)]; }
  int64_t made_of_kind(chess::MoveKind kind) const { return kinds_[static_cast<int>(kind)]; }

 private:
  struct Beside {
    chess::Game game;
    chess::GameEnd end = chess::GameEnd::kNone;
  };

  static bool same_set(chess::MoveList a, chess::MoveList b) {
    const auto by_bits = [](chess::Move x, chess::Move y) { return x.bits() < y.bits(); };
    std::sort(a.moves, a.moves + a.size, by_bits);
    std::sort(b.moves, b.moves + b.size, by_bits);
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  std::string wrong(const char* what, size_t i) const {
    return std::string(what) + " of game " + std::to_string(i) + ", which began in position " +
           std::to_string(i % starts_.size()) + ", after " + std::to_string(games_[i].game.moves().size()) + " moves";
  }

  chess::Move chosen(size_t i, uint64_t step) const {
    const chess::MoveList& list = lists_[i];
    const chess::Position& position = games_[i].game.position();
    const auto played = games_[i].game.moves();
    std::vector<chess::Move> wanted;
    for (const chess::Move move : list) {
      const bool captures = chess::has(position.occupied(), move.to());
      const bool quiet = !captures && !chess::has(position.pawns, move.from());
      const bool back = played.size() >= 2 && move.from() == played[played.size() - 2].to() &&
                        move.to() == played[played.size() - 2].from();
      const size_t taste = i % 8;
      if ((taste == 4 && (back || played.size() < 2)) || (taste == 5 && quiet) || (taste == 6 && captures) ||
          (taste == 7 && move.kind() != chess::MoveKind::kNormal))
        wanted.push_back(move);
    }
    const RandomKey key{11, step, 0, 1};
    if (!wanted.empty() && random_below(key, 2 * i, 16) != 0)
      return wanted[random_below(key, 2 * i + 1, static_cast<uint32_t>(wanted.size()))];
    return list[static_cast<int>(random_below(key, 2 * i + 1, static_cast<uint32_t>(list.size)))];
  }

  std::vector<chess::Position> starts_;
  std::vector<Beside> games_;
  std::vector<chess::MoveList> lists_;
  int64_t ends_[6] = {}, kinds_[8] = {};
};

}  // namespace tandem
