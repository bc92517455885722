// fleet/messages.h -- the messages between a worker and its launcher, as JSON.
//
//   worker -> launcher   hello, adopted, part (of a snapshot), hash, note, fatal (ends the run), failed (this worker)
//   launcher -> worker   order: the start of a generation (with descriptors: combine segment, snapshot buffers); end
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "fleet/generation.h"

namespace tandem {

inline constexpr int kProtocolVersion = 2;

nlohmann::json to_json(const GenerationStart& start);
GenerationStart generation_start_from(const nlohmann::json& json);  // throws std::exception if it makes no sense

}  // namespace tandem
