#include "apps/chess/stoppable.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <thread>

#include "base/errors.h"

namespace tandem::chess {

void do_stoppable(int wake_fd, const std::function<bool()>& woken, const std::function<void(std::stop_token)>& work) {
  const int done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (done_fd < 0) throw IoError("cannot make an event", errno, "close other programs, or raise `ulimit -n`");
  std::exception_ptr thrown;
  std::jthread thread([&](const std::stop_token& stop) {
    try {
      work(stop);
    } catch (...) {
      thrown = std::current_exception();
    }
    eventfd_write(done_fd, 1);
  });
  pollfd fds[] = {{done_fd, POLLIN, 0}, {wake_fd, POLLIN, 0}};
  while (!(fds[0].revents & POLLIN)) {
    if (poll(fds, 2, -1) < 0) fds[0].revents = fds[1].revents = 0;  // EINTR
    if (fds[1].revents && woken()) thread.request_stop();
  }
  thread.join();
  close(done_fd);
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace tandem::chess
