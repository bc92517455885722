// rl/gym/gym_process.h -- a Python process with Gymnasium environments, and the memory through which they are stepped.
//
// One process serves a worker; all environments of a call are stepped in one exchange (a packet there, a packet back;
// everything else lies in shared memory). The process holds live environments as a cache only: an environment
// is determined by its seed and the actions taken, so a process that died, hung or threw is restarted and asked again.
// Each of these is written to stderr with its reason; too many, and exchange() throws. rl/gym/gym_server.py is the text
// of the other side, compiled into the program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/shared_memory.h"

namespace tandem {

struct GymOptions {
  std::string environment;       // "gym:CartPole-v1" or "module:Class"
  std::string arguments = "{}";  // of its constructor, JSON
  std::string python;            // interpreter; empty: see interpreters()
  double timeout_seconds = 10;   // of one environment step at most
  int64_t restarts = 3;          // in a row, before the run stops
  int64_t live = 1;              // environments that live at once, over all shards
};

// What the process says of an environment.
struct GymFacts {
  int64_t width = 0, actions = 0;
  int64_t action_size = 0;  // numbers of a continuous action; `actions` is 0 then
  int64_t longest = 0;      // steps of an episode; 0: it has no limit of its own
  bool exact = true;        // equal seeds and actions gave equal numbers
  std::string versions;
};

class GymProcess {
 public:
  enum Op : int32_t { kNothing, kReset, kStep, kReplay };
  enum Status : int32_t { kDone = 1, kMissing = 2, kDiffers = 4 };
  static constexpr int64_t kSlots = 256;  // environments of one exchange at most

  // One array per field; a slot is one environment's part of an exchange.
  struct Slots {
    uint64_t *before, *after;  // keys: of the environment wanted, and of what it becomes
    int64_t *seed, *count;     // count: steps before this one
    int32_t *op, *action, *status, *end;
    float *reward, *seen;  // seen: [slots, width]
    float* numbers;        // [slots, action_size]: actions that are continuous, from -1 to 1
    std::byte* history;    // [slots, longest] actions of action_bytes
  };

  // Starts it and asks. Throws ConfigError: no Python, no gymnasium, no such environment, actions or observations that
  // can't be learned from.
  explicit GymProcess(GymOptions options);
  ~GymProcess();
  GymProcess(const GymProcess&) = delete;
  GymProcess& operator=(const GymProcess&) = delete;

  const GymFacts& facts() const { return facts_; }
  const std::string& python() const { return python_; }
  // Before the first exchange: episodes of at most `longest` steps.
  void share_memory(int64_t longest);
  const Slots& slots() const { return slots_; }
  int64_t action_bytes() const;

  // Carries out those of slots [0, n) that have something to do: each is kDone or kMissing after it. Throws Error if
  // the environment fails too often.
  void exchange(int64_t n);
  std::string take_note();  // what the user should know since the last call

  // Those that are tried, in order: the active virtual environment, the project's own, python3 of the PATH.
  static std::vector<std::string> interpreters();

 private:
  std::string start(const std::string& python);  // empty, or why it could not be started
  void hand_over_memory();
  void stop();
  void failed(const std::string& why, int64_t n);  // counts and logs it; throws if it happened too often
  std::string death() const;                       // of a process that closed its socket
  bool receive(std::string& message, double quiet_seconds);

  GymOptions options_;
  std::string python_;
  GymFacts facts_;
  SharedMemory memory_;
  Slots slots_{};
  int64_t longest_ = 0;
  pid_t pid_ = -1;
  int socket_ = -1;
  int64_t failures_ = 0, good_ = 0;
  std::string note_;
};

}  // namespace tandem
