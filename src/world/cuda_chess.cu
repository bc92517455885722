// world/cuda_chess.cu -- kernels of cuda_chess.h: a thread has a game, and sees it from the side that moves.
//
// Blocks of 64 threads, so that a few thousand games reach every SM. A list is written 16 bytes at a time: a store of
// a warp touches 32 rows, which costs as much for 2 bytes as for 16. The masks of a block lie together in shared memory
// (37 kB, five blocks on an SM), where bits are set at random, and are then written as one range.
#include <stdexcept>

#include "kernels/gpu/intrinsics.h"
#include "world/chess_each_move.h"
#include "world/chess_gpu_sliders.h"
#include "world/chess_mover_view.h"
#include "world/cuda_chess.h"
#include "world/cuda_chess_perft.h"

namespace tandem::cuda {
namespace {

using namespace chess;

constexpr int kGameThreads = 64;
constexpr int kMaskWords = 2 * kActionTypes;  // 32-bit words of a mask

unsigned game_blocks(int64_t n) { return static_cast<unsigned>((n + kGameThreads - 1) / kGameThreads); }

// The type of a move in the action code, by 15 * ranks + files + 112; not of under-promotions. A lookup in L1 instead
// of the comparisons of action_of().
struct ActionTypes {
  uint8_t type[15 * 15] = {};
  constexpr ActionTypes() {
    for (int ranks = -7; ranks <= 7; ++ranks)
      for (int files = -7; files <= 7; ++files) {
        const int file = files < 0 ? 7 : 0, rank = ranks < 0 ? 7 : 0;
        const Move move(square_at(file, rank), square_at(file + files, rank + ranks));
        type[15 * ranks + files + 112] = static_cast<uint8_t>(action_of(move, Side::kWhite) % kActionTypes);
      }
  }
};
__device__ constexpr ActionTypes kTypes;

// Counts moves, lists them and sets their bits, as is wanted.
template <bool kLists, bool kMasks>
struct LegalMoves {
  uint4* row;      // of the list: eight moves each
  uint32_t* mask;  // in shared memory
  uint32_t turn;   // what turns a move's squares back
  const uint8_t* types;
  int count = 0;
  uint64_t low = 0, high = 0;  // the last eight moves: each comes in above

