// launch/transport.h -- the launcher's side of what the members of a generation share: on one machine shared memory
// (local_transport.h), between machines a mesh of connections and copies of snapshots (net_transport.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "fleet/generation.h"
#include "launch/worker_handle.h"

namespace tandem {

class Transport {
 public:
  virtual ~Transport() = default;

  // ---- a generation ----
  // All older ones are void. `base`: the buffer that holds the snapshot it goes on from, if it does.
  virtual void begin(const GenerationStart& start, int base) = 0;
  // Adds to the message what this member needs, and sends it: now, or as soon as the member's host has it all.
  virtual void give(WorkerHandle& worker, nlohmann::json body) = 0;
  // Everybody who waits in an older one is woken.
  virtual void wake() = 0;
  // How far a dead member got; nothing if that can't be known. Its GPU may go on: nobody ends a combine with it until
  // decided() has told up to which one all go.
  virtual std::optional<Mark> mark_of(int rank) = 0;
  virtual void decided(int64_t cut) {}
  // All members work by this generation or a later one.
  virtual void all_adopted(uint64_t generation) = 0;

  // ---- snapshots ----
  // The next one will be written into this buffer: what it held is void.
  virtual void reuse(int buffer) = 0;
  // Members of an older generation may still write into this one: wherever it lies, it gets new memory.
  virtual void abandoned(int buffer) = 0;
  // The members of the generation wrote a whole one into this buffer.
  virtual void whole(int buffer) = 0;
  // Is all of it in the launcher's own memory? What is not is asked for: ask again.
  virtual bool gathered(int buffer) = 0;

  // True if the message was for it.
  virtual bool heard(WorkerHandle& worker, const nlohmann::json& body) = 0;
};

}  // namespace tandem
