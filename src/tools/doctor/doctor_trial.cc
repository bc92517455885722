// tools/doctor/doctor_trial.cc -- what doctor tries for real: a sum over processes, its bandwidth, and the workers
// themselves.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "reduce/shm_combine.h"
#include "tools/doctor/doctor.h"

extern char** environ;

namespace tandem {
namespace fs = std::filesystem;
namespace {

struct NeverAbandoned : Watch {
  bool abandoned(uint64_t, int64_t) const override { return false; }
};

// A number that depends on shard and place, and whose sums round.
float value_of(int shard, int64_t i) { return 1.0f / static_cast<float>(3 + shard + i % 1009); }

std::vector<float> vector_of(int shard, int64_t length) {
  std::vector<float> values(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) values[static_cast<size_t>(i)] = value_of(shard, i);
  return values;
}

std::vector<ShardRange> one_each(int processes) {
  std::vector<ShardRange> ranges;
  for (int i = 0; i < processes; ++i) ranges.push_back({i, i + 1});
  return ranges;
}

std::vector<float> sum_in_one_process(int processes, int64_t length) {
  LocalCombine combine(processes, {{0, processes}});
  combine.begin({.floats = length});
  for (int shard = 0; shard < processes; ++shard) combine.add(shard, {.floats = vector_of(shard, length)});
  const auto total = combine.finish().floats;
  return {total.begin(), total.end()};
}

// What each process found, in memory that all share.
struct TrialResults {
  int64_t wrong[16];
  double seconds[16];
};

// `act(member, combine)` in a process for each member; false if one of them ended badly or took more than 20 s.
template <class Act>
bool in_processes(int processes, int64_t floats, Act act) {
  ShmShape shape;
  shape.shards = processes;
  shape.ranges = one_each(processes);
  shape.max_floats = floats;
  const SharedMemory segment = SharedMemory::create("doctor", shm_combine_bytes(shape));
  std::vector<pid_t> children;
  for (int me = 0; me < processes; ++me) {
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      alarm(20);  // a sum that never ends must not hold the doctor up
      try {
        const NeverAbandoned watch;
        ShmCombine combine(shape, me, SharedMemory::adopt(dup(segment.fd()), segment.bytes().size()), 1, 0, watch);
        act(me, combine);
      } catch (const std::exception&) {
        _exit(1);
      }
      _exit(0);
    }
    if (child > 0) children.push_back(child);
  }
  bool fine = static_cast<int>(children.size()) == processes;
  if (!fine) {
    for (const pid_t child : children) kill(child, SIGKILL);
  }
  while (!children.empty()) {
    for (size_t i = 0; i < children.size();) {
      int status = 0;
      const pid_t ended = waitpid(children[i], &status, WNOHANG);
      if (ended == 0) {
        ++i;
        continue;
      }
      children.erase(children.begin() + static_cast<ptrdiff_t>(i));
      if (ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      fine = false;  // the others would wait for it
      for (const pid_t child : children) kill(child, SIGKILL);
    }
    const timespec little{0, 500'000};
    if (!children.empty()) nanosleep(&little, nullptr);
  }
  return fine;
}

}  // namespace

Finding try_sum(int processes) {
  constexpr int64_t kLength = 100'003;
  const double start = monotonic_seconds();
  const std::vector<float> want = sum_in_one_process(processes, kLength);
  const SharedMemory shared = SharedMemory::create("doctor-results", sizeof(TrialResults));
  auto* results = reinterpret_cast<TrialResults*>(shared.bytes().data());
  const bool fine = in_processes(processes, kLength, [&](int me, Combine& combine) {
    const std::vector<float> mine = vector_of(me, kLength);
    combine.begin({.floats = kLength});
    combine.add(me, {.floats = mine});
    const auto total = combine.finish().floats;
    int64_t wrong = 0;
    for (size_t i = 0; i < want.size(); ++i) wrong += std::memcmp(&total[i], &want[i], sizeof(float)) != 0;
    results->wrong[me] = wrong;
  });
  int64_t wrong = 0;
  for (int me = 0; me < processes; ++me) wrong += results->wrong[me];
  const double ms = 1000 * (monotonic_seconds() - start);
  if (!fine)
    return {"sum", Verdict::kProblem,
            fmt::format("{} processes could not add up a vector over shared memory", processes),
            "tandem doctor --report report.md   (and send it: this should not happen)"};
  if (wrong > 0)
    return {"sum", Verdict::kProblem,
            fmt::format("{} of {} numbers differ between {} processes and one", wrong, kLength, processes),
            "test this machine's memory: sudo memtester 1G 1"};
  return {"sum", Verdict::kOk,
          fmt::format("{} processes add {} numbers to the bits of one, in {:.0f} ms", processes, kLength, ms)};
}

Bandwidth measure_bandwidth(int processes) {
  const SharedMemory shared = SharedMemory::create("doctor-results", sizeof(TrialResults));
  auto* results = reinterpret_cast<TrialResults*>(shared.bytes().data());
  Bandwidth measured;
  for (int64_t bytes = 1024; bytes <= 64 << 20; bytes *= 4) {
    const int64_t count = bytes / 4;
    const int rounds = static_cast<int>(std::clamp<int64_t>((16 << 20) / bytes, 3, 200));
    const std::vector<float> want = sum_in_one_process(processes, count);
    std::memset(results, 0, sizeof *results);
    const bool fine = in_processes(processes, count, [&](int me, Combine& combine) {
      const std::vector<float> mine = vector_of(me, count);
      int64_t wrong = 0;
      double start = 0;
      for (int round = -2; round < rounds; ++round) {  // two to warm up
        if (round == 0) start = monotonic_seconds();
        combine.begin({.floats = count});
        combine.add(me, {.floats = mine, .stays = true});
        const auto total = combine.finish().floats;
        if (round == -2) {
          for (size_t i = 0; i < want.size(); ++i) wrong += std::memcmp(&total[i], &want[i], sizeof(float)) != 0;
        }
      }
      results->seconds[me] = (monotonic_seconds() - start) / rounds;
      results->wrong[me] = wrong;
    });
    if (!fine) {
      measured.trouble = fmt::format("{} processes could not add up {} bytes over shared memory", processes, bytes);
      break;
    }
    BandwidthRow row{.bytes = bytes, .count = count};
    double seconds = 0;
    for (int me = 0; me < processes; ++me)
      seconds = std::max(seconds, results->seconds[me]), row.wrong += results->wrong[me];
    row.time_us = seconds * 1e6;
    row.algbw_gb_per_s = static_cast<double>(bytes) / seconds / 1e9;
    row.busbw_gb_per_s = row.algbw_gb_per_s * 2 * (processes - 1) / processes;
    measured.rows.push_back(row);
  }
  return measured;
}

std::string bandwidth_text(const std::vector<BandwidthRow>& rows, const std::string& over) {
  std::string text = fmt::format("# all-reduce over {} (columns as in nccl-tests, out of place)\n", over);
  text += fmt::format("# {:>10} {:>12} {:>8} {:>6} {:>10} {:>8} {:>8} {:>7}\n", "size", "count", "type", "redop",
                      "time", "algbw", "busbw", "#wrong");
  text += fmt::format("# {:>10} {:>12} {:>8} {:>6} {:>10} {:>8} {:>8} {:>7}\n", "(B)", "(elements)", "", "", "(us)",
                      "(GB/s)", "(GB/s)", "");
  double sum = 0;
  for (const BandwidthRow& row : rows) {
    const int decimals = row.time_us >= 1e4 ? 0 : row.time_us >= 100 ? 1 : 2;  // as there too
    text += fmt::format("  {:>10} {:>12} {:>8} {:>6} {:>10.{}f} {:>8.2f} {:>8.2f} {:>7}\n", row.bytes, row.count,
                        "float", "sum", row.time_us, decimals, row.algbw_gb_per_s, row.busbw_gb_per_s, row.wrong);
    sum += row.busbw_gb_per_s;
  }
  if (!rows.empty()) text += fmt::format("# Avg bus bandwidth    : {:.2f}\n", sum / static_cast<double>(rows.size()));
  return text;
}

// ---- the workers ----

namespace {

constexpr int kTrialSteps = 12;
constexpr double kTrialSeconds = 60;
constexpr char kNotTried[] = "not tried: no recipe of this program is made for it";

void leave_out_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('='));
    for (const char* front : {"TANDEM_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_"}) {
      if (name.starts_with(front)) names.push_back(name);
    }
  }
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"})
    names.push_back(name);
  for (const std::string& name : names) unsetenv(name.c_str());
}

