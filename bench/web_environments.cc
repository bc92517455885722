// bench/web_environments.cc -- steps per second of each web-test environment on one core, with and without writing the
// observation.
//
// One line an agent; restarts at the end of an episode are included. The median of five runs.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "world/web_agents.h"

namespace {

using namespace tandem;

double steps_a_second(int32_t agent, bool observed) {
  constexpr int64_t kEnvironments = 256;
  constexpr uint64_t kSteps = 400;
  std::vector<WebTestState> states(kEnvironments);
  std::vector<int32_t> actions(kEnvironments);
  std::vector<StepResult> results(kEnvironments);
  std::vector<float> seen(kEnvironments * kObservation);
  std::vector<double> rates;
  for (uint64_t run = 0; run < 5; ++run) {
    reset_web(agent, states.data(), kEnvironments, {run, 0, 0, 0});
    for (int64_t i = 0; i < kEnvironments; ++i) actions[i] = static_cast<int32_t>(i % kActions);
    const std::clock_t begin = std::clock();  // the core's time: others may be using the machine
    for (uint64_t step = 1; step <= kSteps; ++step) {
      if (observed) observe_web(agent, states.data(), seen.data(), kEnvironments);
      step_web(agent, states.data(), actions.data(), results.data(), kEnvironments, {run, step, 0, 1});
      reset_web(agent, states.data(), kEnvironments, {run, step, 0, 0}, 0, results.data());
    }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    rates.push_back(static_cast<double>(kEnvironments) * kSteps / seconds);
  }
  std::sort(rates.begin(), rates.end());
  return rates[2];
}

}  // namespace

int main() {
  std::printf("%-13s %14s %22s\n", "agent", "steps/s", "with observation");
  for (int32_t agent = 0; agent < kWebAgents; ++agent)
    std::printf("%-13s %12.2f M %20.2f M\n", kWebAgentTable[agent].name.data(), steps_a_second(agent, false) * 1e-6,
                steps_a_second(agent, true) * 1e-6);
  return 0;
}
