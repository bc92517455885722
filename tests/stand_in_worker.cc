// tests/stand_in_worker.cc -- a worker for the tests of launch/ and cli/: it speaks the launcher's protocol and trains
// nothing. No libtorch. TANDEM_STAND_IN in the environment is the behaviour:
//   (none)        goes to the run's last step at once and writes the last snapshot
//   endless       works until it is asked to stop; says "at work" on stderr, which is its log
//   environment   tells its arguments, descriptors and variables in its log, then as (none)
//   child         leaves a process behind in its group, then as endless
//   exit N | die N | stay   before it said hello
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/shared_memory.h"
#include "config/resolver.h"
#include "fleet/messages.h"
#include "fleet/snapshot_layout.h"
#include "fleet/worker_page.h"
#include "launch/channel.h"
#include "launch/pinned_recipe.h"
#include "recipes/shipped.h"

namespace tandem {
namespace {

void tell(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : -1;
}

void print_environment(int argc, char** argv) {
  std::string line = "args";
  for (int i = 1; i < argc; ++i) line += std::string(" ") + argv[i];
  tell(line);
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
    tell(std::string(name) + "=" + (std::getenv(name) ? std::getenv(name) : ""));
  tell(getpgid(0) == getpid() ? "own group" : "shared group");
  int extra = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || fd <= 2 || fd == dirfd(dir)) continue;
    const int ours[] = {number("TANDEM_LIFE_FD"), number("TANDEM_WORKER_FD"), number("TANDEM_PAGE_FD"),
                        number("TANDEM_RECIPE_FD")};
    if (std::find(std::begin(ours), std::end(ours), fd) == std::end(ours)) ++extra;
  }
  closedir(dir);
  tell(std::to_string(extra) + " foreign descriptors");
}

// A child in the same group, to show that it is swept away too.
void leave_a_child() {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, 0);
    while (true) pause();
  }
  tell("child " + std::to_string(child));
}

class StandIn {
 public:
  StandIn(const std::string& run_dir, bool endless)
      : channel_(number("TANDEM_WORKER_FD")),
        page_memory_(SharedMemory::adopt(number("TANDEM_PAGE_FD"), sizeof(WorkerPage))),
        endless_(endless) {
    const std::string text = recipe_to_work(run_dir);
    recipe_ = recipe_named_in(text, "recipe.toml").value_or("");
    settings_ = find_recipe(shipped_recipes(), recipe_).settings();
    Resolver resolver(*settings_);
    resolver.apply_toml(text, "recipe.toml");
    layout_.add({.name = "weight", .shape = {3}, .model = true, .bytes = 12});
    layout_.add({.name = "weight", .shape = {3}, .bytes = 12});
    channel_.send({{"hello", kProtocolVersion},
                   {"version", "stand-in"},
                   {"kind", "test-kind"},
                   {"kind_parts", nlohmann::json::object()},
                   {"versions", nlohmann::json::object()},
                   {"recipe", recipe_},
                   {"recipe_toml", resolver.to_toml(recipe_)},
                   {"settings", resolver.result_values()},
                   {"unit", "samples"},
                   {"total_steps", settings_->steps},
                   {"layout", layout_.to_json()},
                   {"phases", {"nothing"}},
                   {"floats", 1},
                   {"counts", 1},
                   {"maxima", 1},
                   {"mail", false},
                   {"stateful", true},
                   {"lockstep_bytes", 0}});
  }

  void run() {
    while (true) {
      auto message = channel_.receive(endless_ ? 10 : -1);
      if (message && message->body.contains("end")) return;
      if (message && message->body.contains("order")) take(*message);
      if (channel_.ended()) return;
      const SnapshotRequest request = SnapshotRequest::unpack(page().request.load());
      if (endless_ && request.serial > handled_ && generation_ > 0) snapshot(++step_, request);
    }
  }

 private:
  WorkerPage& page() { return *reinterpret_cast<WorkerPage*>(page_memory_.bytes().data()); }

  void take(Message& message) {
    const GenerationStart start = generation_start_from(message.body.at("order"));
    generation_ = start.generation;
    me_ = 0;
    for (size_t i = 0; i < start.members.size(); ++i)
      if (start.members[i].rank == number("TANDEM_RANK")) me_ = static_cast<int>(i);
    snapshots_ = 0;
    buffers_.clear();
    for (size_t i = 1; i < message.fds.size(); ++i)
      buffers_.push_back(SharedMemory::adopt(message.fds[i], layout_.bytes()));
    page().generation = generation_;
    page().enter(Stage::kComputing);
    channel_.send({{"adopted", generation_}});
    tell("at work");
    if (!endless_) snapshot(settings_->steps, {.serial = handled_, .hold = true});
  }

  void snapshot(int64_t step, SnapshotRequest request) {
    handled_ = request.serial;
    ++snapshots_;
    std::optional<unsigned> buffer;
    while (!(buffer = page().target_of(generation_, snapshots_))) {
      const timespec moment{0, 1'000'000};
      nanosleep(&moment, nullptr);  // lint: allow(sleep) polls a word of shared memory, as a worker does
    }
    if (me_ == 0)
      SnapshotLayout::put_scalars(buffers_.at(*buffer).bytes(),
                                  {{"update", {{"updates", step}}}, {"step", step}, {"ticket", 0}});
    channel_.send({{"part", step},
                   {"generation", generation_},
                   {"hash", 0},
                   {"hold", request.hold},
                   {"final", !endless_},
                   {"seconds", 0.0}});
    page().enter(request.hold ? Stage::kHolding : Stage::kComputing);
  }

  Channel channel_;
  SharedMemory page_memory_;
  bool endless_;
  std::string recipe_;
  std::unique_ptr<RecipeSettings> settings_;
  SnapshotLayout layout_;
  std::vector<SharedMemory> buffers_;
  uint64_t generation_ = 0, snapshots_ = 0, handled_ = 0;
  int64_t step_ = 0;
  int me_ = 0;
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const char* variable = std::getenv("TANDEM_STAND_IN");
  const std::string behaviour = variable ? variable : "";
  if (behaviour.starts_with("exit ")) return std::atoi(behaviour.c_str() + 5);
  if (behaviour.starts_with("die ")) {
    const int signal_number = std::atoi(behaviour.c_str() + 4);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return 99;
  }
  for (const int signal_number : {SIGINT, SIGTERM, SIGUSR1}) signal(signal_number, SIG_IGN);
  while (behaviour == "stay") pause();
  if (behaviour == "environment") tandem::print_environment(argc, argv);
  if (behaviour == "child") tandem::leave_a_child();
  tandem::StandIn(argv[2], behaviour == "endless" || behaviour == "child").run();
  return 0;
}
