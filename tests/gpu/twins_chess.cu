// tests/gpu/twins_chess.cu -- chess on the GPU beside the CPU: games at random with their legal moves, masks,
// positions, histories and ends; then perft against known counts; then speed.
//
// JSON lines: {"check","equal",...} and {"speed",...}, boards or nodes a second. Exit 1 if anything differs, 2 if there
// is no GPU. Builds alone, on a bare machine, in half a minute:
//   nvcc -std=c++20 -O3 -arch=native --fmad=false --threads 0 -Isrc -Xcompiler -ffp-contract=off,-ffunction-sections
//     -Xlinker --gc-sections -o twins_chess tests/gpu/twins_chess.cu src/world/cuda_chess.cu
//     src/world/cuda_chess_perft.cu src/world/gpu_perft.cc
//     src/world/chess/{game,moves*,perft}.cc
//     src/kernels/gpu/{cuda_device.cc,elementwise.cu,random.cu,reductions.cu}
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/gpu/cuda_device.h"
#include "world/chess/perft_positions.h"
#include "world/chess_games_for_tests.h"
#include "world/gpu_perft.h"

namespace {

using namespace tandem;
using namespace tandem::chess;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(2);
}

template <typename T>
class OnGpu {
 public:
  explicit OnGpu(size_t n) : n_(n) { check(cudaMalloc(&data_, n * sizeof(T)), "cudaMalloc"); }
  OnGpu(const OnGpu&) = delete;
  ~OnGpu() { cudaFree(data_); }
  T* data() { return data_; }
  void put(const std::vector<T>& from) {
    check(cudaMemcpy(data_, from.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
  }
  void get(std::vector<T>& to) {
    check(cudaMemcpy(to.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "copy to the host");
  }

 private:
  T* data_ = nullptr;
  size_t n_;
};

struct GpuGames {
  explicit GpuGames(size_t n)
      : positions(n), histories(n), ends(n), counts(n), moves(n * kMostMoves), masks(n), actions(n) {
    check(cudaMemset(refused.data(), 0, sizeof(unsigned long long)), "zero");
  }
  ChessGames games() { return {positions.data(), histories.data(), ends.data()}; }
  ChessLegal legal() { return {counts.data(), moves.data(), masks.data()}; }
  ChessChoice choice() { return {actions.data(), masks.data(), refused.data()}; }
  void get_legal(ChessArrays& to) {
    ends.get(to.ends);
    counts.get(to.counts);
    moves.get(to.moves);
    masks.get(to.masks);
  }
  void get_games(ChessArrays& to) {
    positions.get(to.positions);
    histories.get(to.histories);
  }

  OnGpu<Position> positions;
  OnGpu<ChessHistory> histories;
  OnGpu<GameEnd> ends;
  OnGpu<int32_t> counts;
  OnGpu<Move> moves;
  OnGpu<ActionMask> masks;
  OnGpu<int32_t> actions;
  OnGpu<unsigned long long> refused{1};
};

const ChessKernels& kernels() { return cuda::chess_kernels(); }

// Positions of many games, with a legal action of each.
struct Seen {
  std::vector<Position> positions;
  std::vector<int32_t> actions;
};

bool equal_games(size_t n, uint64_t steps, Seen& seen) {
  const std::vector<Position> starts = chess_test_positions();
  const auto count = static_cast<int64_t>(n), many = static_cast<int64_t>(starts.size());
  OnGpu<Position> starts_there(starts.size());
  starts_there.put(starts);
  ChessGamesBeside beside(starts, n);
  ChessArrays found(n);
  GpuGames gpu(n);
  std::string wrong;
  uint64_t step = 0;
  kernels().begin(gpu.games(), count, starts_there.data(), many, false, nullptr);
  for (; step < steps && wrong.empty(); ++step) {
    const DrawRules rules = step % 3 == 0 ? DrawRules::at_first_claim() : DrawRules::fide();
    kernels().look(gpu.games(), count, gpu.legal(), rules, nullptr);
    gpu.get_legal(found);
    wrong = beside.look(found, rules);
    if (!wrong.empty()) break;
    found.actions = beside.choose(step);
    for (size_t i = 0; i < n && step % 4 == 3; ++i)
      if (found.actions[i] >= 0 && i % 8 < 4) {
        seen.positions.push_back(beside.game(i).position());
        seen.actions.push_back(found.actions[i]);
      }
    gpu.actions.put(found.actions);
    kernels().play(gpu.games(), count, gpu.choice(), nullptr);
    beside.play(found.actions);
    if (step % 4 == 3) {
      kernels().begin(gpu.games(), count, starts_there.data(), many, true, nullptr);
      beside.begin_those_over();
    }
    gpu.get_games(found);
    wrong = beside.played(found);
  }
  std::vector<unsigned long long> refused(1);
  gpu.refused.get(refused);
  if (!wrong.empty()) std::fprintf(stderr, "  %s: step %llu\n", wrong.c_str(), static_cast<unsigned long long>(step));
  const bool equal = wrong.empty() && refused[0] == 0;
  std::printf("{\"check\":\"games\",\"positions\":%llu,\"equal\":%s", static_cast<unsigned long long>(step * n),
              equal ? "true" : "false");
  static constexpr const char* kEnds[] = {"going_on", "mates", "stalemates", "dead", "move_rule", "repetitions"};
  for (int end = 0; end < 6; ++end)
    std::printf(",\"%s\":%lld", kEnds[end], static_cast<long long>(beside.ended(static_cast<GameEnd>(end))));
  std::printf("}\n");
  return equal;
}

// Milliseconds of the fastest of several runs: `prepare` is not timed.
double milliseconds(
    const std::function<void()>& work, const std::function<void()>& prepare = [] {}) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  float best = 1e30f;
  for (int run = 0; run < 12; ++run) {
    prepare();
    check(cudaEventRecord(begin), "event");
    work();
    check(cudaEventRecord(end), "event");
    check(cudaEventSynchronize(end), "run");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    best = ms < best ? ms : best;
  }
  check(cudaEventDestroy(begin), "event");
  check(cudaEventDestroy(end), "event");
  return best;
}

// Boards a second of each kind of work, n at a time.
void speed(const Seen& seen, size_t n) {
  const auto count = static_cast<int64_t>(n);
  Seen part;
  for (size_t i = 0; i < n; ++i) {
    const size_t at = i * 7919 % seen.positions.size();  // games of all lengths beside each other
    part.positions.push_back(seen.positions[at]);
    part.actions.push_back(seen.actions[at]);
  }
  GpuGames gpu(n);
  OnGpu<Position> starts(n);
  starts.put(part.positions);
  gpu.actions.put(part.actions);
  const auto begin = [&] { kernels().begin(gpu.games(), count, starts.data(), count, false, nullptr); };
  begin();
  const auto legal = [&](const ChessLegal& wanted) {
    return milliseconds([&] { kernels().legal(gpu.positions.data(), count, wanted, nullptr); });
  };
  const auto look = [&] { kernels().look(gpu.games(), count, gpu.legal(), {}, nullptr); };
  const double counted = legal({gpu.counts.data(), nullptr, nullptr});
  const double listed = legal({gpu.counts.data(), gpu.moves.data(), nullptr});
  const double masked = legal({gpu.counts.data(), nullptr, gpu.masks.data()});
  const double looked = milliseconds(look);
  const double played = milliseconds([&] { kernels().play(gpu.games(), count, gpu.choice(), nullptr); }, begin);
  const double turned = milliseconds(
      [&] {
        look();
        kernels().play(gpu.games(), count, gpu.choice(), nullptr);
      },
      begin);
  const auto per_s = [n](double ms) { return static_cast<double>(n) / ms * 1e3; };
  std::printf(
      "{\"speed\":\"boards\",\"boards\":%zu,\"count_per_s\":%.3g,\"list_per_s\":%.3g,\"mask_per_s\":%.3g,"
      "\"look_per_s\":%.3g,\"play_per_s\":%.3g,\"turn_per_s\":%.3g}\n",
      n, per_s(counted), per_s(listed), per_s(masked), per_s(looked), per_s(played), per_s(turned));
}

struct Known {
  const char* fen;
  int depth;
  uint64_t nodes;
};
constexpr Known kUsual[] = {
    {"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", 5, 4865609},
    {"r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", 5, 193690690},
    {"8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1", 5, 674624},
    {"r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1", 5, 15833292},
    {"r2q1rk1/pP1p2pp/Q4n2/bbp1p3/Np6/1B3NBn/pPPP1PPP/R3K2R b KQ - 0 1", 5, 15833292},
    {"rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8", 5, 89941194},
    {"r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10", 5, 164075551},
    {"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", 6, 119060324},
    {"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", 7, 3195901860},
    {"r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", 6, 8031647685},
    {"r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10", 6, 6923051137},
};

// These, and the positions with one rule each.
std::vector<Known> known_counts() {
  std::vector<Known> all(std::begin(kUsual), std::end(kUsual));
  for (const PerftPosition& edge : kEdgePositions)
    all.push_back({edge.fen, edge.counts.back().first, edge.counts.back().second});
  return all;
}

bool equal_perft() {
  const cuda::Stream stream = nullptr;
  const std::unique_ptr<Device> device = cuda::make_cuda_device(&stream);
  GpuPerft gpu(*device, kernels(), nullptr);
  bool all = true;
  for (const Known& known : known_counts()) {
    const Position position = chess_test_position(known.fen);
    gpu.divided(position, 4);  // memory is there by then
    const auto begin = std::chrono::steady_clock::now();
    uint64_t nodes = 0;
    for (const PerftMove& one : gpu.divided(position, known.depth)) nodes += one.nodes;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    all = all && nodes == known.nodes;
    std::printf(
        "{\"check\":\"perft\",\"fen\":\"%s\",\"depth\":%d,\"nodes\":%llu,\"equal\":%s,\"ms\":%.3g,\"per_s\":%.3g}\n",
        known.fen, known.depth, static_cast<unsigned long long>(nodes), nodes == known.nodes ? "true" : "false",
        seconds * 1e3, static_cast<double>(nodes) / seconds);
    std::fflush(stdout);
  }
  return all;
}

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "error: no GPU here\n");
    return 2;
  }
  Seen seen;
  bool all = equal_games(16384, 64, seen);
  std::fflush(stdout);
  all = equal_perft() && all;
  for (const size_t n : {size_t{4096}, size_t{262144}}) speed(seen, n);
  return all ? 0 : 1;
}
