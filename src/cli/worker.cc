// cli/worker.cc -- tandem-worker: the process that drives one device. `tandem train` starts it; started by hand it
// knows the same commands.
#include "apps/app_recipes.h"
#include "cli/program.h"
#include "engine/recipe.h"

int main(int argc, char** argv) {
  return tandem::program_main(argc, argv, "tandem-worker",
                              tandem::with_makers(tandem::app_recipes(tandem::agents_on_gpu())));
}
