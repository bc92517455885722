#include "jobs/set_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace tandem {
namespace {

constexpr int kMostNodes = 200'000;   // of the search: no clock, or a loaded machine would plan otherwise
constexpr double kBusyWeight = 1e-6;  // where the end is the same, less work of GPUs is better
constexpr double kNoPlan = std::numeric_limits<double>::infinity();

struct Group {
  std::vector<int> units;
  std::vector<int> devices;
  int agents = 0;
  double seconds = 0;
};

// Where a unit may go: into a group that is there, or into one of its own.
struct Option {
  int group = -1;
  std::vector<int> devices;  // of a new one
};

class Search {
 public:
  explicit Search(const SetQuestion& question)
      : q_(question), load_(question.devices.size()), runs_on_(question.devices.size()) {
    for (int d = 0; d < static_cast<int>(q_.devices.size()); ++d) {
      int first = 0;
      while (!equal(first, d)) ++first;
      like_.push_back(first);
    }
    order_.resize(q_.units.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return before(unit(a), unit(b)); });
    for (const SetUnit& one : q_.units) {
      least_.push_back(least(one));
      least_left_ += least_.back();
    }
    for (int d = 0; d < static_cast<int>(q_.devices.size()); ++d) begin_.push_back(least_begin(d));
    for (int u = 0; u < static_cast<int>(q_.units.size()); ++u) floor_ = std::max(floor_, least_run(u));
    if (fits_nowhere(q_) < 0)
      for (const SetUnit& one : q_.units) floor_ = std::max(floor_, least_of_alike(one));
  }

  SetChoice run() {
    choice_.least_seconds = std::max(floor_, filled()) + q_.seconds_beside;
    const std::vector<int> order = order_;
    for (size_t first = 0; first < order.size(); ++first) {  // something good to compare with from the beginning
      greedy(0);
      std::rotate(order_.begin(), order_.begin() + 1, order_.end());
    }
    order_ = order;
    in_order_ = true;
    place(0);
    choice_.exact = nodes_ <= kMostNodes || choice_.gap() < 1e-9;
    if (choice_.exact) choice_.least_seconds = choice_.best.seconds;
    return std::move(choice_);
  }

 private:
  const SetUnit& unit(int i) const { return q_.units[static_cast<size_t>(i)]; }

  // Those that are alike stand together; the pinned and the long ones come first.
  static bool before(const SetUnit& a, const SetUnit& b) {
    const auto key = [](const SetUnit& u) {
      return std::tuple(u.pin < 0, -u.steps * u.costs.front().alone(), u.alike, u.pin);
    };
    return key(a) < key(b);
  }
  static bool same(const SetUnit& a, const SetUnit& b) {
    return a.alike >= 0 && a.alike == b.alike && a.pin == b.pin && a.steps == b.steps && a.agents == b.agents &&
           a.costs == b.costs && a.memory_bytes == b.memory_bytes && a.save_seconds == b.save_seconds;
  }
  static bool alike(const SetUnit& a, const SetUnit& b) { return &a == &b || (a.alike >= 0 && a.alike == b.alike); }

  // ---- what nothing can be below ----

