// program.h -- what the main() of a training program includes: program_main(), entries for its list of recipes, and
// what a verb of its own has in hand (examples/own_verb).
#pragma once

#include "cli/program.h"
#include "command/command.h"
#include "command/sources.h"
#include "recipes/recipe_entry.h"
