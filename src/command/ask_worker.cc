#include "command/ask_worker.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "checkpoint/best.h"
#include "checkpoint/store.h"
#include "command/child_output.h"
#include "command/scratch.h"
#include "command/start.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
constexpr size_t kLargestAnswer = size_t{1} << 30;

std::string steps_text(const std::vector<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) text += fmt::format("{}{}", text.empty() ? "" : ", ", step);
  return text.empty() ? "none" : text;
}

}  // namespace

fs::path checkpoint_asked_for(const RunFolder& run, std::string& word) {
  const fs::path all = run.checkpoints();
  CheckpointStore store = CheckpointStore::reader(FileSystem::real(), all);
  const bool has_best = best_step(FileSystem::real(), all).has_value();
  if (word.empty()) word = has_best ? "best" : "last";
  if (word == "best") {
    if (has_best) return all / kBestFolder;
    throw ConfigError(fmt::format("{} has no best checkpoint", run.id()), "it was never validated",
                      "name another one: --checkpoint last");
  }
  if (word == "last") {
    if (auto newest = store.load_newest(CheckpointParts::kModel)) return newest->dir;
    throw ConfigError(fmt::format("{} has no checkpoint", run.id()), "it has not saved one yet",
                      "let it train on, or name another run");
  }
  int64_t step = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), step);
  const bool number = error == std::errc() && end == word.data() + word.size() && step >= 0;
  if (const fs::path dir = all / fmt::format("step-{:08d}", number ? step : 0);
      number && FileSystem::real().exists(dir))
    return dir;
  throw ConfigError(fmt::format("--checkpoint {}: {} has no such checkpoint", printable(word), run.id()),
                    fmt::format("there are best, last and the steps {}", steps_text(store.steps())),
                    "name one of them");
}

WorkerAnswer ask_worker(const Command& command, const RunFolder& run, const Json& question, const char* failed) {
  check_worker_program(command.context);
  WorkerAnswer answer{.checkpoint = command.arguments.text("checkpoint")};
  const fs::path checkpoint = checkpoint_asked_for(run, answer.checkpoint);
  const Scratch scratch("ask");
  ChildProgram child{.words = {command.context.worker.string(), "evaluate", run.dir().string(), checkpoint.string()},
                     .environment = {{"OMP_NUM_THREADS", "1"}, {"TANDEM_DEVICE", "cpu"}},
                     .most_text = kLargestAnswer};
  if (!question.is_null()) {
    const fs::path file = scratch.path() / "question.json";
    write_file_atomically(file, question.dump() + "\n", Durability::kProcessDeath);
    child.words.push_back(file.string());
  }
  const DeviceSpec device = parse_devices(command.arguments.text("device"), command.context.machine, 1).front();
  if (device.kind == DeviceSpec::Kind::kCuda)
    child.environment = {
        {"TANDEM_DEVICE", "cuda"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES", device.gpu.uuid}};
  const ChildOutput said = run_child(child);
  answer.found = std::make_shared<const Json>(Json::parse(said.text, nullptr, false));
  if (said.ok() && answer.found->is_object()) return answer;
  throw Error(said.code > 0 ? static_cast<ExitCode>(said.code) : ExitCode::kFailed,
              fmt::format("{} could not be {}", run.id(), failed),
              fmt::format("the worker ended with {}; its words are above", said.ending()), "correct what it names");
}

}  // namespace tandem
