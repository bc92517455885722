// launch/launcher_impl.h -- the class behind launch(): the event loop and its parts. Included by its own .cc files
// only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "explain/crowd.h"
#include "explain/live.h"
#include "explain/times_log.h"
#include "fleet/coordinator.h"
#include "fleet/snapshot_pace.h"
#include "guard/run_guard.h"
#include "launch/fault_book.h"
#include "launch/gpu_pairs.h"
#include "launch/launcher.h"
#include "launch/live_state.h"
#include "launch/membership_requests.h"
#include "launch/pinned_recipe.h"
#include "launch/requests.h"
#include "launch/run_record.h"
#include "launch/signal_queue.h"
#include "launch/snapshot_pool.h"
#include "launch/speedometer.h"
#include "launch/stall_watch.h"
#include "launch/start_gate.h"
#include "launch/transport.h"
#include "launch/trial_clock.h"
#include "launch/usage_book.h"
#include "launch/worker_handle.h"

namespace tandem {

inline constexpr int kLauncherTickMs = 50;

class Launcher {
 public:
  explicit Launcher(const LaunchRequest& request);
  int run();

 private:
  // ---- workers ----
  WorkerHandle& add_worker(DeviceSpec device);
  void read_channel(WorkerHandle& worker);
  void heard(WorkerHandle& worker, Message& message);
  void hello(WorkerHandle& worker, const nlohmann::json& body);
  void reap(WorkerHandle& worker, const std::string& fenced_because);
  void reap_unborn(WorkerHandle& worker, const Death& death, const std::string& words);
  bool replace(WorkerHandle& worker);
  bool starts_beside_others(const WorkerHandle& worker) const;
  void drain_rings();
  void let_begin();
  void watch_for_frozen(double now);

  // ---- what the coordinator says ----
  void carry_out(std::vector<Action> actions);
  void carry_out(const StartGeneration& action);
  void carry_out(const AskSnapshot& action);
  void carry_out(const SnapshotWhole& action);
  void carry_out(const Fence& action);
  void carry_out(const Dismiss& action);
  void carry_out(const Finished& action);
  void carry_out(const GiveUp& action);
  void post_next_target();
  void save_when_gathered();

  // ---- other machines ----
  std::unique_ptr<Transport> make_transport(bool resumed);
  void mesh_failed(WorkerHandle& worker, const nlohmann::json& body);
  void watch_hosts();
  void gather(int buffer);

  // ---- heat, power, GPUs that vanish ----
  void watch_gpus();
  void report_guard(const std::vector<RunGuard::Line>& lines);
  void end_guard();

  // ---- where the time goes ----
  TimesLine times_now() const;
  void watch_speed(double now);
  void end_speed();

  // ---- time, signals, requests ----
  void tick();
  void measure(double now);
  double seconds_left(double step_seconds) const;
  void show(double now);
  void handle(int signal);
  void stop_with(int code);
  int watch();  // the loop
  int end();
  bool begun() const;
  std::string stop_words() const;
  int end_unbegun();
  void save_what_there_is();
  std::string how_to_go_on();
  std::string set_suspects_aside();
  nlohmann::json figures() const;
  std::string device_names() const;
  [[noreturn]] void give_up(const Error& error);

  const LaunchRequest& request_;
  const PinnedRecipe recipe_;
  SignalQueue signals_;  // before the workers: a Ctrl-C in between must not be lost
  std::map<int, std::unique_ptr<WorkerHandle>> workers_;
  StartGate gate_;
  std::vector<int> behind_gate_;  // ranks that are up and wait for it
  std::optional<uint64_t> oom_kills_before_;
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<SnapshotPool> pool_;
  std::unique_ptr<Transport> transport_;
  std::optional<Coordinator> coordinator_;
  std::unique_ptr<RequestBox> requests_;
  std::unique_ptr<RunGuard> guard_;
  std::vector<RunGuard::Line> guard_lines_;  // from before there was a record to write them to
  bool held_by_guard_ = false;
  std::unique_ptr<TimesLog> times_;
  std::unique_ptr<LiveWatch> slow_watch_;
  CrowdWatch crowd_;
  int cores_of_worker_ = 1, loader_threads_ = 1;
  double speed_at_ = 0;
  MembershipRequests membership_;
  StallWatch stalls_;
  LiveState live_;
  std::optional<Error> fatal_;
  struct Suspect {  // what was trained after this step may be wrong (engine/suspect_error.h)
    int64_t equal_at;
    std::string resume_with;
  };
  std::optional<Suspect> suspect_;

  uint64_t snapshots_in_generation_ = 0;
  bool target_posted_ = false, save_asked_ = false, checkpoint_due_ = false, snapshot_asked_ = false;
  double last_snapshot_ = 0, part_seconds_ = 0, snapshot_total_ = 0;
  SnapshotCost snapshot_cost_;
  int deaths_since_snapshot_ = 0;
  int64_t watched_step_ = 0;
  int64_t best_step_ = -1;  // the newest that a validation found to be the best so far
  struct Save {             // of a whole snapshot whose parts may still be on their way here
    int buffer;
    double stall;
    bool asked;
  };
  std::deque<Save> saves_;  // snapshots on their way to the disk, but the one that is being written
  int mesh_failures_ = 0;   // since the last whole snapshot

  Speedometer speedometer_;
  double move_seconds_ = 0.05, hold_began_ = 0, move_began_ = 0;

  FaultBook faults_;
  UsageBook usage_;
  GpuPairs pairs_;
  int frozen_ = 0, interrupts_ = 0, stop_code_ = 0, next_rank_ = 0;
  std::string last_change_text_;  // what the newest generation means, for the line about a death
  bool reaping_ = false;          // that line is being made
  bool finished_ = false, said_first_lines_ = false, saved_last_ = false, given_up_ = false, kill_now_ = false;
  double begin_ = 0, last_tick_ = 0, watched_at_ = 0;
  std::optional<TrialClock> trial_clock_;
};

}  // namespace tandem
