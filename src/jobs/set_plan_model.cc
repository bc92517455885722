// jobs/set_plan_model.cc -- the model of jobs/set_plan.h: what steps and runs take, what fits, and a plan in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "jobs/set_plan.h"

namespace tandem {

std::vector<int> SetPlan::devices() const {
  std::set<int> used;
  for (const PlannedRun& run : runs) used.insert(run.devices.begin(), run.devices.end());
  return {used.begin(), used.end()};
}

namespace {

// `cost`: of all agents of the run.
double step_with(const SetQuestion& question, const SetUnit& unit, const RunCost& cost, int agents,
                 const std::vector<int>& devices) {
  if (devices.size() == 1) return cost.alone();
  const auto count = static_cast<double>(devices.size());
  const SetDevice& device = question.devices[static_cast<size_t>(devices.front())];
  const double largest = std::ceil(unit.shards / count) / unit.shards;  // shards are whole
  const double moved = agents * unit.combine_floats * device.float_seconds * 2 * (count - 1) / count;
  return cost.fixed + cost.divided * largest + device.sum_seconds * std::log2(2 * count) / 2 + moved;
}

RunCost with_more(const RunCost& cost, int agents) {
  return {cost.fixed, cost.divided + (agents - 1) * cost.more, cost.more};
}

double whole_run(const SetQuestion& question, double steps, double step, double saves, int device) {
  return steps <= 0 ? 0 : question.devices[static_cast<size_t>(device)].start_seconds + steps * step + saves;
}

}  // namespace

double step_seconds(const SetQuestion& question, const std::vector<int>& units, const std::vector<int>& devices) {
  const auto device = static_cast<size_t>(devices.front());
  const auto unit = [&](int u) -> const SetUnit& { return question.units[static_cast<size_t>(u)]; };
  const int slowest =
      *std::ranges::max_element(units, {}, [&](int u) { return unit(u).costs[device].alone(); });  // the first of them
  RunCost cost = with_more(unit(slowest).costs[device], unit(slowest).agents);
  int agents = 0;
  for (const int u : units) {
    agents += unit(u).agents;
    if (u != slowest) cost.divided += unit(u).agents * unit(u).costs[device].more;
  }
  return step_with(question, unit(slowest), cost, agents, devices);
}

double run_seconds(const SetQuestion& question, const std::vector<int>& units, const std::vector<int>& devices) {
  double saves = 0;
  for (const int u : units) {
    const SetUnit& one = question.units[static_cast<size_t>(u)];
    saves += one.agents * one.save_seconds;
  }
  return whole_run(question, question.units[static_cast<size_t>(units.front())].steps,
                   step_seconds(question, units, devices), saves, devices.front());
}

double step_seconds(const SetQuestion& question, const SetUnit& unit, int agents, const std::vector<int>& devices) {
  return step_with(question, unit, with_more(unit.costs[static_cast<size_t>(devices.front())], agents), agents,
                   devices);
}

double run_seconds(const SetQuestion& question, const SetUnit& unit, int agents, const std::vector<int>& devices) {
  return whole_run(question, unit.steps, step_seconds(question, unit, agents, devices), agents * unit.save_seconds,
                   devices.front());
}

bool fits(const SetQuestion& question, const SetUnit& unit, int agents, int device) {
  const double limit = question.devices[static_cast<size_t>(device)].memory_bytes;
  const double margin = agents <= unit.agents ? 1 : kMemoryMargin;
  return limit <= 0 || unit.steps <= 0 || margin * agents * unit.memory_bytes <= limit;
}

int fits_nowhere(const SetQuestion& question) {
  for (size_t u = 0; u < question.units.size(); ++u) {
    const SetUnit& one = question.units[u];
    bool somewhere = false;
    for (int d = 0; d < static_cast<int>(question.devices.size()); ++d)
      somewhere = somewhere || ((one.pin < 0 || one.pin == d) && fits(question, one, one.agents, d));
    if (!somewhere) return static_cast<int>(u);
  }
  return -1;
}

std::string words_of(const SetQuestion& question, const SetPlan& plan) {
  struct Part {
    std::string agents, device, with;
    int count = 1;
  };
  std::vector<Part> parts;
  const auto add = [&](Part part) {
    const auto same = std::ranges::find_if(parts, [&](const Part& other) {
      return other.agents == part.agents && other.device == part.device && other.with == part.with;
    });
    if (same == parts.end())
      parts.push_back(std::move(part));
    else
      ++same->count;
  };
  for (const int device : plan.devices()) {
    std::vector<std::string> sizes;
    const std::string& name = question.devices[static_cast<size_t>(device)].name;
    for (const PlannedRun& run : plan.runs) {
      if (run.devices.front() != device) continue;
      std::string with;
      for (size_t i = 1; i < run.devices.size(); ++i)
        with += fmt::format("{}{}", i == 1 ? " with " : " and ",
                            question.devices[static_cast<size_t>(run.devices[i])].name);
      if (with.empty())
        sizes.push_back(fmt::format("{}", run.agents));
      else
        add({fmt::format("{}", run.agents), name, with});
    }
    if (!sizes.empty()) add({fmt::format("{}", fmt::join(sizes, " + ")), name, ""});
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
