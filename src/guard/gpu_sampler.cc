#include "guard/gpu_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/errors.h"
#include "guard/energy.h"
#include "guard/gpu_log.h"
#include "telemetry/atomic_file.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

constexpr double kOthersSeconds = 4;
constexpr double kFactsSeconds = 15;   // between looks at what changes rarely: the PCIe link
constexpr double kEnergySeconds = 10;  // between writes of energy.json
constexpr double kEndSeconds = 3;
constexpr double kXidSeconds = 10;    // before Xids are asked for again after the driver would not
constexpr size_t kMostSamples = 600;  // kept for a launcher that is stopped

}  // namespace

double guard_speed() {
  const char* text = std::getenv("TANDEM_GUARD_SPEED");
  return text && std::atof(text) > 0 ? std::atof(text) : 1;
}

bool WantedGpus::has(const GpuFacts& facts) const {
  if (all || indices.contains(facts.index) || (facts.uuid && uuids.contains(*facts.uuid))) return true;
  return std::any_of(facts.mig.begin(), facts.mig.end(), [&](const MigInstance& m) { return uuids.contains(m.uuid); });
}

// What both threads see. The thread keeps it alive, so a thread that hangs can be left behind.
struct GpuSampler::Shared {
  explicit Shared(GpuSamplerOptions given) : options(std::move(given)) {}
  const GpuSamplerOptions options;
  const double speed = guard_speed();

  std::mutex mutex;
  std::condition_variable wake;
  WantedGpus wanted;
  bool stop = false, stopped = false, opened = false;
  NvmlStatus status;
  std::deque<GuardSample> samples;
  std::deque<GuardAction> actions;
  std::deque<ActionResult> done;
  std::vector<GuardWord> words;
  bool gave_all_back = false;
  double round_at = monotonic_seconds();
  nlohmann::json energy;
  std::string energy_text;
};

namespace {

// The thread's own part.
class Round {
 public:
  Round(const GpuSamplerOptions& options, double speed)
      : options_(options), speed_(speed), energy_(options.price_kwh, options.currency) {
    if (options.run_dir.empty()) return;
    log_.emplace(options.run_dir / "gpus.jsonl");
    energy_.add_earlier(
        nlohmann::json::parse(read_small_file(options.run_dir / "energy.json", 1 << 20).value_or(""), nullptr, false));
    if (!options.wanted.any()) rapl_ = rapl_zones();
  }

  void open() {
    if (nvml_) return;
    nvml_ = Nvml::open();
    if (!works()) return;
    facts_ = nvml_->facts();
    lease_.emplace(*nvml_, options_.lease);
    if (!options_.restores) return;
    for (const Restored& one : restore_records(options_.lease.dir, *nvml_, false))
      if (!one.busy) words_.push_back({!one.ok, "left by a guard that is gone: " + one.text});
  }
  std::vector<GuardWord> words() { return std::exchange(words_, {}); }
  bool asked() const { return nvml_ != nullptr; }
  bool works() const { return nvml_ && nvml_->status().ok(); }
  NvmlStatus status() const { return nvml_ ? nvml_->status() : NvmlStatus{}; }
  bool has_work(const WantedGpus& wanted) const { return (works() && wanted.any()) || !rapl_.empty(); }

  GuardSample look(const WantedGpus& wanted) {
    const double now = monotonic_seconds();
    GuardSample sample{.time = now * speed_};
    if (works()) {
      for (const GpuFacts& facts : facts_)
        if (wanted.has(facts)) sample.gpus.push_back(nvml_->reading(facts.index, options_.processes));
      if (sample.time - facts_at_ >= kFactsSeconds) refresh(sample);
      for (const GpuFacts& facts : facts_)
        if (wanted.has(facts)) sample.facts.push_back(facts);
      if (lease_) look_after_watchdog();
    }
    for (const RaplZone& zone : rapl_)
      if (const auto joules = read_rapl(zone)) energy_.add_counter(zone.name, now, *joules, zone.wraps_at_j);
    energy_.add(sample.facts, sample.gpus);
    if (log_ && !sample.gpus.empty()) {
      look_at_others(wanted, sample.time);
      log_->add(unix_now(), sample.time, sample.facts, sample.gpus, others_);
    }
    return sample;
  }

  void look_after_watchdog() {
    const GuardAnswer answer = lease_->look_after_watchdog();
    if (!answer.ok && watchdog_well_) words_.push_back({true, answer.text()});
    if (answer.ok && !watchdog_well_) words_.push_back({false, "the guard's watchdog is there again"});
    watchdog_well_ = answer.ok;
  }

