// engine/memory.h -- how a worker's allocator treats what a shard frees.
#pragma once

namespace tandem {

// Call first in a process that trains. A shard's activations are freed and wanted again within milliseconds; by default
// the allocator hands them back to the kernel whenever the top of its heap grows past a threshold, and the next shard
// takes thousands of page faults to get them back (measured: 5,700 a step, and which runs were struck was chance).
// Afterwards what was used once stays with the process until it ends.
void keep_freed_memory();

}  // namespace tandem
