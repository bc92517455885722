// nn/shard_rows.h -- the rows of one shard of a pass.
#pragma once

#include <cstdint>
#include <string>

#include "base/errors.h"
#include "nn/layer_context.h"

namespace tandem {

inline int64_t shard_rows(const std::string& layer, int64_t rows, int shards) {
  if (shards > 0 && rows % shards == 0) return rows / shards;
  throw ConfigError(layer + " has " + std::to_string(rows) + " rows for " + std::to_string(shards) + " shards",
                    "the shards of a pass have the same number of rows each, one shard after the other",
                    "give layers a first dimension that divides by the shards: rows of all shards, in order");
}
inline int64_t shard_rows(const ShardAware& layer, int64_t rows) {
  return shard_rows(layer.layer_name(), rows, layer.pass().shards);
}

}  // namespace tandem
