#include "jobs/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace tandem {
namespace {

constexpr double kForEver = std::numeric_limits<double>::infinity();
constexpr double kMeanWeight = 0.02;  // where the end of all is the same, earlier ends of some are still better
constexpr double kMostWays = 1000;    // of giving jobs to devices that are all tried; 729 for six on three
constexpr int kMostTries = 1500;      // where there are more
constexpr double kBetterAlone = 1.1;  // times the speed that a job must have without those who are to leave it
constexpr double kLittle = 0.998;     // a way that ends no sooner than this is no better: the longest first is safer

struct State {
  std::vector<PlannedJob> jobs;
  const std::vector<double>& speeds;
  const ScheduleOptions& options;
  std::vector<int> home = {};      // by job: the device that its assignment names; -1: any
  std::vector<double> hold = {};   // by job: seconds that it stands still
  std::vector<double> ended = {};  // by job
  int resting = -1;                // a device that does nothing at all, to see what it would bring
};

std::vector<double> speeds_of(const State& state, const PlannedJob& job) {
  std::vector<double> speeds;
  for (const int device : job.devices) speeds.push_back(state.speeds[static_cast<size_t>(device)]);
  return speeds;
}

double rate_of(const State& state, const PlannedJob& job) {
  return work_rate(job.shards, speeds_of(state, job), state.options.combine_share);
}

std::vector<int> free_devices(const State& state) {
  std::vector<int> free(state.speeds.size());
  std::iota(free.begin(), free.end(), 0);
  std::erase(free, state.resting);
  for (const PlannedJob& job : state.jobs) {
    if (job.done || !job.begun) continue;
    for (const int device : job.devices) std::erase(free, device);
    for (const auto& joining : job.joining) std::erase(free, joining.device);
  }
  std::stable_sort(free.begin(), free.end(), [&](int a, int b) {
    return state.speeds[static_cast<size_t>(a)] > state.speeds[static_cast<size_t>(b)];
  });
  return free;
}

bool waits(const PlannedJob& job) { return !job.begun && !job.done; }

// Where an assignment wants each job: specialized deals them out in their order, as the rounds of a guide do;
// hierarchical puts the heavy ones on the fast devices, each device its share of the work.
std::vector<int> homes(const State& state) {
  std::vector<int> home(state.jobs.size(), -1);
  if (state.options.assignment == Assignment::kBalanced || state.options.assignment == Assignment::kSearched)
    return home;
  std::vector<int> devices(state.speeds.size()), order;
  std::iota(devices.begin(), devices.end(), 0);
  for (size_t j = 0; j < state.jobs.size(); ++j)
    if (waits(state.jobs[j])) order.push_back(static_cast<int>(j));
  if (state.options.assignment == Assignment::kSpecialized) {
    for (size_t j = 0; j < home.size(); ++j) home[j] = devices[j % devices.size()];
    return home;
  }
  const auto speed = [&](int d) { return state.speeds[static_cast<size_t>(d)]; };
  const auto work = [&](int j) { return state.jobs[static_cast<size_t>(j)].work; };
  std::stable_sort(devices.begin(), devices.end(), [&](int a, int b) { return speed(a) > speed(b); });
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return work(a) > work(b); });
  double all_speed = 0, all_work = 0, done = 0;
  for (const int d : devices) all_speed += speed(d);
  for (const int j : order) all_work += work(j);
  double share = speed(devices[0]) / all_speed;
  for (size_t at = 0; const int j : order) {  // a job belongs to the device in whose share its middle lies
    while (at + 1 < devices.size() && done + work(j) / 2 > share * all_work) share += speed(devices[++at]) / all_speed;
    home[static_cast<size_t>(j)] = devices[at];
    done += work(j);
  }
  return home;
}

