#include "fleet/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

constexpr int kSettleMeasurements = 3;  // of a generation: caches, clocks and graphs are not warm yet
constexpr int kGainsInARow = 2;
constexpr double kSure = 2.5;        // standard deviations that a gain must exceed
constexpr double kMostDoubt = 0.25;  // a larger gain is taken on a machine of any noise: a wrong move costs less

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)), snapshot_step_(options_.resume_step) {}

const GenerationStart& Coordinator::current() const { return current_; }
bool Coordinator::is_member(int rank) const { return members_.contains(rank); }
int64_t Coordinator::snapshot_step() const { return snapshot_step_; }
bool Coordinator::started() const { return current_.generation > 0; }

std::set<int> Coordinator::members() const {
  std::set<int> ranks;
  for (const auto& [rank, worker] : members_) ranks.insert(rank);
  return ranks;
}

// ---- what happened ----

std::vector<Action> Coordinator::expect(int rank, double speed) {
  if (over_ || members_.contains(rank) || standby_.contains(rank)) return {};
  on_the_way_[rank] = {.guess = speed > 0 ? speed : 1};
  return {};
}

std::vector<Action> Coordinator::arrived(int rank) {
  Actions actions;
  const auto found = on_the_way_.find(rank);
  if (over_ || found == on_the_way_.end()) return actions;
  standby_.insert(on_the_way_.extract(found));
  begin_if_ready(actions);
  ask_if_wanted(actions);
  return actions;
}

std::vector<Action> Coordinator::lost(int rank, std::optional<Mark> mark) {
  Actions actions;
  if (over_) return actions;
  on_the_way_.erase(rank);
  standby_.erase(rank);
  leaving_.erase(rank);
  const bool was_member = members_.erase(rank) > 0;
  if (members_.empty()) {
    holding_ = false;  // nobody does
    stop_or_begin(actions);
  } else if (was_member) {
    if (options_.stateful || !mark || !everybody_restored() || holding_)
      restore(actions);
    else
      same_phase(effective(*mark), actions);
  }
  return actions;
}

std::vector<Action> Coordinator::adopted(int rank, uint64_t generation) {
  const auto found = members_.find(rank);
  if (found != members_.end() && generation <= current_.generation)
    found->second.adopted = std::max(found->second.adopted, generation);
  return {};
}

std::vector<Action> Coordinator::snapshot_part(int rank, uint64_t generation, int64_t step, uint64_t hash, bool held,
                                               bool final) {
  Actions actions;
  if (over_ || generation != current_.generation || !members_.contains(rank)) return actions;
  Reports& reports = parts_[step];
  reports.hashes[rank] = hash;
  reports.held |= held;
  reports.final |= final;
  const Verdict verdict = judge(reports);
  if (verdict == Verdict::kDiffer) disagree(Reports(reports), step, actions);
  if (verdict == Verdict::kEqual) settle(Reports(reports), step, actions);
  return actions;
}

std::vector<Action> Coordinator::state_hash(int rank, uint64_t generation, int64_t step, uint64_t hash) {
  Actions actions;
  if (over_ || generation != current_.generation || !members_.contains(rank)) return actions;
  Reports& reports = checks_[step];
  reports.hashes[rank] = hash;
  const Verdict verdict = judge(reports);
  if (verdict == Verdict::kDiffer) disagree(Reports(reports), step, actions);
  if (verdict == Verdict::kEqual) checks_.erase(checks_.begin(), checks_.upper_bound(step));
  return actions;
}

std::vector<Action> Coordinator::nobody_is_coming() {
  if (over_ || !members_.empty() || !standby_.empty() || !on_the_way_.empty()) return {};
  over_ = true;
  return {GiveUp{.what = "no worker is left",
                 .why = snapshot_step_ < 0
                            ? "all of them died before the first snapshot"
                            : fmt::format("all of them died; the last snapshot is of step {}", snapshot_step_)}};
}

// ---- what is wanted ----

std::vector<Action> Coordinator::want_snapshot() {
  Actions actions;
  snapshot_wanted_ = true;
  ask_if_wanted(actions);
  return actions;
}

std::vector<Action> Coordinator::want_leave(int rank) {
  Actions actions;
  const size_t living = members_.size() + standby_.size() + on_the_way_.size();
  if (over_ || living <= 1) return actions;  // somebody has to stay
  if (on_the_way_.erase(rank) + standby_.erase(rank) > 0) {
    actions.emplace_back(Dismiss{rank});
    begin_if_ready(actions);
  } else if (members_.contains(rank)) {
    leaving_.insert(rank);
    if (leaving_.size() == members_.size() && standby_.empty()) leaving_.erase(rank);
  }
  ask_if_wanted(actions);
  return actions;
}

