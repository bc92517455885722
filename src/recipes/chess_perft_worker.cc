#include "recipes/chess_perft_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/clock.h"
#include "base/errors.h"
#include "command/output.h"
#include "engine/gpu_device.h"
#include "world/chess/fen.h"
#include "world/gpu_perft.h"

namespace tandem {
namespace {

constexpr double kMemoryFraction = 0.9;  // of the GPU's
constexpr int kWarmUpDepth = 4;          // all kernels are loaded and most memory is there: not part of the speed

int count_on_gpu(const chess::Position& position, int depth) {
  open_gpu(kMemoryFraction);
  const auto* const kernels = gpu()->kernels<ChessKernels>();
  if (!kernels)
    throw ConfigError("this worker can't count positions on a GPU", "its libtandem_cuda.so has no kernels of chess",
                      "build it anew with `make build`; it and tandem-worker belong together");
  nlohmann::json answer{{"gpu", gpu()->name()}, {"nodes", nlohmann::json::array()}};
  GpuPerft perft(gpu()->device(), *kernels, static_cast<CUstream_st*>(gpu()->stream()));
  perft.divided(position, std::min(depth, kWarmUpDepth));
  const double begin = monotonic_seconds();
  for (const chess::PerftMove& one : perft.divided(position, depth)) answer["nodes"].push_back(one.nodes);
  answer["seconds"] = monotonic_seconds() - begin;
  fmt::print("{}\n", answer.dump());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int reported(const Error& error) {
  Output(false, false, false, false).error(error);
  return static_cast<int>(error.code());
}

}  // namespace

int chess_perft_worker(int argc, char** argv) {
  try {
    int depth = 0;
    const std::string_view text = argc == 4 ? argv[2] : "";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), depth);
    if (error != std::errc() || end != text.data() + text.size() || depth < 1)
      throw ConfigError(fmt::format("`{}` needs a depth and a FEN", kChessPerftWord),
                        "it is what `perft` starts, not for typing", "use `tandem perft DEPTH --device cuda:0`");
    return count_on_gpu(chess::position_of_fen(argv[3]), depth);
  } catch (const Error& error) {
    return reported(error);
  } catch (const std::bad_alloc&) {
    return reported(Error(ExitCode::kOutOfMemory, "positions could not be counted on the GPU",
                          "it has not enough free memory: about half a gigabyte",
                          "look at `nvidia-smi` for what holds it, or take `--device cpu`"));
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return reported(Error(ExitCode::kFailed, "positions could not be counted on the GPU",
                          what.substr(0, what.find('\n')), "look at `nvidia-smi`, or take `--device cpu`"));
  }
}

}  // namespace tandem
