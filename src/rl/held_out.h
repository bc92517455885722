// rl/held_out.h -- the episodes of an experience that are fit to judge by: held out, each once, and no part of them
// learned from by any training in the line of a model. No libtorch.
//
// A share that was smaller in an earlier run, a file that grew (the episode that was open at its end goes on in the
// next one), a run that held out segments: in all of these an episode that one training held out has been learned from,
// whole or in part, by another.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "rl/off_policy.h"

namespace tandem {

class Experience;

// Held out; an episode that several files of the experience have is there once.
LoggedEpisodes held_out_episodes(const Experience& experience);

class LearnedEpisodes {
 public:
  void add(const Experience& experience);  // all of it that was learned from

  // The episode itself, its beginning (an episode that was open at a file's end), or one that it is the beginning of.
  bool holds_part_of(const LoggedEpisodes& log, int64_t episode) const;
  // Leaves such episodes out of `log`; how many different ones there were.
  int64_t leave_out_of(LoggedEpisodes& log) const;

 private:
  std::set<std::string> ids_;
  std::vector<uint64_t> open_;        // hashes of whole open episodes, sorted
  std::vector<uint64_t> beginnings_;  // hashes of the first n rows of each episode, for every n, sorted
};

}  // namespace tandem
