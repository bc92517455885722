#include "engine/worker.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/errors.h"
#include "base/fault_points.h"
#include "base/shared_memory.h"
#include "config/resolver.h"
#include "config/units.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/last_step.h"
#include "engine/net_combine.h"
#include "engine/operations.h"
#include "engine/slow_link.h"
#include "engine/slow_worker.h"
#include "engine/snapshot.h"
#include "engine/step_times.h"
#include "engine/suspect_error.h"
#include "engine/train_loop.h"
#include "engine/usage.h"
#include "engine/worker_hello.h"
#include "engine/worker_transport.h"
#include "fleet/generation.h"
#include "fleet/messages.h"
#include "fleet/worker_page.h"
#include "launch/channel.h"
#include "launch/pinned_recipe.h"
#include "nn/portable_vector.h"
#include "reduce/direct_gpu_link.h"
#include "reduce/shm_combine.h"
#include "telemetry/metrics_line.h"

namespace tandem {
namespace {

constexpr int64_t kHashEverySteps = 50;

struct LauncherEnded {};  // the launcher wants nothing more
struct StepGivenUp {};    // everybody goes back to a snapshot; the generation to enter is in next_

class Worker : public Watch, public LoopObserver {
 public:
  Worker(Channel& channel, const std::filesystem::path& run_dir, const std::vector<RecipeEntry>& recipes);
  void run();
  std::string times() const { return times_.text(); }  // for its log

 private:
  struct NextGeneration {  // with the memory that belongs to it
    GenerationStart start;
    ShmShape shape;
    SharedMemory segment;
    std::vector<Channel> links;  // to the other members, in their order; or none
    std::vector<SharedMemory> buffers;
    int base = -1;  // the buffer that holds the snapshot to restore
    double speed = 1;
    nlohmann::json mesh;  // the members are on several machines: instead of a segment
    bool whole = false;   // each writes everything replicated: its buffers are its own host's
  };

  void build_loop();
  void say_hello();
  NextGeneration await_generation();
  std::optional<Message> next_message(int timeout_ms);
  std::unique_ptr<Combine> make_combine(NextGeneration& next, int64_t sequence);
  void adopt(int64_t sequence_now);  // enters next_; kSamePhase goes on at this sequence number
  void train();
  void boundary();
  void keep_buffers(std::vector<SharedMemory> buffers);
  void take_snapshot(bool hold, bool final);
  void keep_best(bool hold);
  void wait_a_moment();
  void record(const StepRecord& record);
  void enter_next_at_boundary();
  bool at_last_step() const { return last_step_ > 0 && loop_->steps_done() >= last_step_; }
  bool done() { return at_last_step() || loop_->validation().stops(); }

  // Watch
  bool abandoned(uint64_t generation, int64_t sequence) const override {
    return page().abandoned(generation, sequence);
  }
  // LoopObserver
  void phase_begins(int64_t step, int phase) override;
  void shard_begins(int shard) override;
  void shard_ends(int shard) override;
  void combined_inside(double seconds) override { times_.combined_inside(*loop_, seconds); }
  void combine_begins() override;
  void combine_ends() override;
  void applied() override;
  void alive() override { page().beats.fetch_add(1, std::memory_order_relaxed); }

  WorkerPage& page() const { return *reinterpret_cast<WorkerPage*>(page_memory_.bytes().data()); }

  Channel& channel_;
  int rank_;
  SharedMemory page_memory_;
  std::unique_ptr<RecipeSettings> settings_;
  std::optional<Resolver> resolver_;
  std::string recipe_name_;
  const RecipeEntry* entry_ = nullptr;
  std::optional<WorkerTransport> transport_;  // outlives the loop's combine
  std::optional<TrainLoop> loop_;
  SnapshotLayout layout_;
  int64_t last_step_ = 0, every_steps_ = 0;