std::vector<Action> Coordinator::want_stop() {
  Actions actions;
  if (over_) return actions;
  stop_wanted_ = true;
  if (holding_) {
    finish(actions);
    return actions;
  }
  if (members_.empty()) stop_or_begin(actions);
  ask_if_wanted(actions);
  return actions;
}

std::vector<Action> Coordinator::measured(const std::map<int, double>& speeds, double step_seconds, double move_seconds,
                                          double seconds_left) {
  Actions actions;
  for (const auto& [rank, speed] : speeds) {
    const auto found = members_.find(rank);
    if (found == members_.end() || !(speed > 0)) continue;
    found->second.measured.add(speed);
  }
  if (over_ || members_.empty() || ++measurements_ < kSettleMeasurements || asked_hold_) return actions;
  const std::map<int, double> now = speeds_of(members_);
  const auto plan = make_plan(options_.shards, now, options_.planner, current_.members);
  PlannerOptions sure = options_.planner;
  double scatter = 0;
  for (const auto& [rank, worker] : members_) scatter = std::max(scatter, worker.measured.uncertainty());
  sure.min_gain += std::min(kSure * scatter, kMostDoubt);
  sure.pay_back_seconds = std::min(sure.pay_back_seconds, seconds_left);
  gains_ =
      worth_moving(options_.shards, current_.members, plan, now, step_seconds, move_seconds, sure) ? gains_ + 1 : 0;
  move_wanted_ = gains_ >= kGainsInARow;
  ask_if_wanted(actions);
  return actions;
}

std::vector<Action> Coordinator::want_shares(const std::map<int, double>& shares) {
  Actions actions;
  if (over_ || shares == shares_) return actions;
  shares_ = shares;
  if (members_.empty()) return actions;
  move_wanted_ =
      make_plan(options_.shards, speeds_of(members_), options_.planner, current_.members) != current_.members;
  ask_if_wanted(actions);
  return actions;
}

std::vector<Action> Coordinator::want_hold(bool hold) {
  Actions actions;
  if (over_) return actions;
  hold_wanted_ = hold;
  if (hold)
    ask_if_wanted(actions);
  else if (holding_)
    restore(actions);
  return actions;
}

// ---- generations ----

// With no members: the first generation, or the first after everybody died. Nobody is left behind who is on the way.
void Coordinator::begin_if_ready(Actions& actions) {
  if (members_.empty() && on_the_way_.empty() && !standby_.empty()) restore(actions);
}

// Nobody is at work. A stop that is wanted needs nobody if there is a snapshot to stop at.
void Coordinator::stop_or_begin(Actions& actions) {
  if (stop_wanted_ && snapshot_step_ >= 0)
    finish(actions);
  else
    begin_if_ready(actions);
}

// Back to the last whole snapshot. Everything is put back anyway, so this is also where members come and go.
void Coordinator::restore(Actions& actions) {
  std::map<int, Worker> next = next_members();
  for (const auto& [rank, worker] : members_)
    if (!next.contains(rank)) actions.emplace_back(Dismiss{rank});
  for (const auto& [rank, worker] : next) standby_.erase(rank);
  members_ = std::move(next);
  leaving_.clear();
  restore_generation_ = current_.generation + 1;
  issue(snapshot_step_ >= 0 ? GenerationStart::From::kSnapshot : GenerationStart::From::kStart, -1, actions);
}

void Coordinator::same_phase(int64_t cut, Actions& actions) { issue(GenerationStart::From::kSamePhase, cut, actions); }

void Coordinator::issue(GenerationStart::From from, int64_t cut, Actions& actions) {
  ++current_.generation;
  current_.members = make_plan(options_.shards, speeds_of(members_), options_.planner, current_.members);
  current_.from = from;
  current_.snapshot_step = from == GenerationStart::From::kStart ? -1 : snapshot_step_;
  current_.cut = cut;
  cuts_.push_back(cut);
  parts_.clear();
  checks_.clear();
  asked_ = asked_hold_ = move_wanted_ = holding_ = false;
  measurements_ = gains_ = 0;
  actions.emplace_back(StartGeneration{current_});
  ask_if_wanted(actions);
}

// Who works after the next restore. Members stay unless they want to leave; those in the standby come in while there
// are shards for them, the fastest first; the others wait as spares.
std::map<int, Coordinator::Worker> Coordinator::next_members() {
  std::map<int, Worker> next;
  for (const auto& [rank, worker] : members_)
    if (!leaving_.contains(rank)) next.emplace(rank, worker);
  std::vector<std::pair<double, int>> waiting;
  for (const auto& [rank, worker] : standby_) waiting.emplace_back(-worker.guess, rank);
  std::sort(waiting.begin(), waiting.end());
  for (const auto& [speed, rank] : waiting)
    if (next.size() < static_cast<size_t>(options_.shards)) next.emplace(rank, standby_.at(rank));
  return next.empty() ? members_ : next;  // all wanted to leave, and those who were to stay have died
}

