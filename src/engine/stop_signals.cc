#include "engine/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace tandem {
namespace {

// The one piece of global state: a signal handler has no other way to tell.
std::atomic<int> g_stop{0};
std::atomic<bool> g_save{false};
struct sigaction g_before[3];
constexpr int kSignals[3] = {SIGINT, SIGTERM, SIGUSR1};

void on_signal(int number) {
  if (number == SIGUSR1) {
    g_save = true;
    return;
  }
  if (g_stop.exchange(number) != 0) _exit(128 + number);
}

}  // namespace

StopSignals::StopSignals() {
  g_stop = 0;
  g_save = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &g_before[i]);
}

StopSignals::~StopSignals() {
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &g_before[i], nullptr);
}

int StopSignals::stop_signal() const { return g_stop; }
bool StopSignals::take_save_request() { return g_save.exchange(false); }

}  // namespace tandem
