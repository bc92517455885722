// tests/fake_nccl.cc -- libfake_nccl.so: the dozen functions of NCCL that tandem calls, between processes of one
// machine, on host memory, with faults that a test plants. For tests without a GPU.
//
// Strict where NCCL is: a communicator that is in progress refuses further calls, a group must end, sends and receives
// must match. Work is "queued" when it is done, so kNcclInProgress lasts until then. Bytes go through a file in
// /dev/shm, one ring per pair of ranks.
//
// FAKE_NCCL="act [rank=r] [at=n]; ..." (rank: this process's in the first communicator that it joined, for later ones
// number their ranks anew; at: the how-many-th of its kind in this process):
//   duplicate       forming fails, as two ranks on one GPU make it fail
//   never-forms     forming never ends            no-id         ncclGetUniqueId fails
//   forms-late      forming is over when it was asked for the tenth time
//   group-fails     a group ends with an error    group-hangs   a group never ends, nobody has died
//   abort-hangs     ncclCommAbort never returns   shrink-fails  ncclCommShrink refuses
//   dies-in-group   the process kills itself half-way through a group
// FAKE_NCCL_LOG=file: a line for each thing that happened.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kMostRanks = 8, kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7;
constexpr size_t kRing = 1 << 16;

std::string& last_error() {
  static std::string text;
  return text;
}

void log(const std::string& line) {
  const char* path = std::getenv("FAKE_NCCL_LOG");
  if (!path) return;
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string text = line + " pid=" + std::to_string(getpid()) + "\n";
  if (fd >= 0 && write(fd, text.data(), text.size()) < 0) std::perror("fake nccl");
  if (fd >= 0) close(fd);
}

// `rank`: in the communicator at hand.
bool planted(const std::string& act, int rank) {
  static const int first_rank = rank;  // a survivor that has a dead rank's number now must not die in its place
  static std::map<std::string, int> seen;
  const char* text = std::getenv("FAKE_NCCL");
  if (!text) return false;
  const int nth = ++seen[act];
  std::istringstream acts(text);
  for (std::string one; std::getline(acts, one, ';');) {
    std::istringstream words(one);
    std::string name, word;
    words >> name;
    bool here = name == act;
    while (words >> word) {
      if (word.starts_with("rank=")) here = here && std::atoi(word.c_str() + 5) == first_rank;
      if (word.starts_with("at=")) here = here && std::atoi(word.c_str() + 3) == nth;
    }
    if (here) return true;
  }
  return false;
}

void moment() {
  const timespec short_while{0, 20'000};
  nanosleep(&short_while, nullptr);  // lint: allow(sleep) a library that polls; no test waits here
}

[[noreturn]] void for_ever() {
  while (true) pause();
}

struct Ring {
  alignas(64) std::atomic<uint64_t> put;
  alignas(64) std::atomic<uint64_t> taken;
  char bytes[kRing];
};
struct Hall {  // all zero at the start
  std::atomic<uint32_t> arrived[kMostRanks];
  Ring rings[kMostRanks][kMostRanks];  // [from][to]
};

struct Operation {
  bool sends;
  char* memory;
  size_t bytes, done;
  int peer;
};

}  // namespace

struct Comm {
  std::string name;
  int ranks = 0, rank = 0;
  Hall* hall = nullptr;
  std::atomic<int> state{kInProgress};
  std::atomic<bool> stop{false};
  int asks_left = 0;
  std::thread work;  // one thing at a time
  std::vector<Operation> group;

