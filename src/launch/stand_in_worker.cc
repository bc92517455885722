// launch/stand_in_worker.cc -- a worker for the tests of launch/ and cli/: it does what its last argument says and
// tells on stdout what happens to it. No libtorch, no training.
//
//   work <run_dir> ... : TANDEM_STAND_IN in the environment is the behaviour, by default `exit 0`
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

void tell(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Waits for signals. polite: ends with 130 on SIGINT, 143 on SIGTERM. stubborn: only counts them.
int wait_for_signals(bool polite) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set, number);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGUSR1, SIG_DFL);
  tell("ready " + std::to_string(getpid()));
  while (true) {
    int number = 0;
    sigwait(&set, &number);
    tell(number == SIGINT ? "int" : number == SIGTERM ? "term" : "usr1");
    if (polite && number == SIGINT) return 130;
    if (polite && number == SIGTERM) return 143;
  }
}

// A child of the worker's in the same group, to show that it is swept away too.
void leave_a_child() {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, 0);
    while (true) pause();
  }
  tell("child " + std::to_string(child));
}

void tell_environment(int argc, char** argv) {
  std::string line = "args";
  for (int i = 1; i < argc; ++i) line += std::string(" ") + argv[i];
  tell(line);
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) {
    const char* value = std::getenv(name);
    tell(std::string(name) + "=" + (value ? value : ""));
  }
  tell(getpgid(0) == getpid() ? "own group" : "shared group");
  std::string fds = "fds";
  DIR* dir = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd > 2 && fd != dirfd(dir)) fds += " " + std::to_string(fd);
  }
  closedir(dir);
  const char* life = std::getenv("TANDEM_LIFE_FD");
  tell(fds == std::string("fds ") + (life ? life : "?") ? "only the life pipe" : fds);
}

}  // namespace

int main(int argc, char** argv) {
  const char* variable = std::getenv("TANDEM_STAND_IN");
  const std::string behaviour = variable ? variable : "exit 0";
  if (behaviour.starts_with("exit ")) return std::atoi(behaviour.c_str() + 5);
  if (behaviour.starts_with("die ")) {
    const int number = std::atoi(behaviour.c_str() + 4);
    signal(number, SIG_DFL);
    raise(number);
    return 99;
  }
  if (behaviour == "polite") return wait_for_signals(true);
  if (behaviour == "stubborn") return wait_for_signals(false);
  if (behaviour == "child") {
    leave_a_child();
    return 0;
  }
  if (behaviour == "environment") {
    tell_environment(argc, argv);
    return 0;
  }
  return 98;
}
