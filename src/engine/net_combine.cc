#include "engine/net_combine.h"

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "launch/secret.h"
#ifdef TANDEM_HAVE_GLOO
#include <fmt/format.h>

#include "reduce/gloo_combine.h"
#include "reduce/gloo_mesh.h"
#endif

namespace tandem {
#ifdef TANDEM_HAVE_GLOO
namespace {

constexpr double kMeshSeconds = 10;  // once everybody is there; less than what counts as frozen
constexpr int kBeatMs = 50;

// The launcher keeps it; requests and values go over the worker's channel.
class ChannelStore : public KeyValueStore {
 public:
  ChannelStore(Channel& channel, std::deque<Message>& early, const std::function<void()>& beat)
      : channel_(channel), early_(early), beat_(beat) {}
  void set(const std::string& key, const std::string& bytes) override {
    channel_.send({{"board_set", key}, {"value", to_hex(bytes)}});
  }
  // As long as it takes: a peer may still compute. The launcher sees who is frozen, and a new generation ends this.
  std::string get(const std::string& key, double) override {
    channel_.send({{"board_get", key}});
    while (true) {
      beat_();
      auto message = channel_.receive(kBeatMs);
      if (!message && !channel_.ended()) continue;
      if (message && message->body.contains("board")) {
        if (message->body.at("board") == key) return from_hex(message->body.at("value").get<std::string>());
        continue;  // of a mesh that was given up
      }
      if (message) early_.push_back(std::move(*message));
      throw MeshGivenUp{};
    }
  }

 private:
  Channel& channel_;
  std::deque<Message>& early_;
  const std::function<void()>& beat_;
};

}  // namespace

std::unique_ptr<Combine> make_net_combine(const nlohmann::json& mesh, const NetMembers& members, const Watch& watch,
                                          Channel& channel, std::deque<Message>& early,
                                          const std::function<void()>& beat) {
  const int size = static_cast<int>(members.ranges.size());
  ChannelStore store(channel, early, beat);
  const std::string name = mesh.at("name");
  store.set(fmt::format("{}/ready/{}", name, members.me), "yes");
  for (int peer = 0; peer < size; ++peer)
    if (peer != members.me) store.get(fmt::format("{}/ready/{}", name, peer), 0);
  const MeshOptions options{.me = members.me,
                            .size = size,
                            .interface_or_address = mesh.at("address"),
                            .secret = from_hex(mesh.at("secret").get<std::string>()),
                            .timeout_seconds = kMeshSeconds,
                            .name = name};
  return std::make_unique<GlooCombine>(members.shards, members.ranges, connect_mesh(options, store), members.generation,
                                       members.sequence, watch);
}
#else
std::unique_ptr<Combine> make_net_combine(const nlohmann::json&, const NetMembers&, const Watch&, Channel&,
                                          std::deque<Message>&, const std::function<void()>&) {
  throw ConfigError("this build can't train on several machines", "Gloo was not there when it was built",
                    "install libgloo-dev and build again");
}
#endif

}  // namespace tandem
