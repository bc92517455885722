#include "apps/options/options_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "config/devices.h"
#include "market/market_table.h"
#include "recipes/options_market.h"
#include "recipes/options_world.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

void check_folds(const Command& command, const MarketData& data, const OptionsSettings& settings) {
  int64_t number = settings.walk_forward > 0 ? 1 : settings.fold;
  for (const MarketFold& fold : folds_of(data, settings)) {
    for (const std::string& left_out : fold.left_out)
      command.output.warn(fmt::format("fold {} leaves out {}", number, left_out));
    ++number;
  }
}

}  // namespace

std::vector<MarketFold> folds_of(const MarketData& data, const OptionsSettings& settings) {
  const MarketTable table(data, features_of(settings));
  const auto ranges = table.tradable_ranges();
  FoldPlan plan = settings.fold_plan();
  if (settings.walk_forward > 0)
    plan.folds = static_cast<int32_t>(settings.walk_forward);
  else
    plan.only = static_cast<int32_t>(settings.fold);
  return walk_forward_folds(table.view(ranges), table.names(), plan);
}

void take_market(const Command& command, ResolvedRecipe& recipe) {
  auto& settings = dynamic_cast<OptionsSettings&>(*recipe.settings);
  check_options_rules(settings.rules());
  if (!settings.data.empty()) settings.data = fs::absolute(settings.data).lexically_normal().string();
  const MarketData data = load_market(market_source_of(settings));
  check_folds(command, data, settings);
  if (data.generated)
    command.output.warn(data.description);
  else
    command.output.say("data    " + data.description);
  for (const std::string& warning : data.warnings) command.output.warn(warning);
  settings.data_digest = data.digest();
  settings.data_last = last_date(data);
  for (const char* key : {"data_digest", "data_last"}) recipe.resolver->note_source(key, "the data at the start");
}

void keep_market(ResolvedRecipe& recipe, const fs::path& /*run_dir*/) {
  auto& settings = dynamic_cast<OptionsSettings&>(*recipe.settings);
  if (settings.data_digest.empty()) return;  // it was written by hand: the first start notes it
  if (!settings.data.empty()) settings.data = fs::absolute(settings.data).lexically_normal().string();
  market_of_run(settings);  // refuses what has changed
}

}  // namespace tandem