std::string all_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string last_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (line.starts_with("error:")) return line.substr(7);
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

WorkerTrial::WorkerTrial(const CliContext& context, const fs::path& folder) : folder_(folder) {
  if (const RecipeInfo* const recipe = recipe_to_try(context)) recipe_ = recipe->name;
  if (access(context.worker.c_str(), X_OK) != 0) {
    trouble_ = "there is no worker to try";
    return;
  }
  if (recipe_.empty()) return;
  std::error_code error;
  program_ = fs::read_symlink("/proc/self/exe", error);
  children_.push_back(start("cpu:1", "on-1"));
}

WorkerTrial::Child WorkerTrial::start(const std::string& devices, const std::string& name) {
  Child child;
  child.out = folder_ / (name + ".json");
  child.err = folder_ / (name + ".log");
  const std::string run_dir = (folder_ / name).string(), steps = std::to_string(kTrialSteps);
  const std::vector<std::string> words = {
      program_.string(), "train",  recipe_,     "--steps", steps,         "--seed",         "7",
      "--devices",       devices,  "--run-dir", run_dir,   "--runs-root", folder_.string(), "--checkpoint-every",
      "never",           "--json", "--quiet"};
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::string out = child.out.string(), err = child.err.string(), cache = (folder_ / "cache").string();
  const pid_t parent = getpid();
  child.pid = fork();
  if (child.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // Neither settings of the user's own nor another launcher's ranks may change what is tried.
    leave_out_variables();
    // A trial is no training: with a cache of its own it neither has a forecast nor counts among the plan's outcomes.
    setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    const int null = open("/dev/null", O_RDONLY), to = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
              talk = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (chdir(folder_.c_str()) != 0 || null < 0 || to < 0 || talk < 0) _exit(1);
    dup2(null, 0), dup2(to, 1), dup2(talk, 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return child;
}

bool WorkerTrial::wait(Child& child, double deadline) {
  while (child.pid > 0) {
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) == child.pid) {
      child.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      child.pid = -1;
      break;
    }
    if (monotonic_seconds() > deadline) return false;
    const timespec little{0, 5'000'000};
    nanosleep(&little, nullptr);
  }
  return child.code == 0;
}

