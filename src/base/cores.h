// base/cores.h -- the cores of this machine, and how many of them prepare batches where nobody has said it.
#pragma once

#include <cstdint>

namespace tandem {

int usable_cores();    // by this process; 1 if that can't be read
int cards_in_place();  // NVIDIA cards that this machine, or this container, has a device file of

struct LoaderSize {
  int threads, prefetch;
};
// Threads of a worker that make batches, and batches made ahead. A number asked for is taken as it is. Below 0: on a
// card its share of the cores but one, eight at most, for a card takes what one core can make in no time; on the CPU
// one, since the cores compute.
LoaderSize loader_size(int64_t threads_asked, int64_t prefetch_asked, bool on_card, int cores, int cards);

}  // namespace tandem
