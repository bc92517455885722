#include "apps/web_test/entry.h"

#include "apps/web_test/eval.h"
#include "apps/web_test/train_from.h"
#include "apps/web_test/web_test_set.h"
#include "apps/web_test/web_test_settings.h"
#include "recipes/dqn_checkpoint.h"
#include "world/web_agents.h"

namespace tandem {
namespace {

using On = SettingFlag::On;

RecipeInfo web_test(const RecipeInfo& agent) {
  RecipeInfo info{"web-test", "all six web-test agents on all devices: one a device, each on all, or three of each",
                  [] { return std::make_unique<WebTestSettings>(); }, WebAgentSettings::quick()};
  info.flags = {{"--strategy", "strategy", "word",
                 "of web-test: agents (one a device), ddp (each on all), ensemble (three of each)", On::kPlanToo},
                {"--assignment", "assignment", "word", "of web-test: auto, balanced, specialized, hierarchical"},
                {"--together", "together", "word",
                 "of web-test: agents side by side in one run: auto (where a GPU is alone), on, off"},
                {"--agents", "agents", "list", "of web-test: those to train, in this order", On::kPlanToo},
                {"--assign", "assign", "list", "of web-test: devices that agents begin on: analysis=0,evolution=1"}};
  info.examples = {{"train web-test --quick", "all six web-test agents, a short training"},
                   {"plan web-test --hardware 8xH100", "all six agents, on GPUs that are not here"},
                   {"bench web-test", "1 to n devices, batches of 128, 256 and 512"},
                   {"bench web-test --devices cpu:2 --quick", "two workers, in half a minute"},
                   {"bench tiny web-test --json --csv table.csv --plot bench.html", "for scripts, tables and eyes"},
                   {"digest last --agent analysis", "of one agent of a run that has several"},
                   {"export last --agent analysis", "one agent of a run that has several"}};
  info.need = agent.need;
  info.checkpoint_bytes = [](const RecipeSettings& settings) {
    const auto& set = dynamic_cast<const WebTestSettings&>(settings);
    const size_t agents = agents_named(set.agents).size() * (set.strategy == "ensemble" ? 3 : 1);
    return agents * dqn_checkpoint_bytes(set, kObservation, kActions);
  };
  info.bench = {.batches = {128, 256, 512}, .trains = agent.name};  // the guides' batches
  info.set = web_test_set();
  info.train_from = train_agents_from;
  return info;
}

}  // namespace

std::vector<RecipeInfo> with_web_test(std::vector<RecipeInfo> recipes) {
  for (auto at = recipes.begin(); at != recipes.end(); ++at) {
    if (at->name != kAgentRecipe) continue;
    at->verbs.insert(at->verbs.begin(), eval_verb());
    at->examples.insert(at->examples.begin(),
                        {"train web-agent --from last --experience new.jsonl", "a day's increment, judged at its end"});
    at->train_from = train_agents_from;
    const RecipeInfo agent = *at;
    recipes.insert(at + 1, web_test(agent));
    break;
  }
  return recipes;
}

}  // namespace tandem
