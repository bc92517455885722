// The same promises of products that groups of warps make.
#define TANDEM_EMULATED_WARPGROUPS
#define TileProducts GroupProducts
#include "rl/dqn/gpu/gemm_tiles_test.cc"  // NOLINT(bugprone-suspicious-include)
