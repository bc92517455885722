#include "launcher.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::simulation {
namespace {

CoordinatorOptions options_for(const World& world) {
  return {.shards = world.job.shards,
          .stateful = world.job.stateful,
          .resume_step = world.whole ? world.whole->step : -1,
          .planner = {}};
}

template <class... F>
struct Match : F... {
  using F::operator()...;
};
template <class... F>
Match(F...) -> Match<F...>;

}  // namespace

Launcher::Launcher(World& world, int workers, int most_ranks)
    : world_(world), coordinator_(options_for(world)), most_ranks_(most_ranks) {
  for (int rank = 0; rank < workers; ++rank) start(rank);
}

void Launcher::start(int rank) {
  workers_.emplace_back(rank, world_);
  Worker& worker = workers_.back();
  constexpr int kPaces[] = {100, 100, 100, 40, 8};
  worker.pace = kPaces[world_.dice.below(5)];
  current_[rank] = &worker;
  world_.tell("started", rank);
  obey(coordinator_.expect(rank, 1 + world_.dice.below(3)));
}

void Launcher::start_another() {
  for (int tries = 0; tries < 8; ++tries) {
    const int rank = world_.dice.below(most_ranks_);
    if (current_.contains(rank)) continue;
    ++joins;
    return start(rank);
  }
}

void Launcher::want_leave() { obey(coordinator_.want_leave(world_.dice.below(most_ranks_))); }

void Launcher::want_shares() {
  constexpr double kShares[] = {0.3, 0.6, 1};
  obey(coordinator_.want_shares({{world_.dice.below(most_ranks_), kShares[world_.dice.below(3)]}}));
}

void Launcher::measure() {
  std::map<int, double> speeds;
  for (int rank : coordinator_.members()) speeds[rank] = 10 + world_.dice.below(30);
  for (int times = 0; times < 4; ++times) obey(coordinator_.measured(speeds, 1, 0.01));
}

Worker* Launcher::current(int rank) {
  const auto found = current_.find(rank);
  return found == current_.end() ? nullptr : found->second;
}

// ---- what workers do ----

void Launcher::drop_old_segments() {
  const auto past = [&](uint64_t generation) {
    for (int rank : coordinator_.members())
      if (const Worker* worker = current(rank); worker != nullptr && worker->generation < generation) return false;
    return true;
  };
  while (kept_.size() > 1 && past(kept_[1])) kept_.pop_front();
}

void Launcher::hear(Worker& worker) {
  WorkerReport report = worker.to_launcher.front();
  worker.to_launcher.pop_front();
  if (world_.mutant == Mutant::kOldMessages) report.generation = coordinator_.current().generation;
  const bool fresh = current(worker.rank) == &worker;
  switch (report.what) {
    case WorkerReport::What::kArrived:
      // Has no generation, so only the link tells whose it is: that of a lost life is closed.
      if (fresh) obey(coordinator_.arrived(worker.rank));
      break;
    case WorkerReport::What::kAdopted:
      obey(coordinator_.adopted(worker.rank, report.generation));
      drop_old_segments();
      break;
    case WorkerReport::What::kPart:
      if (world_.mutant == Mutant::kMissingPart) fake_missing_part(worker.rank, report);
      obey(coordinator_.snapshot_part(worker.rank, report.generation, report.step, report.hash, report.held,
                                      report.final));
      break;
    case WorkerReport::What::kHash:
      obey(coordinator_.state_hash(worker.rank, report.generation, report.step, report.hash));
      break;
  }
}

bool Launcher::reap(Worker& worker) {
  if (worker.alive || worker.fenced || current(worker.rank) != &worker) return false;
  if (world_.dice.chance(50))
    while (!worker.to_launcher.empty() && !busy()) hear(worker);  // what it said before it died
  if (busy()) return true;                                        // first that, then its death
  world_.tell("death noticed", worker.rank);
  lose(worker, true);
  return true;
}

void Launcher::fence(Worker& worker) {
  ++fences;
  const bool zombie = worker.alive && world_.dice.chance(50);  // stuck in a driver: it can't be killed
  if (!zombie) worker.alive = false;
  worker.frozen = false;  // a zombie goes on, some time, as if nothing had happened
  world_.tell(zombie ? "fenced, a zombie" : "fenced, dead", worker.rank);
  lose(worker, !zombie);
}

