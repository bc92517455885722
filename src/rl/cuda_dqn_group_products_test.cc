// The same promises of products that groups of warps make.
#define TANDEM_PLAYED_GROUPS
#define TileProducts GroupProducts
#include "rl/cuda_dqn_products_test.cc"  // NOLINT(bugprone-suspicious-include)
