#include "command/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

#include "base/errors.h"

namespace tandem {
namespace fs = std::filesystem;

Scratch::Scratch(const std::string& purpose) {
  std::error_code trouble;
  const fs::path place = fs::temp_directory_path(trouble);
  if (trouble)
    throw IoError("there is no folder for what is made on the way", trouble.value(),
                  "set TMPDIR to a folder you may write");
  // The tidier is there before the folder, so no moment is left in which a kill would leave one behind.
  uint64_t name = 0;
  if (getentropy(&name, sizeof name) != 0) throw IoError("no name for a folder could be found", errno, "try again");
  path_ = place / fmt::format("tandem-{}-{:016x}", purpose, name);
  start_tidier();
  if (mkdir(path_.c_str(), 0700) == 0) return;
  const int why = errno;
  stop_tidier();
  throw IoError(fmt::format("cannot make a folder in {}", place.string()), why, "set TMPDIR to a folder you may write");
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  stop_tidier();
}

void Scratch::stop_tidier() {
  if (tidier_ < 0) return;
  kill(tidier_, SIGKILL);  // nothing is left for it
  while (waitpid(tidier_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(alive_);
  tidier_ = -1;
}

// The pipe tells of our end. Workers die with us, but not before us, so the folder may fill a little longer.
void Scratch::start_tidier() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  tidier_ = fork();
  if (tidier_ == 0) {
    setsid();  // Ctrl-C is not for it
    for (int fd = 0; fd < 1024; ++fd)
      if (fd != ends[0]) close(fd);  // nobody waits for its end, no lock lives on in it
    char byte;
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) continue;
    for (int tries = 0; tries < 100; ++tries) {
      std::error_code error;
      fs::remove_all(path_, error);
      if (!fs::exists(path_, error)) break;
      poll(nullptr, 0, 50);
    }
    _exit(0);
  }
  close(ends[0]);
  if (tidier_ > 0)
    alive_ = ends[1];
  else
    close(ends[1]);
}

}  // namespace tandem
