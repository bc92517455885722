// reduce/gloo_mesh.h -- connects the workers of several machines by Gloo, each with each, and makes sure who they are.
//
// Gloo listens on one port per peer and takes whoever connects first. So before any data, every pair proves that it
// knows the run's secret: each side sends a random number, and answers with an HMAC over both numbers, both ranks, the
// direction and the name of this mesh. If one proof is wrong or missing, the whole mesh is torn down and the Error says
// which rank; the caller may try again (under another name). What is then sent is not encrypted: the network between
// the machines must be one whose listeners are trusted.
//
// What is left to a stranger who finds the port in the moments while it is open: to make this attempt fail, and, if it
// speaks Gloo's own framing, to end the process (Gloo asserts on what it reads, in its own thread). Never to take part.
// From other hosts than the peer's it can't reach the port at all (a filter in the kernel; IPv4, not on loopback).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace gloo {
class Context;
}

namespace tandem {

// Where members leave their addresses for each other. The launcher keeps it, behind its authenticated connections.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& bytes) = 0;
  // Waits until somebody has set it; throws an Error when the time is up.
  virtual std::string get(const std::string& key, double timeout_seconds) = 0;
};

struct MeshOptions {
  int me = 0, size = 1;
  std::string interface_or_address;  // "eth0", "10.0.0.7", "node3": listened on here, and nowhere else
  std::string secret;
  double timeout_seconds = 30;  // for all of it
  // Off where a member's packets come from another address than it listens on (NAT, odd routes): then proofs alone
  // count.
  bool filter_hosts = true;
  std::string name;  // of this attempt, the same on all members, never used before: run, generation, attempt
};

// Throws Error (kPeerLost), saying which rank did not come or could not prove itself; ConfigError for an address that
// is not this machine's. Ignores SIGPIPE for the whole process: Gloo writes to sockets whose peer may be gone.
std::shared_ptr<gloo::Context> connect_mesh(const MeshOptions& options, KeyValueStore& store);
// Mixed into the numbers (slots) of all messages with a peer: what a stranger announced on a connection that was
// replaced can't be taken for a member's message. 0 for a context that was made otherwise.
uint64_t mesh_salt(const gloo::Context& context, int peer);

}  // namespace tandem