// The waiting job that a free device takes: pinned to it, then its own, then anybody's; the longest first.
int choose_waiting(const State& state, int device) {
  int best = -1, best_rank = 3;
  for (size_t j = 0; j < state.jobs.size(); ++j) {
    const PlannedJob& job = state.jobs[j];
    if (!waits(job) || (job.pin >= 0 && job.pin != device)) continue;
    const int rank = job.pin == device ? 0 : state.home[j] == device || state.home[j] < 0 ? 1 : 2;
    if (best < 0 || rank < best_rank ||
        (rank == best_rank && state.options.assignment != Assignment::kSpecialized &&
         job.work > state.jobs[static_cast<size_t>(best)].work))
      best = static_cast<int>(j), best_rank = rank;
  }
  return best;
}

void begin(State& state, int j, const std::vector<int>& devices) {
  PlannedJob& job = state.jobs[static_cast<size_t>(j)];
  job.begun = true;
  job.devices = devices;
  job.start_left = state.options.start_seconds;
}

void join(State& state, int j, int device) {
  PlannedJob& job = state.jobs[static_cast<size_t>(j)];
  if (job.start_left >= state.options.start_seconds)
    job.devices.push_back(device);  // it begins right now: with one device more
  else
    job.joining.push_back({device, state.options.join_seconds});
}

bool may_join(const State& state, const PlannedJob& job, int device) {
  const auto kind = [&](int d) {
    return state.options.kinds.empty() ? 0 : state.options.kinds[static_cast<size_t>(d)];
  };
  if (job.done || !job.begun || job.devices.size() + job.joining.size() >= static_cast<size_t>(job.shards))
    return false;
  return std::ranges::all_of(job.devices, [&](int other) { return kind(other) == kind(device); });
}

// When a job ends if nobody joins it any more.
double time_left(const State& state, size_t j) {
  const PlannedJob& job = state.jobs[j];
  double time = job.start_left + (state.hold.empty() ? 0 : state.hold[j]), work = job.work;
  PlannedJob then = job;
  auto joining = job.joining;
  std::sort(joining.begin(), joining.end(), [](const auto& a, const auto& b) { return a.left < b.left; });
  for (const auto& joiner : joining) {
    const double until = std::max(0.0, joiner.left - time);
    const double done = until * rate_of(state, then);
    if (done >= work) break;
    work -= done;
    time += until + state.options.hold_seconds;
    then.devices.push_back(joiner.device);
  }
  return time + work / rate_of(state, then);
}

// The job with most time left that a device can still shorten, or -1. Cheap: it decides inside of forecasts.
int greedy_join(const State& state, int device) {
  int best = -1;
  double most = 0;
  for (size_t j = 0; j < state.jobs.size(); ++j) {
    const PlannedJob& job = state.jobs[j];
    if (!may_join(state, job, device)) continue;
    const double left = time_left(state, j);
    if (left <= most) continue;
    State then{{job}, state.speeds, state.options};
    join(then, 0, device);
    if (time_left(then, 0) > left - state.options.least_gain) continue;
    best = static_cast<int>(j), most = left;
  }
  return best;
}

// One device, one thing to do; false where it stays idle.
bool greedy_move(State& state, int device) {
  const int waiting = choose_waiting(state, device);
  if (waiting >= 0) return begin(state, waiting, {device}), true;
  const int running = greedy_join(state, device);
  if (running >= 0) return join(state, running, device), true;
  return false;
}

std::vector<int> for_ddp(const State& state, const PlannedJob& job) {
  std::vector<int> devices = free_devices(state);  // fastest first
  if (devices.size() > static_cast<size_t>(job.shards)) devices.resize(static_cast<size_t>(job.shards));
  // One that is much slower than the others may cost more than it brings.
  const auto rate = [&](const std::vector<int>& some) {
    PlannedJob trial = job;
    trial.devices = some;
    return rate_of(state, trial);
  };
  while (devices.size() > 1 && rate({devices.begin(), devices.end() - 1}) >= rate(devices)) devices.pop_back();
  return devices;
}

// With ddp: the next job on everything there is, once nothing runs.
int next_for_ddp(const State& state) {
  int next = -1;
  for (size_t j = 0; j < state.jobs.size(); ++j) {
    if (state.jobs[j].begun && !state.jobs[j].done) return -1;
    if (next < 0 && waits(state.jobs[j])) next = static_cast<int>(j);
  }
  return next;
}

