#include "recipes/validation_eval.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "checkpoint/best.h"
#include "checkpoint/store.h"
#include "command/child_output.h"
#include "command/command.h"
#include "command/sources.h"
#include "command/start.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string steps_text(const std::vector<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) text += fmt::format("{}{}", text.empty() ? "" : ", ", step);
  return text.empty() ? "none" : text;
}

fs::path checkpoint_asked_for(const RunFolder& run, const std::string& word) {
  const fs::path all = run.checkpoints();
  CheckpointStore store = CheckpointStore::reader(FileSystem::real(), all);
  if (word == "best") {
    if (best_step(FileSystem::real(), all)) return all / kBestFolder;
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

Json validated(const Command& command, const RunFolder& run, const fs::path& checkpoint) {
  check_worker_program(command.context);
  const DeviceSpec device = parse_devices(command.arguments.text("device"), command.context.machine, 1).front();
  ChildProgram child{.words = {command.context.worker.string(), "evaluate", run.dir().string(), checkpoint.string()},
                     .environment = {{"OMP_NUM_THREADS", "1"}, {"TANDEM_DEVICE", "cpu"}}};
  if (device.kind == DeviceSpec::Kind::kCuda)
    child.environment = {
        {"TANDEM_DEVICE", "cuda"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES", device.gpu.uuid}};
  const ChildOutput said = run_child(child);
  const Json found = Json::parse(said.text, nullptr, false);
  if (said.ok() && found.is_object()) return found;
  throw Error(said.code > 0 ? static_cast<ExitCode>(said.code) : ExitCode::kFailed,
              fmt::format("{} could not be validated", run.id()),
              fmt::format("the worker ended with {}; its words are above", said.ending()), "correct what it names");
}

int run_validation(const Command& command) {
  const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
  const std::string asked = command.arguments.text("checkpoint");
  const bool has_best = best_step(FileSystem::real(), run.checkpoints()).has_value();
  const std::string word = !asked.empty() ? asked : has_best ? "best" : "last";
  Json found = validated(command, run, checkpoint_asked_for(run, word));
  found["run"] = run.id();
  found["dir"] = fs::absolute(run.dir()).string();
  found["checkpoint"] = word;
  if (command.output.json()) {
    command.output.object(found);
    return 0;
  }
  std::string table = fmt::format("{:<32} {:>14}\n", "metric", "value");
  for (const auto& [name, value] : found.at("metrics").items())
    table += fmt::format("{:<32} {:>14}\n", name,
                         value.is_number() ? fmt::format("{:.6g}", value.get<double>()) : "not finite");
  command.output.data(table);
  std::string sizes;
  for (const auto& [set, samples] : found.at("samples").items())
    sizes += fmt::format("{}{} samples of {}", sizes.empty() ? "" : ", ", samples.get<int64_t>(), set);
  command.output.say(fmt::format("{} weights of step {}, {}, {:.2f} s", word, found.at("step").get<int64_t>(), sizes,
                                 found.at("seconds").get<double>()));
  if (found.at("kind") != found.at("trained_on"))
    command.output.say(fmt::format("trained on {}, validated on {}: the last digits may differ",
                                   found.at("trained_on").get<std::string>(), found.at("kind").get<std::string>()));
  return 0;
}

}  // namespace

RecipeVerb validation_eval_verb() {
  return {"eval",
          "how good the weights of a run are, on its validation sets",
          run_validation,
          {{"--checkpoint", "which", "best, last or a step [best, where there is one]"},
           {"--device", "device", "where: cpu, cuda:0 [the first GPU, else the CPU]"}},
          {{"eval last --checkpoint best --json", "the best weights of the newest run, as one object"}}};
}

}  // namespace tandem