// A zombie's marks may still move, so nobody can say how far it got.
void Launcher::lose(Worker& worker, bool dead) {
  worker.fenced = true;
  current_.erase(worker.rank);
  std::optional<Mark> mark;
  if (dead ? !world_.dice.chance(8) : world_.mutant == Mutant::kZombieMark) mark = mark_of(worker);
  if (mark && world_.mutant == Mutant::kCutHigh) ++mark->sequence;
  if (mark && world_.mutant == Mutant::kCutLow && mark->sequence >= 0) --mark->sequence;
  if (mark) world_.tell("its mark is", worker.rank, mark->sequence, static_cast<int64_t>(mark->generation));
  raw_mark_ = mark;
  losing_ = true;
  obey(coordinator_.lost(worker.rank, mark));
  losing_ = false;
  to_do_.push_back([this] {
    const GenerationStart& now = coordinator_.current();
    const int64_t cut = now.from == GenerationStart::From::kSamePhase ? now.cut : -1;
    for (auto& [generation, segment] : world_.segments)
      for (int64_t& closed : segment.closed)
        if (closed != Segment::kOpen) closed = cut;
  });
  if (end_ != End::kNone) return;
  if (world_.dice.chance(70)) start(worker.rank);
  if (current_.empty()) {
    if (world_.dice.chance(80))
      start(worker.rank);
    else
      obey(coordinator_.nobody_is_coming());
  }
}

// The newest mark of the rank, even if an earlier life of it left it: the restore that brought the new life in voids
// it.
Mark Launcher::mark_of(const Worker& worker) const {
  std::optional<Mark> newest;
  for (auto generation = kept_.rbegin(); generation != kept_.rend(); ++generation) {
    Segment& segment = world_.segments.at(*generation);
    const int index = segment.index_of(worker.rank);
    if (index < 0) continue;
    if (!newest) newest = Mark{*generation, -1};
    int64_t done = segment.done[index];
    if (world_.mutant != Mutant::kHostMarks) done = std::max(done, segment.flags[index]);
    if (segment.closed[index] == Segment::kOpen) segment.closed[index] = Segment::kUndecided;
    if (done >= 0) return {*generation, done};
  }
  return newest.value_or(Mark{0, -1});
}

// ---- what the coordinator wants ----

bool Launcher::carry_out() {
  if (to_do_.empty()) return false;
  const auto next = std::move(to_do_.front());
  to_do_.pop_front();
  next();
  return true;
}

void Launcher::obey(std::vector<Action> actions) {
  const Match visit{
      [&](const StartGeneration& issue) { start_generation(issue.start); },
      [&](const AskSnapshot& ask) {
        for (int rank : coordinator_.members())
          to_do_.push_back([this, rank, ask] {
            if (Worker* worker = current(rank)) worker->request = ask.serial << 1 | (ask.hold ? 1 : 0);
          });
      },
      [&](const SnapshotWhole& whole) {
        to_do_.push_back([this, whole] {
          world_.tell("snapshot is whole", -1, whole.step, static_cast<int64_t>(whole.generation));
          world_.whole = world_.assemble(whole.generation, whole.step);
          to_disk.push_back(*world_.whole);
          ++snapshots;
          if (whole.generation == world_.newest_generation)
            post_target(whole.generation, ++snapshots_in_generation_ + 1);
        });
      },
      [&](const Fence& it) {
        to_do_.push_back([this, it] {
          if (Worker* worker = current(it.rank)) fence(*worker);
        });
      },
      [&](const Dismiss& dismiss) {
        to_do_.push_back([this, dismiss] {
          Worker* worker = current(dismiss.rank);
          if (worker == nullptr) return;
          world_.tell("dismissed", dismiss.rank);
          worker->from_launcher.emplace_back(Leave{});
          worker->fenced = true;  // nothing it does from now on may count
          current_.erase(dismiss.rank);
        });
      },
      [&](const Finished& finished) {
        to_do_.push_back([this, finished] {
          world_.tell("finished", -1, finished.step);
          end_ = End::kFinished;
          end_step_ = finished.step;
        });
      },
      [&](const GiveUp&) {
        to_do_.push_back([this] {
          world_.tell("gave up", -1);
          end_ = End::kGaveUp;
        });
      },
  };
  for (const Action& action : actions) std::visit(visit, action);
}

