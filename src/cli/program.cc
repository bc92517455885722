#include "cli/program.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/errors.h"
#include "cli/cli_main.h"
#include "cli/output.h"
#include "engine/run.h"

namespace tandem {
namespace {

// work <run_dir> [--resume] [--json] [--quiet] [--no-color] [--max-seconds n] [--checkpoint dir]: what the launcher
// starts.
WorkRequest parse_work(int argc, char** argv, const std::string& program) {
  if (argc < 3)
    throw ConfigError("`work` needs a run folder", "it is what `train` starts, not for typing",
                      "use `train` or `resume`");
  WorkRequest request{.run_dir = argv[2], .program = program == "tandem-worker" ? "tandem" : program};
  for (int i = 3; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--resume")
      request.resume = true;
    else if (flag == "--json")
      request.json = true;
    else if (flag == "--quiet")
      request.quiet = true;
    else if (flag == "--no-color")
      request.color = false;
    else if (flag == "--max-seconds" && i + 1 < argc)
      request.max_seconds = std::atof(argv[++i]);
    else if (flag == "--checkpoint" && i + 1 < argc)
      request.checkpoint = argv[++i];
    else
      throw ConfigError("`work` does not know " + flag, "launcher and worker are of different versions",
                        "build both again");
  }
  return request;
}

int work_main(int argc, char** argv, const std::string& program, const std::vector<RecipeEntry>& recipes) {
  const bool json = std::any_of(argv, argv + argc, [](const char* word) { return std::strcmp(word, "--json") == 0; });
  const auto fail = [json](const Error& error) {
    Output(json, false, false, false).error(error);
    return static_cast<int>(error.code());
  };
  try {
    return work(parse_work(argc, argv, program), recipes);
  } catch (const Error& error) {
    return fail(error);
  } catch (const std::bad_alloc&) {
    return fail(Error(ExitCode::kOutOfMemory, "out of memory", "the system refused an allocation",
                      "a smaller batch_size or model, or accumulation = 2; the last checkpoint is intact"));
  } catch (const c10::OutOfMemoryError& error) {
    return fail(Error(ExitCode::kOutOfMemory, "out of memory", error.what_without_backtrace(),
                      "a smaller batch_size or model, or accumulation = 2; the last checkpoint is intact"));
  } catch (const c10::Error& error) {
    return fail(Error(ExitCode::kFailed, "libtorch refused an operation", error.what_without_backtrace(),
                      "if it is your own model, check its shapes; otherwise please report it with logs/rank-0.log"));
  } catch (const std::exception& error) {
    return fail(Error(ExitCode::kFailed, "training failed", error.what(), "please report it with logs/rank-0.log"));
  }
}

}  // namespace

int program_main(int argc, char** argv, const std::string& name, const std::vector<RecipeEntry>& recipes) {
  if (argc > 1 && std::strcmp(argv[1], "work") == 0) return work_main(argc, argv, name, recipes);
  CliContext context{.program = name, .version = TANDEM_VERSION};
  for (const RecipeEntry& entry : recipes) context.recipes.push_back(entry.info);
  context.worker = std::filesystem::read_symlink("/proc/self/exe");
  return cli_main(argc, argv, context);
}

}  // namespace tandem
