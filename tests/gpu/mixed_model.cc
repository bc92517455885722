// tests/gpu/mixed_model.cc -- a program with the recipes of mixed_recipe.h and engine/walk_recipe.h:
// `gpu_mixed_model train mixed --devices cuda:0`.
#include "engine/walk_recipe.h"
#include "mixed_recipe.h"
#include "program.h"

int main(int argc, char** argv) {
  using namespace tandem;
  return program_main(
      argc, argv, "gpu_mixed_model",
      {{{"mixed", "frames of a moving square", [] { return std::make_unique<MixedSettings>(); }},
        [](const RecipeSettings& s) { return make_mixed(dynamic_cast<const MixedSettings&>(s)); }},
       {{"walk", "shards that walk and tell", [] { return std::make_unique<WalkSettings>(); }},
        [](const RecipeSettings& s) { return std::make_unique<WalkRecipe>(dynamic_cast<const WalkSettings&>(s)); }}});
}