  // GPU time that it takes at least, wherever it goes and whoever is with it, beside least_begin().
  double least(const SetUnit& one) const {
    double seconds = kNoPlan;
    for (const SetUnit& other : q_.units)
      if (alike(one, other))
        for (const RunCost& cost : other.costs)
          seconds = std::min(seconds, one.steps * one.agents * std::min(cost.more, cost.divided));
    return seconds + (one.steps > 0 ? one.agents * one.save_seconds : 0);
  }
  // That a GPU spends on its first run, whichever it is.
  double least_begin(int device) const {
    double seconds = kNoPlan;
    for (const SetUnit& one : q_.units)
      if (one.steps > 0)
        seconds = std::min(seconds, q_.devices[static_cast<size_t>(device)].start_seconds +
                                        one.steps * one.costs[static_cast<size_t>(device)].fixed);
    return seconds < kNoPlan ? seconds : 0;
  }
  // Of the run that a unit is in.
  double least_run(int u) const {
    double seconds = kNoPlan;
    for (int d = 0; d < static_cast<int>(q_.devices.size()); ++d) {
      if (!may_begin(unit(u), d)) continue;
      std::vector<int> devices;
      for (const int more : like_)
        if (more == like_[static_cast<size_t>(d)] && std::cmp_less(devices.size(), unit(u).shards)) {
          devices.push_back(d);
          seconds = std::min(seconds, run_seconds(q_, {u}, devices));
        }
    }
    return seconds < kNoPlan ? seconds : 0;
  }
  // Of all agents like this one, if GPUs had nothing else to do: each works off as many as it can until then. 0 where
  // several GPUs may share a run.
  double least_of_alike(const SetUnit& one) const {
    int agents = 0;
    std::vector<double> first(q_.devices.size(), kNoPlan), next(q_.devices.size(), kNoPlan);
    for (const SetUnit& other : q_.units) {
      if (!alike(one, other)) continue;
      if (other.steps <= 0) return 0;
      agents += other.agents;
      for (size_t d = 0; d < q_.devices.size(); ++d) {
        if (may_spread(other, static_cast<int>(d))) return 0;
        const RunCost& cost = other.costs[d];
        const double run = q_.devices[d].start_seconds + other.steps * cost.alone() + other.save_seconds;
        const double more = other.steps * cost.more + other.save_seconds;
        first[d] = std::min(first[d], run);
        next[d] = std::min({next[d], run, q_.together == SetQuestion::Together::kOff ? run : more});
      }
    }
    double none = 0, all = agents * *std::ranges::min_element(first);
    for (int turn = 0; turn < 60; ++turn) {
      const double until = (none + all) / 2;
      std::vector<double> done;
      for (size_t d = 0; d < first.size(); ++d)
        done.push_back(until < first[d] ? 0 : 1 + std::floor((until - first[d]) / std::max(next[d], 1e-12) + 1e-9));
      std::ranges::sort(done, std::greater());
      done.resize(std::min(done.size(), most_devices()));
      (std::accumulate(done.begin(), done.end(), 0.0) < agents ? none : all) = until;
    }
    return none;
  }
  bool may_spread(const SetUnit& one, int device) const {
    std::vector<int> devices = {device};
    for (int d = 0; d < static_cast<int>(like_.size()) && std::cmp_less(devices.size(), one.shards); ++d)
      if (d != device && like(d, device)) {
        devices.push_back(d);
        if (spreads(one, devices)) return true;
      }
    return false;
  }
  // The end if what is not placed yet could be cut at will: it fills up the GPUs that have least to do.
  double filled() const {
    if (least_left_ <= 1e-9) return 0;
    std::vector<double> from, fresh;
    for (size_t d = 0; d < load_.size(); ++d)
      (runs_on_[d] > 0 ? from : fresh).push_back(runs_on_[d] ? load_[d] : begin_[d]);
    std::ranges::sort(fresh);
    fresh.resize(std::min(fresh.size(), room()));
    from.insert(from.end(), fresh.begin(), fresh.end());
    std::ranges::sort(from);
    double sum = least_left_, end = 0;
    for (size_t count = 1; count <= from.size(); ++count) {
      sum += from[count - 1];
      end = sum / static_cast<double>(count);
      if (count == from.size() || end <= from[count]) break;
    }
    return end;
  }

  // ---- where units may go ----

  bool may_begin(const SetUnit& one, int device) const {
    return (one.pin < 0 || one.pin == device) && fits(q_, one, one.agents, device);
  }

  size_t used() const {
    return static_cast<size_t>(std::ranges::count_if(runs_on_, [](int runs) { return runs > 0; }));
  }
  bool empty(int device) const { return runs_on_[static_cast<size_t>(device)] == 0; }
  bool equal(int a, int b) const {
    if (a == b) return true;
    const SetDevice &x = q_.devices[static_cast<size_t>(a)], &y = q_.devices[static_cast<size_t>(b)];
    const auto pinned = [&](int device) {
      return std::ranges::any_of(q_.units, [&](const SetUnit& one) { return one.pin == device; });
    };
    return x.model == y.model && x.memory_bytes == y.memory_bytes && !pinned(a) && !pinned(b);
  }
  bool like(int a, int b) const { return like_[static_cast<size_t>(a)] == like_[static_cast<size_t>(b)]; }
  // An empty GPU that is like an earlier empty one would only repeat what was tried there.
  bool repeats(int device) const {
    for (int other = 0; other < device; ++other)
      if (empty(device) && empty(other) && like(device, other)) return true;
    return false;
  }
  size_t most_devices() const { return q_.most_devices ? q_.most_devices : q_.devices.size(); }
  size_t room() const { return most_devices() - std::min(most_devices(), used()); }

