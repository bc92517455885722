#include "launch/net_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "launch/secret.h"

namespace tandem {

NetTransport::NetTransport(Options options, const SnapshotLayout& layout, const SnapshotPool& pool,
                           std::map<int, RemoteWorkerHandle*> hosts)
    : options_(std::move(options)), pool_(pool), hosts_(std::move(hosts)), bytes_(layout.bytes()) {
  extent_[kReplicated] = {0, layout.replicated_end()};
  for (const SnapshotTensor& t : layout.tensors()) {
    if (t.shard < 0 || t.bytes == 0) continue;
    Extent& extent = extent_.try_emplace(t.shard, Extent{t.offset, t.offset}).first->second;
    extent.end = t.offset + t.bytes;
  }
  for (const auto& [rank, worker] : hosts_)
    worker->on_bytes([this](int buffer, uint64_t at, std::string_view bytes, uint64_t id, bool last) {
      came(buffer, at, bytes, id, last);
    });
}

NetTransport::Parts NetTransport::all_parts() const {
  Parts parts;
  for (const auto& [part, extent] : extent_) parts.insert(part);
  return parts;
}

NetTransport::Parts NetTransport::parts_of(const ShardRange& range) const {
  Parts parts{kReplicated};
  for (auto part = extent_.lower_bound(range.first); part != extent_.end() && part->first < range.last; ++part)
    parts.insert(part->first);
  return parts;
}

// Parts that are neighbours travel together.
std::vector<std::pair<NetTransport::Extent, NetTransport::Parts>> NetTransport::extents(const Parts& parts) const {
  std::vector<std::pair<Extent, Parts>> joined;
  int before = -2;
  for (const int part : parts) {
    const Extent extent = extent_.at(part);
    if (!joined.empty() && part == before + 1 && part > 0)
      joined.back().first.end = extent.end;
    else
      joined.push_back({extent, {}});
    joined.back().second.insert(part);
    before = part;
  }
  return joined;
}

// ---- generations ----

void NetTransport::begin(const GenerationStart& start, int base) {
  current_ = start;
  base_ = base;
  waiting_.clear();
  store_.clear();
  askers_.clear();
}

void NetTransport::give(WorkerHandle& worker, nlohmann::json body) {
  body["whole"] = true;
  body["bytes"] = bytes_;
  body["mesh"] = {{"name", fmt::format("{}/{}", options_.nonce, current_.generation)}, {"nonce", options_.nonce}};
  Waiting waiting{&worker, std::move(body), {}};
  if (current_.from == GenerationStart::From::kSnapshot)
    for (const ShardAssignment& a : current_.members)
      if (a.rank == worker.rank()) waiting.needs = parts_of(a.range);
  waiting_.insert_or_assign(worker.rank(), std::move(waiting));
  send_those_ready();
}

void NetTransport::send_those_ready() {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    Waiting& waiting = next->second;
    const int host = host_of(next->first);
    Parts lacking;
    if (!waiting.needs.empty()) {
      const Parts& there = held_[base_][host];
      std::set_difference(waiting.needs.begin(), waiting.needs.end(), there.begin(), there.end(),
                          std::inserter(lacking, lacking.end()));
      if (!lacking.empty() && !bring_here(base_, lacking)) {
        ++next;
        continue;
      }
    }
    if (host == kHere) {
      waiting.body["mesh"]["address"] = options_.address;
      waiting.body["mesh"]["secret"] = to_hex(options_.secret);
      waiting.worker->send(waiting.body, pool_.fds());
    } else {
      if (!lacking.empty()) {
        RemoteWorkerHandle& worker = *hosts_.at(host);
        worker.make_buffers(bytes_);
        for (const auto& [extent, parts] : extents(lacking))
          worker.put(base_, extent.begin, pool_.bytes(base_).subspan(extent.begin, extent.end - extent.begin));
        held_[base_][host].merge(lacking);
      }
      waiting.worker->send(waiting.body, {});
    }
    next = waiting_.erase(next);
  }
}

// ---- snapshots ----

void NetTransport::reuse(int buffer) {
  held_[buffer].clear();
  std::erase_if(fetches_, [&](const auto& fetch) { return fetch.second.buffer == buffer; });
}

void NetTransport::abandoned(int buffer) {
  reuse(buffer);
  for (const auto& [rank, worker] : hosts_) worker->replace_buffer(buffer);
}

void NetTransport::whole(int buffer) {
  held_[buffer].clear();
  for (const ShardAssignment& a : current_.members) held_[buffer][host_of(a.rank)].merge(parts_of(a.range));
}

void NetTransport::filled_here(int buffer) {
  held_[buffer].clear();
  held_[buffer][kHere] = all_parts();
}

bool NetTransport::gathered(int buffer) { return bring_here(buffer, all_parts()); }

// True if they are here; otherwise they are asked for, once.
bool NetTransport::bring_here(int buffer, const Parts& parts) {
  Parts lacking = parts;
  for (const int part : held_[buffer][kHere]) lacking.erase(part);
  if (lacking.empty()) return true;
  for (const auto& [id, fetch] : fetches_)
    if (fetch.buffer == buffer)
      for (const int part : fetch.parts) lacking.erase(part);
  for (const auto& [host, held] : held_[buffer]) {
    if (host == kHere) continue;
    Parts from;
    std::set_intersection(lacking.begin(), lacking.end(), held.begin(), held.end(), std::inserter(from, from.end()));
    for (const auto& [extent, some] : extents(from)) {
      hosts_.at(host)->get(buffer, extent.begin, extent.end - extent.begin, next_id_);
      fetches_[next_id_++] = {buffer, some};
    }
    for (const int part : from) lacking.erase(part);
  }
  return false;
}

void NetTransport::came(int buffer, uint64_t at, std::string_view bytes, uint64_t id, bool last) {
  const auto fetch = fetches_.find(id);
  if (fetch == fetches_.end() || fetch->second.buffer != buffer || at > bytes_ || bytes.size() > bytes_ - at) return;
  std::memcpy(pool_.bytes(buffer).data() + at, bytes.data(), bytes.size());
  if (!last) return;
  held_[buffer][kHere].merge(fetch->second.parts);
  fetches_.erase(fetch);
  send_those_ready();
}

// ---- the key-value store ----

bool NetTransport::heard(WorkerHandle& worker, const nlohmann::json& body) {
  if (body.contains("board_set")) {
    const std::string key = body.at("board_set"), value = body.at("value");
    store_[key] = value;
    std::erase_if(askers_, [&](const auto& asker) {
      if (asker.second != key) return false;
      asker.first->send({{"board", key}, {"value", value}});
      return true;
    });
    return true;
  }
  if (!body.contains("board_get")) return false;
  const std::string key = body.at("board_get");
  const auto found = store_.find(key);
  if (found != store_.end())
    worker.send({{"board", key}, {"value", found->second}});
  else
    askers_.emplace_back(&worker, key);
  return true;
}

}  // namespace tandem
