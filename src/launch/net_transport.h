// launch/net_transport.h -- members on several machines: a key-value store through which they find each other, and the
// parts of snapshots brought to where they are needed.
//
// Every host has buffers of its own. A member writes all of the replicated part and its own shards into its host's, so
// a snapshot lies scattered. This keeps track of which host holds which part of which buffer; before a member gets an
// generation that goes on from a snapshot, the parts that its host lacks are sent there, by way of the launcher's own
// memory. Nothing here waits: the message is held back until the parts have come, which is when the last of them is
// asked for, sent and put, in the order of one connection.
//
// There is no memory of the combine to read after a death: everybody goes back to the last whole snapshot.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "fleet/snapshot_layout.h"
#include "launch/remote_worker_handle.h"
#include "launch/snapshot_pool.h"
#include "launch/transport.h"

namespace tandem {

class NetTransport : public Transport {
 public:
  struct Options {
    std::string nonce;    // of this run
    std::string secret;   // of the mesh, for the worker of this machine
    std::string address;  // ... and where it listens
  };
  // `hosts`: the workers of other machines by rank; whoever is not in it shares the launcher's memory.
  NetTransport(Options options, const SnapshotLayout& layout, const SnapshotPool& pool,
               std::map<int, RemoteWorkerHandle*> hosts);

  void begin(const GenerationStart& start, int base) override;
  void give(WorkerHandle& worker, nlohmann::json body) override;
  void wake() override {}
  std::optional<Mark> mark_of(int) override { return std::nullopt; }
  void all_adopted(uint64_t) override {}
  void reuse(int buffer) override;
  void abandoned(int buffer) override;
  void whole(int buffer) override;
  bool gathered(int buffer) override;
  bool heard(WorkerHandle& worker, const nlohmann::json& body) override;

  // A checkpoint was read into this buffer of the launcher.
  void filled_here(int buffer);

 private:
  static constexpr int kReplicated = -1, kHere = -1;  // the part that all have; the launcher's own memory as a host
  using Parts = std::set<int>;                        // kReplicated, and shards that have state
  struct Extent {
    uint64_t begin = 0, end = 0;
  };
  struct Waiting {
    WorkerHandle* worker;
    nlohmann::json body;
    Parts needs;
  };
  struct Fetch {
    int buffer;
    Parts parts;
  };

  int host_of(int rank) const { return hosts_.contains(rank) ? rank : kHere; }
  Parts all_parts() const;
  Parts parts_of(const ShardRange& range) const;
  std::vector<std::pair<Extent, Parts>> extents(const Parts& parts) const;
  bool bring_here(int buffer, const Parts& parts);
  void came(int buffer, uint64_t at, std::string_view bytes, uint64_t id, bool last);
  void send_those_ready();

  Options options_;
  const SnapshotPool& pool_;
  std::map<int, RemoteWorkerHandle*> hosts_;
  std::map<int, Extent> extent_;  // by part
  uint64_t bytes_ = 0;

  GenerationStart current_;
  int base_ = -1;
  std::map<int, Waiting> waiting_;            // messages on their way, by rank
  std::map<int, std::map<int, Parts>> held_;  // by buffer and host
  std::map<uint64_t, Fetch> fetches_;         // by id
  uint64_t next_id_ = 0;

  std::map<std::string, std::string> store_;
  std::vector<std::pair<WorkerHandle*, std::string>> askers_;
};

}  // namespace tandem
