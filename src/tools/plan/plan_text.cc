// tools/plan/plan_text.cc -- the answer of `tandem plan` for people, for scripts and for tables.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "command/out_file.h"
#include "command/table.h"
#include "forecast/money.h"
#include "jobs/set_display.h"
#include "tools/plan/plan.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
// Numbers to the right; as many columns as the header has.
Table table_of(std::vector<std::string> header) {
  std::string align(header.size(), '>');
  align.back() = '<';  // the mark
  return Table(std::move(header), std::move(align));
}

// "2 x RTX 3070, RTX 3060 Ti"
std::string names_text(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, int>> groups;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(groups, name, &std::pair<std::string, int>::first);
    if (found == groups.end())
      groups.emplace_back(name, 1);
    else
      ++found->second;
  }
  std::vector<std::string> words;
  for (const auto& [name, count] : groups) words.push_back(count > 1 ? fmt::format("{} x {}", count, name) : name);
  return fmt::format("{}", fmt::join(words, ", "));
}

bool unequal(const PlanReport& report) {
  return std::ranges::any_of(report.devices, [&](const PlanDevice& device) {
    const ForecastDevice& first = report.devices[0].device;
    return device.device.model != first.model || device.device.speed != first.speed;
  });
}

// How many, and which where they differ.
std::string devices_text(const PlanReport& report, const std::vector<std::string>& names) {
  return unequal(report) ? fmt::format("{}: {}", names.size(), names_text(names)) : fmt::format("{}", names.size());
}

// Of a set: how many were offered too, where fewer end it as soon.
std::string set_devices_text(const PlanReport& report, const SetRow& row) {
  const std::string used = devices_text(report, row.names);
  return std::cmp_equal(row.offered, row.names.size()) ? used : fmt::format("of {}, {}", row.offered, used);
}