  bool takes(const Group& group, const SetUnit& one) const {
    const SetUnit& first = unit(group.units.front());
    const int device = group.devices.front();
    return q_.together != SetQuestion::Together::kOff && one.alike >= 0 && first.alike == one.alike &&
           (one.pin < 0 || one.pin == device) && fits(q_, one, group.agents + one.agents, device);
  }
  bool has_alike(int device, const SetUnit& one) const {
    return std::ranges::any_of(
        groups_, [&](const Group& group) { return group.devices.front() == device && takes(group, one); });
  }

  // More GPUs for a run can pay for one agent or for all that are alike, or for nobody: it is a line between them.
  bool spreads(const SetUnit& one, const std::vector<int>& devices) const {
    int all = 0;
    for (const SetUnit& other : q_.units) all += alike(one, other) ? other.agents : 0;
    const auto pays = [&](const SetUnit& other, int agents) {
      return step_seconds(q_, other, agents, devices) < step_seconds(q_, other, agents, {devices.front()});
    };
    return std::ranges::any_of(q_.units, [&](const SetUnit& other) {
      return alike(one, other) && (pays(other, other.agents) || pays(other, all));
    });
  }

  std::vector<Option> options(size_t at) const {
    const SetUnit& one = unit(order_[at]);
    std::vector<Option> all;
    // Units that are the same go into groups, and groups onto GPUs, in one order only.
    const bool again = in_order_ && at > 0 && same(one, unit(order_[at - 1])) && !groups_.empty();
    const int from = again ? last_group_ : 0;
    for (int g = from; g < static_cast<int>(groups_.size()); ++g)
      if (takes(groups_[static_cast<size_t>(g)], one)) all.push_back({g, {}});
    const int first = again ? groups_[static_cast<size_t>(last_group_)].devices.front() : 0;
    for (int d = first; d < static_cast<int>(q_.devices.size()); ++d) {
      if (!may_begin(one, d) || (empty(d) && room() == 0)) continue;
      if (one.pin < 0 && repeats(d)) continue;
      if (q_.together == SetQuestion::Together::kOn && has_alike(d, one)) continue;
      all.push_back({-1, {d}});
      if (empty(d)) add_spread(one, d, all);
    }
    return all;
  }

  // The same run on several equal GPUs that have nothing to do before it: so it waits for none of them.
  void add_spread(const SetUnit& one, int device, std::vector<Option>& all) const {
    std::vector<int> devices = {device};
    for (int d = 0; d < static_cast<int>(q_.devices.size()); ++d) {
      if (d == device || !empty(d) || !like(d, device) || devices.size() >= room() ||
          static_cast<int>(devices.size()) >= one.shards)
        continue;
      devices.push_back(d);
      if (spreads(one, devices)) all.push_back({-1, devices});
    }
  }

  void charge(const Group& group, double seconds, int runs) {
    for (const int device : group.devices) {
      load_[static_cast<size_t>(device)] += seconds;
      runs_on_[static_cast<size_t>(device)] += runs;
    }
  }

  // What to put back afterwards.
  struct Undo {
    int group, last_group;
    double seconds;
    bool is_new;
  };
  Undo apply(const Option& option, int u) {
    const SetUnit& one = unit(u);
    const bool is_new = option.group < 0;
    if (is_new) groups_.push_back({{}, option.devices, 0, 0});
    const int g = is_new ? static_cast<int>(groups_.size()) - 1 : option.group;
    Group& group = groups_[static_cast<size_t>(g)];
    const Undo undo{g, last_group_, group.seconds, is_new};
    group.units.push_back(u);
    group.agents += one.agents;
    group.seconds = run_seconds(q_, group.units, group.devices);
    charge(group, group.seconds - undo.seconds, is_new);
    least_left_ -= least_[static_cast<size_t>(u)];
    last_group_ = g;
    return undo;
  }
  void take_back(const Undo& undo, int u) {
    Group& group = groups_[static_cast<size_t>(undo.group)];
    charge(group, undo.seconds - group.seconds, undo.is_new ? -1 : 0);
    group.units.pop_back();
    group.agents -= unit(u).agents;
    group.seconds = undo.seconds;
    if (undo.is_new) groups_.pop_back();
    least_left_ += least_[static_cast<size_t>(u)];
    last_group_ = undo.last_group;
  }

