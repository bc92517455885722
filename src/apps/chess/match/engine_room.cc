#include "apps/chess/match/engine_room.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/errors.h"

namespace tandem::chess {
namespace {

constexpr rlim_t kOfAnEngine = 5;  // three pipes, the process, an event
constexpr rlim_t kToStartOne = 5;  // the other ends, until it runs; in each game one may be starting
constexpr rlim_t kOfAMatch = 16;   // signals, the file of games, what libraries open

rlim_t open_now() {
  std::error_code error;
  rlim_t count = 0;
  for (auto at = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error))
    ++count;
  return std::max<rlim_t>(count, 3);
}

}  // namespace

void make_room_for_engines(int jobs, int engines_in_a_game) {
  rlimit limit{};
  if (engines_in_a_game == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t engines = static_cast<rlim_t>(engines_in_a_game), each = engines * kOfAnEngine + kToStartOne;
  const rlim_t others = open_now() + kOfAMatch;
  const rlim_t need = others + static_cast<rlim_t>(jobs) * each;
  if (need <= limit.rlim_cur) return;
  const rlim_t hard = limit.rlim_max;
  limit.rlim_cur = need;
  if (need <= hard && setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  const rlim_t fit = hard > others ? (hard - others) / each : 0;
  throw ConfigError(fmt::format("{} games at once need {} descriptors, and {} are allowed", jobs, need, hard),
                    fmt::format("{} for each game: it has {} engine{}, and one may be starting", each, engines,
                                engines > 1 ? "s" : ""),
                    fit > 0 ? fmt::format("give --jobs {}, or raise `ulimit -Hn`", fit) : "raise `ulimit -Hn`");
}

}  // namespace tandem::chess
