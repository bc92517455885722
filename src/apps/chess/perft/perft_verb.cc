#include "apps/chess/perft/perft_verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "apps/chess/perft/perft_on_gpu.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"
#include "command/progress_on_stderr.h"
#include "config/devices.h"
#include "telemetry/human.h"
#include "telemetry/progress.h"
#include "world/chess/fen.h"
#include "world/chess/notation.h"

namespace tandem {
namespace {

using namespace chess;

constexpr int kMostDepth = 64;  // some positions have one move only; others would take longer than there is time

struct PerftLine {
  int depth = 0;
  Position position;
  std::optional<DeviceSpec> gpu;  // nothing: a CPU core
};

struct PerftResult {
  std::vector<PerftMove> moves;
  uint64_t nodes = 0;
  double seconds = 0;
  std::string device;  // "one CPU core", "NVIDIA H200"
};

int read_depth(const Command& command) {
  const std::string text = command.subject();
  int depth = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), depth);
  if (error == std::errc() && end == text.data() + text.size() && depth >= 0 && depth <= kMostDepth) return depth;
  throw ConfigError(text.empty() ? "how deep?" : fmt::format("\"{}\" is no depth", printable(text)),
                    fmt::format("it is the number of moves of both sides together, 0 to {}", kMostDepth),
                    fmt::format("write `{} perft 5`", command.context.program));
}

PerftLine read_perft_line(const Command& command) {
  PerftLine line{.depth = read_depth(command)};
  const auto& words = command.arguments.subjects;  // a FEN may come as one word or as its fields
  std::string fen;
  for (size_t i = 1; i < words.size(); ++i) fen += (i > 1 ? " " : "") + words[i];
  line.position = words.size() > 1 ? position_of_fen(fen) : start_position();
  const std::string device = command.arguments.text("device", "cpu");
  if (device == "cpu") return line;
  const std::vector<DeviceSpec> devices = parse_devices(device, command.context.machine);
  if (devices.size() != 1 || devices.front().kind != DeviceSpec::Kind::kCuda)
    throw ConfigError(fmt::format("--device {}: not one device", printable(device)),
                      "positions are counted by one CPU core or by one GPU", "give cpu, or cuda:0");
  line.gpu = devices.front();
  return line;
}

// A bar on a terminal, a line now and then elsewhere.
class PerftBar {
 public:
  PerftBar(const Output& output, int depth)
      : output_(output),
        title_(fmt::format("perft {}", depth)),
        began_(monotonic_seconds()),
        display_(progress_on_stderr(output), began_) {}
  ~PerftBar() { display_.clear(); }

  void show(const PerftProgress& progress) {
    const double now = monotonic_seconds();
    if (output_.quiet() || !display_.due(now)) return;
    const double share = static_cast<double>(progress.parts) / static_cast<double>(progress.all_parts);
    ProgressRow row{.title = title_, .step = progress.parts, .total = progress.all_parts, .fraction = share};
    row.unit = "nodes";
    row.units_per_second = static_cast<double>(progress.nodes) / (now - began_);
    row.eta_seconds = (now - began_) * (1 / share - 1);
    display_.show({.rows = {row}, .unicode = locale_is_utf8()}, now);
  }

 private:
  const Output& output_;
  std::string title_;
  double began_;
  ProgressDisplay display_;
};

PerftResult count_positions(const Command& command, const PerftLine& line) {
  PerftResult result;
  if (line.gpu && line.depth > 0) {
    PerftOnGpu counted = perft_on_gpu(command.context, *line.gpu, line.position, line.depth);
    result.moves = std::move(counted.moves);
    result.seconds = counted.seconds;
    result.device = counted.gpu;
  } else {
    PerftBar bar(command.output, line.depth);
    const double begin = monotonic_seconds();
    result.moves = perft_divided(line.position, line.depth, [&bar](const PerftProgress& p) { bar.show(p); });
    result.seconds = monotonic_seconds() - begin;
    result.device = "one CPU core";
  }
  result.nodes = line.depth == 0 ? 1 : 0;
  for (const PerftMove& move : result.moves) result.nodes += move.nodes;
  // By name, so that two programs' lists can be compared.
  std::ranges::sort(result.moves, {}, [](const PerftMove& move) { return uci_of(move.move); });
  return result;
}

int run_perft(const Command& command) {
  const PerftLine line = read_perft_line(command);
  const PerftResult result = count_positions(command, line);
  const bool divide = command.arguments.has("divide");
  const double rate = result.seconds > 0 ? static_cast<double>(result.nodes) / result.seconds : 0;
  if (command.output.json()) {
    nlohmann::json object{{"fen", fen_of(line.position)}, {"depth", line.depth},       {"nodes", result.nodes},
                          {"device", result.device},      {"seconds", result.seconds}, {"nodes_per_second", rate}};
    if (divide) {
      object["moves"] = nlohmann::json::array();
      for (const PerftMove& move : result.moves)
        object["moves"].push_back({{"move", uci_of(move.move)}, {"nodes", move.nodes}});
    }
    command.output.object(object);
    return 0;
  }
  if (divide)
    for (const PerftMove& move : result.moves)
      command.output.data(fmt::format("{}: {}\n", uci_of(move.move), move.nodes));
  command.output.data(fmt::format("{}\n", result.nodes));
  command.output.say(
      fmt::format("{} in {:.3g} s: {} nodes/s on {}", result.nodes, result.seconds, short_number(rate), result.device));
  return 0;
}

}  // namespace

RecipeVerb perft_verb() {
  return {.name = "perft",
          .summary = "counts the games of chess that begin in a position, as a test of the rules and of speed",
          .run = run_perft,
          .flags = {{"--divide", "", "for each first move", VerbFlag::Kind::kSwitch},
                    {"--device,--devices", "device", "cpu, or a GPU as cuda:0 [cpu]"}},
          .examples = {{"perft 5", "from the start: 4865609"},
                       {"perft 4 \"8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1\" --divide", "a position, by first moves"},
                       {"perft 7 --device cuda:0 --json", "on a GPU, for scripts"}},
          .subject = "depth",
          .subject_help = "moves of both sides together, and a FEN [the start]",
          .most_subjects = 7,
          .usage = "<depth> [fen]"};
}

}  // namespace tandem
