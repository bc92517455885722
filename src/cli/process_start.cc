#include "cli/process_start.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace tandem {
namespace {

bool stdout_closed = false;  // a fact about this process, found once

// System calls alone: it also runs before any library is initialized, a sanitizer's included.
void ignore_early(int signal_number) {
  // As the kernel knows it: the handler comes first, and all the rest is zero.
  const struct {
    void (*handler)(int);
    unsigned long rest[16];
  } action{SIG_IGN, {}};
  constexpr unsigned long kSetBytes = 8;
  syscall(SYS_rt_sigaction, signal_number, &action, nullptr, kSetBytes);
}

void ignore_signals(int, char**, char**) {
  ignore_early(SIGUSR1);
  ignore_early(SIGXFSZ);
}

// Before the libraries' own initializers, which take a second where libtorch is among them.
[[gnu::section(".preinit_array"), gnu::used]] void (*run_before_libraries)(int, char**, char**) = ignore_signals;

bool is_closed(int fd) { return fcntl(fd, F_GETFD) < 0 && errno == EBADF; }

void open_on_nothing(int fd) {
  int opened = open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  if (opened < 0) opened = open("/", O_RDONLY | O_DIRECTORY);  // no /dev here: writes fail, but the number is taken
  if (opened < 0 || opened == fd) return;
  dup2(opened, fd);
  close(opened);
}

}  // namespace

void begin_process() {
  if (is_closed(STDOUT_FILENO)) stdout_closed = true;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (is_closed(fd)) open_on_nothing(fd);
}

bool stdout_was_closed() { return stdout_closed; }

}  // namespace tandem
