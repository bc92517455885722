// hardware/in_time.h -- a driver asked within a deadline: one that hangs holds the asker no longer than that.
//
// The question is put in a thread. If no answer comes in time the thread is left behind, so the question must own all
// it uses; and the program ends by end_program_if_left_behind(), as the driver's library might wait for that thread.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>

namespace tandem {

// 10, or what TANDEM_DRIVER_SECONDS says: eight GPUs without persistence mode may need long to wake.
double driver_seconds();

void note_left_behind();
// Ends the program with `code` at once if a thread was left behind; what was printed is flushed. Else does nothing.
void end_program_if_left_behind(int code);

template <class T>
std::optional<T> in_time(double seconds, std::function<T()> ask) {
  std::packaged_task<T()> task(std::move(ask));
  std::future<T> answer = task.get_future();
  std::thread(std::move(task)).detach();
  if (answer.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
    note_left_behind();
    return std::nullopt;
  }
  return answer.get();
}

}  // namespace tandem
