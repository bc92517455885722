#include "apps/options/options_eval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/options/judgement.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/ask_worker.h"
#include "command/command.h"
#include "command/out_file.h"
#include "command/sources.h"
#include "jobs/agents_file.h"
#include "jobs/set_report.h"
#include "market/dates.h"
#include "recipes/options_settings.h"
#include "recipes/options_world.h"
#include "runs/run_folder.h"
#include "telemetry/atomic_file.h"
#include "telemetry/report.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

JudgedRun ask_run(const Command& command, const fs::path& dir, const Json& question) {
  const RunFolder run = RunFolder::open(dir);
  const ResolvedRecipe recipe = resolve_run(run.recipe_toml(), command.arguments, command.context, command.output);
  const auto* const settings = dynamic_cast<const OptionsSettings*>(recipe.settings.get());
  if (!settings)
    throw ConfigError(fmt::format("{} is a run of {}", run.id(), recipe.name), "it trades no options",
                      "name a run of options");
  command.output.detail(fmt::format("{}: fold {}, seed {}", run.id(), settings->fold, settings->seed));
  return judged_run(*ask_worker(command, run, question, "evaluated").found, settings->fold, settings->seed,
                    dir.filename().string());
}

JudgementPlan judgement_plan(const Arguments& arguments) {
  JudgementPlan plan{.trials = arguments.whole("trials", 1)};
  if (plan.trials < 1 || plan.trials > 1'000'000)
    throw ConfigError(fmt::format("--trials {}: no number of strategies that were tried", plan.trials),
                      "it counts this one and those that were tried beside it", "give 1 to 1000000");
  const int64_t seed = arguments.whole("seed", 1);
  if (seed < 0) throw ConfigError(fmt::format("--seed {} is below 0", seed), "seeds count from 0", "give another");
  plan.seed = static_cast<uint64_t>(seed);
  return plan;
}

// A date of --from or --to.
int32_t date_flag(const Command& command, const char* flag, int32_t otherwise) {
  const std::string text = command.arguments.text(flag);
  if (text.empty()) return otherwise;
  if (const auto date = parse_date(text)) return *date;
  throw ConfigError(fmt::format("--{} {} is no date", flag, printable(text)), "a day is a date of the calendar",
                    "write it as 2025-01-31 or 20250131");
}

int tell(const Command& command, Json result, const std::string& page) {
  const bool found = result.at("look_ahead").at("verdict") == "found";
  if (command.output.json()) {
    result["file"] = page.empty() ? Json() : Json(page);
    command.output.object(result);
  } else {
    if (!result.at("generated").get<bool>())
      command.output.say("data    " + result.at("description").get<std::string>());
    command.output.data(judgement_table(result));
    for (const std::string& line : judgement_words(result)) command.output.say(line);
    if (!page.empty()) command.output.say(fmt::format("report {}", page));
  }
  return static_cast<int>(found ? ExitCode::kCheckFailed : ExitCode::kOk);
}

std::string write_options_page(const Command& command, const RunFolder& run, const Json& result, bool several) {
  try {
    write_file_atomically(run.dir() / "evaluation.json",
                          result.dump(1, ' ', false, Json::error_handler_t::replace) + "\n", Durability::kProcessDeath);
    std::string page = (run.dir() / "report.html").string();
    if (const std::string given = command.arguments.text("output"); !given.empty()) page = given;
    write_out_file(page, several ? make_set_report(run.dir()) : make_report(run.dir()), "--output");
    return page;
  } catch (const Error& error) {
    command.output.warn(fmt::format("the report was not written: {} ({})", error.what(), error.why()));
    return "";
  }
}

int run_options_eval(const Command& command) {
  const JudgementPlan plan = judgement_plan(command.arguments);
  check_out_file(command.arguments.text("output"), "--output");
  const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
  std::vector<fs::path> dirs;
  for (const SetRun& one : runs_of_set(run.dir())) dirs.push_back(one.dir);
  const bool several = !dirs.empty();
  if (!several) dirs.push_back(run.dir());
  std::vector<JudgedRun> runs;
  for (const fs::path& dir : dirs) runs.push_back(ask_run(command, dir, {{"ask", "play"}, {"part", "test"}}));
  Json result = judgement_of(std::move(runs), plan);
  result["run"] = run.id();
  result["dir"] = fs::absolute(run.dir()).string();
  result["words"] = judgement_words(result);
  const std::string page = write_options_page(command, run, result, several);
  return tell(command, std::move(result), page);
}

