// rl/ppo/ppo_sites.h -- the random streams of PPO (ShardContext::random).
#pragma once

#include <cstdint>

namespace tandem {

enum PpoSite : uint32_t { kActSite, kWorldSite, kNewEpisodeSite, kShuffleSite, kDropoutSite = 0x100 };  // one a layer

}  // namespace tandem
