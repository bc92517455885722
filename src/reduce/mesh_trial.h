// reduce/mesh_trial.h -- meshes between forked processes; for tests only.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "reduce/combine_trial.h"
#include "reduce/gloo_mesh.h"

namespace tandem::trial {

// A key-value store in memory that forked children share. A key is set once.
class SharedStore : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& bytes) override {
    Entry& entry = shared_->entries[shared_->taken++];
    std::strncpy(entry.key, key.c_str(), sizeof entry.key - 1);
    entry.size = bytes.size();
    std::memcpy(entry.bytes, bytes.data(), bytes.size());
    entry.there = true;
  }
  std::string get(const std::string& key, double timeout_seconds) override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
    for (;;) {
      for (Entry& entry : shared_->entries)
        if (entry.there && key == entry.key) return {entry.bytes, entry.size};
      if (std::chrono::steady_clock::now() > end)
        throw Error(ExitCode::kPeerLost, "nobody has set " + key, "its member did not come", "try again");
      sched_yield();
    }
  }

 private:
  struct Entry {
    char key[64];
    size_t size;
    char bytes[256];
    std::atomic<bool> there;
  };
  struct Entries {
    std::atomic<int> taken;
    Entry entries[256];
  };
  Shared<Entries> shared_;
};

inline MeshOptions loopback(int me, int size, double timeout_seconds = 600) {
  return {.me = me,
          .size = size,
          .interface_or_address = "127.0.0.1",
          .secret = "a secret of this run",
          .timeout_seconds = timeout_seconds,
          .name = "test"};
}

}  // namespace tandem::trial
