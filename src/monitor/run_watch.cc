#include "monitor/run_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "monitor/clean_text.h"
#include "telemetry/atomic_file.h"
#include "telemetry/metrics_line.h"
#include "telemetry/run_name.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

constexpr double kPaceSeconds = 10;
constexpr double kLiveSeconds = 10;  // an older live.json is not used
constexpr size_t kMostRanks = 1024;
constexpr size_t kMostPhases = 32;
constexpr size_t kMostAgents = 64;
constexpr int64_t kMostSmall = 1'000'000'000;  // of ranks and shards: sums of them stay numbers
constexpr size_t kSmallFile = size_t{4} << 20;

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string text_of(const nlohmann::json& object, const char* key, size_t most = kLongestName) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? clean_text(found->get_ref<const std::string&>(), most)
                                                     : std::string();
}

int64_t whole_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return 0;
  if (found->is_number_unsigned()) return static_cast<int64_t>(std::min(found->get<uint64_t>(), uint64_t{INT64_MAX}));
  return found->get<int64_t>();
}

int small_of(const nlohmann::json& object, const char* key) {
  return static_cast<int>(std::clamp(whole_of(object, key), int64_t{0}, kMostSmall));
}

std::string this_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::optional<double> number_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::optional<double> present(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

}  // namespace

const nlohmann::json& ChangingJson::read() {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0 || !S_ISREG(now.st_mode)) {  // a pipe would hold us
    stamp_ = {};
    value_ = nlohmann::json::object();
    return value_;
  }
  if (now.st_ino == stamp_.st_ino && now.st_size == stamp_.st_size && now.st_mtim.tv_sec == stamp_.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == stamp_.st_mtim.tv_nsec)
    return value_;
  stamp_ = now;
  ++changes_;
  const auto text = read_small_file(path_, kSmallFile);
  value_ = text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json::object();
  if (!value_.is_object()) value_ = nlohmann::json::object();
  return value_;
}

double ChangingJson::modified() const { return seconds_of(stamp_.st_mtim); }

RunWatch::RunWatch(const std::filesystem::path& dir, std::string name)
    : dir_(dir),
      name_(std::move(name)),
      run_json_(dir / "run.json"),
      live_json_(dir / "live.json"),
      metrics_(dir / "metrics.jsonl"),
      events_(dir / "events.jsonl", size_t{16} << 10) {}

double RunWatch::last_sign_of_life() const { return std::max(run_json_.modified(), metrics_.modified()); }

RunReading RunWatch::read(double unix_now, double monotonic, HostMeter& meter) {
  RunReading run;
  const nlohmann::json& json = run_json_.read();
  run.id = name_.empty() ? text_of(json, "id") : clean_text(name_);
  if (run.id.empty()) run.id = clean_text(dir_.filename().string());
  run.recipe = text_of(json, "recipe");
  if (run_json_.changes() != name_changes_) {
    name_changes_ = run_json_.changes();
    shown_name_ = clean_text(run_name(dir_));
  }
  run.name = shown_name_.empty() ? run.recipe : shown_name_;
  run.dir = clean_text(dir_.string(), kLongestText);
  run.started = text_of(json, "started");
  run.unit = text_of(json, "unit");
  run.status = clean_text(present_status(json, dir_));
  run.step = whole_of(json, "step");
  run.total_steps = whole_of(json, "total_steps");
  run.loss = number_of(json, "loss");
  if (const auto process = json.find("process"); process != json.end() && process->is_object()) {
    if (const std::string host = text_of(*process, "host"); host != this_host()) run.host = host;
  }
  read_metrics(run, unix_now, monotonic);
  if (any_) read_steps(run);
  if (run.alive()) {
    if (any_) run.step_seconds = present(last_.seconds);
    // One that was resumed has not stood still since its last step of long ago.
    if (run_json_.changes() != run_changes_) {
      begun_at_ = monotonic - std::max(0.0, unix_now - run_json_.modified());
      run_changes_ = run_json_.changes();
    }
    if (any_ && std::isfinite(last_.time))
      run.since_step_s = std::max(0.0, monotonic - std::max(stepped_at_, begun_at_));
    if (pace_.size() > 1 && pace_.back().time > pace_.front().time && !run.stalled()) {
      run.steps_per_s =
          static_cast<double>(pace_.back().step - pace_.front().step) / (pace_.back().time - pace_.front().time);
      if (mean_samples_ > 0) run.samples_per_s = *run.steps_per_s * mean_samples_;
      if (run.total_steps > run.step && *run.steps_per_s > 0)
        run.seconds_left = static_cast<double>(run.total_steps - run.step) / *run.steps_per_s;
    }
    read_ranks(run, unix_now, monotonic, meter);
  }
  read_events(run);
  return run;
}