  void enter() {
    const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Hall)) != 0) std::abort();
    hall = static_cast<Hall*>(mmap(nullptr, sizeof(Hall), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    hall->arrived[rank].store(1);
  }
  bool all_here() const {
    for (int r = 0; r < ranks; ++r)
      if (!hall->arrived[r].load()) return false;
    shm_unlink(name.c_str());  // so that no death from now on leaves it behind
    return true;
  }
  int wait_for_all() {
    while (!all_here()) {
      if (stop.load()) return kSystemError;
      moment();
    }
    return kSuccess;
  }
  void quit() {
    stop.store(true);
    if (work.joinable()) work.join();
  }
  ~Comm() {
    quit();
    if (hall) munmap(hall, sizeof(Hall));
    shm_unlink(name.c_str());
  }

  bool progress(Operation& op) const {
    Ring& ring = op.sends ? hall->rings[rank][op.peer] : hall->rings[op.peer][rank];
    const uint64_t put = ring.put.load(), taken = ring.taken.load();
    size_t n = std::min<size_t>(op.bytes - op.done, op.sends ? kRing - (put - taken) : put - taken);
    if (n == 0) return false;
    const size_t at = (op.sends ? put : taken) % kRing;
    n = std::min(n, kRing - at);
    if (op.sends)
      std::memcpy(ring.bytes + at, op.memory + op.done, n);
    else
      std::memcpy(op.memory + op.done, ring.bytes + at, n);
    op.done += n;
    (op.sends ? ring.put : ring.taken).fetch_add(n);
    return true;
  }
  int run(std::vector<Operation> operations, bool dies) {
    size_t moved = 0, whole = 0;
    for (const Operation& op : operations) whole += op.bytes;
    while (moved < whole) {
      if (stop.load()) return kSystemError;
      bool any = false;
      std::vector<bool> blocked(2 * kMostRanks, false);  // of several between two ranks, the first goes first
      for (Operation& op : operations) {
        const size_t lane = op.peer * 2 + op.sends;
        if (op.done == op.bytes || blocked[lane]) continue;
        const size_t before = op.done;
        any = progress(op) || any;
        moved += op.done - before;
        if (op.done < op.bytes) blocked[lane] = true;
      }
      if (dies && 2 * moved >= whole) raise(SIGKILL);
      if (!any) moment();
    }
    return kSuccess;
  }
};

namespace {
thread_local int group_depth = 0;
thread_local Comm* group_comm = nullptr;

void start(Comm* comm, const std::function<int()>& what) {
  if (comm->work.joinable()) comm->work.join();
  comm->state.store(kInProgress);
  comm->work = std::thread([comm, what] { comm->state.store(what()); });
}

int queue(Comm* comm, Operation operation) {
  if (group_depth == 0 || !comm || operation.peer < 0 || operation.peer >= comm->ranks ||
      operation.peer == comm->rank) {
    last_error() = "a send or receive outside of a group, or to nobody";
    return kInvalidArgument;
  }
  if (comm->state.load() != kSuccess) {
    last_error() = "Attempt to use communicator before the previous operation returned ncclSuccess";
    return kInvalidArgument;
  }
  group_comm = comm;
  comm->group.push_back(operation);
  return kSuccess;
}
}  // namespace

extern "C" {

struct UniqueId {
  char bytes[128];
};

int ncclGetVersion(int* version) {
  *version = 22999;
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case kInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    default:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  }
}

const char* ncclGetLastError(Comm*) { return last_error().c_str(); }

int ncclGetUniqueId(UniqueId* id) {
  if (planted("no-id", 0)) {
    last_error() = "Bootstrap : no socket interface found";
    return kSystemError;
  }
  static std::atomic<int> count{0};
  std::memset(id, 0, sizeof *id);
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  std::snprintf(id->bytes, sizeof id->bytes, "/fake-nccl-%d-%d-%ld", getpid(), ++count, now.tv_nsec);
  return kSuccess;
}