WorkerTrial::~WorkerTrial() {
  for (Child& child : children_) {
    if (child.pid <= 0) continue;
    kill(child.pid, SIGKILL);  // its workers end with it
    waitpid(child.pid, nullptr, 0);
  }
}

std::string WorkerTrial::digest_of(Child& child, const std::string& check, const std::string& devices, Finding& wrong) {
  if (!wait(child, monotonic_seconds() + kTrialSeconds)) {
    wrong = {check, Verdict::kProblem,
             child.pid > 0
                 ? fmt::format("`{}` for {} steps is not over after {:.0f} s", recipe_, kTrialSteps, kTrialSeconds)
                 : fmt::format("`{}` ends with code {}: {}", recipe_, child.code, last_line(child.err)),
             fmt::format("tandem train {} --steps {} --devices {} -v", recipe_, kTrialSteps, devices)};
    return "";
  }
  const auto output = nlohmann::json::parse(all_of(child.out), nullptr, false);
  const std::string digest = output.is_object() ? output.value("digest", "") : "";
  if (digest.empty())
    wrong = {check, Verdict::kProblem, fmt::format("`{}` ends without a digest", recipe_),
             fmt::format("tandem train {} --steps {} --devices {} -v", recipe_, kTrialSteps, devices)};
  return digest;
}

