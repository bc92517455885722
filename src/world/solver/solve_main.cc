// world/solver/solve_main.cc -- tandem_world_solve: reference returns of each environment; prints the rows of
// world/scale.h.
//
//   tandem_world_solve                     all six: tune, plan, oracle (half an hour on one core)
//   tandem_world_solve analysis --plan 50  one of them, fewer episodes
// Everything is a function of --seed; the digest of the environments is printed with it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "world/solver/solver.h"
#include "world/web_agents.h"

namespace {

using namespace tandem;

struct SolveSettings {
  int episodes = 20000, plan = 120, oracle = 60, rounds = 24, population = 60, trial = 250;
  uint64_t seed = 1;
};

template <class Env>
void solve(const WebAgentInfo& info, const SolveSettings& s) {
  const auto begin = std::chrono::steady_clock::now();
  const Solver<Env> solver(s.seed);
  const Params params = solver.tune(s.rounds, s.population, s.trial, [&](int round, double best) {
    std::fprintf(stderr, "%s: tuning, round %d: %.3f\n", info.name.data(), round + 1, best);
  });
  const PolicyReturn random = solver.play_random(s.episodes), rule = solver.play_rule(s.episodes),
                     tuned = solver.play_tuned(params, s.episodes);
  const auto progress = [&](int episode, double) {
    if (episode % 20 == 19) std::fprintf(stderr, "%s: episode %d\n", info.name.data(), episode + 1);
  };
  PolicyReturn plan = tuned, oracle = tuned;
  if (s.plan > 0) plan = carried_over(solver.play_plan(params, {}, s.plan, progress), tuned);
  PlanSettings knowing;
  knowing.oracle = true;
  knowing.samples = 16;
  knowing.finals = 48;
  if (s.oracle > 0) oracle = carried_over(solver.play_plan(params, knowing, s.oracle, progress), tuned);

  const bool planned = plan.mean - plan.error > tuned.mean;
  const double one = planned ? plan.mean : tuned.mean;
  const auto row = [&](const char* name, const PolicyReturn& o) {
    std::fprintf(stderr, "  %-7s %8.3f +- %.3f  score %6.3f   ", name, o.mean, o.error,
                 (o.mean - random.mean) / (one - random.mean));
    for (int i = 0; i < kTerms; ++i) std::fprintf(stderr, " %s %.2f", info.terms[i].data(), o.terms[i]);
    std::fprintf(stderr, "\n");
  };
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::fprintf(stderr, "%s, %.0f s\n", info.name.data(), seconds);
  row("random", random);
  row("rule", rule);
  row("tuned", tuned);
  row("plan", plan);
  row("oracle", oracle);
  std::printf("    {{%.3f, %.3f}, {%.3f, %.3f}, {%.3f, %.3f}, {%.3f, %.3f}, {%.3f, %.3f},\n     {", random.mean,
              random.error, rule.mean, rule.error, tuned.mean, tuned.error, plan.mean, plan.error, oracle.mean,
              oracle.error);
  for (int i = 0; i < kMostParams; ++i) std::printf("%s%.4f", i == 0 ? "" : ", ", params[i]);
  std::printf("}},  // %s\n", info.name.data());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  SolveSettings s;
  std::vector<int> agents;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const int agent = web_agent_of(word);
    if (agent >= 0) {
      agents.push_back(agent);
      continue;
    }
    const bool known =
        word == "--episodes" || word == "--plan" || word == "--oracle" || word == "--rounds" || word == "--seed";
    if (!known || i + 1 >= argc) {
      std::fprintf(
          stderr,
          "error: '%s' is not known\n  why    it is no agent, and no option with its number\n"
          "  do     tandem_world_solve [agent...] [--episodes n] [--plan n] [--oracle n] [--rounds n] [--seed n]\n",
          word.c_str());
      return 2;
    }
    const long value = std::atol(argv[++i]);
    (word == "--episodes" ? s.episodes
     : word == "--plan"   ? s.plan
     : word == "--oracle" ? s.oracle
                          : s.rounds) = word == "--seed" ? s.rounds : static_cast<int>(value);
    if (word == "--seed") s.seed = static_cast<uint64_t>(value);
  }
  if (agents.empty())
    for (int a = 0; a < kWebAgents; ++a) agents.push_back(a);
  std::printf("// seed %llu, digest %s\n", static_cast<unsigned long long>(s.seed), web_test_digest().c_str());
  for (int a : agents)
    with_web_environment(a, [&](auto environment) { solve<decltype(environment)>(kWebAgentTable[a], s); });
  return 0;
}
