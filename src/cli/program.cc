#include "cli/program.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/errors.h"
#include "cli/cli_main.h"
#include "cli/process_start.h"
#include "command/output.h"
#include "command/ranks.h"
#include "engine/describe.h"
#include "engine/evaluate.h"
#include "engine/memory.h"
#include "engine/recipe.h"
#include "engine/worker.h"

namespace tandem {
namespace {

// work <run_dir>: what the launcher starts.
int work_main(int argc, char** argv, const std::vector<RecipeEntry>& recipes) {
  keep_freed_memory();
  prctl(PR_SET_NAME, "tandem-worker");  // started from an open file, it would be named by its number
  try {
    if (argc != 3)
      throw ConfigError("`work` needs a run folder", "it is what `train` starts, not for typing",
                        "use `train` or `resume`");
    return work(argv[2], recipes);
  } catch (const Error& error) {
    Output(false, false, false, false).error(error);
    return static_cast<int>(error.code());
  }
}

// What another command starts, not for typing: `look` gets the arguments. Whatever it throws is told.
template <class Look>
int look_main(int argc, char** argv, int arguments, const char* user, const Look& look) {
  Output output(false, false, false, false);
  try {
    if (argc != 2 + arguments)
      throw ConfigError(fmt::format("`{}` needs {} arguments", argv[1], arguments),
                        fmt::format("it is what `{}` starts, not for typing", user), fmt::format("use `{}`", user));
    return look();
  } catch (const Error& error) {
    output.error(error);
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    const std::string what = error.what();
    output.error(Error(ExitCode::kFailed, fmt::format("`{}` could not look at the run", user),
                       what.substr(0, what.find('\n')), "look at the recipe, or try `--device cpu`"));
    return static_cast<int>(ExitCode::kFailed);
  }
}

// describe <run_dir>: what a forecast asks before anything is trained.
int describe_main(int argc, char** argv, const std::vector<RecipeEntry>& recipes) {
  return look_main(argc, argv, 1, "plan", [&] { return describe(argv[2], recipes); });
}

// evaluate <run_dir> <checkpoint> [question.json]
int evaluate_main(int argc, char** argv, const std::vector<RecipeEntry>& recipes) {
  if (argc == 5) return look_main(argc, argv, 3, "eval", [&] { return ask(argv[2], argv[3], argv[4], recipes); });
  return look_main(argc, argv, 2, "eval", [&] { return evaluate(argv[2], argv[3], recipes); });
}

// Under another launcher the supervisor lives as long as the job and needs no libtorch: `tandem` beside us has none.
// It does not return if there is one.
void become_supervisor(char** argv, const std::filesystem::path& self) {
  const std::filesystem::path light = self.parent_path() / "tandem";
  if (access(light.c_str(), X_OK) == 0) execv(light.c_str(), argv);
}

}  // namespace

int program_main(int argc, char** argv, const std::string& name, const std::vector<RecipeEntry>& recipes) {
  begin_process();
  if (argc > 1 && std::strcmp(argv[1], "work") == 0) return work_main(argc, argv, recipes);
  if (argc > 1 && std::strcmp(argv[1], "describe") == 0) return describe_main(argc, argv, recipes);
  if (argc > 1 && std::strcmp(argv[1], "evaluate") == 0) return evaluate_main(argc, argv, recipes);
  CliContext context;
  context.program = name;
  context.version = TANDEM_VERSION;
  context.machine = this_machine();
  context.first_is_default = name != "tandem-worker";
  for (const RecipeEntry& entry : recipes) context.recipes.push_back(entry.info);
  context.worker = std::filesystem::read_symlink("/proc/self/exe");
  int word = 1;  // torch.distributed.launch puts --local-rank=N before the command
  while (word < argc && std::strncmp(argv[word], "--local", 7) == 0) ++word;
  const bool trains = word < argc && (std::strcmp(argv[word], "train") == 0 || std::strcmp(argv[word], "resume") == 0);
  if (name == "tandem-worker" && trains && one_of_several()) become_supervisor(argv, context.worker);
  return cli_main(argc, argv, context);
}

}  // namespace tandem