void greedy_moves(State& state) {
  if (state.options.strategy == Strategy::kDdp) {
    if (const int next = next_for_ddp(state); next >= 0)
      begin(state, next, for_ddp(state, state.jobs[static_cast<size_t>(next)]));
    return;
  }
  for (const int device : free_devices(state)) greedy_move(state, device);
}

// Lets `seconds` pass.
void advance(State& state, double seconds, double now) {
  for (size_t j = 0; j < state.jobs.size(); ++j) {
    PlannedJob& job = state.jobs[j];
    if (job.done || !job.begun) continue;
    double left = seconds;
    const double starting = std::min(left, job.start_left);
    job.start_left -= starting;
    left -= starting;
    const double held = std::min(left, state.hold[j]);
    state.hold[j] -= held;
    left -= held;
    if (left > 0) job.work -= left * rate_of(state, job);
    for (auto& joiner : job.joining) joiner.left -= seconds;
    for (auto it = job.joining.begin(); it != job.joining.end();) {
      if (it->left > 1e-9) {
        ++it;
        continue;
      }
      job.devices.push_back(it->device);
      state.hold[j] += state.options.hold_seconds;
      it = job.joining.erase(it);
    }
    if (job.work > 1e-9) continue;
    job.done = true;
    job.work = 0;
    job.devices.clear();
    job.joining.clear();
    state.ended[j] = now + seconds;
  }
}

double until_next_event(const State& state) {
  double next = kForEver;
  for (size_t j = 0; j < state.jobs.size(); ++j) {
    const PlannedJob& job = state.jobs[j];
    if (job.done || !job.begun) continue;
    const double still = job.start_left + state.hold[j];
    next = std::min(next, still > 0 ? still : job.work / rate_of(state, job));
    for (const auto& joiner : job.joining) next = std::min(next, std::max(joiner.left, 1e-9));
  }
  return next;
}

// Who works on what from here on goes into `course`.
void note(const State& state, double now, std::vector<Segment>& course, std::vector<int>& doing) {
  std::vector<int> does(state.speeds.size(), -1);
  for (size_t j = 0; j < state.jobs.size(); ++j) {
    const PlannedJob& job = state.jobs[j];
    if (job.done || !job.begun) continue;
    for (const int device : job.devices) does[static_cast<size_t>(device)] = static_cast<int>(j);
    for (const auto& joiner : job.joining) does[static_cast<size_t>(joiner.device)] = static_cast<int>(j);
  }
  for (size_t d = 0; d < does.size(); ++d) {
    if (does[d] == doing[d]) continue;
    for (auto it = course.rbegin(); doing[d] >= 0 && it != course.rend(); ++it) {
      if (it->device != static_cast<int>(d)) continue;
      it->end = now;
      break;
    }
    if (does[d] >= 0) course.push_back({static_cast<int>(d), does[d], now, now});
    doing[d] = does[d];
  }
}

Forecast play(State state, bool with_course) {
  Forecast result;
  std::vector<int> doing(state.speeds.size(), -1);
  double now = 0;
  for (size_t round = 0; round < 100 * (state.jobs.size() + 1); ++round) {
    greedy_moves(state);
    if (with_course) note(state, now, result.course, doing);
    const double step = until_next_event(state);
    if (step == kForEver) break;
    advance(state, step, now);
    now += step;
  }
  for (const PlannedJob& job : state.jobs)
    if (!job.done) now = kForEver;  // a pin to a device that is not there
  result.seconds = now;
  result.ends = state.ended;
  for (const double end : state.ended) result.mean_seconds += end / static_cast<double>(state.ended.size());
  return result;
}

double worth(const State& state) {
  const Forecast result = play(state, false);
  return result.seconds + kMeanWeight * result.mean_seconds;
}

// ---- which device each waiting job is for ----