// Guesses are relative, measurements are shards per second: a guess is scaled by what the measured ones turned out to
// be.
std::map<int, double> Coordinator::speeds_of(const std::map<int, Worker>& workers) const {
  double measured = 0, guessed = 0;
  for (const auto& [rank, worker] : workers)
    if (worker.measured.known()) measured += worker.measured.value(), guessed += worker.guess;
  const double scale = guessed > 0 ? measured / guessed : 1;
  std::map<int, double> speeds;
  for (const auto& [rank, worker] : workers)
    speeds[rank] = (worker.measured.known() ? worker.measured.value() : worker.guess * scale) * share_of(rank);
  return speeds;
}

double Coordinator::share_of(int rank) const {
  const auto found = shares_.find(rank);
  return found == shares_.end() ? 1 : found->second;
}

// Every survivor has the state of the newest restore. If one has not, "go on" means nothing to it.
bool Coordinator::everybody_restored() const {
  return std::all_of(members_.begin(), members_.end(),
                     [&](const auto& member) { return member.second.adopted >= restore_generation_; });
}

// A combine that a dead member did its part of need not be complete: an earlier death may have ended its generation
// before. And what lies before a restore (cut -1) no longer counts.
int64_t Coordinator::effective(const Mark& mark) const {
  int64_t sequence = mark.sequence;
  for (uint64_t g = mark.generation + 1; g < cuts_.size(); ++g) sequence = std::min(sequence, cuts_[g]);
  return std::max<int64_t>(sequence, -1);
}

// ---- snapshots ----

bool Coordinator::on_hold_wanted() const {
  const size_t staying = members_.size() - leaving_.size();
  return stop_wanted_ || move_wanted_ || hold_wanted_ || !leaving_.empty() ||
         (!standby_.empty() && staying < static_cast<size_t>(options_.shards));
}

void Coordinator::ask_if_wanted(Actions& actions) {
  if (over_ || members_.empty()) return;
  const bool hold = on_hold_wanted();
  if (hold ? asked_hold_ : (!snapshot_wanted_ || asked_)) return;
  asked_ = true;
  asked_hold_ = hold;
  actions.emplace_back(AskSnapshot{.serial = ++serial_, .hold = hold});
}

Coordinator::Verdict Coordinator::judge(const Reports& reports) const {
  if (reports.hashes.size() < members_.size()) return Verdict::kIncomplete;
  const uint64_t first = reports.hashes.begin()->second;
  const bool equal = std::all_of(reports.hashes.begin(), reports.hashes.end(),
                                 [&](const auto& report) { return report.second == first; });
  return equal ? Verdict::kEqual : Verdict::kDiffer;
}

// A snapshot is whole. Whoever holds is answered: by the changes that were waiting for this, or by the end.
void Coordinator::settle(const Reports& reports, int64_t step, Actions& actions) {
  parts_.erase(parts_.begin(), parts_.upper_bound(step));
  snapshot_step_ = step;
  ties_ = 0;
  snapshot_wanted_ = false;
  if (!asked_hold_) asked_ = false;
  actions.emplace_back(SnapshotWhole{.generation = current_.generation, .step = step});
  if (reports.final || (reports.held && stop_wanted_))
    finish(actions);
  else if (reports.held && hold_wanted_)
    holding_ = true;
  else if (reports.held)
    restore(actions);
}

// The sums of the last steps had a wrong contribution, so the state of those who agree is wrong as well: all go back.
void Coordinator::disagree(const Reports& reports, int64_t step, Actions& actions) {
  std::map<uint64_t, std::vector<int>> camps;
  for (const auto& [rank, hash] : reports.hashes) camps[hash].push_back(rank);
  const auto largest = std::max_element(camps.begin(), camps.end(),
                                        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (2 * largest->second.size() > members_.size()) {
    for (const auto& [rank, hash] : reports.hashes) {
      if (hash == largest->first) continue;
      actions.emplace_back(Fence{
          rank, fmt::format("its state differs from that of {} others after step {}", largest->second.size(), step)});
      members_.erase(rank);
      leaving_.erase(rank);
    }
  } else if (++ties_ > 1) {
    over_ = true;
    std::vector<int> ranks;
    for (const auto& [rank, hash] : reports.hashes) ranks.push_back(rank);
    actions.emplace_back(GiveUp{
        .what = fmt::format("the states of the workers {} differ after step {}", fmt::join(ranks, ", "), step),
        .why = "no majority says which of them is wrong, and it happened again after going back to the last snapshot"});
    return;
  }
  restore(actions);
}

void Coordinator::finish(Actions& actions) {
  over_ = true;
  actions.emplace_back(Finished{.step = snapshot_step_});
  for (const auto* workers : {&members_, &standby_, &on_the_way_})
    for (const auto& [rank, worker] : *workers) actions.emplace_back(Dismiss{rank});
}

}  // namespace tandem
