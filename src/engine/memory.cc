#include "engine/memory.h"

#include <malloc.h>

#include <climits>

namespace tandem {

void keep_freed_memory() {
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest glibc takes; blocks above come from the kernel every time
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace tandem
