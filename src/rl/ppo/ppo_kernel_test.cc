// PPO's CUDA kernels, emulated on the CPU, beside their CPU twins.
#include <gtest/gtest.h>

#include "rl/ppo/ppo_kernels.cu"  // NOLINT(bugprone-suspicious-include)
#include "rl/ppo/ppo_twins.h"

namespace tandem {
namespace {

struct HostMemory {
  template <class T>
  class Array {
   public:
    explicit Array(std::vector<T> values) : values_(std::move(values)) {}
    T* data() { return values_.data(); }
    const std::vector<T>& get() const { return values_; }

   private:
    std::vector<T> values_;
  };
};

TEST(PpoKernelsEmulated, GiveTheBitsOfTheirCpuTwinsInAnyOrderOfThreads) {
  for (const PpoTwinCase& one : kPpoTwinCases)
    for (const bool last_first : {false, true}) {
      cuda_on_cpu::last_thread_first = last_first;
      const std::string what = PpoTwins<HostMemory>(cuda::ppo_kernels(), one).differs();
      cuda_on_cpu::last_thread_first = false;
      EXPECT_EQ(what, "") << one.name;
    }
}

}  // namespace
}  // namespace tandem
