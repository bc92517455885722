#include "launch/net_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "launch/secret.h"

namespace tandem {

NetPlane::NetPlane(Options options, const SnapshotLayout& layout, const SnapshotPool& pool,
                   std::map<int, RemoteWorkerHandle*> hosts)
    : options_(std::move(options)), pool_(pool), hosts_(std::move(hosts)), bytes_(layout.bytes()) {
  extent_[kReplicated] = {0, layout.replicated_end()};
  for (const SnapshotTensor& t : layout.tensors()) {
    if (t.shard < 0 || t.bytes == 0) continue;
    Extent& extent = extent_.try_emplace(t.shard, Extent{t.offset, t.offset}).first->second;
    extent.end = t.offset + t.bytes;
  }
  for (const auto& [rank, seat] : hosts_)
    seat->on_bytes([this](int buffer, uint64_t at, std::string_view bytes, uint64_t id, bool last) {
      came(buffer, at, bytes, id, last);
    });
}

NetPlane::Parts NetPlane::all_parts() const {
  Parts parts;
  for (const auto& [part, extent] : extent_) parts.insert(part);
  return parts;
}

NetPlane::Parts NetPlane::parts_of(const ShardRange& range) const {
  Parts parts{kReplicated};
  for (auto part = extent_.lower_bound(range.first); part != extent_.end() && part->first < range.last; ++part)
    parts.insert(part->first);
  return parts;
}

// Parts that are neighbours travel together.
std::vector<std::pair<NetPlane::Extent, NetPlane::Parts>> NetPlane::extents(const Parts& parts) const {
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

// ---- orders ----

void NetPlane::begin(const Order& order, int base) {
  order_ = order;
  base_ = base;
  waiting_.clear();
  board_.clear();
  askers_.clear();
}

void NetPlane::give(WorkerHandle& seat, nlohmann::json body) {
  body["whole"] = true;
  body["bytes"] = bytes_;
  body["mesh"] = {{"name", fmt::format("{}/{}", options_.nonce, order_.generation)}, {"nonce", options_.nonce}};
  Waiting waiting{&seat, std::move(body), {}};
  if (order_.from == Order::From::kSnapshot)
    for (const Assignment& a : order_.members)
      if (a.rank == seat.rank()) waiting.needs = parts_of(a.range);
  waiting_.insert_or_assign(seat.rank(), std::move(waiting));
  send_those_ready();
}

void NetPlane::send_those_ready() {
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
      waiting.seat->send(waiting.body, pool_.fds());
    } else {
      if (!lacking.empty()) {
        RemoteWorkerHandle& seat = *hosts_.at(host);
        seat.make_buffers(bytes_);
        for (const auto& [extent, parts] : extents(lacking))
          seat.put(base_, extent.begin, pool_.bytes(base_).subspan(extent.begin, extent.end - extent.begin));
        held_[base_][host].merge(lacking);
      }
      waiting.seat->send(waiting.body, {});
    }
    next = waiting_.erase(next);
  }
}

// ---- snapshots ----

void NetPlane::reuse(int buffer) {
  held_[buffer].clear();
  std::erase_if(fetches_, [&](const auto& fetch) { return fetch.second.buffer == buffer; });
}

void NetPlane::abandoned(int buffer) {
  reuse(buffer);
  for (const auto& [rank, seat] : hosts_) seat->replace_buffer(buffer);
}

void NetPlane::whole(int buffer) {
  held_[buffer].clear();
  for (const Assignment& a : order_.members) held_[buffer][host_of(a.rank)].merge(parts_of(a.range));
}

void NetPlane::filled_here(int buffer) {
  held_[buffer].clear();
  held_[buffer][kHere] = all_parts();
}

bool NetPlane::gathered(int buffer) { return bring_here(buffer, all_parts()); }

// True if they are here; otherwise they are asked for, once.
bool NetPlane::bring_here(int buffer, const Parts& parts) {
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

void NetPlane::came(int buffer, uint64_t at, std::string_view bytes, uint64_t id, bool last) {
  const auto fetch = fetches_.find(id);
  if (fetch == fetches_.end() || fetch->second.buffer != buffer || at > bytes_ || bytes.size() > bytes_ - at) return;
  std::memcpy(pool_.bytes(buffer).data() + at, bytes.data(), bytes.size());
  if (!last) return;
  held_[buffer][kHere].merge(fetch->second.parts);
  fetches_.erase(fetch);
  send_those_ready();
}

// ---- the board ----

bool NetPlane::heard(WorkerHandle& seat, const nlohmann::json& body) {
  if (body.contains("board_set")) {
    const std::string key = body.at("board_set"), value = body.at("value");
    board_[key] = value;
    std::erase_if(askers_, [&](const auto& asker) {
      if (asker.second != key) return false;
      asker.first->send({{"board", key}, {"value", value}});
      return true;
    });
    return true;
  }
  if (!body.contains("board_get")) return false;
  const std::string key = body.at("board_get");
  const auto found = board_.find(key);
  if (found != board_.end())
    seat.send({{"board", key}, {"value", found->second}});
  else
    askers_.emplace_back(&seat, key);
  return true;
}

}  // namespace tandem