std::optional<double> WorkerTrial::rate_of(const std::string& name) const {
  std::vector<double> seconds;
  std::ifstream metrics(folder_ / name / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const auto step = nlohmann::json::parse(line, nullptr, false);
    if (step.is_object() && step.value("step", 0) > 2 && step.contains("seconds")) seconds.push_back(step["seconds"]);
  }
  std::sort(seconds.begin(), seconds.end());
  if (seconds.empty() || seconds[seconds.size() / 2] <= 0) return {};
  return 1 / seconds[seconds.size() / 2];
}

Finding WorkerTrial::finish() {
  if (!trouble_.empty()) return {"workers", Verdict::kProblem, trouble_, "make build"};
  if (recipe_.empty()) return {"workers", Verdict::kOk, kNotTried};
  Finding wrong;
  const std::string one = digest_of(children_.front(), "workers", "cpu:1", wrong);
  if (one.empty()) return wrong;
  children_.push_back(start("cpu:2", "on-2"));  // after the first: its steps are timed
  const std::string two = digest_of(children_.back(), "workers", "cpu:2", wrong);
  if (two.empty()) return wrong;
  if (one != two)
    return {"workers", Verdict::kProblem,
            fmt::format("two workers give other weights than one ({:.8} against {:.8})", one, two),
            "tandem doctor --report report.md   (and send it: this must not happen)"};
  one_rate_ = rate_of("on-1");
  rate_ = rate_of("on-2");
  return {"workers", Verdict::kOk,
          fmt::format("{} steps of `{}` on one CPU worker and on two end in the same bits ({:.8})", kTrialSteps,
                      recipe_, one)};
}

Finding WorkerTrial::try_gpus(const std::vector<UsableGpu>& gpus) {
  if (!trouble_.empty()) return {"on cards", Verdict::kProblem, trouble_, "make build"};
  if (recipe_.empty()) return {"on cards", Verdict::kOk, kNotTried};
  Finding wrong;
  std::vector<std::string> names;
  for (const UsableGpu& gpu : gpus) names.push_back(fmt::format("cuda:{}", gpu.device));
  children_.push_back(start(names.front(), "on-card"));
  const std::string one = digest_of(children_.back(), "on cards", names.front(), wrong);
  if (one.empty()) return wrong;
  gpu_rate_ = rate_of("on-card");
  if (names.size() < 2)
    return {"on cards", Verdict::kOk, fmt::format("{} steps of `{}` on the GPU ({:.8})", kTrialSteps, recipe_, one)};
  const size_t count = names.size();
  const std::string every = fmt::format("{}", fmt::join(names, ","));
  children_.push_back(start(every, "on-cards"));
  const std::string all = digest_of(children_.back(), "on cards", every, wrong);
  if (all.empty()) return wrong;
  gpu_rate_ = rate_of("on-cards");
  // GPUs of several kinds may round in their own ways; a run says so at its start.
  return {"on cards", one == all ? Verdict::kOk : Verdict::kWarning,
          one == all ? fmt::format("{} steps of `{}` on the first GPU and on all {} end in the same bits ({:.8})",
                                   kTrialSteps, recipe_, count, one)
                     : fmt::format("`{}` on the first GPU and on all {} ends in other bits ({:.8}, {:.8})", recipe_,
                                   count, one, all),
          one == all ? "" : "train on GPUs of one kind where bits must repeat: --devices " + names.front()};
}

}  // namespace tandem
