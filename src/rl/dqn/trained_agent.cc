#include "rl/dqn/trained_agent.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/shell_word.h"
#include "checkpoint/digest.h"
#include "checkpoint/store.h"

namespace tandem {

TrainedAgent load_agent(const std::filesystem::path& run, const std::string& agent) {
  auto store = CheckpointStore::reader(FileSystem::real(), run / "checkpoints");
  auto loaded = store.load_newest(CheckpointParts::kModel);
  if (!loaded)
    throw ConfigError(fmt::format("{} has no checkpoint", run.string()),
                      "the run ended, or was stopped, before its first save",
                      fmt::format("go on with it first: `tandem resume {}`", shell_word(run.string())));
  const Manifest& manifest = loaded->manifest;
  if (const SafetensorsFile own = loaded->model.under(agent + "."); !agent.empty() && !own.tensors().empty())
    loaded->model = own;
  TrainedAgent out{.run = run,
                   .step = manifest.step,
                   .digest = weights_digest(loaded->model.tensors()),
                   .kind = manifest.kind,
                   .recipe = manifest.recipe,
                   .settings = manifest.settings,
                   .model = loaded->model,
                   .refused = loaded->refused};
  out.agent = agent.empty() ? out.settings.value("agent", "") : agent;
  out.net = std::make_shared<QNet>(loaded->model, out.settings.value("net.attention_heads", int64_t{1}), run.string());
  return out;
}

}  // namespace tandem