// The segment, then every page's revocation, then every message: each on its own, in this order.
void Launcher::start_generation(GenerationStart start) {
  mutate(start);
  check(start);
  ++generations;
  ++(start.from == GenerationStart::From::kSamePhase ? gone_on : restores);
  std::set<int> concerned;
  for (const ShardAssignment& a : members_) concerned.insert(a.rank);
  world_.newest_generation = start.generation;
  members_ = start.members;
  to_do_.push_back([this, start] {
    world_.tell(
        start.from == GenerationStart::From::kSamePhase ? "generation: go on, cut" : "generation: restore, step", -1,
        start.from == GenerationStart::From::kSamePhase ? start.cut : start.snapshot_step,
        static_cast<int64_t>(start.generation));
    const std::vector<int64_t> none(start.members.size(), -1);
    world_.segments[start.generation] = {.members = start.members,
                                         .done = none,
                                         .flags = none,
                                         .closed = std::vector<int64_t>(start.members.size(), Segment::kOpen),
                                         .combines = {}};
    kept_.push_back(start.generation);
    snapshots_in_generation_ = 0;
  });
  for (Worker& worker : workers_)
    if (concerned.contains(worker.rank) && worker.alive)
      to_do_.push_back([&worker, start] {
        if (worker.generation == 0 && worker.stage == Stage::kBooting) return;  // a replacement: its page is new
        worker.revoked_generation = start.generation - 1;
        worker.revoked_cut = start.cut;
      });
  to_do_.push_back([this, start] { post_target(start.generation, 1); });
  for (const ShardAssignment& a : start.members)
    to_do_.push_back([this, a, start] {
      if (Worker* worker = current(a.rank)) worker->from_launcher.emplace_back(start);
    });
}

void Launcher::post_target(uint64_t generation, uint64_t number) {
  for (const ShardAssignment& a : world_.segments.at(generation).members)
    if (Worker* worker = current(a.rank)) worker->target_generation = generation, worker->target_number = number;
}

void Launcher::check(const GenerationStart& start) const {
  if (start.generation <= world_.newest_generation)
    throw Violation(fmt::format("generation {} comes twice", start.generation));
  int at = 0;
  for (const ShardAssignment& a : start.members) {
    if (a.range.first != at || a.range.last <= at)
      throw Violation(fmt::format("the plan of generation {} does not cover the shards", start.generation));
    at = a.range.last;
  }
  if (at != world_.job.shards) throw Violation(fmt::format("generation {} covers {} shards", start.generation, at));
}

// ---- mutants ----

void Launcher::mutate(GenerationStart& start) const {
  const bool go_on = start.from == GenerationStart::From::kSamePhase;
  if (world_.mutant == Mutant::kDropShard && start.members.back().range.size() > 1) --start.members.back().range.last;
  if (world_.mutant == Mutant::kUnclipped && losing_ && go_on) start.cut = raw_mark_->sequence;
  // With a mark, stateless shards and members left, only an unfinished restore makes the coordinator restore again.
  if (world_.mutant == Mutant::kForgetRestore && losing_ && raw_mark_ && !go_on && !world_.job.stateful &&
      members_.size() > 1)
    start.from = GenerationStart::From::kSamePhase;
}

void Launcher::fake_missing_part(int rank, const WorkerReport& report) {
  if (report.generation != world_.newest_generation) return;
  std::set<int>& heard = heard_parts_[{report.generation, report.step}];
  heard.insert(rank);
  if (heard.size() + 1 != members_.size()) return;
  for (const ShardAssignment& a : members_)
    if (!heard.contains(a.rank))
      obey(coordinator_.snapshot_part(a.rank, report.generation, report.step, report.hash, report.held, report.final));
}

}  // namespace tandem::simulation
