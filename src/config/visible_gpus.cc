#include "config/visible_gpus.h"

#include <algorithm>

#include "config/gpu_ids.h"

namespace tandem {

std::vector<bool> visible_gpus(const std::vector<GpuFacts>& facts, const char* visible_devices) {
  std::vector<bool> visible(facts.size(), true);
  if (!visible_devices) return visible;
  std::vector<GpuId> ids;
  for (const GpuFacts& one : facts) ids.push_back({one.uuid.value_or(""), one.name.value_or("")});
  const std::vector<GpuId> seen = visible_gpu_ids(ids, visible_devices);
  for (size_t i = 0; i < facts.size(); ++i) {
    visible[i] = std::any_of(seen.begin(), seen.end(), [&](const GpuId& id) {
      const auto is_part = [&](const MigInstance& part) { return part.uuid == id.uuid; };
      return id.uuid == ids[i].uuid || std::any_of(facts[i].mig.begin(), facts[i].mig.end(), is_part);
    });
  }
  return visible;
}

}  // namespace tandem
