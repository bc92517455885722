#include "guard/run_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "guard/energy.h"

namespace tandem {
namespace {

using Kind = GuardOrder::Kind;
using To = RunGuard::Line::To;

// For tests on machines without GPUs: CPU slot i stands for GPU i of a fake NVML.
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

bool is_borrowed(Kind kind) {
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
    sampler_ = std::make_unique<Sampler>(
        SamplerOptions{.wanted = wanted, .run_dir = run_dir_, .price_kwh = price_kwh_, .currency = currency_});
  }
  sampler_->want(wanted);
  for (const OrderDone& done : sampler_->take_done()) hear(done, news);
  for (const GuardWord& word : sampler_->take_words())
    news.lines.push_back(
        {word.trouble ? To::kWarning : To::kTalk, "guard", word.trouble ? word.text : "guard   " + word.text});
  const auto samples = sampler_->take();
  for (const GuardSample& sample : samples) see(sample, &sample == &samples.back(), step, news);
  if (!wanted.any())  // the last GPU has left: what was done to it is undone
    for (const GuardOrder& order : policy_.step(monotonic_seconds() * guard_speed(), {}, {})) carry_out(order, news);
  if (wanted.any())
    if (const auto silence = faults_.silence(sampler_->quiet_seconds(), policy_.held())) tell(*silence, news);
  return news;
}

void RunGuard::hear(const OrderDone& done, News& news) {
  if (!done.answer.ok) {
    if (policy_.refused(done.order, done.answer.text(), done.answer.for_good))
      news.lines.push_back({To::kWarning, "guard", done.answer.text()});
    return;
  }
  ++orders_;
  policy_.done(done.order, done.time);
  if (done.order.kind != Kind::kPower && done.order.kind != Kind::kPowerBack) return;
  effects_.changed(done.time, done.order.gpu, from_w_[done.order.gpu], done.order.value);
}

void RunGuard::see(const GuardSample& sample, bool newest, std::optional<int64_t> step, News& news) {
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
    tell(notice, news);
    if (event.xid == 79) lose(event.gpu, fmt::format("Xid 79: {}", notice.why), news);
  }
  for (const GpuNotice& notice : faults_.see(sample.time, sample.facts, sample.gpus, policy_.lowered()))
    tell(notice, news);
  for (const GpuReading& now : sample.gpus)
    if (now.lost) lose(now.index, now.trouble.empty() ? "GPU is lost" : now.trouble, news);
  if (newest)  // a launcher that was stopped does not climb several rungs at once
    for (const GuardOrder& order : policy_.step(sample.time, sample.facts, sample.gpus)) carry_out(order, news);
  for (const Effect& effect : effects_.finished()) {
    if (const auto lost = effect.lost_share(); lost && effect.to_w < effect.from_w) lost_speed_ = *lost;
    news.lines.push_back({To::kTalk, "guard", "guard   " + effect.text("steps")});
  }
}

void RunGuard::tell(const GpuNotice& notice, News& news) {
  const bool fault = notice.weight == GpuNotice::Weight::kFault;
  const To to = notice.over ? To::kTimeline : notice.weight == GpuNotice::Weight::kNote ? To::kTalk : To::kWarning;
  news.lines.push_back({to, fault ? "fault" : "guard", notice.text()});
}

void RunGuard::carry_out(const GuardOrder& order, News& news) {
  if (order.kind == Kind::kHold) held_at_ = monotonic_seconds();
  if (order.kind == Kind::kGo) held_seconds_ += monotonic_seconds() - std::exchange(held_at_, 0);
  from_w_[order.gpu] = limit_w_[order.gpu];
  if (is_borrowed(order.kind))
    sampler_->order(order);
  else
    orders_ += order.kind != Kind::kNote;
  const bool loud = order.kind == Kind::kHold || order.kind == Kind::kNote;
  news.lines.push_back({loud ? To::kWarning : To::kTalk, "guard", loud ? order.text : "guard   " + order.text});
}

void RunGuard::lose(int gpu, const std::string& why, News& news) {
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
  for (const OrderDone& done : sampler_->take_done()) hear(done, last);
  lines.insert(lines.end(), last.lines.begin(), last.lines.end());
  for (const GuardWord& word : sampler_->take_words())
    if (word.trouble) lines.push_back({To::kWarning, "guard", word.text});
  if (orders_ > 0)
    lines.push_back(
        {To::kTalk, "guard",
         fmt::format(
             "guard   gave {} order{}{}{}{}", orders_, orders_ == 1 ? "" : "s",
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
  if (orders_ > 0) {
    out["guard_orders"] = orders_;
    out["guard_held_seconds"] = held_seconds_;
    out["guard_saved_kwh"] = effects_.saved_joules() / 3.6e6;
    if (lost_speed_ != 0) out["guard_speed_lost"] = lost_speed_;
  }
  return out;
}

}  // namespace tandem
