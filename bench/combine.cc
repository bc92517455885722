// bench/combine.cc -- what a combine costs: ours through shared memory and over Gloo, beside Gloo's own all-reduce.
//
//   combine [ranks ...]        default: 2 3 4        COMBINE_FLOATS, COMBINE_ROUNDS
//
// Ranks are processes of this machine; Gloo goes over loopback. First equal results: ours must be the bits of one
// process, Gloo's the same up to rounding. Then all contenders in turn, in every round; a round's time is from the
// start of the first rank to the end of the last (median, median deviation), `cpu` the time of all ranks' threads
// together, which tells more where ranks outnumber free cores. Gloo works in place and its sum is our vectorised one;
// ours is the whole of begin, add and finish (the vector stays, so over Gloo it is not copied) where a rank has one
// partial, and finish alone where shards are added up first. Goals: shared memory at most 0.5 of Gloo's time; over Gloo
// at most 1.25 with one partial, 1.1 (p+1)/2 with p.
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "kernels/cpu/sums.h"
#include "reduce/gloo_combine.h"
#include "reduce/mesh_trial.h"
#include "reduce/shm_combine.h"

namespace tandem {
namespace {

constexpr int kMostRanks = 16, kMostContenders = 8, kMostRounds = 512;

struct Scene {  // shared by the ranks
  pthread_barrier_t barrier;
  struct Times {
    double start, end, cpu;
  } times[kMostContenders][kMostRounds][kMostRanks];
  bool same[kMostContenders][kMostRanks];
  double difference[kMostRanks];
};

double cpu_seconds() {  // of all threads of this rank
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct NeverAbandoned : Watch {
  bool abandoned(uint64_t, int64_t) const override { return false; }
};

struct Plan {
  int shards;
  std::vector<ShardRange> ranges;
  int partials() const {
    const SumTree tree(shards);
    size_t most = 0;
    for (const ShardRange& r : ranges) most = std::max(most, tree.cover(r.first, r.last).size());
    return static_cast<int>(most);
  }
};

Plan one_shard_each(int ranks) {
  Plan plan{ranks, {}};
  for (int r = 0; r < ranks; ++r) plan.ranges.push_back({r, r + 1});
  return plan;
}

Plan cut_through_the_tree(int ranks) {  // 24 shards, as evenly as they go, all cuts one further than an even plan's
  Plan plan{24, {}};
  int first = 0;
  for (int r = 0; r < ranks; ++r) {
    const int last = r + 1 == ranks ? 24 : 24 * (r + 1) / ranks + (24 % ranks ? 0 : 1);
    plan.ranges.push_back({first, last});
    first = last;
  }
  return plan;
}

// Of many magnitudes, so that another order of adding gives other bits.
void fill(std::vector<float>& values, int shard) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = trial::mix(i * 64 + shard);
    values[i] = (static_cast<float>(bits >> 40) * 0x1p-24f - 0.5f) / static_cast<float>(1 << bits % 16);
  }
}

// What all ranks together must get, computed here by one process.
std::vector<float> reference(const Plan& plan, int64_t floats) {
  LocalCombine combine(plan.shards, {{0, plan.shards}});
  std::vector<float> values(floats);
  combine.begin({.floats = floats});
  for (int shard = 0; shard < plan.shards; ++shard) {
    fill(values, shard);
    combine.add(shard, {values, {}, {}, {}});
  }
  const Total total = combine.finish();
  return {total.floats.begin(), total.floats.end()};
}

struct Contender {
  std::string name;
  double goal;  // times Gloo's all-reduce
  std::function<void()> prepare, run;
  std::function<std::span<const float>()> result;
};

// A combine with a plan. With one shard it is timed whole; else the shards are added before.
Contender contender(const std::string& name, double goal, const Plan& plan, int me, int64_t floats,
                    std::shared_ptr<Combine> combine) {
  struct State {
    std::vector<std::vector<float>> vectors;
    Total total;
  };
  auto state = std::make_shared<State>();
  const ShardRange mine = plan.ranges[me];
  for (int shard = mine.first; shard < mine.last; ++shard) {
    state->vectors.emplace_back(floats);
    fill(state->vectors.back(), shard);
  }
  auto add = [=] {
    combine->begin({.floats = floats});
    for (int shard = mine.first; shard < mine.last; ++shard)
      combine->add(shard, {state->vectors[shard - mine.first], {}, {}, {}, true});
  };
  auto finish = [=] { state->total = combine->finish(); };
  const bool whole = plan.partials() == 1;
  return {name, goal, whole ? [] {} : std::function<void()>(add),
          whole ? [=] { add(), finish(); } : std::function<void()>(finish), [=] { return state->total.floats; }};
}

struct AllReduce {
  std::shared_ptr<gloo::Context> context;
  std::vector<float> source, values;
  std::unique_ptr<gloo::AllreduceOptions> options;

