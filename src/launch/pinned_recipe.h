// launch/pinned_recipe.h -- the recipe that all workers of a run train, fixed at the run's start.
//
// Workers, replacements, those that join, and the launchers of a set's jobs read it from a sealed memfd (its number in
// TANDEM_RECIPE_FD). recipe.toml in the run's folder is the copy for people and for a later resume: whoever edits or
// removes it changes nothing for a run that is going on.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tandem {

class PinnedRecipe {
 public:
  static constexpr char kVariable[] = "TANDEM_RECIPE_FD";

  explicit PinnedRecipe(std::string toml);  // throws IoError
  ~PinnedRecipe();
  PinnedRecipe(const PinnedRecipe&) = delete;
  PinnedRecipe& operator=(const PinnedRecipe&) = delete;

  const std::string& text() const { return text_; }
  int fd() const { return fd_; }  // closes on exec; nobody can change what it holds

 private:
  std::string text_;
  int fd_ = -1;
};

// The recipe that whoever started this process pinned for it; nothing where nobody did. Closes the descriptor and
// forgets the variable. Throws Error.
std::optional<std::string> recipe_given();

// The worker's side: the recipe that its launcher pinned, or recipe.toml in `run_dir` where it pinned none (a
// supervisor's worker, a launcher of an older build). Throws Error.
std::string recipe_to_work(const std::filesystem::path& run_dir);

}  // namespace tandem
