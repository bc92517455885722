#include "launch/pinned_recipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/temp_dir.h"

namespace tandem {
namespace {

TEST(PinnedRecipe, IsWhatTheLauncherPinnedWhateverTheFileSays) {
  const TempDir dir;
  std::ofstream(dir / "recipe.toml") << "seed = = 3";
  const PinnedRecipe pinned("recipe = \"tiny\"\nseed = 7\n");
  for (int reader = 0; reader < 2; ++reader) {  // they share one open file
    setenv(PinnedRecipe::kVariable, std::to_string(dup(pinned.fd())).c_str(), 1);
    EXPECT_EQ(recipe_to_work(dir.path()), pinned.text());
    EXPECT_EQ(std::getenv(PinnedRecipe::kVariable), nullptr) << "it means nothing to those whom a worker starts";
  }
  std::filesystem::remove_all(dir.path());
  setenv(PinnedRecipe::kVariable, std::to_string(dup(pinned.fd())).c_str(), 1);
  EXPECT_EQ(recipe_to_work(dir.path()), pinned.text()) << "the folder is not needed";
}

TEST(PinnedRecipe, NobodyCanChangeIt) {
  const PinnedRecipe pinned("seed = 7\n");
  EXPECT_EQ(pwrite(pinned.fd(), "seed = 8\n", 9, 0), -1);
  EXPECT_EQ(ftruncate(pinned.fd(), 0), -1);
  EXPECT_EQ(mmap(nullptr, 9, PROT_WRITE, MAP_SHARED, pinned.fd(), 0), MAP_FAILED);
}

TEST(PinnedRecipe, WithoutOneTheFileIsRead) {
  const TempDir dir;
  std::ofstream(dir / "recipe.toml") << "seed = 9\n";
  unsetenv(PinnedRecipe::kVariable);
  EXPECT_EQ(recipe_to_work(dir.path()), "seed = 9\n");
}

}  // namespace
}  // namespace tandem