  // Whether GPUs that the run does not use are free: not of interest where somebody chose for it what it may see.
  void look_at_others(const WantedGpus& wanted, double time) {
    if (time < others_at_ + kOthersSeconds || std::getenv("CUDA_VISIBLE_DEVICES")) return;
    others_at_ = time;
    others_ = nlohmann::json::array();
    for (const GpuFacts& facts : facts_) {
      if (wanted.has(facts)) continue;
      const GpuReading now = nvml_->reading(facts.index, false);
      if (now.utilisation_percent) others_.push_back({{"index", facts.index}, {"util", *now.utilisation_percent}});
    }
  }

  // Facts of a GPU that has vanished are kept: its name is needed now.
  void refresh(const GuardSample& sample) {
    for (GpuFacts& facts : facts_) {
      const bool lost = std::any_of(sample.gpus.begin(), sample.gpus.end(),
                                    [&](const GpuReading& r) { return r.index == facts.index && r.lost; });
      if (lost) continue;
      GpuFacts now = nvml_->facts(facts.index);
      if (now.trouble.empty() && now.uuid == facts.uuid) facts = std::move(now);
    }
    facts_at_ = sample.time;
  }

  // Waits for so long, and returns an Xid at once.
  std::optional<XidEvent> wait_for_xid(int milliseconds) {
    const auto event = nvml_->next_xid(milliseconds);
    if (event.ok()) return event.value;
    using Kind = NvmlStatus::Kind;
    if (event.status.kind == Kind::kTimeout) return std::nullopt;
    if (event.status.kind == Kind::kNotSupported || event.status.kind == Kind::kNoFunction) {
      no_xids_ = true;  // no GPU here reports them
      return std::nullopt;
    }
    if (!std::exchange(reported_xids_, true))
      words_.push_back(
          {true, fmt::format("the driver does not report Xid errors now ({}); it is asked again", event.status.words)});
    xids_after_ = monotonic_seconds() + kXidSeconds / speed_;
    return std::nullopt;
  }
  bool waits() const { return works() && !no_xids_ && monotonic_seconds() >= xids_after_; }

  GuardAnswer carry_out(const GuardAction& action) {
    const auto about =
        std::find_if(facts_.begin(), facts_.end(), [&](const GpuFacts& f) { return f.index == action.gpu; });
    if (!lease_ || about == facts_.end()) return {false, "could not", "there is no such GPU", "tandem guard status"};
    switch (action.kind) {
      case GuardAction::Kind::kPower:
        return lease_->set_power(*about, action.value, action.from_w);
      case GuardAction::Kind::kPowerBack:
        return lease_->give_power_back(*about);
      case GuardAction::Kind::kFan:
        return lease_->set_fan(*about, static_cast<int>(action.value));
      case GuardAction::Kind::kFanAuto:
        return lease_->give_fan_back(*about);
      default:
        return GuardAnswer::good();
    }
  }

  void write_energy(bool now) {
    if (options_.run_dir.empty() || !energy_.any()) return;
    if (!now && monotonic_seconds() - energy_at_ < kEnergySeconds / speed_) return;
    energy_at_ = monotonic_seconds();
    try {
      write_file_atomically(options_.run_dir / "energy.json", energy_.json().dump(1) + "\n", Durability::kProcessDeath);
    } catch (const Error&) {
      return;  // a full disk costs this figure, not the run
    }
  }

  nlohmann::json energy() const { return energy_.any() ? energy_.json() : nlohmann::json(); }
  std::string energy_text() const { return energy_.text(); }
  std::vector<std::string> give_back() { return lease_ ? lease_->give_all_back() : std::vector<std::string>(); }

 private:
  const GpuSamplerOptions& options_;
  double speed_;
  std::unique_ptr<Nvml> nvml_;
  std::vector<GpuFacts> facts_;
  std::optional<Lease> lease_;
  std::optional<GpuLog> log_;
  std::vector<RaplZone> rapl_;
  EnergyMeter energy_;
  nlohmann::json others_ = nlohmann::json::array();
  double facts_at_ = 0, energy_at_ = 0, others_at_ = -1e9;
  std::vector<GuardWord> words_;
  double xids_after_ = 0;
  bool no_xids_ = false, reported_xids_ = false, watchdog_well_ = true;
};

}  // namespace

GpuSampler::GpuSampler(GpuSamplerOptions options) : shared_(std::make_shared<Shared>(std::move(options))) {
  shared_->wanted = shared_->options.wanted;
  std::thread([shared = shared_] { work(shared); }).detach();
}

GpuSampler::~GpuSampler() { end(); }

void GpuSampler::work(const std::shared_ptr<Shared>& shared) {
  watch(*shared);  // what it opened is closed when it returns
  const std::lock_guard lock(shared->mutex);
  shared->stopped = true;
  shared->wake.notify_all();
}

