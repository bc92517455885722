#include "recipes/validation_eval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "command/ask_worker.h"
#include "command/command.h"
#include "command/sources.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

int run_validation(const Command& command) {
  const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
  const WorkerAnswer answer = ask_worker(command, run, nullptr, "validated");
  const std::string& word = answer.checkpoint;
  Json found = *answer.found;
  found.erase("order");
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
