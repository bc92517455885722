// cli/worker.cc -- tandem-worker: the process that drives one device. `tandem train` starts it; started by hand it
// knows the same commands.
#include <cstring>

#include "apps/app_recipes.h"
#include "cli/process_start.h"
#include "cli/program.h"
#include "engine/recipe.h"
#include "recipes/chess_perft_worker.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], tandem::kChessPerftWord) == 0) {
    tandem::begin_process();
    return tandem::chess_perft_worker(argc, argv);
  }
  return tandem::program_main(argc, argv, "tandem-worker",
                              tandem::with_makers(tandem::app_recipes(tandem::agents_on_gpu())));
}
