#include "apps/chess/draws_flag.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/printable.h"

namespace tandem::chess {

DrawRules read_draws(const std::string& word) {
  if (word == "claim") return DrawRules::at_first_claim();
  if (word == "fide") return DrawRules::fide();
  throw ConfigError(fmt::format("--draws {}: not known", printable(word)),
                    "claim: the third repetition and 50 moves; fide: the fifth and 75", "give claim or fide");
}

}  // namespace tandem::chess
