#include "jobs/set_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

namespace tandem {
namespace {

constexpr int kMostNodes = 60'000;    // of the search: a second of a slow core at most
constexpr double kBusyWeight = 1e-3;  // where the end is the same, less work of GPUs is better
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
      : q_(question),
        load_(question.devices.size()),
        runs_on_(question.devices.size()),
        shared_(question.devices.size()) {
    for (int d = 0; d < static_cast<int>(q_.devices.size()); ++d) {
      int first = 0;
      while (!equal(first, d)) ++first;
      like_.push_back(first);
    }
    order_.resize(q_.units.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return before(unit(a), unit(b)); });
    for (const SetUnit& one : q_.units) least_left_ += least(one);
  }

  SetChoice run() {
    const std::vector<int> order = order_;
    for (size_t first = 0; first < order.size(); ++first) {  // something good to compare with from the beginning
      greedy(0);
      std::rotate(order_.begin(), order_.begin() + 1, order_.end());
    }
    order_ = order;
    in_order_ = true;
    place(0);
    choice_.all_tried = nodes_ <= kMostNodes;
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
    return a.alike >= 0 && a.alike == b.alike && a.pin == b.pin && a.steps == b.steps && a.agents == b.agents;
  }
  // GPU time that it takes at least, wherever it goes.
  double least(const SetUnit& one) const {
    double seconds = kNoPlan;
    for (const RunCost& cost : one.costs)
      seconds = std::min(seconds, one.steps * one.agents * std::min(cost.more, cost.alone()));
    return seconds + one.agents * one.save_seconds;
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
  size_t room() const {
    const size_t most = q_.most_devices ? q_.most_devices : q_.devices.size();
    return most - std::min(most, used());
  }

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
    int all = one.agents;
    if (one.alike >= 0)
      for (const SetUnit& other : q_.units)
        if (&other != &one && other.alike == one.alike) all += other.agents;
    return std::ranges::any_of(std::vector{one.agents, all}, [&](int agents) {
      return step_seconds(q_, one, agents, devices) < step_seconds(q_, one, agents, {devices.front()});
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
      if ((one.pin >= 0 && one.pin != d) || shared_[static_cast<size_t>(d)] || (empty(d) && room() == 0)) continue;
      if (one.pin < 0 && repeats(d)) continue;
      if (q_.together == SetQuestion::Together::kOn && has_alike(d, one)) continue;
      all.push_back({-1, {d}});
      if (empty(d)) add_spread(one, d, all);
    }
    return all;
  }

  // The same run on several equal GPUs that nobody else uses.
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
      shared_[static_cast<size_t>(device)] = runs_on_[static_cast<size_t>(device)] > 0 && group.devices.size() > 1;
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
    group.seconds = run_seconds(q_, unit(group.units.front()), group.agents, group.devices);
    charge(group, group.seconds - undo.seconds, is_new);
    least_left_ -= least(one);
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
    least_left_ += least(unit(u));
    last_group_ = undo.last_group;
  }

  // What the set takes at least, as far as it is placed; exactly, once all are.
  double worth() const {
    const double busy = std::accumulate(load_.begin(), load_.end(), 0.0);
    const double mean = (busy + least_left_) / static_cast<double>(std::max<size_t>(1, load_.size()));
    return std::max(*std::ranges::max_element(load_), mean) + kBusyWeight * busy;
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
      const SetUnit& first = unit(group.units.front());
      PlannedRun run{.units = group.units, .devices = group.devices, .agents = group.agents};
      for (const int device : group.devices) run.begin = std::max(run.begin, free[static_cast<size_t>(device)]);
      run.end = run.begin + group.seconds;
      run.step_seconds = step_seconds(q_, first, group.agents, group.devices);
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
  std::vector<int> like_;     // by device: the first that is equal to it
  std::vector<double> load_;  // by device
  std::vector<int> runs_on_;  // by device
  std::vector<char> shared_;  // by device: its one run has other GPUs too
  int last_group_ = 0;        // that the last unit went into
  bool in_order_ = false;     // what is the same is tried once
  double least_left_ = 0;     // GPU time of those not placed yet, at least
  int nodes_ = 0;
  double best_worth_ = kNoPlan, second_worth_ = kNoPlan;
  Sort best_sort_;
  SetChoice choice_;
};

}  // namespace

std::vector<int> SetPlan::devices() const {
  std::set<int> used;
  for (const PlannedRun& run : runs) used.insert(run.devices.begin(), run.devices.end());
  return {used.begin(), used.end()};
}

double step_seconds(const SetQuestion& question, const SetUnit& unit, int agents, const std::vector<int>& devices) {
  const auto first = static_cast<size_t>(devices.front());
  const RunCost& cost = unit.costs[first];
  const double divided = cost.divided + (agents - 1) * cost.more;
  const auto count = static_cast<double>(devices.size());
  if (devices.size() == 1) return cost.fixed + divided;
  const SetDevice& device = question.devices[first];
  const double largest = std::ceil(unit.shards / count) / unit.shards;  // shards are whole
  const double moved = agents * unit.combine_floats * device.float_seconds * 2 * (count - 1) / count;
  return cost.fixed + divided * largest + device.sum_seconds * std::log2(2 * count) / 2 + moved;
}

double run_seconds(const SetQuestion& question, const SetUnit& unit, int agents, const std::vector<int>& devices) {
  if (unit.steps <= 0) return 0;
  const SetDevice& device = question.devices[static_cast<size_t>(devices.front())];
  return device.start_seconds + unit.steps * step_seconds(question, unit, agents, devices) + agents * unit.save_seconds;
}

bool fits(const SetQuestion& question, const SetUnit& unit, int agents, int device) {
  const double limit = question.devices[static_cast<size_t>(device)].memory_bytes;
  return agents <= unit.agents || limit <= 0 || agents * unit.memory_bytes <= limit;
}

SetChoice choose_set_plan(const SetQuestion& question) { return Search(question).run(); }

std::string words_of(const SetQuestion& question, const SetPlan& plan) {
  struct Part {
    std::string agents, device, with;
    int count = 1;
  };
  std::vector<Part> parts;
  for (const int device : plan.devices()) {
    std::vector<std::string> sizes;
    std::string with;
    for (const PlannedRun& run : plan.runs) {
      if (run.devices.front() != device) continue;
      sizes.push_back(fmt::format("{}", run.agents));
      for (size_t i = 1; i < run.devices.size(); ++i)
        with += fmt::format("{}{}", i == 1 ? " with " : " and ",
                            question.devices[static_cast<size_t>(run.devices[i])].name);
    }
    if (sizes.empty()) continue;
    const Part part{fmt::format("{}", fmt::join(sizes, " + ")), question.devices[static_cast<size_t>(device)].name,
                    with};
    const auto same = std::ranges::find_if(parts, [&](const Part& other) {
      return other.agents == part.agents && other.device == part.device && other.with == part.with;
    });
    if (same == parts.end())
      parts.push_back(part);
    else
      ++same->count;
  }
  std::string words;
  for (const Part& part : parts) {
    const std::string_view noun = !words.empty() ? "" : part.agents == "1" ? " agent" : " agents";
    words += fmt::format("{}{}{} on {}{}{}", words.empty() ? "" : ", ", part.agents, noun,
                         part.count > 1 ? fmt::format("each of {} x ", part.count) : "", part.device, part.with);
  }
  return words;
}

}  // namespace tandem
