#include "runs/recipe_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kRight[] = "recipe = \"tiny\"\nseed = 7\n";

std::string text_of_recipe(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(RecipeFile, EveryEditIsKeptUnderANameOfItsOwn) {
  const TempDir dir;
  const char* names[] = {"recipe.changed.toml", "recipe.changed-2.toml", "recipe.changed-3.toml"};
  for (int i = 0; i < 3; ++i) {
    std::ofstream(dir / "recipe.toml") << "seed = " << i;
    const std::string words = put_recipe_right(dir.path(), kRight, "the run");
    EXPECT_NE(words.find(names[i]), std::string::npos) << words;
    EXPECT_EQ(text_of_recipe(dir / "recipe.toml"), kRight);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(text_of_recipe(dir / names[i]), "seed = " + std::to_string(i));
}

TEST(RecipeFile, TheSameEditAgainIsKeptOnce) {
  const TempDir dir;
  for (int i = 0; i < 2; ++i) {
    std::ofstream(dir / "recipe.toml") << "seed = 8";
    EXPECT_NE(put_recipe_right(dir.path(), kRight, "the run"), "");
  }
  EXPECT_FALSE(fs::exists(dir / "recipe.changed-2.toml"));
}

TEST(RecipeFile, OneThatIsRightIsLeftAlone) {
  const TempDir dir;
  std::ofstream(dir / "recipe.toml") << kRight;
  EXPECT_EQ(put_recipe_right(dir.path(), kRight, "the run"), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

TEST(RecipeFile, WhatWasRemovedOrIsALinkIsThereAgainAndTheFileBehindTheLinkIsUntouched) {
  const TempDir dir;
  EXPECT_NE(put_recipe_right(dir.path(), kRight, "the run").find("removed"), std::string::npos);
  std::ofstream(dir / "thesis") << kRight;
  fs::remove(dir / "recipe.toml");
  fs::create_symlink(dir / "thesis", dir / "recipe.toml");
  EXPECT_NE(put_recipe_right(dir.path(), kRight, "the run"), "");
  EXPECT_TRUE(fs::is_symlink(dir / "recipe.changed.toml"));
  EXPECT_FALSE(fs::is_symlink(dir / "recipe.toml"));
  EXPECT_EQ(text_of_recipe(dir / "recipe.toml"), kRight);
}

TEST(RecipeFile, AFolderInItsPlaceIsPutAside) {
  const TempDir dir;
  fs::create_directory(dir / "recipe.toml");
  EXPECT_NE(put_recipe_right(dir.path(), kRight, "the run"), "");
  EXPECT_EQ(text_of_recipe(dir / "recipe.toml"), kRight);
}

TEST(RecipeFile, DevicesAndTimeAreNoEdit) {
  EXPECT_TRUE(same_but_for_place("seed = 7\ndevices = \"cpu:1\"  # --devices\nmax_time = \"\"\n", "seed = 7\n"));
  EXPECT_TRUE(same_but_for_place("seed = 7     # --seed\n", "seed = 7   # --seed\ndevices = \"cpu:2@1,0.5\"\n"));
  EXPECT_FALSE(same_but_for_place("seed = 7\n", "seed = 8\n"));
  EXPECT_FALSE(same_but_for_place("seed = 7\n", "seed = 7\n[broken = = 1\n"));
}

}  // namespace
}  // namespace tandem
