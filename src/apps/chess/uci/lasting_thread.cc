#include "apps/chess/uci/lasting_thread.h"

#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

namespace tandem::chess {
namespace {

class LastingThread {
 public:
  LastingThread() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);  // signals are for the program's other threads
    std::thread([this] { work(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void run(const std::function<void()>& act) {
    std::packaged_task<void()> task(act);
    std::future<void> done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    more_.notify_one();
    done.get();
  }

 private:
  [[noreturn]] void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [this] { return !tasks_.empty(); });
      std::packaged_task<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::packaged_task<void()>> tasks_;
};

}  // namespace

void in_lasting_thread(const std::function<void()>& act) {
  static std::mutex mutex;
  static LastingThread* thread = nullptr;  // never deleted: its thread waits in it when the program ends
  static pid_t process = 0;                // a fork of this one has none of its threads
  const std::unique_lock lock(mutex);
  if (process != getpid()) thread = new LastingThread, process = getpid();
  thread->run(act);
}

}  // namespace tandem::chess
