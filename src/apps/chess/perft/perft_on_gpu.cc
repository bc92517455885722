#include "apps/chess/perft/perft_on_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "command/child_output.h"
#include "command/start.h"
#include "recipes/chess_perft_worker.h"
#include "world/chess/fen.h"

namespace tandem {

PerftOnGpu perft_on_gpu(const CliContext& context, const DeviceSpec& gpu, const chess::Position& position, int depth) {
  check_worker_program(context);
  const ChildOutput said =
      run_child({.words = {context.worker.string(), kChessPerftWord, fmt::format("{}", depth), chess::fen_of(position)},
                 .environment = {{"OMP_NUM_THREADS", "1"},
                                 {"TANDEM_DEVICE", "cuda"},
                                 {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                 {"CUDA_VISIBLE_DEVICES", gpu.gpu.uuid}}});
  const std::string what = fmt::format("positions could not be counted on {}", gpu.name());
  if (!said.ok())
    throw Error(said.code > 0 ? static_cast<ExitCode>(said.code) : ExitCode::kFailed, what,
                fmt::format("the worker ended with {}; its words are above", said.ending()),
                "correct what it names, or take `--device cpu`");
  chess::MoveList moves;
  chess::legal_moves(position, moves);
  const auto answer = nlohmann::json::parse(said.text, nullptr, false);
  const auto nodes = answer.is_object() ? answer.value("nodes", nlohmann::json()) : nlohmann::json();
  const auto is_count = [](const nlohmann::json& one) { return one.is_number_unsigned(); };
  if (!nodes.is_array() || nodes.size() != static_cast<size_t>(moves.size) || !std::ranges::all_of(nodes, is_count))
    throw Error(ExitCode::kFailed, what, "the worker's answer is not that of a worker of this version",
                fmt::format("build {} and {} together: `make build`", context.program, context.worker.string()));
  PerftOnGpu counted{.seconds = answer.value("seconds", 0.0), .gpu = answer.value("gpu", gpu.name())};
  for (const chess::Move move : moves) counted.moves.push_back({move, nodes[counted.moves.size()].get<uint64_t>()});
  return counted;
}

}  // namespace tandem