  AllReduce(std::shared_ptr<gloo::Context> c, int64_t floats, int shard)
      : context(std::move(c)), source(floats), values(floats) {
    fill(source, shard);
  }
  void prepare() { values = source; }
  void run() {
    gloo::AllreduceOptions o(context);
    o.setOutput(values.data(), values.size());
    o.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    o.setReduceFunction([](void* out, const void* a, const void* b, size_t n) {
      const float* inputs[2] = {static_cast<const float*>(a), static_cast<const float*>(b)};
      add_in_order(static_cast<float*>(out), inputs, 2, static_cast<int64_t>(n));
    });
    gloo::allreduce(o);
  }
};

double median_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Setting {
  int ranks;
  int64_t floats;
  int rounds;
  Plan whole, cut;
  std::vector<float> want_whole, want_cut;
};

ShmShape shape_of(const Plan& plan, int64_t floats) {
  ShmShape shape;
  shape.shards = plan.shards;
  shape.ranges = plan.ranges;
  shape.max_floats = floats;
  return shape;
}

void rank_main(const Setting& s, int me, KeyValueStore& store, const SharedMemory& whole_segment,
               const SharedMemory& cut_segment, Scene& scene) {
  const NeverAbandoned watch;
  auto mesh = [&](const std::string& name) {
    MeshOptions options = trial::loopback(me, s.ranks);
    options.name = name;
    return connect_mesh(options, store);
  };
  auto view = [](const SharedMemory& segment) {
    return SharedMemory::adopt(dup(segment.fd()), segment.bytes().size());
  };
  auto baseline = std::make_shared<AllReduce>(mesh("baseline"), s.floats, me);
  const double p = s.cut.partials();
  std::vector<Contender> contenders;
  contenders.push_back({"Gloo's all-reduce", 0, [=] { baseline->prepare(); }, [=] { baseline->run(); },
                        [=] { return std::span<const float>(baseline->values); }});
  contenders.push_back(
      contender("shared memory", 0.5, s.whole, me, s.floats,
                std::make_shared<ShmCombine>(shape_of(s.whole, s.floats), me, view(whole_segment), 1, 0, watch)));
  contenders.push_back(
      contender(fmt::format("shared memory, p = {}", p), 0.5 * (p + 1) / 2, s.cut, me, s.floats,
                std::make_shared<ShmCombine>(shape_of(s.cut, s.floats), me, view(cut_segment), 1, 0, watch)));
  contenders.push_back(
      contender("over Gloo", 1.25, s.whole, me, s.floats,
                std::make_shared<GlooCombine>(s.whole.shards, s.whole.ranges, mesh("one"), 1, 0, watch)));
  contenders.push_back(contender(fmt::format("over Gloo, p = {}", p), 1.1 * (p + 1) / 2, s.cut, me, s.floats,
                                 std::make_shared<GlooCombine>(s.cut.shards, s.cut.ranges, mesh("cut"), 1, 0, watch)));
  const int count = static_cast<int>(contenders.size());
  for (int round = -2; round < s.rounds; ++round) {  // two to warm up
    for (int k = 0; k < count; ++k) {
      const int c = (k + round + count) % count;
      contenders[c].prepare();
      pthread_barrier_wait(&scene.barrier);
      const double cpu = cpu_seconds(), start = monotonic_seconds();
      contenders[c].run();
      const double end = monotonic_seconds();
      if (round >= 0) scene.times[c][round][me] = {start, end, cpu_seconds() - cpu};
      pthread_barrier_wait(&scene.barrier);
      if (round != -2 && round != s.rounds - 1) continue;
      const std::span<const float> got = contenders[c].result();
      const std::vector<float>& want =
          c == 0 || contenders[c].name.find("p =") == std::string::npos ? s.want_whole : s.want_cut;
      if (c == 0) {
        for (size_t i = 0; i < want.size(); ++i)
          scene.difference[me] = std::max<double>(scene.difference[me], std::fabs(got[i] - want[i]));
        scene.same[c][me] = scene.difference[me] < 1e-5;
      } else {
        scene.same[c][me] = got.size() == want.size() && std::memcmp(got.data(), want.data(), got.size_bytes()) == 0;
      }
    }
  }
  if (me == 0) {  // names and goals are known here; the parent prints
    for (int c = 0; c < count; ++c) {
      std::vector<double> times, cpus;
      for (int r = 0; r < s.rounds; ++r) {
        const auto* t = scene.times[c][r];
        double start = t[0].start, end = t[0].end, cpu = t[0].cpu;
        for (int m = 1; m < s.ranks; ++m)
          start = std::min(start, t[m].start), end = std::max(end, t[m].end), cpu += t[m].cpu;
        times.push_back((end - start) * 1e6);
        cpus.push_back(cpu * 1e6);
      }
      const double median = median_of(times);
      std::vector<double> away;
      for (double t : times) away.push_back(std::fabs(t - median));
      static double baseline_median = 0;
      if (c == 0) baseline_median = median;
      fmt::print("  {:<24} {:9.0f} us +- {:6.0f}   cpu {:8.0f} us", contenders[c].name, median, median_of(away),
                 median_of(cpus));
      if (c > 0) {
        const double ratio = median / baseline_median;
        fmt::print("   {:5.2f}x  goal {:4.2f}  {}", ratio, contenders[c].goal,
                   ratio <= contenders[c].goal ? "met" : "MISSED");
      }
      fmt::print("\n");
    }
    std::fflush(stdout);
  }
  pthread_barrier_wait(&scene.barrier);
}

bool compare(int ranks, int64_t floats, int rounds) {
  Setting s{ranks, floats, rounds, one_shard_each(ranks), cut_through_the_tree(ranks), {}, {}};
  s.want_whole = reference(s.whole, floats);
  s.want_cut = reference(s.cut, floats);
  std::string cuts;
  for (const ShardRange& r : s.cut.ranges) cuts += fmt::format(" {}", r.size());
  fmt::print("combine  {:.1f} MB  {} ranks  (p = {}: 24 shards as{})\n", static_cast<double>(floats) * 4 / 1e6, ranks,
             s.cut.partials(), cuts);
  const SharedMemory whole_segment = SharedMemory::create("bench", shm_combine_bytes(shape_of(s.whole, floats)));
  const SharedMemory cut_segment = SharedMemory::create("bench", shm_combine_bytes(shape_of(s.cut, floats)));
  const trial::Shared<Scene> scene;
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&scene->barrier, &shared, ranks);
  trial::SharedStore store;
  std::vector<pid_t> children;
  for (int me = 0; me < ranks; ++me) {
    children.push_back(trial::start([&, me] {
      alarm(600);
      rank_main(s, me, store, whole_segment, cut_segment, *scene);
    }));
  }
  bool good = true;
  for (pid_t child : children) good = trial::end_of(child) == 0 && good;
  double difference = 0;
  for (int m = 0; m < ranks; ++m) {
    difference = std::max(difference, scene->difference[m]);
    for (int c = 0; c < 5; ++c) good = good && scene->same[c][m];
  }
  fmt::print("  same bits as one process: {}   Gloo's all-reduce differs by {:.1e}   ({} rounds, in turn)\n",
             good ? "yes" : "NO", difference, rounds);
  return good;
}

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  std::vector<int> ranks;
  for (int i = 1; i < argc; ++i) ranks.push_back(std::atoi(argv[i]));
  if (ranks.empty()) ranks = {2, 3, 4};
  const int floats = tandem::setting("COMBINE_FLOATS", 6 << 20);
  const int rounds = std::min(tandem::setting("COMBINE_ROUNDS", 25), tandem::kMostRounds);
  bool good = true;
  for (int n : ranks) {
    if (n < 2 || n > tandem::kMostRanks) {
      fmt::print(stderr, "error: {} ranks; from 2 to {}\n", n, tandem::kMostRanks);
      return 2;
    }
    good = tandem::compare(n, floats, rounds) && good;
  }
  return good ? 0 : 1;
}
