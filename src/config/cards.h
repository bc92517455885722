// config/cards.h -- the NVIDIA cards that this process may use, without CUDA: NVML is asked, where there is one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct CardId {
  std::string uuid;  // what CUDA_VISIBLE_DEVICES takes to show one card alone
  std::string name;  // "NVIDIA H200"
};

// Every card of the machine, in nvidia-smi's order; empty where there is no driver. Takes up to a second.
std::vector<CardId> all_cards();
// What CUDA_VISIBLE_DEVICES leaves of them, in its order. Numbers count in nvidia-smi's order; as CUDA has it, the list
// ends at the first entry that names no card. Null: all of them.
std::vector<CardId> visible_cards(const std::vector<CardId>& all, const char* visible_devices);

}  // namespace tandem