int ncclCommInitRankConfig(Comm** out, int ranks, UniqueId id, int rank, const int* config) {
  size_t size;
  std::memcpy(&size, config, sizeof size);
  if (ranks > kMostRanks || rank < 0 || rank >= ranks || size < 24 || config[2] != static_cast<int>(0xcafebeef) ||
      config[4] != 0) {
    last_error() = "these arguments make no sense";
    return kInvalidArgument;
  }
  Comm* comm = *out = new Comm;
  comm->name = id.bytes;
  comm->ranks = ranks;
  comm->rank = rank;
  log("form ranks=" + std::to_string(ranks) + " rank=" + std::to_string(rank));
  if (planted("duplicate", rank)) {
    start(comm, [] {
      last_error() = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000";
      return kInvalidUsage;
    });
    return kInProgress;
  }
  if (planted("forms-late", rank)) comm->asks_left = 10;
  const bool never = planted("never-forms", rank);
  start(comm, [comm, never] {
    if (!never) comm->enter();
    while (never)
      if (comm->stop.load())
        return kSystemError;
      else
        moment();
    return comm->wait_for_all();
  });
  return kInProgress;
}

int ncclCommGetAsyncError(Comm* comm, int* state) {
  if (comm->asks_left > 0) {
    if (--comm->asks_left == 0) comm->work.join();
    *state = kInProgress;
    return kSuccess;
  }
  *state = comm->state.load();
  return kSuccess;
}

int ncclCommAbort(Comm* comm) {
  if (!comm) return kSuccess;
  log("abort ranks=" + std::to_string(comm->ranks) + " rank=" + std::to_string(comm->rank));
  if (planted("abort-hangs", comm->rank)) for_ever();
  delete comm;
  return kSuccess;
}

int ncclCommShrink(Comm* parent, int* without, int count, Comm** out, const int*, int flags) {
  log("shrink ranks=" + std::to_string(parent->ranks) + " rank=" + std::to_string(parent->rank));
  if (flags == 1) {  // NCCL_SHRINK_ABORT
    parent->quit();
    parent->stop.store(false);
  }
  if (planted("shrink-fails", parent->rank) || count < 1) {
    last_error() = "the parent can't be shrunk";
    return kInvalidArgument;
  }
  Comm* child = new Comm;
  child->name = parent->name + "-without";
  for (int rank = 0; rank < parent->ranks; ++rank) {
    bool out_of_it = false;
    for (int i = 0; i < count; ++i) out_of_it = out_of_it || without[i] == rank;
    if (out_of_it) child->name += "-" + std::to_string(rank);
    if (!out_of_it && rank == parent->rank) child->rank = child->ranks;
    if (!out_of_it) ++child->ranks;
  }
  start(parent, [parent, child, out] {
    child->enter();
    while (!child->all_here()) {
      if (parent->stop.load()) {
        delete child;
        return kSystemError;
      }
      moment();
    }
    child->state.store(kSuccess);
    *out = child;
    return kSuccess;
  });
  return kInProgress;
}

int ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}

int ncclGroupEnd() {
  if (--group_depth < 0) std::abort();
  Comm* comm = std::exchange(group_comm, nullptr);
  if (!comm) return kSuccess;
  auto operations = std::exchange(comm->group, {});
  size_t bytes = 0;
  for (const Operation& op : operations) bytes += op.bytes;
  log("group bytes=" + std::to_string(bytes) + " rank=" + std::to_string(comm->rank));
  const bool fails = planted("group-fails", comm->rank), hangs = planted("group-hangs", comm->rank),
             dies = planted("dies-in-group", comm->rank);
  start(comm, [=] {
    if (fails) {
      last_error() = "Call to recv failed : Connection reset by peer";
      return kSystemError;
    }
    while (hangs && !comm->stop.load()) moment();
    return comm->run(operations, dies);
  });
  return kInProgress;
}

int ncclSend(const void* from, size_t count, int type, int peer, Comm* comm, void*) {
  if (type != 7) return kInvalidArgument;
  return queue(comm, {true, static_cast<char*>(const_cast<void*>(from)), count * 4, 0, peer});
}

int ncclRecv(void* to, size_t count, int type, int peer, Comm* comm, void*) {
  if (type != 7) return kInvalidArgument;
  return queue(comm, {false, static_cast<char*>(to), count * 4, 0, peer});
}

}  // extern "C"
