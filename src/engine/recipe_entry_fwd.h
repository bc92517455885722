// engine/recipe_entry_fwd.h -- for headers that must not see libtorch.
#pragma once

namespace tandem {
struct RecipeEntry;
}
