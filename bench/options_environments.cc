// bench/options_environments.cc -- steps per second of the options environment on one core, with and without writing
// the observation; random actions on a market that walks at random.
//
// One line each set of actions; restarts at the end of an episode are included. The median of five runs.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "market/options_environment.h"
#include "market/options_test_market.h"

namespace {

using namespace tandem;

double steps_a_second(const OptionsEnvironment& environment, bool observed) {
  constexpr int64_t kEnvironments = 256;
  constexpr uint64_t kSteps = 400;
  std::vector<OptionsState> states(kEnvironments);
  std::vector<int32_t> actions(kEnvironments * kSteps);
  std::vector<Outcome> results(kEnvironments);
  std::vector<float> seen(kEnvironments * kOwnFeatures);
  auto* const bytes = reinterpret_cast<std::byte*>(states.data());
  for (size_t i = 0; i < actions.size(); ++i)
    actions[i] = static_cast<int32_t>(random_below({1, 0, 0, 2}, i, static_cast<uint32_t>(environment.actions())));
  std::vector<double> rates;
  for (uint64_t run = 0; run < 5; ++run) {
    environment.reset(bytes, kEnvironments, {run, 0, 0, 0}, nullptr);
    const std::clock_t begin = std::clock();  // the core's time: others may be using the machine
    for (uint64_t step = 1; step <= kSteps; ++step) {
      if (observed) environment.observe(bytes, seen.data(), kEnvironments);
      environment.step(bytes, &actions[(step - 1) * kEnvironments], results.data(), kEnvironments, {run, step, 0, 1});
      environment.reset(bytes, kEnvironments, {run, step, 0, 0}, results.data());
    }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    rates.push_back(static_cast<double>(kEnvironments) * kSteps / seconds);
  }
  std::sort(rates.begin(), rates.end());
  return rates[2];
}

}  // namespace

int main() {
  const OptionsTestMarket market = random_options_market(8, 1500, 1);
  std::printf("%-10s %14s %22s\n", "actions", "steps/s", "with observation");
  for (const int32_t multi_leg : {0, 1}) {
    const OptionsEnvironment environment(market.view(), {.multi_leg = multi_leg});
    std::printf("%-10d %12.2f M %20.2f M\n", static_cast<int>(environment.actions()),
                steps_a_second(environment, false) * 1e-6, steps_a_second(environment, true) * 1e-6);
  }
  return 0;
}
