#include "cli/cli_main.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <map>
#include <new>

#include "base/errors.h"
#include "cli/app.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/help.h"
#include "cli/parse_arguments.h"
#include "cli/process_start.h"
#include "cli/verbs.h"
#include "command/ranks.h"
#include "command/sources.h"
#include "guard/lease.h"
#include "hardware/in_time.h"
#include "tools/bench/bench.h"
#include "tools/doctor/doctor.h"
#include "tools/gpus/gpus.h"
#include "tools/guard/guard.h"
#include "tools/plan/plan.h"

namespace tandem {
namespace {

// The settings whose values the help shows: of the recipe named on the line, else of the first one. A line that is
// wrong must still get its help, so errors only mean fewer values.
std::optional<ResolvedRecipe> recipe_for_help(const Command& command) {
  if (command.context.recipes.empty()) return std::nullopt;
  try {
    return resolve_recipe(command.subject(command.context.recipes.front().name), command.arguments, command.context,
                          command.output);
  } catch (const Error&) {
    return std::nullopt;
  }
}

int show_help(const Command& command) {
  Arguments scratch;
  const auto root = make_app(command.context, scratch);
  const CLI::App* app = find_command(*root, command.arguments.command);
  std::optional<ResolvedRecipe> recipe;
  if (app->get_option_no_throw("--steps")) recipe = recipe_for_help(command);
  const std::string name = fmt::format("{}{}{}", command.context.program, command.arguments.command.empty() ? "" : " ",
                                       fmt::join(command.arguments.command, " "));
  const bool all_keys = recipe && !command.arguments.subjects.empty();
  command.output.data(help_text(*app, name, command.context.recipes, recipe ? recipe->resolver.get() : nullptr,
                                recipe ? recipe->name : "", all_keys));
  return 0;
}

int run_completion(const Command& command) {
  if (command.subject().empty())
    throw ConfigError("which shell?", "there are scripts for bash, zsh and fish",
                      fmt::format("write `{} completion bash`", command.context.program));
  Arguments scratch;
  const auto root = make_app(command.context, scratch);
  command.output.data(completion_script(*root, command.context, command.subject()));
  return 0;
}

int run(const Command& command) {
  if (command.arguments.help) return show_help(command);
  if (command.arguments.version) return run_version(command);
  static const std::map<std::string, int (*)(const Command&)> commands = {
      {"train", run_train},     {"resume", run_resume},      {"join", run_join},       {"leave", run_leave},
      {"runs", run_runs},       {"digest", run_digest},      {"export", run_export},   {"report", run_report},
      {"bench", run_bench},     {"config", run_config_show}, {"recipes", run_recipes}, {"completion", run_completion},
      {"version", run_version}, {"gpus", run_gpus},          {"doctor", run_doctor},   {"guard", run_guard},
      {"plan", run_plan},       {"explain", run_explain},    {"monitor", run_monitor}};
  const auto& words = command.arguments.command;
  if (words.empty() || words == std::vector<std::string>{"config"}) {
    show_help(command);
    return static_cast<int>(words.empty() ? ExitCode::kOk : ExitCode::kUsage);
  }
  for (const RecipeVerb& verb : verbs_of(command.context))
    if (verb.name == words.front()) return verb.run(command);
  const auto act = commands.at(words.front());
  return act == run_train || act == run_resume ? as_rank(command, act) : act(command);
}

// Whoever closed standard output loses what is printed there: a run is worth more than its last object, other commands
// have nothing else to give.
void check_output(const Arguments& arguments, const Output& output) {
  if (!stdout_was_closed()) return;
  const std::string command = arguments.command.empty() ? "" : arguments.command.front();
  const bool works = command == "train" || command == "resume" || command == "join" || command == "leave";
  if (!works || arguments.help || arguments.dry_run)
    throw IoError("standard output is closed, and this command prints there", EBADF,
                  "leave it open, or redirect it to a file or to /dev/null");
  if (output.json()) output.warn("standard output is closed: the object of --json is lost");
}

// Before the line is parsed: an error in it must know how to show itself.
Output output_for(int argc, char** argv) {
  const auto given = [&](std::string_view flag) {
    return std::any_of(argv + std::min(argc, 1), argv + argc, [&](const char* word) { return flag == word; });
  };
  return Output(given("--json"), given("--quiet") || given("-q"), given("--verbose") || given("-v"),
                given("--no-color") || given("--no_color"));
}

int run_line(int argc, char** argv, const CliContext& context) {
  const Output output = output_for(argc, argv);
  try {
    try {
      const Arguments arguments = parse_arguments(argc, argv, context);
      check_output(arguments, output);
      const int code = run({arguments, context, output});
      output.flush();
      return code;
    } catch (const std::bad_alloc&) {
      throw Error(ExitCode::kOutOfMemory, "out of memory", "the machine has no more to give",
                  "free memory and try again");
    } catch (const std::filesystem::filesystem_error& error) {
      throw Error(ExitCode::kFailed, fmt::format("cannot use {}", error.path1().string()), error.code().message(),
                  "check the path and its rights");
    }
  } catch (const IoError& error) {
    if (error.error_number() == EPIPE) return static_cast<int>(ExitCode::kOk);  // the reader had enough
    output.error(error);
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    output.error(error);
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    output.error(Error(ExitCode::kFailed, error.what(), "this is a fault of the program",
                       "please report it with the command you gave"));
    return static_cast<int>(ExitCode::kFailed);
  }
}

}  // namespace

int cli_main(int argc, char** argv, const CliContext& context) {
  begin_process();
  if ((argc == 3 || argc == 4) && std::string_view(argv[1]) == Lease::kWatchdogWord)
    return guard_watchdog(argv[2], argc == 4 ? std::atoll(argv[3]) : 0);
  std::signal(SIGPIPE, SIG_IGN);  // `tandem runs | head` is no accident
  const int code = run_line(argc, argv, context);
  end_program_if_left_behind(code);
  return code;
}

}  // namespace tandem