std::string memory_text(double bytes) {
  if (bytes <= 0) return "-";
  if (bytes < 1e6) return fmt::format("{:.0f} kB", bytes / 1e3);
  if (bytes < 10e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  return bytes < 2e9 ? fmt::format("{:.0f} MB", bytes / 1e6) : fmt::format("{:.1f} GB", bytes / 1e9);
}

std::string rate_text(double rate) { return rate >= 1000 ? fmt::format("{:.0f}", rate) : fmt::format("{:.4g}", rate); }

std::string time_text(double seconds) { return seconds > 0 ? duration_words(seconds) : "-"; }

std::string part_text(double seconds) {
  return seconds < 60 ? fmt::format("{:.2f} s", seconds) : duration_words(seconds);
}

std::string money(double amount, const std::string& currency) {
  if (amount > 0 && amount < 1e-4) return currency == "USD" ? "<$0.0001" : "<0.0001 " + currency;
  const std::string figure = amount < .1 ? fmt::format("{:.4f}", amount) : fmt::format("{:.2f}", amount);
  return currency == "USD" ? "$" + figure : figure + " " + currency;
}

std::string mark_of(const PlanReport& report) { return report.here ? "" : "not here"; }

std::string device_table(const PlanReport& report, int64_t batch, const std::string& precision) {
  Table table = table_of({"devices", "steps/s", report.job.unit + "/s", "ms/step", "time", "speedup", "efficiency",
                          "guides", "memory", "kWh", "electricity", "rented", "error", ""});
  for (const PlanRow& row : report.rows) {
    if (row.batch != batch || row.precision != precision) continue;
    table.row({devices_text(report, row.names), rate_text(row.steps_per_s), rate_text(row.samples_per_s),
               fmt::format("{:.3g}", 1e3 * row.step.seconds), time_text(row.seconds),
               fmt::format("{:.2f}x", row.speedup), fmt::format("{:.0f} %", 100 * row.efficiency),
               row.guide ? row.guide->words() : "-", memory_text(row.memory.total()),
               row.seconds > 0 ? fmt::format("{:.3g}", row.kwh) : "-",
               row.seconds > 0 ? money(row.cost, report.prices.currency) : "-",
               row.cloud_cost ? money(*row.cloud_cost, report.prices.currency) : "-", error_text(row.error),
               row.fits() ? mark_of(report) : "does not fit"});
  }
  return table.text();
}

std::string memory_table(const PlanReport& report, const std::string& precision) {
  Table table = table_of({"devices", "weights", "gradients", "optimizer", "activations", "data", "snapshots",
                          "overhead", "total", "limit", ""});
  bool any = false;
  for (const PlanRow& row : report.rows) {
    if (row.precision != precision || row.batch != report.batch || row.memory.total() <= 0) continue;
    const MemoryForecast& m = row.memory;
    any = true;
    table.row({devices_text(report, row.names), memory_text(m.weights), memory_text(m.gradients),
               memory_text(m.optimizer), memory_text(m.activations), memory_text(m.data), memory_text(m.snapshots),
               memory_text(m.overhead), memory_text(m.total()), memory_text(row.memory_limit),
               row.fits() ? mark_of(report) : "does not fit"});
  }
  return any ? table.text() : "";
}

std::string batch_table(const PlanReport& report, const std::string& precision) {
  Table table = table_of({"batch", "devices", "ms/step", report.job.unit + "/s", "memory", ""});
  size_t most = 0;
  for (const PlanRow& row : report.rows) most = std::max(most, row.used.size());
  for (const PlanRow& row : report.rows) {
    if (row.precision != precision || (row.used.size() != 1 && row.used.size() != most)) continue;
    table.row({fmt::format("{}", row.batch), fmt::format("{}", row.used.size()),
               fmt::format("{:.3g}", 1e3 * row.step.seconds), rate_text(row.samples_per_s),
               memory_text(row.memory.total()), row.fits() ? mark_of(report) : "does not fit"});
  }
  return table.text();
}

std::string set_table(const PlanReport& report) {
  Table table = table_of(
      {"devices", "time", "at best", "speedup", "guides", "memory", "kWh", "electricity", "rented", "error", ""});
  for (const SetRow& row : report.set_rows)
    table.row({set_devices_text(report, row), time_text(row.seconds), time_text(row.ideal_seconds),
               fmt::format("{:.2f}x", row.speedup), row.guide ? fmt::format("{:.1f}x", *row.guide) : "-",
               memory_text(row.memory_bytes), fmt::format("{:.3g}", row.kwh), money(row.cost, report.prices.currency),
               row.cloud_cost ? money(*row.cloud_cost, report.prices.currency) : "-", error_text(row.error),
               mark_of(report)});
  return table.text();
}

std::string legend(const PlanReport& report) {
  const bool rented =
      std::ranges::any_of(report.rows, [](const PlanRow& row) { return row.cloud_cost.has_value(); }) ||
      std::ranges::any_of(report.set_rows, [](const SetRow& row) { return row.cloud_cost.has_value(); });
  const bool minutes =
      std::ranges::any_of(report.rows, [](const PlanRow& row) { return row.guide && row.guide->minutes; });
  return fmt::format(
      "{}guides: the speedup that they state for as many GPUs{}; electricity: of the whole machine{}; error: of the "
      "time\n",
      report.set_rows.empty() ? "" : "at best: the work spread without any loss; memory: of one worker; ",
      minutes ? ", with their time and rent of 5,000 episodes" : "",
      rented ? "; rented: the same GPUs by the price list" : "");
}

std::string machine_lines(const PlanReport& report) {
  const std::string& currency = report.prices.currency;
  const PowerForecast& p = report.power;
  std::string text =
      fmt::format("machine   {:.0f} W at most, about {:.0f} W while it trains{}\n", p.peak_w, p.typical_w,
                  p.gpus_peak_w > 0 ? " (the GPUs' limits, 150 W for the processor, 50 W for the rest)"
                                    : " (no GPU: 150 W for the processor, 50 W for the rest)");
  text += fmt::format("supply    {:.0f} W, a fifth above the most (the guides' rule, the next size: {:.0f} W)\n",
                      p.psu_w, p.psu_least_w);
  text += fmt::format("heat      {:.0f} BTU/h, {:.0f} at most; cooling about {} a month\n", p.btu_per_hour,
                      p.peak_btu_per_hour, money(report.running.cooling_month, currency));
  text +=
      fmt::format("24/7      {} a month, {} a year at {}/kWh ({})\n", money(report.running.month, currency),
                  money(report.running.year, currency), money(report.prices.kwh, currency), report.prices.kwh_source);
  if (report.rent)
    text += fmt::format("rented    {} an hour ({}), {} a month\n", money(report.rent->per_hour, currency),
                        report.rent->name, money(report.rent->per_hour * 720, currency));
  if (report.buy_price)
    text += fmt::format("bought    {} ({}){}\n", money(*report.buy_price, currency), report.buy_source,
                        report.break_even_h
                            ? fmt::format("; cheaper than renting after {:.0f} hours of training ({:.1f} months 24/7)",
                                          *report.break_even_h, *report.break_even_h / 720)
                            : "");
  else if (report.rent)
    text += "bought    no price is known: add [buy.<name>] to the prices\n";
  if (p.gpus_peak_w <= 0 || report.rent) return text;
  // Nobody rents out these GPUs: beside what can be rented, as the guides set a V100 beside theirs.
  for (const CloudPrice& offer : report.prices.cloud) {
    const double more = 720 * offer.per_hour - report.running.month - report.running.cooling_month;
    const double own = (report.running.month + report.running.cooling_month) / 720;  // an hour
    const auto even = report.buy_price ? break_even_hours(*report.buy_price, offer.per_hour, own) : std::nullopt;
    text +=
        fmt::format("cloud     {} ({}): {} an hour, {} a month, {} {} than this machine's electricity and cooling{}\n",
                    offer.name, offer.hardware, money(offer.per_hour, currency), money(720 * offer.per_hour, currency),
                    money(std::abs(more), currency), more < 0 ? "less" : "more",
                    even ? fmt::format("; buying it pays after {:.0f} h", *even) : "");
  }
  return text;
}

std::string outcome_lines(const PlanReport& report) {
  if (report.outcomes.empty())
    return "checked   never yet: each `train` of this recipe from now on notes its forecast beside what came\n";
  std::vector<std::string> times, memories;
  for (const ForecastOutcome& one : report.outcomes) {
    times.push_back(fmt::format("{:+.1f} %", 100 * one.time_error()));
    if (one.memory > 0 && one.forecast_memory > 0)
      memories.push_back(fmt::format("{:+.1f} %", 100 * one.memory_error()));
  }
  std::string text =
      fmt::format("checked   the last {} against what came: time {}",
                  times.size() == 1 ? "forecast" : fmt::format("{} forecasts", times.size()), fmt::join(times, ", "));
  if (!memories.empty()) text += fmt::format("; memory {}", fmt::join(memories, ", "));
  return text + "\n";
}

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(); }
template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json memory_json(const MemoryForecast& m) {
  return {{"weights", m.weights},         {"gradients", m.gradients}, {"optimizer", m.optimizer},
          {"activations", m.activations}, {"data", m.data},           {"snapshots", m.snapshots},
          {"overhead", m.overhead},       {"total", m.total()}};
}

}  // namespace

