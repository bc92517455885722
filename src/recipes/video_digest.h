// recipes/video_digest.h -- the digest of all that a run of `video` takes from its data.
#pragma once

#include <fmt/format.h>

#include <string>

#include "base/sha256.h"
#include "recipes/video_settings.h"
#include "video/video_set.h"

namespace tandem {

// Whose a video is, by animals.csv, counts where animals decide what judges, and nowhere else.
inline std::string data_digest_of(const VideoSettings& settings, const VideoSet& set) {
  if (settings.split != "animal" || !set.animals_named()) return set.digest();
  Sha256 sum;
  sum.update(set.digest());
  for (const SetVideo& video : set.videos()) sum.update(fmt::format("\nanimal {}", video.animal));
  return sum.hex();
}

}  // namespace tandem
