// launch/oom_count.h -- has the kernel killed for lack of memory?
#pragma once

#include <cstdint>
#include <optional>

namespace tandem {

// How often it did, in this cgroup or on this machine; nothing if that is not known.
std::optional<uint64_t> kernel_oom_kills();

}  // namespace tandem