  std::optional<NextGeneration> next_;
  std::deque<Message> early_;  // came while a mesh was built
  GenerationStart current_;
  bool whole_ = false;
  std::vector<SharedMemory> buffers_;
  int me_ = 0;  // index in the member list
  uint64_t snapshots_ = 0, handled_request_ = 0;
  std::map<unsigned, uint64_t> filled_;  // of the launcher's memory, by buffer; 0 once it was read: it is mapped then
  std::string last_record_;
  bool fresh_ = true;  // nothing was trained since the loop was built
  StepTimes times_;
  SlowWorker slow_;
};

Worker::Worker(Channel& channel, const std::filesystem::path& run_dir, const std::vector<RecipeEntry>& recipes)
    : channel_(channel),
      rank_(static_cast<int>(number_from_launcher("TANDEM_RANK"))),
      page_memory_(SharedMemory::adopt(static_cast<int>(number_from_launcher("TANDEM_PAGE_FD")), sizeof(WorkerPage))) {
  arm_faults(rank_);
  page().enter(Stage::kStarting);
  times_.page(page());
  fault_point("start", 0);
  const std::string text = recipe_to_work(run_dir);
  recipe_name_ = recipe_named_in(text, "recipe.toml").value_or("");
  entry_ = &find_recipe_entry(recipes, recipe_name_);
  settings_ = entry_->info.settings();
  resolver_.emplace(*settings_);
  resolver_->apply_toml(text, "recipe.toml");
  freeze(*resolver_, *settings_, 1);
  every_steps_ = parse_interval(settings_->checkpoint.every).value().steps;
  slow_.read_environment(rank_);
  slow_operations_if_asked();
  use_portable_vector();
  set_determinism();
  take_device(*settings_);
  transport_.emplace(channel_, [this] { return loop_ ? loop_->steps_done() : 0; });
  build_loop();
}

void Worker::build_loop() {
  torch::manual_seed(static_cast<uint64_t>(settings_->seed));  // lint: allow(random) for constructors of users
  loop_.reset();
  // No shards yet: the first generation tells which.
  loop_.emplace(*settings_, entry_->make(*settings_), ShardRange{0, 0},
                std::make_unique<LocalCombine>(static_cast<int>(settings_->shards),
                                               std::vector<ShardRange>{{0, static_cast<int>(settings_->shards)}}));
  last_step_ = last_step_of(*settings_, *resolver_, loop_->recipe());
  schedule_in_steps(loop_->recipe(), *settings_, *resolver_);
  end_schedule_at(last_step_, *settings_, *resolver_);
  layout_ = snapshot_layout(*loop_);
  loop_->take_requests_from([this] { return static_cast<int64_t>(page().request.load(std::memory_order_acquire)); });
  loop_->watch(this);
  loop_->on_members_changed([this] {
    next_ = await_generation();
    if (next_->start.from != GenerationStart::From::kSamePhase) throw StepGivenUp{};
    adopt(loop_->phase_sequence());
  });
  fresh_ = true;
}

void Worker::say_hello() {
  nlohmann::json hello = hello_of(*loop_, layout_, last_step_);
  hello["recipe"] = recipe_name_;
  hello["recipe_toml"] = resolver_->to_toml(recipe_name_);
  hello["settings"] = resolver_->result_values();
  hello["usage"] = usage_of(page());
  channel_.send(hello);
}

std::optional<Message> Worker::next_message(int timeout_ms) {
  if (early_.empty()) return channel_.receive(timeout_ms);
  Message message = std::move(early_.front());
  early_.pop_front();
  return message;
}

// The newest one: a later start of a generation makes an earlier one void.
Worker::NextGeneration Worker::await_generation() {
  page().enter(Stage::kHolding);
  fault_point("in-hold", loop_->steps_done());
  std::optional<Message> newest;
  while (!newest) {
    for (auto message = next_message(-1); message; message = next_message(0)) {
      if (message->body.contains("end")) throw LauncherEnded{};
      const bool starts = message->body.contains("order") &&
                          message->body.at("order").at("generation").get<uint64_t>() > current_.generation;
      Message& old = starts && newest ? *newest : *message;
      if (!starts || newest)
        for (const int fd : old.fds) close(fd);
      if (starts) newest = std::move(*message);
    }
    if (channel_.ended()) throw LauncherEnded{};
  }
  NextGeneration next;
  next.start = generation_start_from(newest->body.at("order"));
  const nlohmann::json& body = newest->body;
  next.shape = shape_of(*loop_, next.start);
  next.base = body.at("base");
  next.speed = body.value("speed", 1.0);
  next.mesh = body.value("mesh", nlohmann::json());
  next.whole = body.value("whole", false);
  size_t fd = 0;
  if (next.mesh.is_null()) next.segment = SharedMemory::adopt(newest->fds.at(fd++), shm_combine_bytes(next.shape));
  for (int links = body.value("links", 0); links > 0; --links) next.links.emplace_back(newest->fds.at(fd++));
  for (; fd < newest->fds.size(); ++fd) next.buffers.push_back(SharedMemory::adopt(newest->fds[fd], layout_.bytes()));
  return next;
}

std::unique_ptr<Combine> Worker::make_combine(NextGeneration& next, int64_t sequence) {
  if (next.mesh.is_null())
    return with_slow_link(
        std::make_unique<ShmCombine>(next.shape, me_, std::move(next.segment), current_.generation, sequence, *this),
        next.shape);
  return make_net_combine(next.mesh, {next.shape.shards, next.shape.ranges, me_, current_.generation, sequence}, *this,
                          channel_, early_, [this] { page().beats.fetch_add(1, std::memory_order_relaxed); });
}

void Worker::adopt(int64_t sequence_now) {
  NextGeneration next = std::move(*next_);
  next_.reset();
  page().enter(Stage::kRestoring);
  fault_point("before-adopt", loop_->steps_done());
  current_ = next.start;
  slow_.set_speed(next.speed);
  me_ = -1;
  for (size_t i = 0; i < current_.members.size(); ++i)
    if (current_.members[i].rank == rank_) me_ = static_cast<int>(i);
  if (me_ < 0) throw std::logic_error("a generation without this rank");
  transport_->make_way(next.shape.shards, current_, me_);
  keep_buffers(std::move(next.buffers));
  whole_ = next.whole;
  snapshots_ = 0;

  int64_t sequence = sequence_now;
  if (current_.from == GenerationStart::From::kStart) {
    if (!fresh_) build_loop();
    sequence = 0;
    handled_request_ = 0;
  }
  const nlohmann::json scalars = current_.from == GenerationStart::From::kSnapshot
                                     ? SnapshotLayout::get_scalars(buffers_.at(next.base).bytes())
                                     : nlohmann::json::object();
  if (current_.from == GenerationStart::From::kSnapshot) {
    sequence = scalars.value("ticket", int64_t{0});
    handled_request_ = scalars.value("handled", uint64_t{0});
  }
  const ShardRange range = current_.members[me_].range;
  PeerMeans means = next.links.empty() ? PeerMeans{} : peer_means(next.links, me_, next.shape, next.segment);
  loop_->reassign(range, transport_->around(make_combine(next, sequence), std::move(means), next.shape.shards, current_,
                                            me_, next.mesh.is_null(), *this));
  if (current_.from == GenerationStart::From::kStart) loop_->begin_shards();
  if (current_.from == GenerationStart::From::kSnapshot) {
    fault_point("before-restore", loop_->steps_done());
    read_snapshot(*loop_, layout_, buffers_.at(next.base).bytes());
    filled_[static_cast<unsigned>(next.base)] = 0;
    fault_point("in-restore", loop_->steps_done());
  }
  fresh_ = false;
  page().generation.store(current_.generation, std::memory_order_relaxed);
  page().step.store(loop_->steps_done(), std::memory_order_relaxed);
  channel_.send({{"adopted", current_.generation}});
  fault_point("after-restore", loop_->steps_done());
  // The rank that reports the records may have died before the last one: then ours fills the gap.
  if (me_ == 0 && current_.from == GenerationStart::From::kSamePhase && !last_record_.empty())
    page().push(last_record_);
}

void Worker::keep_buffers(std::vector<SharedMemory> buffers) {  // pinned: a GPU writes at the speed of its bus
  for (SharedMemory& old : buffers_) device().unpin(old.bytes().data());
  buffers_ = std::move(buffers);
  for (SharedMemory& buffer : buffers_) device().pin(buffer.bytes().data(), buffer.bytes().size());
}

void Worker::run() {
  const WorkerTransport::DropAtEnd drop(*transport_);
  say_hello();
  next_ = await_generation();
  while (true) {
    try {
      adopt(loop_->combine().next_sequence());
      train();
    } catch (const StepGivenUp&) {
    } catch (const MeshGivenUp&) {
      next_ = await_generation();
    } catch (const Error& error) {
      if (error.code() != ExitCode::kPeerLost) throw;
      channel_.send({{"mesh_failed", error.what()}, {"why", error.why()}, {"generation", current_.generation}});
      next_ = await_generation();
    }
  }
}

void Worker::train() {
  while (!next_) {
    if (done()) {
      take_snapshot(true, true);
      continue;
    }
    times_.step_begins(*loop_, gpu() != nullptr);
    StepRecord step = loop_->step();
    page().steps_run.fetch_add(1, std::memory_order_relaxed);
    page().step.store(step.step, std::memory_order_relaxed);
    times_.step_ends(*loop_);
    loop_->validate_if_due(step, at_last_step());
    record(step);
    boundary();
  }
}

void Worker::record(const StepRecord& record) {
  last_record_ = metrics_line(record);
  for (const std::string& note : loop_->take_notes(me_ == 0)) channel_.send({{"note", note}, {"step", record.step}});
  if (me_ != 0) return;
  while (!page().push(last_record_)) wait_a_moment();  // the launcher empties the ring many times a second
}

void Worker::boundary() {
  if (fault_point("at-boundary", loop_->steps_done())) flip_a_bit(*loop_);
  const SnapshotRequest agreed = SnapshotRequest::unpack(static_cast<uint64_t>(loop_->agreed_request()));
  const bool requested = agreed.serial > handled_request_;
  handled_request_ = std::max(handled_request_, agreed.serial);
  if (done()) return;  // train() takes the last one
  if (loop_->validation().is_best(loop_->steps_done()))
    keep_best(requested && agreed.hold);
  else if (requested || (every_steps_ > 0 && loop_->steps_done() % every_steps_ == 0))
    take_snapshot(requested && agreed.hold, false);
  else if (current_.members.size() > 1 && loop_->steps_done() % kHashEverySteps == 0)
    channel_.send(
        {{"hash", quick_replicated_hash(*loop_)}, {"step", loop_->steps_done()}, {"generation", current_.generation}});
}

void Worker::wait_a_moment() {
  const timespec moment{0, 200'000};
  page().beats.fetch_add(1, std::memory_order_relaxed);  // waiting for the disk is no standing still
  nanosleep(&moment, nullptr);
}

void Worker::take_snapshot(bool hold, bool final) {
  page().enter(Stage::kSnapshot);
  const double begin = monotonic_seconds();
  ++snapshots_;
  std::optional<unsigned> buffer;
  while (!(buffer = page().target_of(current_.generation, snapshots_))) {  // usually there already
    if (page().abandoned(current_.generation, loop_->combine().next_sequence())) return enter_next_at_boundary();
    wait_a_moment();
  }
  fault_point("in-snapshot", loop_->steps_done());
  const uint64_t bytes = write_part(*loop_, layout_, buffers_.at(*buffer), whole_ ? 0 : me_,
                                    whole_ ? 1 : static_cast<int>(current_.members.size()), handled_request_);
  if (!filled_.contains(*buffer) || filled_[*buffer] > 0) filled_[*buffer] = bytes;
  const double seconds = monotonic_seconds() - begin;
  page().snapshot_ns.fetch_add(static_cast<uint64_t>(seconds * 1e9), std::memory_order_relaxed);
  nlohmann::json usage = usage_of(page(), filled_);
  usage["shards_in_pass"] = loop_->shards_in_pass();
  channel_.send({{"part", loop_->steps_done()},
                 {"generation", current_.generation},
                 {"hash", replicated_hash(*loop_)},
                 {"hold", hold},
                 {"final", final},
                 {"best", loop_->validation().is_best(loop_->steps_done())},
                 {"usage", std::move(usage)},
                 {"seconds", seconds}});
  fault_point("after-snapshot", loop_->steps_done());
  if (hold) enter_next_at_boundary();
}

// Nobody goes on before the snapshot of the best step is whole: survivors of a death would not come back to this step.
void Worker::keep_best(bool hold) {
  uint64_t taken_in = 0;  // which generation; one that begins afterwards says what is whole
  while (!next_ && current_.snapshot_step != loop_->steps_done()) {
    if (taken_in != current_.generation) {
      taken_in = current_.generation;
      take_snapshot(std::exchange(hold, false), false);
    } else if (page().abandoned(taken_in, loop_->combine().next_sequence())) {
      enter_next_at_boundary();
    } else if (page().target_of(taken_in, snapshots_ + 1)) {  // for the next one: this one is whole
      current_.snapshot_step = loop_->steps_done();
    } else {
      wait_a_moment();
    }
  }
}

// Waits for the next generation at a step boundary. One that goes on from here is entered; others are left to run().
void Worker::enter_next_at_boundary() {
  next_ = await_generation();
  if (next_->start.from == GenerationStart::From::kSamePhase) adopt(loop_->combine().next_sequence());
}

void Worker::phase_begins(int64_t step, int phase) {
  page().step.store(step, std::memory_order_relaxed);
  page().phase.store(phase, std::memory_order_relaxed);
  page().enter(Stage::kComputing);
  fault_point("before-phase", step);
  if (!loop_->validating()) slow_.phase_begins(step);
}

void Worker::shard_begins(int shard) {
  page().shard.store(shard, std::memory_order_relaxed);
  page().beats.fetch_add(1, std::memory_order_relaxed);
  if (loop_->validating()) return static_cast<void>(fault_point("in-validation", loop_->steps_done()));
  times_.shard_begins(*loop_);
  slow_.shard_begins();
  fault_point("in-phase", loop_->steps_done());
}

void Worker::shard_ends(int shard) {
  if (loop_->validating()) return;
  slow_.shard_ends();
  times_.shard_ends(*loop_);
}

void Worker::combine_begins() {
  if (!loop_->validating()) times_.rest(slow_, *loop_);
  fault_point("before-combine", loop_->steps_done());
  page().enter(Stage::kCombining);
  if (!loop_->validating()) times_.combine_begins(*loop_);
}

void Worker::combine_ends() {
  if (!loop_->validating()) times_.combine_ends(*loop_);
  fault_point("after-combine", loop_->steps_done());
  page().enter(Stage::kApplying);
  if (!loop_->validating()) fault_point("before-apply", loop_->steps_done());
}

void Worker::applied() {
  times_.applied();
  fault_point("after-apply", loop_->steps_done());
}

}  // namespace

int work(const std::filesystem::path& run_dir, const std::vector<RecipeEntry>& recipes) {
  // Stopping is the launcher's to decide: it asks for a snapshot first. It can't be outlived (parent-death signal).
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) signal(number, SIG_IGN);
  // TANDEM_SEAT_FD: from a launcher of an older build, whose programs were replaced while it ran.
  const char* const channel_fd = std::getenv("TANDEM_WORKER_FD") ? "TANDEM_WORKER_FD" : "TANDEM_SEAT_FD";
  Channel channel(static_cast<int>(number_from_launcher(channel_fd)));
  const auto fail = [&](const Error& error) {
    nlohmann::json words{
        {"fatal", static_cast<int>(error.code())}, {"what", error.what()}, {"why", error.why()}, {"do", error.todo()}};
    if (const auto* suspect = dynamic_cast<const SuspectError*>(&error)) {
      words["equal_at"] = suspect->equal_at();
      words["resume_with"] = suspect->resume_with();
    }
    channel.send(words);
    return static_cast<int>(error.code());
  };
  const auto lost = [&](const char* kind, const std::string& why, ExitCode code) {
    channel.send({{"failed", kind}, {"why", why}});
    return static_cast<int>(code);
  };
  try {
    Worker worker(channel, run_dir, recipes);
    try {
      worker.run();
    } catch (const LauncherEnded&) {
      fmt::print(stderr, "{} info  {}\n", utc_stamp(), worker.times());
    }
  } catch (const LauncherEnded&) {
  } catch (const IoError& error) {  // of this process alone: memory, descriptors, its own disk
    if (error.error_number() == ENOMEM)
      return lost("out of memory", fmt::format("{}: {}", error.what(), error.why()), ExitCode::kOutOfMemory);
    return lost("a call to the system failed", fmt::format("{}: {}", error.what(), error.why()), ExitCode::kFailed);
  } catch (const Error& error) {
    return fail(error);
  } catch (const std::bad_alloc&) {
    return lost("out of memory", "the system refused an allocation", ExitCode::kOutOfMemory);
  } catch (const c10::OutOfMemoryError& error) {
    return lost("out of memory", error.what_without_backtrace(), ExitCode::kOutOfMemory);
  } catch (const c10::Error& error) {
    return lost("libtorch refused an operation", error.what_without_backtrace(), ExitCode::kFailed);
  } catch (const std::exception& error) {
    return lost("training failed", error.what(), ExitCode::kFailed);
  }
  return 0;
}

}  // namespace tandem