void RunWatch::read_steps(RunReading& run) {
  run.step = std::max(run.alive() ? int64_t{0} : run.step, last_.step);
  run.loss = present(last_.loss);
  run.learning_rate = present(last_.learning_rate);
  run.grad_norm = present(last_.grad_norm);
  double sum = 0;
  for (const auto& [name, seconds] : last_.phase_seconds) sum += seconds;
  for (const auto& [name, seconds] : last_.phase_seconds)
    if (sum > 0 && std::isfinite(sum) && run.phases.size() < kMostPhases)
      run.phases.emplace_back(clean_text(name), seconds / sum);
  run.job_losses.assign(job_losses_.begin(), job_losses_.end());
  run.figures = figures_;
  run.figures.validated = clean_text(run.figures.validated);
  for (LearningFigures::Agent& agent : run.figures.agents) agent.name = clean_text(agent.name);
}

void RunWatch::read_metrics(RunReading& run, double unix_now, double monotonic) {
  const std::string_view lines = metrics_.read_new();
  if (metrics_.began_anew()) {  // resumed: steps are made again; or another run has this folder now
    pace_.clear();
    job_losses_.clear();
    figures_ = {};
    any_ = false;
  }
  double sum = 0, samples = 0;
  int64_t count = 0, records = 0;
  for_each_line(lines, [&](std::string_view line) {
    if (!parse_metrics_line(line, record_, reason_)) return;
    // Steps that are made again, or a clock that was set back: the pace is measured from here.
    if (pace_.empty() || pace_.back().step >= record_.step || !(record_.time >= pace_.back().time))
      pace_.assign(1, {record_.time, record_.step});
    if (std::isfinite(record_.samples)) samples += record_.samples, ++records;
    if (std::isfinite(record_.loss)) sum += record_.loss, ++count;
    if (!record_.job.empty() && job_losses_.size() < 64) job_losses_[clean_text(record_.job)] = record_.loss;
    figures_.take(record_.metrics);
    if (figures_.agents.size() > kMostAgents) figures_.agents.resize(kMostAgents);
    std::swap(last_, record_);
    any_ = true;
  });
  if (records > 0) mean_samples_ = samples / static_cast<double>(records);  // the last step of an epoch has fewer
  if (count > 0) run.window_loss = sum / static_cast<double>(count);
  if (lines.empty() || !any_) return;
  stepped_at_ = monotonic - std::max(0.0, unix_now - last_.time);
  if (pace_.empty() || last_.step > pace_.back().step) pace_.push_back({last_.time, last_.step});
  while (pace_.size() > 2 && pace_.back().time - pace_[1].time >= kPaceSeconds) pace_.pop_front();
}

void RunWatch::read_events(RunReading& run) {
  const std::string_view lines = events_.read_new();
  if (events_.began_anew()) {
    event_kind_.clear(), event_text_.clear(), warning_.clear();
    event_time_ = 0;
  }
  for_each_line(lines, [&](std::string_view line) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object()) return;
    event_kind_ = text_of(event, "kind");
    event_text_ = text_of(event, "text", kLongestText);
    event_time_ = number_of(event, "t").value_or(0);
    if (event_kind_ == "warning" || event_kind_ == "fault") warning_ = event_text_;
    if (event_kind_ == "resume") warning_.clear();
  });
  run.event_kind = event_kind_;
  run.event_text = event_text_;
  if (event_time_ > 0) run.event_time = event_time_;
  run.warning = warning_;
}

void RunWatch::read_ranks(RunReading& run, double unix_now, double monotonic, HostMeter& meter) {
  const nlohmann::json& live = live_json_.read();
  if (live_json_.changes() != live_changes_) {
    // What is found at the first look may be old; what changed while we looked is new, whatever its clock says.
    live_at_ = live_changes_ == 0 ? monotonic - std::max(0.0, unix_now - live_json_.modified()) : monotonic;
    live_changes_ = live_json_.changes();
  }
  const auto ranks = live.find("ranks");
  if (ranks == live.end() || !ranks->is_array() || monotonic - live_at_ > kLiveSeconds) return;
  run.step = std::max(run.step, whole_of(live, "step"));
  for (const nlohmann::json& row : *ranks) {
    if (!row.is_object()) continue;
    if (run.ranks.size() == kMostRanks) break;
    RankReading rank;
    rank.rank = small_of(row, "rank");
    rank.device = text_of(row, "device");
    rank.state = text_of(row, "state");
    rank.phase = text_of(row, "phase");
    rank.first_shard = small_of(row, "first");
    rank.shards = small_of(row, "shards");
    rank.shards_per_s = number_of(row, "shards_per_s");
    if (const auto busy = number_of(row, "busy")) rank.busy_percent = 100 * *busy;
    rank.restarts = small_of(row, "restarts");
    rank.uuid = text_of(row, "uuid");
    // Of a run on another machine (a shared folder) the number is some other process's here.
    if (const int64_t pid = whole_of(row, "pid"); pid > 0 && run.host.empty()) {
      rank.pid = pid;
      const HostMeter::Process process = meter.read_process(pid, monotonic);
      rank.cpu_percent = process.cpu_percent;
      rank.memory_bytes = process.memory_bytes;
    }
    run.ranks.push_back(std::move(rank));
  }
}

}  // namespace tandem
