// cli/worker.cc -- tandem-worker: the process that drives one device. `tandem train` starts it; started by hand it
// knows the same commands.
#include "cli/program.h"
#include "recipes/shipped.h"
#include "rl/dqn/gpu_agent.h"

int main(int argc, char** argv) {
  return tandem::program_main(argc, argv, "tandem-worker", tandem::shipped_recipe_entries(), tandem::agent_on_gpu);
}
