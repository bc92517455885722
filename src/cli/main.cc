// cli/main.cc -- the program `tandem`: the shipped recipes, and the worker that stands beside it.
#include <filesystem>
#include <system_error>

#include "apps/app_recipes.h"
#include "cli/cli_main.h"
#include "cli/process_start.h"

int main(int argc, char** argv) {
  tandem::begin_process();
  std::error_code error;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) self = argv[0];
  tandem::CliContext context;
  context.program = "tandem";
  context.version = TANDEM_VERSION;
  context.machine = tandem::this_machine();
  context.recipes = tandem::app_recipes();
  context.verbs = tandem::app_verbs();
  context.worker = self.parent_path() / "tandem-worker";
  return tandem::cli_main(argc, argv, context);
}
