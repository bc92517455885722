#include "guard/run_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "guard/energy.h"

namespace tandem {
namespace {

using Kind = GuardAction::Kind;
using To = RunGuard::Line::To;

// For tests on machines without GPUs: CPU worker i stands for GPU i of a fake NVML.
bool slots_are_gpus() {
  static const bool yes = std::getenv("TANDEM_GUARD_CPU_SLOTS") != nullptr;
  return yes;
}

WantedGpus wanted_of(const std::map<int, DeviceSpec>& devices) {
  WantedGpus wanted;
  for (const auto& [rank, device] : devices) {
    if (device.kind == DeviceSpec::Kind::kCuda && !device.gpu.uuid.empty()) wanted.uuids.insert(device.gpu.uuid);
    if (device.kind == DeviceSpec::Kind::kCpu && slots_are_gpus()) wanted.indices.insert(device.index);
  }
  return wanted;
}

bool is_held_setting(Kind kind) {
  return kind == Kind::kFan || kind == Kind::kFanAuto || kind == Kind::kPower || kind == Kind::kPowerBack;
}

}  // namespace

RunGuard::RunGuard(const RecipeSettings& settings, std::filesystem::path run_dir)
    : run_dir_(std::move(run_dir)),
      on_(settings.guard.mode != "off"),
      price_kwh_(settings.price_kwh),
      currency_(settings.currency),
      policy_(GuardOptions::from(settings.guard)),
      faults_(GuardOptions::from(settings.guard)) {}

RunGuard::~RunGuard() = default;

std::optional<int> RunGuard::gpu_of(const DeviceSpec& device, const std::vector<GpuFacts>& facts) {
  const WantedGpus wanted = wanted_of({{0, device}});
  for (const GpuFacts& about : facts)
    if (wanted.any() && wanted.has(about)) return about.index;
  return std::nullopt;
}

std::map<int, double> RunGuard::shares() const {
  std::map<int, double> shares;
  for (const auto& [rank, device] : devices_)
    if (const auto gpu = gpu_of(device, facts_); gpu && policy_.share(*gpu) < 1) shares[rank] = policy_.share(*gpu);
  return shares;
}

RunGuard::News RunGuard::look(const std::map<int, DeviceSpec>& devices, std::optional<int64_t> step) {
  News news;
  if (!on_) return news;
  const WantedGpus wanted = wanted_of(devices);
  devices_ = devices;
  if (!sampler_) {
    if (!wanted.any() && (std::exchange(asked_rapl_, true) || rapl_zones().empty())) return news;
    sampler_ = std::make_unique<GpuSampler>(
        GpuSamplerOptions{.wanted = wanted, .run_dir = run_dir_, .price_kwh = price_kwh_, .currency = currency_});
  }
  sampler_->want(wanted);
  for (const ActionResult& done : sampler_->take_done()) on_result(done, news);
  for (const GuardWord& word : sampler_->take_words())
    news.lines.push_back(
        {word.trouble ? To::kWarning : To::kTalk, "guard", word.trouble ? word.text : "guard   " + word.text});
  const auto samples = sampler_->take();
  for (const GuardSample& sample : samples) on_sample(sample, &sample == &samples.back(), step, news);
  if (!wanted.any())  // the last GPU has left: what was done to it is undone
    for (const GuardAction& action : policy_.step(monotonic_seconds() * guard_speed(), {}, {})) carry_out(action, news);
  if (wanted.any())
    if (const auto silence = faults_.silence(sampler_->quiet_seconds(), policy_.held())) report(*silence, news);
  return news;
}

void RunGuard::on_result(const ActionResult& done, News& news) {
  if (!done.answer.ok) {
    if (policy_.refused(done.action, done.answer.text(), done.answer.for_good))
      news.lines.push_back({To::kWarning, "guard", done.answer.text()});
    return;
  }
  ++actions_;
  policy_.done(done.action, done.time);
  if (done.action.kind != Kind::kPower && done.action.kind != Kind::kPowerBack) return;
  effects_.changed(done.time, done.action.gpu, from_w_[done.action.gpu], done.action.value);
}

void RunGuard::on_sample(const GuardSample& sample, bool newest, std::optional<int64_t> step, News& news) {
  facts_ = sample.facts;
  energy_ = sampler_->energy();
  energy_text_ = sampler_->energy_text();
  std::map<int, double> power;
  for (const GpuReading& now : sample.gpus) {
    if (now.power_w) power[now.index] = *now.power_w;
    if (now.power_limit_w) limit_w_[now.index] = *now.power_limit_w;
  }
  const double real = sample.gpus.empty() ? monotonic_seconds() : sample.gpus.front().time_s;
  effects_.add(sample.time, real, power, step ? std::optional(static_cast<double>(*step)) : std::nullopt);
  for (const XidEvent& event : sample.xids) {
    const GpuNotice notice = faults_.xid(facts_, event);
    if (event.gpu >= 0 &&
        std::none_of(facts_.begin(), facts_.end(), [&](const auto& f) { return f.index == event.gpu; }))
      continue;  // a GPU of somebody else
    report(notice, news);
    if (event.xid == 79) on_lost(event.gpu, fmt::format("Xid 79: {}", notice.why), news);
  }
  for (const GpuNotice& notice : faults_.see(sample.time, sample.facts, sample.gpus, policy_.lowered()))
    report(notice, news);
  for (const GpuReading& now : sample.gpus)
    if (now.lost) on_lost(now.index, now.trouble.empty() ? "GPU is lost" : now.trouble, news);
  if (newest)  // a launcher that was stopped does not climb several rungs at once
    for (const GuardAction& action : policy_.step(sample.time, sample.facts, sample.gpus)) carry_out(action, news);
  for (const Effect& effect : effects_.finished()) {
    if (const auto lost = effect.lost_share(); lost && effect.to_w < effect.from_w) lost_speed_ = *lost;
    news.lines.push_back({To::kTalk, "guard", "guard   " + effect.text("steps")});
  }
}

void RunGuard::report(const GpuNotice& notice, News& news) {
  const bool fault = notice.weight == GpuNotice::Weight::kFault;
  const To to = notice.over ? To::kTimeline : notice.weight == GpuNotice::Weight::kNote ? To::kTalk : To::kWarning;
  news.lines.push_back({to, fault ? "fault" : "guard", notice.text()});
}

void RunGuard::carry_out(const GuardAction& action, News& news) {
  if (action.kind == Kind::kHold) held_at_ = monotonic_seconds();
  if (action.kind == Kind::kResume) held_seconds_ += monotonic_seconds() - std::exchange(held_at_, 0);
  from_w_[action.gpu] = limit_w_[action.gpu];
  if (is_held_setting(action.kind))
    sampler_->submit(action);
  else
    actions_ += action.kind != Kind::kNote;
  const bool loud = action.kind == Kind::kHold || action.kind == Kind::kNote;
  news.lines.push_back({loud ? To::kWarning : To::kTalk, "guard", loud ? action.text : "guard   " + action.text});
}

void RunGuard::on_lost(int gpu, const std::string& why, News& news) {
  if (!lost_.insert(gpu).second) return;
  for (const auto& [rank, device] : devices_)
    if (gpu_of(device, facts_) == gpu)
      news.gone.emplace_back(rank, fmt::format("its GPU {} has vanished ({})", gpu, why));
}

std::vector<RunGuard::Line> RunGuard::end() {
  std::vector<Line> lines;
  if (!sampler_) return lines;
  if (held_at_ > 0) held_seconds_ += monotonic_seconds() - std::exchange(held_at_, 0);
  if (!sampler_->end())
    lines.push_back(
        {To::kWarning, "guard", "the NVIDIA driver does not answer: what the guard set is given back by its watchdog"});
  energy_ = sampler_->energy();
  energy_text_ = sampler_->energy_text();
  News last;
  for (const ActionResult& done : sampler_->take_done()) on_result(done, last);
  lines.insert(lines.end(), last.lines.begin(), last.lines.end());
  for (const GuardWord& word : sampler_->take_words())
    if (word.trouble) lines.push_back({To::kWarning, "guard", word.text});
  if (actions_ > 0)
    lines.push_back(
        {To::kTalk, "guard",
         fmt::format(
             "guard   took {} action{}{}{}{}", actions_, actions_ == 1 ? "" : "s",
             held_seconds_ > 0 ? fmt::format(", held the run for {:.0f} s", held_seconds_) : "",
             effects_.saved_joules() > 0 ? fmt::format(", saved {:.3g} Wh", effects_.saved_joules() / 3600) : "",
             sampler_->gave_all_back() ? "; everything is as it was before" : "; NOT everything is as it was before")});
  return lines;
}

nlohmann::json RunGuard::figures() const {
  nlohmann::json out = nlohmann::json::object();
  if (energy_.is_object() && energy_.value("joules", 0.0) > 0) {
    out["energy"] = energy_;
    out["energy_kwh"] = energy_["kwh"];
    if (energy_.contains("mean_w")) out["mean_power_w"] = energy_["mean_w"];
    if (energy_.contains("cost")) out["energy_cost"] = energy_["cost"];
  }
  if (actions_ > 0) {
    out["guard_orders"] = actions_;
    out["guard_held_seconds"] = held_seconds_;
    out["guard_saved_kwh"] = effects_.saved_joules() / 3.6e6;
    if (lost_speed_ != 0) out["guard_speed_lost"] = lost_speed_;
  }
  return out;
}

}  // namespace tandem
