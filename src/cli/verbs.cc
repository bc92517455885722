#include "cli/verbs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "command/command.h"
#include "command/sources.h"
#include "runs/agent_runs.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

// A verb and the recipe that brings it.
struct Offer {
  std::string recipe;
  RecipeVerb verb;
};
using Offers = std::vector<Offer>;

const Offer* offer_of(const Offers& offers, const std::string& recipe) {
  const auto at = std::ranges::find(offers, recipe, &Offer::recipe);
  return at == offers.end() ? nullptr : &*at;
}

std::string names_of(const Offers& offers) {
  std::vector<std::string> names;
  for (const Offer& offer : offers) names.push_back(offer.recipe);
  return fmt::format("{}", fmt::join(names, ", "));
}

RunFolder run_of_line(const Command& command, const Offers& offers) {
  try {
    return RunFolder::find(runs_root(command.arguments), command.subject("last"));
  } catch (const ConfigError& error) {
    throw ConfigError(
        error.what(),
        fmt::format("{}; `{}` is for runs of {}", error.why(), offers.front().verb.name, names_of(offers)),
        error.todo());
  }
}

const Offer& choose(const Command& command, const Offers& offers) {
  if (offers.size() == 1) return offers.front();
  const auto needs_no_run = [](const Offer& offer) { return offer.verb.subject.empty(); };
  if (command.subject().empty() && std::ranges::count_if(offers, needs_no_run) == 1)
    return *std::ranges::find_if(offers, needs_no_run);
  const RunFolder run = run_of_line(command, offers);
  const std::string recipe = recipe_of_run(run);
  if (const Offer* const offer = offer_of(offers, recipe)) return *offer;
  for (const AgentRun& agent : agent_runs_of(run.dir()).agents)  // of a set of jobs: what its jobs are
    if (const Offer* const offer = offer_of(offers, recipe_of_run(RunFolder::open(agent.best)))) return *offer;
  throw ConfigError(fmt::format("{} is a run of {}, which has no `{}` here", run.id(),
                                recipe.empty() ? "an unknown recipe" : recipe, offers.front().verb.name),
                    fmt::format("{} have", names_of(offers)),
                    "name a run of one of them, or use the program that trained it");
}

int run_chosen(const Command& command, const Offers& offers) {
  const Offer& offer = choose(command, offers);
  for (const auto& [name, value] : command.arguments.verb_flags)
    if (std::ranges::none_of(offer.verb.flags,
                             [&](const VerbFlag& flag) { return first_long_name(flag.names) == name; }))
      throw ConfigError(fmt::format("`{}` of {} has no flag --{}", offer.verb.name, offer.recipe, name),
                        "it is for runs of another recipe", "leave it out, or name another run");
  return offer.verb.run(command);
}

// Adds a flag, or its other names to those of an equal one.
void add_verb_flag(RecipeVerb& merged, const VerbFlag& flag, const std::string& recipe) {
  VerbFlag* same = nullptr;
  std::string others;
  for (const std::string& name : names_of_flag(flag.names)) {
    const auto at = std::ranges::find_if(
        merged.flags, [&](const VerbFlag& other) { return std::ranges::count(names_of_flag(other.names), name) > 0; });
    if (at == merged.flags.end()) {
      others += (others.empty() ? "" : ",") + name;
      continue;
    }
    if (at->kind != flag.kind || first_long_name(at->names) != first_long_name(flag.names))
      throw std::logic_error(
          fmt::format("{} of the verb `{}` of recipe {} is another flag in another recipe", name, merged.name, recipe));
    same = &*at;
  }
  if (!same)
    merged.flags.push_back(flag);
  else if (!others.empty())
    same->names += "," + others;
}

RecipeVerb merged_verb(const Offers& offers) {
  RecipeVerb merged = offers.front().verb;
  merged.run = [offers](const Command& command) { return run_chosen(command, offers); };
  merged.flags.clear();
  for (const Offer& offer : offers) {
    for (const VerbFlag& flag : offer.verb.flags) add_verb_flag(merged, flag, offer.recipe);
    for (const CommandExample& example : offer.verb.examples)
      if (std::ranges::count(merged.examples, example) == 0) merged.examples.push_back(example);
    if (merged.subject.empty()) {
      merged.subject = offer.verb.subject;
      merged.subject_help = offer.verb.subject_help;
      merged.usage = offer.verb.usage;
    }
  }
  return merged;
}

}  // namespace

std::string first_long_name(const std::string& names) {
  for (const std::string& name : names_of_flag(names))
    if (name.starts_with("--")) return name.substr(2);
  throw std::logic_error(fmt::format("the flag \"{}\" of a verb has no long name", names));
}

std::vector<RecipeVerb> merged_verbs(const std::vector<RecipeInfo>& recipes) {
  std::vector<Offers> verbs;  // those of one name together
  for (const RecipeInfo& recipe : recipes)
    for (const RecipeVerb& verb : recipe.verbs) {
      auto at =
          std::ranges::find_if(verbs, [&](const Offers& offers) { return offers.front().verb.name == verb.name; });
      if (at == verbs.end()) at = verbs.insert(verbs.end(), Offers());
      at->push_back({recipe.name, verb});
    }
  std::vector<RecipeVerb> merged;
  for (const Offers& offers : verbs) merged.push_back(merged_verb(offers));
  return merged;
}

std::vector<RecipeVerb> verbs_of(const CliContext& context) {
  std::vector<RecipeVerb> verbs = context.verbs;
  for (RecipeVerb& verb : merged_verbs(context.recipes)) verbs.push_back(std::move(verb));
  return verbs;
}

std::string recipes_with(const std::vector<RecipeInfo>& recipes, const std::string& verb) {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : recipes)
    if (std::ranges::count(recipe.verbs, verb, &RecipeVerb::name) > 0) names.push_back(recipe.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace tandem