int run_backtest(const Command& command) {
  const JudgementPlan plan = judgement_plan(command.arguments);
  const std::string data = command.arguments.text("data"), trades = command.arguments.text("trades");
  if (data.empty())
    throw ConfigError("backtest needs data", "it trades on other days than those of the run",
                      "give a folder of daily bars: --data prices; `tandem eval` judges by the run's own");
  if (!fs::is_directory(data))
    throw ConfigError(fmt::format("--data {} is no folder", printable(data)),
                      "bars are files of a folder, one a symbol", "name the folder");
  check_out_file(trades, "--trades");
  const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
  if (!runs_of_set(run.dir()).empty())
    throw ConfigError(fmt::format("{} is a set of runs", run.id()), "a backtest is of one agent",
                      fmt::format("name one of the folders in {}", (run.dir() / "agents").string()));
  const DateSpan span{.first = date_flag(command, "from", DateSpan{}.first),
                      .last = date_flag(command, "to", DateSpan{}.last)};
  if (span.first > span.last)
    throw ConfigError(fmt::format("--from {} is after --to {}", date_text(span.first), date_text(span.last)),
                      "there are no days in between", "give the earlier one as --from");
  std::vector<JudgedRun> runs{ask_run(command, run.dir(),
                                      {{"ask", "play"},
                                       {"part", "all"},
                                       {"data", fs::absolute(data).string()},
                                       {"symbols", command.arguments.text("symbols")},
                                       {"from", span.first},
                                       {"to", span.last}})};
  if (!trades.empty()) write_out_file(trades, trades_csv(runs), "--trades");
  Json result = judgement_of(std::move(runs), plan);
  result["run"] = run.id();
  result["dir"] = fs::absolute(run.dir()).string();
  result["data"] = fs::absolute(data).string();
  return tell(command, std::move(result), "");
}

std::vector<VerbFlag> shared_flags() {
  using Kind = VerbFlag::Kind;
  return {{"--checkpoint", "which", "best, last or a step [best, where there is one]"},
          {"--device", "device", "where: cpu, cuda:0 [the first GPU, else the CPU]"},
          {"--trials", "n", "strategies that were tried, this one among them, for the deflated Sharpe ratio [1]",
           Kind::kWhole},
          {"--seed", "n", "of the bootstrap [1]", Kind::kWhole}};
}

}  // namespace

RecipeVerb options_eval_verb() {
  std::vector<VerbFlag> flags = shared_flags();
  flags.push_back({"-o,--output", "file", "the page with the plots [report.html in the run's folder]"});
  return {"eval",
          "how good a trader is on days that it never saw, beside cash, shares, covered calls and fixed rules",
          run_options_eval,
          std::move(flags),
          {{"eval last --json", "Sharpe ratio with its interval, baselines, folds, look-ahead verdict"},
           {"eval last --trials 20", "the same, where it is the best of 20 that were tried"}}};
}

RecipeVerb options_backtest_verb() {
  std::vector<VerbFlag> flags = shared_flags();
  flags.push_back({"--data", "folder", "daily bars to trade on, a file for each symbol"});
  flags.push_back({"--symbols", "list", "those to trade, separated by commas [all of the folder]"});
  flags.push_back({"--from", "date", "the first decision, as 2025-01-31 [as early as there is history for it]"});
  flags.push_back({"--to", "date", "the last day [the last of the data]"});
  flags.push_back({"--trades", "file", "every fill and settlement as CSV"});
  return {"backtest",
          "a trained options trader on other data, with its trades",
          run_backtest,
          std::move(flags),
          {{"backtest last --data prices --trades trades.csv", "on the bars of a folder"},
           {"backtest last --data prices --from 2025-07-01", "on days that have arrived since"}}};
}

}  // namespace tandem
