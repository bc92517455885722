#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

namespace tandem {

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int cards_in_place() {
  int cards = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view kCard = "nvidia";
    cards += name.size() > kCard.size() && name.starts_with(kCard) &&
             std::all_of(name.begin() + kCard.size(), name.end(), [](unsigned char c) { return std::isdigit(c); });
  }
  return cards;
}

LoaderSize loader_size(int64_t threads_asked, int64_t prefetch_asked, bool on_card, int cores, int cards) {
  constexpr int kMost = 8;
  const int prefetch = static_cast<int>(prefetch_asked);
  if (threads_asked >= 0) return {static_cast<int>(threads_asked), prefetch};
  if (!on_card) return {1, prefetch};
  const int threads = std::clamp(cores / std::max(1, cards) - 1, 1, kMost);
  return {threads, std::max(prefetch, 2 * threads)};
}

}  // namespace tandem