namespace {

// Which devices to take, why no more, and where the time goes.
std::string best_lines(const PlanReport& report, const std::string& precision) {
  const PlanRow* const best = best_row(report.rows, report.batch, precision);
  if (!best) return "\nbest      none: the batch fits nowhere; take a smaller one, or --set accumulation=2\n";
  std::string text;
  std::vector<std::string> left;
  for (size_t i = 0; i < report.devices.size(); ++i)
    if (std::ranges::find(best->used, static_cast<int>(i)) == best->used.end()) left.push_back(report.devices[i].name);
  text += fmt::format("\nbest      {} device{}: {}{}\n", best->used.size(), best->used.size() == 1 ? "" : "s",
                      names_text(best->names),
                      best->speedup < 1 ? "; one alone would be faster"
                      : left.empty()    ? ""
                                        : fmt::format("; {} would not make it faster", names_text(left)));
  const PlanRow* all = nullptr;
  for (const PlanRow& row : report.rows)
    if (row.precision == precision && row.batch == report.batch && row.used.size() > best->used.size()) all = &row;
  if (all && all->step.combine > all->step.compute)
    text += fmt::format(
        "why       on {} devices a step computes for {:.3g} ms and adds up for {:.3g} ms: a larger batch, or "
        "several jobs side by side, would keep them busy\n",
        all->used.size(), 1e3 * all->step.compute, 1e3 * all->step.combine);
  if (best->seconds > 0)
    text += fmt::format(
        "time      start {}, steps {}, snapshots {} ({:.0f}), checkpoints {} ({:.0f}), end {}\n",
        part_text(best->start_seconds), part_text(best->step.seconds * static_cast<double>(report.job.total_steps)),
        part_text(best->pauses.snapshot_seconds), best->pauses.snapshots, part_text(best->pauses.checkpoint_seconds),
        best->pauses.checkpoints, part_text(best->end_seconds));
  return text;
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  std::string text;
  if (report.here)
    text += fmt::format("{} on the devices at hand: {}\n", report.recipe, [&] {
      std::vector<std::string> names;
      for (const PlanDevice& device : report.devices) names.push_back(device.name);
      return fmt::format("{}", fmt::join(names, ", "));
    }());
  else
    text += fmt::format("{} on {}, which is NOT HERE: scaled from {}\n", report.recipe, report.hardware,
                        report.scaled_from);
  if (!report.trains.empty()) text += report.trains + "\n";
  if (!report.set_rows.empty()) {
    text += fmt::format("{}, strategy {}\n\n{}", report.set_words, report.strategy, set_table(report));
    for (const SetRow& row : report.set_rows)
      if (row.jobs < row.agents && std::cmp_equal(row.offered, row.names.size()))
        text += fmt::format("together  on {}: {}; memory: of all agents of a job\n", names_text(row.names), row.words);
    if (const SetRow* best = report.best_set()) {
      text += fmt::format("best      {} device{}: {}{}; {}\n", best->names.size(), best->names.size() == 1 ? "" : "s",
                          names_text(best->names), best->choice.empty() ? "" : ": " + best->choice,
                          time_text(best->seconds));
      if (!best->exact)
        text += fmt::format("search    the best that was found, at most {:.0f} % above the least possible\n",
                            std::ceil(100 * best->gap));
      if (!best->next_choice.empty())
        text += fmt::format("next      {}; {}\n", best->next_choice, time_text(best->next_seconds));
    }
    text += "\nagents on one device:";
    for (const AgentForecast& agent : report.agents)
      text += fmt::format(" {} {};", agent.name, time_text(agent.seconds_alone));
    text.back() = '\n';
  }
  for (const std::string& precision : report.precisions) {
    text += fmt::format("\n{}, batch {}{}, {}\n", precision, report.batch,
                        report.shards ? fmt::format(" in {} shards", report.shards) : " a device",
                        report.job.total_steps ? fmt::format("{} steps", report.job.total_steps) : "no end in steps");
    text += device_table(report, report.batch, precision);
  }
  text += legend(report);
  if (!report.precisions.empty()) {
    const std::string& first = report.precisions.front();
    if (const std::string memory = memory_table(report, first); !memory.empty())
      text +=
          fmt::format("\nmemory of the worker that needs most, batch {}; overhead: program, libraries and a margin\n{}",
                      report.batch, memory);
    text += fmt::format("\nby batch size\n{}", batch_table(report, first));
    text += best_lines(report, first);
  }
  text += machine_lines(report);
  text += outcome_lines(report);
  for (const std::string& note : report.notes) text += "note      " + note + "\n";
  text += error_line(report);
  text += fmt::format("measured  {} on {}\n", report.calibration.made, report.calibration.machine);
  if (!report.command.empty()) text += fmt::format("run       {}\n", report.command);
  return text;
}

namespace {

Json devices_json(const PlanReport& report) {
  Json devices = Json::array();
  for (const PlanDevice& device : report.devices)
    devices.push_back({{"name", device.name},
                       {"model", device.device.model},
                       {"speed", device.device.speed},
                       {"memory_bytes", number_or_null(device.memory_bytes)},
                       {"watts", number_or_null(device.watts)},
                       {"here", report.here}});
  return devices;
}

Json job_rows_json(const PlanReport& report) {
  Json rows = Json::array();
  for (const PlanRow& row : report.rows)
    rows.push_back(
        {{"here", report.here},
         {"precision", row.precision},
         {"batch_size", row.batch},
         {"devices", row.used.size()},
         {"names", row.names},
         {"shards", row.step.shards},
         {"step_seconds", row.step.seconds},
         {"parts", {{"compute", row.step.compute}, {"fixed", row.step.fixed}, {"combine", row.step.combine}}},
         {"time",
          {{"start", row.start_seconds},
           {"training", row.seconds > 0 ? row.step.seconds * static_cast<double>(report.job.total_steps) : 0},
           {"snapshots", row.pauses.snapshot_seconds},
           {"checkpoints", row.pauses.checkpoint_seconds},
           {"end", row.end_seconds}}},
         {"steps_per_s", row.steps_per_s},
         {"samples_per_s", row.samples_per_s},
         {"seconds", number_or_null(row.seconds)},
         {"speedup", row.speedup},
         {"efficiency", row.efficiency},
         {"guide_speedup", row.guide ? Json(row.guide->speedup) : Json()},
         {"guide_minutes", row.guide ? value_or_null(row.guide->minutes) : Json()},
         {"guide_dollars", row.guide ? value_or_null(row.guide->dollars) : Json()},
         {"memory", row.memory.total() > 0 ? memory_json(row.memory) : Json()},
         {"memory_limit", number_or_null(row.memory_limit)},
         {"fits", row.fits()},
         {"watts", row.watts},
         {"kwh", row.seconds > 0 ? Json(row.kwh) : Json()},
         {"cost", row.seconds > 0 ? Json(row.cost) : Json()},
         {"cloud_cost", value_or_null(row.cloud_cost)},
         {"cloud", row.cloud.empty() ? Json() : Json(row.cloud)},
         {"error", row.error}});
  return rows;
}

Json set_rows_json(const PlanReport& report) {
  Json sets = Json::array();
  for (const SetRow& row : report.set_rows)
    sets.push_back({{"here", report.here},
                    {"devices", row.offered},
                    {"names", row.names},
                    {"choice", row.choice.empty() ? Json() : Json(row.choice)},
                    {"exact", row.exact},
                    {"runner_up", row.next_choice.empty() ? Json() : Json(row.next_choice)},
                    {"runner_up_seconds", number_or_null(row.next_seconds)},
                    {"seconds", row.seconds},
                    {"ideal_seconds", row.ideal_seconds},
                    {"speedup", row.speedup},
                    {"guide_speedup", value_or_null(row.guide)},
                    {"jobs", row.jobs},
                    {"agents", row.agents},
                    {"memory_bytes", row.memory_bytes},
                    {"watts", row.watts},
                    {"kwh", row.kwh},
                    {"cost", row.cost},
                    {"cloud_cost", value_or_null(row.cloud_cost)},
                    {"error", row.error}});
  return sets;
}

Json set_agents_json(const PlanReport& report) {
  Json agents = Json::array();
  for (const AgentForecast& agent : report.agents)
    agents.push_back({{"name", agent.name}, {"steps", agent.steps}, {"seconds_alone", agent.seconds_alone}});
  return agents;
}

Json outcomes_json(const PlanReport& report) {
  Json outcomes = Json::array();
  for (const ForecastOutcome& one : report.outcomes)
    outcomes.push_back({{"run", one.run},
                        {"workers", one.workers},
                        {"forecast_seconds", one.forecast_seconds},
                        {"took_seconds", one.took_seconds},
                        {"time_error", one.time_error()},
                        {"forecast_memory", one.forecast_memory},
                        {"memory", one.memory},
                        {"memory_error", one.memory_error()}});
  return outcomes;
}

Json money_json(const PlanReport& report) {
  Json cloud = Json::array();
  for (const CloudPrice& offer : report.prices.cloud)
    cloud.push_back({{"name", offer.name},
                     {"hardware", offer.hardware},
                     {"per_hour", offer.per_hour},
                     {"month", 720 * offer.per_hour}});
  return {{"currency", report.prices.currency},
          {"price_kwh", report.prices.kwh},
          {"price_kwh_from", report.prices.kwh_source},
          {"prices", report.prices.source},
          {"month", report.running.month},
          {"year", report.running.year},
          {"cooling_month", report.running.cooling_month},
          {"rent_per_hour", report.rent ? Json(report.rent->per_hour) : Json()},
          {"buy", value_or_null(report.buy_price)},
          {"break_even_hours", value_or_null(report.break_even_h)},
          {"cloud", cloud}};
}

}  // namespace

Json plan_json(const PlanReport& report) {
  const PlanRow* best =
      report.precisions.empty() ? nullptr : best_row(report.rows, report.batch, report.precisions.front());
  const SetRow* set = report.best_set();
  return {{"recipe", report.recipe},
          {"here", report.here},
          {"hardware", report.here ? Json() : Json(report.hardware)},
          {"scaled_from", report.here ? Json() : Json(report.scaled_from)},
          {"trains", report.trains.empty()},
          {"note", report.trains},
          {"devices", devices_json(report)},
          {"total_steps", report.job.total_steps},
          {"shards", report.shards},
          {"batch_size", report.batch},
          {"unit", report.job.unit},
          {"rows", job_rows_json(report)},
          {"best", best  ? Json(best->names)
                   : set ? Json(set->names)
                         : Json()},
          {"set", set_rows_json(report)},
          {"agents", set_agents_json(report)},
          {"power",
           {{"peak_w", report.power.peak_w},
            {"typical_w", report.power.typical_w},
            {"psu_w", report.power.psu_w},
            {"psu_guides_w", report.power.psu_least_w},
            {"btu_per_hour", report.power.btu_per_hour},
            {"peak_btu_per_hour", report.power.peak_btu_per_hour}}},
          {"money", money_json(report)},
          {"calibration", to_json(report.calibration)},
          {"outcomes", outcomes_json(report)},
          {"notes", report.notes},
          {"command", report.command}};
}

std::string plan_csv(const PlanReport& report) {
  std::string text =
      "here,hardware,precision,batch_size,devices,names,steps_per_s,samples_per_s,step_seconds,seconds,speedup,"
      "efficiency,"
      "guide_speedup,memory_bytes,fits,kwh,cost,cloud_cost,error\n";
  const auto cell = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.6g}", *value) : std::string();
  };
  const std::string start = fmt::format("{},{}", report.here ? "yes" : "no", csv_cell(report.hardware));
  for (const PlanRow& row : report.rows) {
    const auto ended = [&](double value) { return cell(row.seconds > 0 ? std::optional(value) : std::nullopt); };
    text +=
        fmt::format("{},{},{},{},{},{:.6g},{:.6g},{:.6g},{},{:.4g},{:.4g},{},{},{},{},{},{},{:.3g}\n", start,
                    row.precision, row.batch, row.used.size(), csv_cell(fmt::format("{}", fmt::join(row.names, " "))),
                    row.steps_per_s, row.samples_per_s, row.step.seconds, ended(row.seconds), row.speedup,
                    row.efficiency, cell(row.guide ? std::optional(row.guide->speedup) : std::nullopt),
                    row.memory.total() > 0 ? fmt::format("{:.0f}", row.memory.total()) : "", row.fits() ? "yes" : "no",
                    ended(row.kwh), ended(row.cost), cell(row.cloud_cost), row.error);
  }
  for (const SetRow& row : report.set_rows)
    text += fmt::format("{},,,{},{},,,,{:.6g},{:.4g},,{},{:.0f},,{:.6g},{:.6g},{},{:.3g}\n", start, row.offered,
                        csv_cell(fmt::format("{}", fmt::join(row.names, " "))), row.seconds, row.speedup,
                        cell(row.guide), row.memory_bytes, row.kwh, row.cost, cell(row.cloud_cost), row.error);
  return text;
}

}  // namespace tandem
