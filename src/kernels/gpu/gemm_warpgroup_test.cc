// The same promises of GEMM by warpgroups (wgmma, emulated).
#define TANDEM_EMULATED_WARPGROUPS
#define GpuGemm WarpgroupGemm
#include "kernels/gpu/gemm_test.cc"  // NOLINT(bugprone-suspicious-include)