  // What the set takes at least, as far as it is placed; exactly, once all are.
  double worth() const {
    const double busy = std::accumulate(load_.begin(), load_.end(), 0.0);
    return std::max({*std::ranges::max_element(load_), filled(), floor_}) + kBusyWeight * busy;
  }

  void greedy(size_t at) {
    if (at == order_.size()) return leaf();
    const Option* best = nullptr;
    double least_worth = kNoPlan;
    const std::vector<Option> all = options(at);
    for (const Option& option : all) {
      const Undo undo = apply(option, order_[at]);
      if (const double now = worth(); now < least_worth) least_worth = now, best = &option;
      take_back(undo, order_[at]);
    }
    if (!best) return;
    const Undo undo = apply(*best, order_[at]);
    greedy(at + 1);
    take_back(undo, order_[at]);
  }

  void place(size_t at) {
    if (++nodes_ > kMostNodes || worth() >= second_worth_) return;
    if (at == order_.size()) return leaf();
    for (const Option& option : options(at)) {
      const Undo undo = apply(option, order_[at]);
      place(at + 1);
      take_back(undo, order_[at]);
    }
  }

  // Plans of one sort differ only in which of several equal agents and GPUs is which.
  using Sort = std::multiset<std::tuple<int, size_t, std::multiset<int>>>;
  Sort sort_of() const {
    Sort sort;
    for (int d = 0; d < static_cast<int>(load_.size()); ++d) {
      std::multiset<int> sizes;
      size_t gpus = 0;
      for (const Group& group : groups_)
        if (group.devices.front() == d) sizes.insert(group.agents), gpus = group.devices.size();
      if (!sizes.empty()) sort.insert({q_.devices[static_cast<size_t>(d)].model, gpus, sizes});
    }
    return sort;
  }

  void leaf() {
    const double now = worth();
    if (now >= second_worth_) return;
    Sort sort = sort_of();
    if (now < best_worth_) {
      if (best_worth_ < kNoPlan && sort != best_sort_) {
        choice_.runner_up = std::move(choice_.best);
        second_worth_ = best_worth_;
      }
      choice_.best = plan();
      best_worth_ = now;
      best_sort_ = std::move(sort);
    } else if (sort != best_sort_) {
      choice_.runner_up = plan();
      second_worth_ = now;
    }
  }

  SetPlan plan() const {
    SetPlan plan;
    std::vector<double> free(load_.size());
    for (const Group& group : groups_) {
      PlannedRun run{.units = group.units, .devices = group.devices, .agents = group.agents};
      for (const int device : group.devices) run.begin = std::max(run.begin, free[static_cast<size_t>(device)]);
      run.end = run.begin + group.seconds;
      run.step_seconds = step_seconds(q_, group.units, group.devices);
      for (const int device : group.devices) free[static_cast<size_t>(device)] = run.end;
      plan.seconds = std::max(plan.seconds, run.end);
      plan.runs.push_back(std::move(run));
    }
    plan.seconds += q_.seconds_beside;
    return plan;
  }

  const SetQuestion& q_;
  std::vector<int> order_;
  std::vector<Group> groups_;
  std::vector<int> like_;              // by device: the first that is equal to it
  std::vector<double> load_;           // by device
  std::vector<int> runs_on_;           // by device
  int last_group_ = 0;                 // that the last unit went into
  bool in_order_ = false;              // what is the same is tried once
  std::vector<double> least_, begin_;  // by unit: least(); by device: least_begin()
  double floor_ = 0;                   // of the longest run, and of those that are alike
  double least_left_ = 0;              // GPU time of those not placed yet, at least
  int nodes_ = 0;
  double best_worth_ = kNoPlan, second_worth_ = kNoPlan;
  Sort best_sort_;
  SetChoice choice_;
};

}  // namespace

SetChoice choose_set_plan(const SetQuestion& question) { return Search(question).run(); }

}  // namespace tandem
