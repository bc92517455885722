// fuzz/fuzz_toml.cc -- any bytes as a recipe: refused with a ConfigError or taken, never a crash; and what is taken
// reads back from its resolved copy to the same values.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/errors.h"
#include "config/resolver.h"
#include "config/toml_reader.h"

namespace {

struct FuzzSettings : tandem::RecipeSettings {
  std::vector<int64_t> layers = {64};
  std::string title;
  void describe(tandem::Describer& d) override {
    RecipeSettings::describe(d);
    d.key("layers", layers, tandem::Range::at_least(1), "width of each layer");
    d.key("title", title, "any text");
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    tandem::read_toml(text, "fuzz.toml");  // most inputs end here, and cost no settings
  } catch (const tandem::ConfigError&) {
    return 0;
  }
  try {
    FuzzSettings settings, again;
    tandem::Resolver first(settings), second(again);
    first.apply_toml(text, "fuzz.toml");
    second.apply_toml(first.to_toml("fuzz"), "recipe.toml");
    if (first.to_json() != second.to_json()) std::abort();
  } catch (const tandem::ConfigError&) {
  }
  try {
    FuzzSettings settings;
    tandem::Resolver(settings).apply_defaults_file(text, "tandem.toml", "fuzz");
    tandem::recipe_named_in(text, "fuzz.toml");
    tandem::runs_root_named_in(text, "fuzz.toml");
  } catch (const tandem::ConfigError&) {
  }
  return 0;
}
