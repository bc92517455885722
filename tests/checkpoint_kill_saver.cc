// tests/checkpoint_kill_saver.cc -- saves checkpoints until somebody kills it; see checkpoint_kill_test.cc.
//
//   checkpoint_kill_saver <folder>
// Goes on from the newest checkpoint and prints a line with the step each time save() has returned.
#include <unistd.h>

#include <string>

#include "checkpoint/sample.h"

int main(int argc, char** argv) {
  using namespace tandem;
  if (argc != 2) return 2;
  CheckpointStore store(FileSystem::real(), argv[1], 2);
  const auto newest = store.load_newest();
  std::int64_t step = newest ? newest->manifest.step : 0;
  // 400 KB a checkpoint: long enough to be hit inside a write, short enough for hundreds a second.
  for (std::int64_t round = 0;; ++round) {
    if (round % 4 != 3) ++step;  // every fourth is the same step again, which takes another path
    store.save(Sample(step, "tiny-1", 3000).contents());
    const std::string line = std::to_string(step) + "\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
  }
}