class HomeSearch {
 public:
  explicit HomeSearch(const State& state) : state_(state), without_joins_(state.options), best_(state.home) {
    without_joins_.least_gain = kForEver;
    for (size_t j = 0; j < state.jobs.size(); ++j)
      if (waits(state.jobs[j]) && state.jobs[j].pin < 0) waiting_.push_back(j);
  }

  std::vector<int> run() {
    if (waiting_.empty() || state_.speeds.size() < 2) return best_;
    try_out(best_);  // the longest first
    if (std::pow(static_cast<double>(state_.speeds.size()), static_cast<double>(waiting_.size())) <= kMostWays)
      try_all();
    else
      improve();
    return best_;
  }

 private:
  bool try_out(const std::vector<int>& home) {
    ++tries_;
    state_.home = home;
    // What joins will bring is known least of all: a way that needs none is safer.
    State alone{state_.jobs, state_.speeds, without_joins_, home, state_.hold, state_.ended};
    const double end = (play(state_, false).seconds + play(std::move(alone), false).seconds) / 2;
    if (end >= least_ * kLittle) return false;
    least_ = end;
    best_ = home;
    return true;
  }

  void try_all() {
    std::vector<int> home = best_;
    for (const size_t j : waiting_) home[j] = 0;
    for (;;) {
      try_out(home);
      size_t k = 0;
      while (k < waiting_.size() && ++home[waiting_[k]] == devices()) home[waiting_[k++]] = 0;
      if (k == waiting_.size()) return;
    }
  }

  // From the best of the plain assignments on, one job moved or two exchanged at a time.
  void improve() {
    for (const Assignment one : {Assignment::kHierarchical, Assignment::kSpecialized}) {
      ScheduleOptions options = state_.options;
      options.assignment = one;
      try_out(homes({state_.jobs, state_.speeds, options}));
    }
    settle();
    for (bool better = true; better && tries_ < kMostTries;) {
      better = false;
      for (const size_t j : waiting_)
        for (int device = 0; device < devices() && tries_ < kMostTries; ++device) {
          std::vector<int> home = best_;
          if (std::exchange(home[j], device) != device) better = try_out(home) || better;
        }
      for (const size_t a : waiting_)
        for (const size_t b : waiting_) {
          if (a >= b || best_[a] == best_[b] || tries_ >= kMostTries) continue;
          std::vector<int> home = best_;
          std::swap(home[a], home[b]);
          better = try_out(home) || better;
        }
    }
  }

  // Where the best so far leaves a job to whoever is free: who that was.
  void settle() {
    state_.home = best_;
    for (const Segment& part : play(state_, true).course) {
      int& home = best_[static_cast<size_t>(part.job)];
      if (home < 0 && std::ranges::find(waiting_, static_cast<size_t>(part.job)) != waiting_.end()) home = part.device;
    }
  }

  int devices() const { return static_cast<int>(state_.speeds.size()); }

  State state_;
  ScheduleOptions without_joins_;
  std::vector<int> best_;
  std::vector<size_t> waiting_;
  double least_ = kForEver;
  int tries_ = 0;
};

State make_state(const std::vector<PlannedJob>& jobs, const std::vector<double>& speeds,
                 const ScheduleOptions& options) {
  State state{jobs, speeds, options};
  state.home = homes(state);
  state.hold.resize(jobs.size());
  state.ended.resize(jobs.size());
  const bool search = options.strategy == Strategy::kAgents && options.assignment == Assignment::kSearched;
  if (search && !free_devices(state).empty()) state.home = HomeSearch(state).run();
  return state;
}

void add_move(std::vector<JobMove>& moves, int job, int device, bool join) {
  for (JobMove& move : moves)  // one request for several joiners: the job is held once
    if (move.job == job) return move.devices.push_back(device);
  moves.push_back({job, {device}, join});
}

}  // namespace