void GpuSampler::watch(Shared& s) {
  Round round(s.options, s.speed);
  const auto keep_words = [&] {  // the lock is held
    for (GuardWord& word : round.words()) s.words.push_back(std::move(word));
  };
  std::vector<XidEvent> xids;
  double next = monotonic_seconds();
  const double interval = s.options.interval_s / s.speed;
  for (bool last = false; !last;) {
    WantedGpus wanted;
    std::deque<GuardAction> actions;
    {
      std::unique_lock lock(s.mutex);
      wanted = s.wanted;
      if (wanted.any() && !round.asked() && !s.stop) {
        lock.unlock();
        round.open();
        lock.lock();
      }
      s.opened = round.asked();
      s.status = round.status();
      if (!round.has_work(wanted)) {  // nothing to watch: it sleeps until it is wanted or over
        s.round_at = -1;
        s.wake.wait(lock, [&] { return s.stop || !s.actions.empty() || !(s.wanted == wanted); });
        s.round_at = monotonic_seconds();
        if (!s.stop && s.actions.empty()) continue;
      }
      last = s.stop;
      actions.swap(s.actions);
    }
    for (const GuardAction& action : actions) {
      ActionResult done{action, round.carry_out(action)};
      done.time = monotonic_seconds() * s.speed;
      const std::lock_guard lock(s.mutex);
      s.done.push_back(std::move(done));
    }
    if (monotonic_seconds() >= next || last) {
      GuardSample sample = round.look(wanted);
      sample.xids = std::move(xids);
      xids.clear();
      round.write_energy(last);
      next += interval;
      if (next <= monotonic_seconds()) next = monotonic_seconds() + interval;
      const std::lock_guard lock(s.mutex);
      s.samples.push_back(std::move(sample));
      if (s.samples.size() > kMostSamples) s.samples.pop_front();
      s.energy = round.energy();
      s.energy_text = round.energy_text();
      keep_words();
      s.round_at = monotonic_seconds();
    }
    if (last) break;
    // Short waits, since an action may come; the driver itself waits for Xids.
    const double wait = std::clamp(next - monotonic_seconds(), 0.0, 0.1);
    if (round.waits()) {
      if (const auto event = round.wait_for_xid(static_cast<int>(wait * 1e3))) {
        xids.push_back(*event);
        next = 0;
      }
    } else {
      std::unique_lock lock(s.mutex);
      s.wake.wait_for(lock, std::chrono::duration<double>(wait), [&] { return s.stop || !s.actions.empty(); });
    }
  }
  const std::vector<std::string> troubles = round.give_back();
  const std::lock_guard lock(s.mutex);
  keep_words();
  for (const std::string& trouble : troubles) s.words.push_back({true, trouble});
  s.gave_all_back = troubles.empty();
}

std::vector<GuardSample> GpuSampler::take() {
  const std::lock_guard lock(shared_->mutex);
  std::vector<GuardSample> out(std::make_move_iterator(shared_->samples.begin()),
                               std::make_move_iterator(shared_->samples.end()));
  shared_->samples.clear();
  return out;
}

std::vector<ActionResult> GpuSampler::take_done() {
  const std::lock_guard lock(shared_->mutex);
  std::vector<ActionResult> out(std::make_move_iterator(shared_->done.begin()),
                                std::make_move_iterator(shared_->done.end()));
  shared_->done.clear();
  return out;
}

std::vector<GuardWord> GpuSampler::take_words() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->words, {});
}

void GpuSampler::submit(const GuardAction& action) {
  const std::lock_guard lock(shared_->mutex);
  shared_->actions.push_back(action);
  shared_->wake.notify_all();
}

void GpuSampler::want(const WantedGpus& wanted) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->wanted == wanted) return;
  shared_->wanted = wanted;
  shared_->wake.notify_all();
}

bool GpuSampler::end() {
  if (std::exchange(ended_, true)) return true;
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->wake.notify_all();
  return shared_->wake.wait_for(lock, std::chrono::duration<double>(kEndSeconds), [&] { return shared_->stopped; });
}

bool GpuSampler::gave_all_back() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->gave_all_back;
}

NvmlStatus GpuSampler::status() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->status;
}

bool GpuSampler::opened() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->opened;
}

double GpuSampler::quiet_seconds() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->round_at < 0 ? 0 : (monotonic_seconds() - shared_->round_at) * shared_->speed;
}

nlohmann::json GpuSampler::energy() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->energy;
}

std::string GpuSampler::energy_text() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->energy_text;
}

}  // namespace tandem