  TANDEM_HD void take(Square from, Square to, MoveKind kind) {
    const Move move(from, to, kind);
    if constexpr (kMasks) {
      const int action = kind >= MoveKind::kToKnight && kind < MoveKind::kToQueen
                             ? action_of(move, Side::kWhite)
                             : from * kActionTypes + types[to + 7 * rank_of(to) - from - 7 * rank_of(from) + 112];
      mask[action >> 5] |= 1u << (action & 31);
    }
    if constexpr (kLists) {
      low = low >> 16 | high << 48;
      high = high >> 16 | uint64_t{move.bits() ^ turn} << 48;
      if ((count & 7) == 7) store(count >> 3);
    }
    ++count;
  }
  TANDEM_HD void end() {
    if constexpr (kLists) {
      if ((count & 7) == 0) return;
      for (int missing = count & 7; missing < 8; ++missing) {
        low = low >> 16 | high << 48;
        high >>= 16;
      }
      store(count >> 3);
    }
  }
  TANDEM_HD void store(int eight) {
    row[eight] = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                  static_cast<uint32_t>(high >> 32)};
  }
};

// As result_of() in chess/game.cc.
TANDEM_HD GameEnd end_of(const Position& p, int moves, int repetitions, const DrawRules& rules) {
  if (moves == 0 && king_is_attacked<GpuSliders>(p)) return GameEnd::kCheckmate;
  if (is_dead_position(p)) return GameEnd::kDeadPosition;
  if (moves == 0) return GameEnd::kStalemate;
  if (p.halfmove_clock >= 2 * rules.moves) return GameEnd::kMoveRule;
  return repetitions >= rules.repetitions ? GameEnd::kRepetition : GameEnd::kNone;
}

template <bool kLists, bool kMasks>
__global__ void __launch_bounds__(kGameThreads) look(const Position* positions, const ChessHistory* histories,
                                                     GameEnd* ends, int64_t n, ChessLegal legal, DrawRules rules) {
  __shared__ uint32_t masks[kMasks ? kGameThreads * kMaskWords : 1];
  const auto thread = static_cast<int>(threadIdx.x);
  const int64_t first = int64_t{blockIdx.x} * kGameThreads, game = first + thread;
  if constexpr (kMasks) {
    for (int i = thread; i < kGameThreads * kMaskWords; i += kGameThreads) masks[i] = 0;
    __syncthreads();
  }
  if (game < n) {
    const Position p = positions[game];
    const Position seen = seen_by_mover(p);
    static_assert(kMostMoves % 8 == 0);
    LegalMoves<kLists, kMasks> moves{kLists ? reinterpret_cast<uint4*>(legal.moves) + game * (kMostMoves / 8) : nullptr,
                                     masks + (kMasks ? thread * kMaskWords : 0),
                                     p.side_to_move == Side::kWhite ? 0u : turned(Move(0, 0)).bits(), kTypes.type};
    EachMove<decltype(moves)> sink{moves};
    generate_moves<Side::kWhite, GpuSliders>(seen, sink);
    moves.end();
    if (legal.counts) legal.counts[game] = moves.count;
    if (ends) ends[game] = end_of(seen, moves.count, histories[game].repetitions, rules);
  }
  if constexpr (kMasks) {
    __syncthreads();
    const auto here = static_cast<int>(n - first < kGameThreads ? n - first : kGameThreads);
    uint64_t* const out = legal.masks[first].word;
    for (int i = thread; i < here * kActionTypes; i += kGameThreads)
      out[i] = masks[2 * i] | uint64_t{masks[2 * i + 1]} << 32;
  }
}

__global__ void __launch_bounds__(kGameThreads) play(ChessGames games, int64_t n, ChessChoice choice) {
  const int64_t game = int64_t{blockIdx.x} * kGameThreads + threadIdx.x;
  if (game >= n || games.ends[game] != GameEnd::kNone) return;
  const int action = choice.actions[game];
  if (action == -1) return;
  Position p = games.positions[game];
  if (action < 0 || action >= kActionCount || !choice.masks[game].has(action)) {
    atomicAdd(choice.refused, 1);
    return;
  }
  make_move<GpuSliders>(p, move_of_action(p, action));
  const int clock = p.halfmove_clock;
  if (clock > kLongestClock) {  // the game was over before
    atomicAdd(choice.refused, 1);
    return;
  }
  ChessHistory& history = games.histories[game];
  const int oldest = clock == 0 ? 0 : history.first;
  history.first = oldest;
  history.hashes[clock] = p.hash;
  history.repetitions = repetitions_of_last(history.hashes + oldest, clock - oldest + 1, clock);
  games.positions[game] = p;
}

__global__ void __launch_bounds__(kGameThreads)
    begin(ChessGames games, int64_t n, const Position* starts, int64_t count, bool only_over) {
  const int64_t game = int64_t{blockIdx.x} * kGameThreads + threadIdx.x;
  if (game >= n || (only_over && games.ends[game] == GameEnd::kNone)) return;
  const Position p = starts[game % count];
  const int clock = p.halfmove_clock < kLongestClock ? p.halfmove_clock : kLongestClock;
  games.positions[game] = p;
  games.histories[game].hashes[clock] = p.hash;
  games.histories[game].first = clock;
  games.histories[game].repetitions = 1;
  games.ends[game] = GameEnd::kNone;
}

void launch_look(const Position* positions, const ChessHistory* histories, GameEnd* ends, int64_t n,
                 const ChessLegal& legal, const DrawRules& rules, CUstream_st* stream) {
  if (n < 1) return;
  const auto chosen = legal.moves ? (legal.masks ? look<true, true> : look<true, false>)
                                  : (legal.masks ? look<false, true> : look<false, false>);
  TANDEM_LAUNCH("chess look", chosen, dim3(game_blocks(n)), dim3(kGameThreads), stream, positions, histories, ends, n,
                legal, rules);
}

void legal_chess(const Position* positions, int64_t n, const ChessLegal& legal, CUstream_st* stream) {
  launch_look(positions, nullptr, nullptr, n, legal, DrawRules{}, stream);
}

void look_at_games(const ChessGames& games, int64_t n, const ChessLegal& legal, const DrawRules& rules,
                   CUstream_st* stream) {
  if (2 * rules.moves > kLongestClock)
    throw std::invalid_argument("chess on a GPU ends games after 75 moves without capture and pawn move, at most");
  launch_look(games.positions, games.histories, games.ends, n, legal, rules, stream);
}

void play_chess(const ChessGames& games, int64_t n, const ChessChoice& choice, CUstream_st* stream) {
  if (n < 1) return;
  TANDEM_LAUNCH("chess play", play, dim3(game_blocks(n)), dim3(kGameThreads), stream, games, n, choice);
}

void begin_chess(const ChessGames& games, int64_t n, const Position* starts, int64_t count, bool only_over,
                 CUstream_st* stream) {
  if (n < 1) return;
  TANDEM_LAUNCH("chess begin", begin, dim3(game_blocks(n)), dim3(kGameThreads), stream, games, n, starts, count,
                only_over);
}

}  // namespace

const ChessKernels& chess_kernels() {
  static const ChessKernels kernels{legal_chess, look_at_games, play_chess, begin_chess,
                                    perft_list,  perft_make,    perft_count};
  return kernels;
}

}  // namespace tandem::cuda
