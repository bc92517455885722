#include "command/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/printable.h"
#include "config/resolver.h"
#include "config/spelling.h"

extern char** environ;

namespace tandem {
namespace {

constexpr std::string_view kPrefix = "TANDEM_";

constexpr std::string_view kProgram[] = {
    // what users set
    "RUNS_ROOT", "STATE_DIR", "GRAPHS", "PLANE", "GPU_SHARES", "PORT", "JOIN_SECONDS", "SECRET", "SECRET_FILE",
    "DQN_TILES", "ACT_DEVICE", "WORKER_CORES", "VIDEO_PROGRAM",
    // what a run hands to its processes
    "DEVICE", "RANK", "SLOW", "NET_HEAD",
    // what tests plant (docs/testing.md)
    "NVML", "LIBCUDA", "NCCL", "FAULT", "FROZEN_SECONDS", "DRIVER_SECONDS", "GUARD_SPEED", "GUARD_CPU_SLOTS",
    "EXPLAIN_SPEED", "SLOW_LINK", "SLOW_LOADER", "SLOW_OPERATIONS", "SHORTEST_OUTCOME", "STAND_IN",
    // what the build and the test scripts read
    "BENCH", "CUDA", "CUDA_ARCHS", "FFMPEG", "FUZZ", "KILLS", "PYTHON", "SANITIZE", "TESTS", "TEST_NCCL", "TORCH",
    "UNITY"};

std::vector<std::string> unread_candidates() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kPrefix)) continue;
    std::string name(text.substr(kPrefix.size(), text.find('=') - kPrefix.size()));
    if (name.ends_with("_FD") || std::ranges::count(kProgram, name) > 0) continue;
    names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> names_of_settings(const CliContext& context) {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : context.recipes) {
    const auto settings = recipe.settings();
    for (const KeyInfo& key : Resolver(*settings).keys()) {
      std::string name;
      for (const char c : key.name)
        name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace

std::span<const std::string_view> program_variables() { return kProgram; }

void warn_of_unread_variables(const CliContext& context, const Output& output) {
  const std::vector<std::string> candidates = unread_candidates();
  if (candidates.empty()) return;
  std::vector<std::string> known = names_of_settings(context);
  for (const std::string& name : candidates) {
    if (std::ranges::count(known, name) > 0) continue;
    std::vector<std::string> near_ones = known;
    near_ones.insert(near_ones.end(), std::begin(kProgram), std::end(kProgram));
    const std::string near = nearest_word(name, near_ones);
    const bool slip = !near.empty() && spelling_distance(name, near) <= 2;
    output.warn(fmt::format("{}{} is read by nobody: no setting and no variable of {} has that name{}", kPrefix,
                            printable(name), context.program,
                            slip ? fmt::format("; did you mean {}{}?", kPrefix, near) : ""));
  }
}

}  // namespace tandem
