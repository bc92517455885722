#include "telemetry/resolved_recipe.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(ResolvedRecipe, GivesKeysWithTheirTableAndTheSourceOfEachValue) {
  const auto settings = read_resolved_recipe(
      "# resolved\nrecipe = \"tiny\"\nseed = 7   # --seed\n\n[optimizer]\nkind = \"adam # not a comment\" # default\n"
      "sizes = [1, 2]\n[a.b]\nc = 'x'  # tiny.toml:3");
  ASSERT_EQ(settings.size(), 5u);
  EXPECT_EQ(settings[0].key, "recipe");
  EXPECT_EQ(settings[0].value, "tiny");
  EXPECT_EQ(settings[1].source, "--seed");
  EXPECT_EQ(settings[2].key, "optimizer.kind");
  EXPECT_EQ(settings[2].value, "adam # not a comment");
  EXPECT_EQ(settings[3].value, "[1, 2]");
  EXPECT_EQ(settings[4].key, "a.b.c");
  EXPECT_EQ(settings[4].source, "tiny.toml:3");
}

TEST(ResolvedRecipe, AnyTextIsReadWithoutHarm) {
  EXPECT_TRUE(read_resolved_recipe("").empty());
  EXPECT_EQ(read_resolved_recipe("= \n\"\\").size(), 1u);
  EXPECT_EQ(read_resolved_recipe("[\n]\n[]\nx=\"").size(), 1u);
}

}  // namespace
}  // namespace tandem
