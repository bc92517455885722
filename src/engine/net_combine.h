// engine/net_combine.h -- the combine of a worker whose peers are on other machines: a mesh for one generation, built
// with the help of the launcher's key-value store (launch/net_transport.h), and a GlooCombine over it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "launch/channel.h"
#include "reduce/combine.h"
#include "reduce/watch.h"

namespace tandem {

struct NetMembers {
  int shards = 1;
  std::vector<ShardRange> ranges;  // by member
  int me = 0;
  uint64_t generation = 0;
  int64_t sequence = 0;
};

// Something else than a value of the store came from the launcher, and waits in `early`: this mesh is given up.
struct MeshGivenUp {};

// `mesh`: of the generation's start. `beat` is called while it waits. Throws MeshGivenUp; Error (kPeerLost) if a peer
// did not come or could not prove itself; ConfigError if this build has no Gloo.
std::unique_ptr<Combine> make_net_combine(const nlohmann::json& mesh, const NetMembers& members, const Watch& watch,
                                          Channel& channel, std::deque<Message>& early,
                                          const std::function<void()>& beat);

}  // namespace tandem
