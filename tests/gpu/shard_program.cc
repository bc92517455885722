// tests/gpu/shard_program.cc -- a program with the recipe of shard_recipe.h:
// `shard_models train shards --set model=bert --devices cuda:0`.
#include "program.h"
#include "shard_recipe.h"

int main(int argc, char** argv) {
  using namespace tandem;
  return program_main(
      argc, argv, "shard_models",
      {{{"shards", "models that run several shards in one pass", [] { return std::make_unique<ShardSettings>(); }},
        [](const RecipeSettings& s) { return make_shard_recipe(dynamic_cast<const ShardSettings&>(s)); }}});
}
