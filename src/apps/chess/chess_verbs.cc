#include "apps/chess/chess_verbs.h"

#include "apps/chess/match/match_verb.h"
#include "apps/chess/perft/perft_verb.h"
#include "apps/chess/play/play_verb.h"

namespace tandem {

std::vector<RecipeVerb> chess_verbs() { return {match_verb(), perft_verb(), play_verb()}; }

}  // namespace tandem