double work_rate(int shards, const std::vector<double>& speeds, double combine_share) {
  if (speeds.empty()) return 0;
  std::vector<double> used = speeds;
  std::sort(used.rbegin(), used.rend());
  if (static_cast<int>(used.size()) > shards) used.resize(static_cast<size_t>(shards));
  std::vector<int> held(used.size(), 1);
  for (int left = shards - static_cast<int>(used.size()); left > 0; --left) {
    size_t best = 0;
    for (size_t i = 1; i < used.size(); ++i)
      if ((held[i] + 1) / used[i] < (held[best] + 1) / used[best]) best = i;
    ++held[best];
  }
  double longest = 0;
  for (size_t i = 0; i < used.size(); ++i) longest = std::max(longest, held[i] / used[i]);
  return shards / longest * (used.size() > 1 ? 1 - combine_share : 1);
}

std::vector<JobMove> next_moves(const std::vector<PlannedJob>& jobs, const std::vector<double>& speeds,
                                const ScheduleOptions& options) {
  State state = make_state(jobs, speeds, options);
  std::vector<JobMove> moves;
  if (options.strategy == Strategy::kDdp) {
    if (const int next = next_for_ddp(state); next >= 0)
      moves.push_back({next, for_ddp(state, jobs[static_cast<size_t>(next)]), false});
    return moves;
  }
  for (const int device : free_devices(state)) {
    if (const int waiting = choose_waiting(state, device); waiting >= 0) {
      begin(state, waiting, {device});
      add_move(moves, waiting, device, false);
      continue;
    }
    // Everybody who could be joined is tried, to the end of the set; idle must be beaten by more than chance.
    State idle = state;
    idle.resting = device;
    double best = worth(idle) - options.least_gain;
    int joined = -1;
    for (size_t j = 0; j < state.jobs.size(); ++j) {
      const PlannedJob& job = state.jobs[j];
      if (!may_join(state, job, device)) continue;
      State then = state;
      join(then, static_cast<int>(j), device);
      if (const double end = worth(then); end < best) best = end, joined = static_cast<int>(j);
    }
    if (joined < 0) continue;
    join(state, joined, device);
    add_move(moves, joined, device, true);
  }
  return moves;
}

std::vector<Leave> burdens(const std::vector<PlannedJob>& jobs, const std::vector<double>& speeds,
                           const ScheduleOptions& options) {
  std::vector<Leave> leaves;
  if (options.strategy != Strategy::kAgents) return leaves;  // with ddp all that came were chosen so
  const auto speed = [&](int device) { return speeds[static_cast<size_t>(device)]; };
  for (size_t j = 0; j < jobs.size(); ++j) {
    const PlannedJob& job = jobs[j];
    if (job.done || !job.begun || job.start_left > 0 || !job.joining.empty() || job.devices.size() < 2) continue;
    std::vector<int> order = job.devices;  // the fastest first
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return speed(a) > speed(b); });
    std::vector<double> used;
    double best = 0;
    size_t stay = 0;
    for (const int device : order) {
      used.push_back(speed(device));
      const double rate = work_rate(job.shards, used, options.combine_share);
      if (rate > best) best = rate, stay = used.size();
    }
    const double now = work_rate(job.shards, used, options.combine_share);
    const double wins = job.work / now - job.work / best - options.hold_seconds;
    if (stay == order.size() || best < kBetterAlone * now || wins < options.least_gain) continue;
    leaves.push_back({static_cast<int>(j), {order.begin() + static_cast<std::ptrdiff_t>(stay), order.end()}});
  }
  return leaves;
}

Forecast forecast(std::vector<PlannedJob> jobs, const std::vector<double>& speeds, const ScheduleOptions& options) {
  return play(make_state(jobs, speeds, options), true);
}

double ideal_seconds(const std::vector<PlannedJob>& jobs, const std::vector<double>& speeds) {
  double work = 0;
  for (const PlannedJob& job : jobs) work += job.done ? 0 : job.work;
  return work / std::accumulate(speeds.begin(), speeds.end(), 0.0);
}

std::string_view name_of(Assignment assignment) {
  switch (assignment) {
    case Assignment::kSpecialized:
      return "specialized";
    case Assignment::kHierarchical:
      return "hierarchical";
    case Assignment::kBalanced:
      return "balanced";
    case Assignment::kSearched:
      break;
  }
  return "searched";
}

}  // namespace tandem
