// tools/doctor/doctor_links.cc -- the links of the GPUs: what was measured, beside what their lanes could carry.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tools/doctor/doctor.h"

namespace tandem {
namespace {

// What a PCIe link carries one way after its encoding and packets, GB/s: about 0.85 of the raw rate.
std::optional<double> pcie_gb_per_s(int generation, int lanes) {
  constexpr double kLane[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  if (generation < 1 || generation > 6 || lanes < 1) return {};
  return 0.85 * kLane[generation] * lanes;
}

}  // namespace

LinksSeen look_at_links(const GpusSeen& gpus, const LibrariesSeen& libraries) {
  LinksSeen seen{.links = measure_gpu_links(), .sum = {}, .numbers = {}};
  for (size_t i = 0; gpus.cuda && i < gpus.cuda->devices.size(); ++i) {
    const auto has_uuid = [&](const GpuFacts& facts) {
      const std::string& uuid = gpus.cuda->devices[i].uuid;
      return facts.uuid == uuid ||
             std::ranges::any_of(facts.mig, [&](const MigInstance& part) { return part.uuid == uuid; });
    };
    const auto gpu = std::ranges::find_if(gpus.facts, has_uuid);
    seen.numbers.push_back(gpu == gpus.facts.end() ? static_cast<int>(i) : gpu->index);
  }
  const bool emulated = std::getenv("TANDEM_LIBCUDA") != nullptr;  // NCCL would look for GPUs of its own
  if (!emulated && gpus.cuda && gpus.cuda->devices.size() > 1 && !libraries.nccl.empty() &&
      seen.links.trouble.empty()) {
    std::vector<int> devices;
    for (size_t i = 0; i < gpus.cuda->devices.size(); ++i) devices.push_back(static_cast<int>(i));
    seen.sum = measure_nccl_sum(libraries.nccl, devices);
  }
  return seen;
}

Findings judge_links(const LinksSeen& seen, const GpusSeen& gpus) {
  Findings all;
  if (!seen.links.trouble.empty())
    all.push_back({"links", Verdict::kProblem, seen.links.trouble,
                   "tandem doctor   (without --bandwidth: what is wrong with the GPUs comes first)"});
  for (const HostLink& link : seen.links.host) {
    const std::string& uuid = gpus.cuda->devices.at(static_cast<size_t>(link.device)).uuid;
    const auto gpu = std::ranges::find_if(gpus.facts, [&](const GpuFacts& facts) { return facts.uuid == uuid; });
    if (gpu == gpus.facts.end()) continue;
    const double slower = std::min(link.up_gb_per_s, link.down_gb_per_s);
    const auto could = pcie_gb_per_s(gpu->pcie_generation_max.value_or(0), gpu->pcie_width_max.value_or(0));
    const std::string found =
        fmt::format("GPU {}: {:.1f} GB/s to the GPU, {:.1f} back", gpu->index, link.up_gb_per_s, link.down_gb_per_s);
    if (could && slower < 0.5 * *could)
      all.push_back({"host link", Verdict::kWarning,
                     fmt::format("{}; PCIe {}.0 x{} carries about {:.0f}", found, *gpu->pcie_generation_max,
                                 *gpu->pcie_width_max, *could),
                     "give it a slot with all its lanes (nvidia-smi -q -d PCIE), and memory of its own NUMA node"});
    else
      all.push_back({"host link", Verdict::kOk, found});
  }
  double least = 1e30, most = 0;
  int through_host = 0;
  std::vector<const PeerLink*> unmapped;
  for (const PeerLink& link : seen.links.peers) {
    least = std::min(least, link.gb_per_s);
    most = std::max(most, link.gb_per_s);
    through_host += !link.direct;
    if (!link.unmapped.empty()) unmapped.push_back(&link);
  }
  if (!seen.links.peers.empty())
    all.push_back(
        {"GPU to GPU", Verdict::kOk,
         fmt::format("{} pairs, {:.1f} to {:.1f} GB/s{}", seen.links.peers.size(), least, most,
                     through_host == 0 ? "" : fmt::format("; {} of them through host memory", through_host))});
  if (!seen.links.peers.empty() && unmapped.empty())
    all.push_back(
        {"GPU memory", Verdict::kOk,
         fmt::format("each GPU reads the others' ({} pairs tried, within one process): kernels can sum over it",
                     seen.links.peers.size())});
  if (!unmapped.empty())
    all.push_back(
        {"GPU memory", Verdict::kOk,
         fmt::format("{} of {} pairs can't read each other's (GPU {} of GPU {}: {}): kernels sum through pinned "
                     "host memory there",
                     unmapped.size(), seen.links.peers.size(), seen.gpu(unmapped[0]->to), seen.gpu(unmapped[0]->from),
                     unmapped[0]->unmapped)});
  if (seen.sum && !seen.sum->trouble.empty())
    all.push_back({"NCCL sum", Verdict::kProblem, seen.sum->trouble,
                   "NCCL_DEBUG=INFO tandem doctor --bandwidth   (training goes on without it: TANDEM_PLANE=host)"});
  int64_t wrong = 0;
  if (seen.sum)
    for (const BandwidthRow& row : seen.sum->rows) wrong += row.wrong;
  if (wrong > 0)
    all.push_back({"NCCL sum", Verdict::kProblem, fmt::format("{} numbers of its sums are wrong", wrong),
                   "try one GPU at a time: CUDA_VISIBLE_DEVICES=0 tandem doctor --bandwidth"});
  return all;
}

std::string links_text(const LinksSeen& seen) {
  std::string text;
  if (!seen.links.host.empty()) {
    text += "# host memory (pinned) and GPUs, GB/s, 64 MiB\n";
    text += fmt::format("# {:>6} {:>10} {:>10}\n", "card", "to it", "from it");
    for (const HostLink& link : seen.links.host)
      text += fmt::format("  {:>6} {:>10.2f} {:>10.2f}\n", seen.gpu(link.device), link.up_gb_per_s, link.down_gb_per_s);
  }
  if (!seen.links.peers.empty()) {
    text += "# from GPU (down) to GPU (across), GB/s; * through host memory\n";
    const size_t n = seen.links.host.size();
    text += fmt::format("  {:>6}", "");
    for (size_t to = 0; to < n; ++to) text += fmt::format(" {:>9}", seen.gpu(static_cast<int>(to)));
    text += '\n';
    size_t next = 0;
    for (size_t from = 0; from < n; ++from) {
      text += fmt::format("  {:>6}", seen.gpu(static_cast<int>(from)));
      for (size_t to = 0; to < n; ++to) {
        if (from == to) {
          text += fmt::format(" {:>9}", "-");
        } else if (next < seen.links.peers.size()) {
          const PeerLink& link = seen.links.peers[next++];
          text += fmt::format(" {:>9}", fmt::format("{:.2f}{}", link.gb_per_s, link.direct ? "" : "*"));
        }
      }
      text += '\n';
    }
  }
  if (seen.sum && !seen.sum->rows.empty())
    text += bandwidth_text(seen.sum->rows, fmt::format("{} GPUs by NCCL", seen.links.host.size()));
  return text;
}

}  // namespace tandem
