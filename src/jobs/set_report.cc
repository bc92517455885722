#include "jobs/set_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/errors.h"
#include "jobs/agents_file.h"
#include "jobs/set_display.h"
#include "telemetry/atomic_file.h"
#include "telemetry/html_text.h"
#include "telemetry/human.h"
#include "telemetry/learning_figures.h"
#include "telemetry/metrics_file.h"
#include "telemetry/report.h"
#include "telemetry/report_parts.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMostPoints = 300, kMostSeries = 64, kMostEvents = 200, kMostSettings = 400, kMostParts = 2000;

double number_in(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_number() ? object[key].get<double>() : kAbsent;
}

std::string text_in(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

int64_t whole_in(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_number_integer() ? object[key].get<int64_t>() : 0;
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(report_rounded(value)) : Json(); }

// A link leads from this page into its own folder, never elsewhere.
std::string link_to(const fs::path& dir, const std::string& run) {
  const fs::path path = fs::path(run).lexically_normal();
  std::error_code none;
  if (run.empty() || path.is_absolute() || path.begin()->string() == ".." || run.find(':') != std::string::npos)
    return "";
  return fs::exists(dir / path / "report.html", none) ? (path / "report.html").generic_string() : "";
}

std::vector<Json> jobs_of(const Json& file) {
  std::vector<Json> jobs;
  if (file.contains("jobs") && file["jobs"].is_array())
    for (const Json& job : file["jobs"])
      if (job.is_object()) jobs.push_back(job);
  return jobs;
}

Json agents_part(const std::vector<Json>& jobs, const fs::path& dir) {
  Json agents = Json::array();
  for (const Json& job : jobs) {
    Json devices = Json::array();
    if (job.contains("devices") && job["devices"].is_array())
      for (const Json& device : job["devices"])
        if (device.is_string() && devices.size() < 16) devices.push_back(fit(device.get<std::string>(), 20));
    agents.push_back({{"name", fit(text_in(job, "name"), 60)},
                      {"link", link_to(dir, text_in(job, "run"))},
                      {"state", fit(text_in(job, "state"), 20)},
                      {"step", whole_in(job, "step")},
                      {"steps", whole_in(job, "steps")},
                      {"seconds", number_or_null(number_in(job, "seconds"))},
                      {"return", number_or_null(number_in(job, "average_return"))},
                      {"score", number_or_null(number_in(job, "score"))},
                      {"rule", number_or_null(number_in(job, "rule_score"))},
                      {"digest", text_in(job, "digest").substr(0, 16)},
                      {"devices", devices}});
  }
  return agents;
}

// Who worked on what: {"devices": names, "parts": [[device, job, begin, end], ...]}.
Json course_part(const Json& file, size_t jobs) {
  Json devices = Json::array(), parts = Json::array();
  if (file.contains("devices") && file["devices"].is_array())
    for (const Json& device : file["devices"])
      if (device.is_string() && devices.size() < 64) devices.push_back(fit(device.get<std::string>(), 20));
  if (file.contains("course") && file["course"].is_array())
    for (const Json& part : file["course"]) {
      if (!part.is_object() || parts.size() >= kMostParts) continue;
      const int64_t device = whole_in(part, "device"), job = whole_in(part, "job");
      const double begin = number_in(part, "begin"), end = number_in(part, "end");
      if (device < 0 || device >= static_cast<int64_t>(devices.size()) || job < 0 ||
          job >= static_cast<int64_t>(jobs) || !(end > begin) || begin < 0)
        continue;
      parts.push_back({device, job, begin, end});
    }
  return parts.empty() ? Json() : Json{{"devices", devices}, {"parts", parts}};
}

// Curves of score, return and loss, by agent: of several that share a run each its own.
struct Curves {
  SeriesSet set{kMostPoints, kMostSeries};
  std::vector<RunEvent> events;

  void add(const fs::path& run, const std::string& name, const std::string& agent, bool alone) {
    try {
      read_metrics(run / "metrics.jsonl", [&](const StepRecord& record) {
        if (alone) set.add(name + "|loss", record.step, record.loss);
        for (const auto& [metric, value] : record.metrics) {
          FigureName figure;
          if (!parse_figure_name(metric, figure) || (!figure.agent.empty() && figure.agent != agent)) continue;
          set.add(name + (figure.is_score ? "|score" : "|average_return"), record.step, value);
        }
      });
    } catch (const IoError&) {  // the table shows that it has made no step
    }
  }
  void add_events(const fs::path& run, const std::string& name) {
    for (RunEvent& event : read_events(run / "events.jsonl")) {
      if (!event.text.starts_with(name + " ")) event.text = name + ": " + event.text;
      events.push_back(std::move(event));
    }
  }
};

Json tile(const std::string& name, const std::string& value, const std::string& small = "") {
  return {name, value, small};
}

std::string spread(const std::vector<Json>& jobs, const char* key, int digits) {
  double least = HUGE_VAL, most = -HUGE_VAL;
  for (const Json& job : jobs)
    if (const double value = number_in(job, key); std::isfinite(value))
      least = std::min(least, value), most = std::max(most, value);
  if (most < least) return "-";
  return least == most ? fmt::format("{:.{}f}", most, digits)
                       : fmt::format("{:.{}f} to {:.{}f}", least, digits, most, digits);
}

Json set_tiles(const Json& run, const Json& file, const std::vector<Json>& jobs) {
  int64_t step = 0, steps = 0;
  size_t done = 0, above = 0;
  for (const Json& job : jobs) {
    step += whole_in(job, "step");
    steps += whole_in(job, "steps");
    done += text_in(job, "state") == "done";
    above += number_in(job, "score") > number_in(job, "rule_score");
  }
  const double seconds = number_in(file, "seconds"), forecast = number_in(file, "forecast_seconds");
  const size_t devices = file.contains("devices") && file["devices"].is_array() ? file["devices"].size() : 0;
  const bool judged = file.contains("judged") && file["judged"].is_boolean() && file["judged"].get<bool>();
  Json tiles = Json::array();
  tiles.push_back(
      tile("agents", fmt::format("{}", jobs.size()), done == jobs.size() ? "done" : fmt::format("{} done", done)));
  tiles.push_back(tile("score", spread(jobs, "score", 2), judged ? "greedy" : "in training"));
  tiles.push_back(tile("above the rule of thumb", fmt::format("{} of {}", above, jobs.size())));
  tiles.push_back(tile("steps", fmt::format("{}", step), steps > 0 ? fmt::format("of {}", steps) : ""));
  tiles.push_back(tile("time", seconds > 0 ? duration_words(seconds) : "-",
                       forecast > 0 ? "forecast " + duration_words(forecast) : ""));
  tiles.push_back(tile("devices", fmt::format("{}", devices), "strategy " + fit(text_in(file, "strategy"), 30)));
  if (const double kwh = number_in(run, "energy_kwh"); std::isfinite(kwh))
    tiles.push_back(tile("energy", fmt::format("{:.3g} kWh", kwh)));
  return tiles;
}

// As agents.json has them, each with its place there: an agent has one colour and one row order on all pages.
void put_in_users_order(Json& evaluation, const std::vector<Json>& jobs) {
  std::map<std::string, size_t> places;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const std::string agent = text_in(jobs[j], "agent");
    places.emplace(agent.empty() ? text_in(jobs[j], "name") : agent, j);  // of an ensemble its first member's
  }
  std::vector<Json> rows(evaluation.begin(), evaluation.end());
  for (Json& row : rows)
    if (const auto at = places.find(text_in(row, "name")); at != places.end()) row["place"] = at->second;
  std::ranges::stable_sort(rows, {}, [&](const Json& row) { return row.value("place", jobs.size()); });
  evaluation = rows;
}

// What both pages begin with.
Json head_of(const fs::path& dir, const Json& run) {
  Json data = {{"run", report_run_part(run)}, {"status", present_status(run, dir)}, {"notes", Json::array()}};
  if (!data["run"].contains("id")) data["run"]["id"] = fs::absolute(dir).lexically_normal().filename().string();
  const std::string recipe = text_in(run, "recipe");
  data["run"]["title"] = recipe.empty() ? data["run"]["id"] : Json(fit(recipe, 100));
  data["run"].erase("extra");  // scores by agent: they are in the table
  data["facts"] = {{"steps", 0}, {"seconds", Json()}, {"first", ""}, {"last", ""}};
  for (const char* list : {"series", "phases", "skips", "events", "settings", "gpus"}) data[list] = Json::array();
  data["grid"] = {{"first", 0}, {"width", 1}};
  data["env"] = report_env(dir);
  data["evaluation"] = report_evaluation(dir);
  data["equity"] = report_equity(dir);
  data["energy"] = data["explain"] = Json();
  data["links"] = Json::array();
  return data;
}

// For readers that run no script.
std::string plain_table(const Json& agents) {
  std::string text = "<table><tr><th>agent<th>steps<th>return<th>score<th>rule of thumb<th>state</tr>";
  const auto shown = [](const Json& value) {
    return value.is_number() ? fmt::format("{:.4g}", value.get<double>()) : "-";
  };
  for (const Json& agent : agents) {
    const std::string name = html_text(agent["name"].get<std::string>()),
                      link = html_text(agent["link"].get<std::string>());
    text += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>\n",
                        link.empty() ? name : fmt::format("<a href=\"{}\">{}</a>", link, name),
                        agent["step"].get<int64_t>(), shown(agent["return"]), shown(agent["score"]),
                        shown(agent["rule"]), html_text(agent["state"].get<std::string>()));
  }
  return text + "</table>";
}

Json evaluation_tiles(const Json& agents, const Json& facts) {
  size_t above = 0;
  double most = -HUGE_VAL, sum = 0;
  std::string best = "-";
  for (const Json& agent : agents) {
    const double score = number_in(agent, "score");
    above += score > number_in(agent, "rule");
    sum += score;
    if (score > most) most = score, best = text_in(agent, "name");
  }
  const size_t count = agents.size();
  Json tiles = Json::array();
  tiles.push_back(tile("agents", fmt::format("{}", count)));
  if (count > 0)
    tiles.push_back(tile("mean score", fmt::format("{:.3f}", sum / static_cast<double>(count)), "1 is the solver"));
  if (most > -HUGE_VAL) tiles.push_back(tile("best", fmt::format("{:.3f}", most), best));
  tiles.push_back(tile("above the rule of thumb", fmt::format("{} of {}", above, count)));
  // Agents that were judged at other times (--agent) have numbers of their own; the table shows each.
  int64_t fewest = INT64_MAX, largest = 0;
  for (const Json& agent : agents)
    if (const int64_t own = std::llround(number_in(agent, "episodes")); own > 0)
      fewest = std::min(fewest, own), largest = std::max(largest, own);
  if (largest == 0) fewest = largest = whole_in(facts, "episodes");
  tiles.push_back(fewest == largest ? tile("episodes each", fmt::format("{}", largest),
                                           fmt::format("seed {}", whole_in(facts, "seed")))
                                    : tile("episodes", fmt::format("{} to {}", fewest, largest), "see the table"));
  return tiles;
}

}  // namespace

std::string make_set_report(const fs::path& dir) {
  const Json run = read_run_json(dir);
  const auto found = read_agents_file(dir);
  const Json file = found.value_or(Json::object());
  const std::vector<Json> jobs = jobs_of(file);
  Json data = head_of(dir, run);
  if (!found) data["notes"].push_back("agents.json is missing or can't be read.");
  if (number_in(file, "seconds") > 0) data["run"]["seconds"] = file["seconds"];
  data["tiles"] = set_tiles(run, file, jobs);
  put_in_users_order(data["evaluation"], jobs);
  data["agents"] = agents_part(jobs, dir);
  data["course"] = course_part(file, jobs.size());

  Curves curves;
  std::set<std::string> seen;
  std::vector<std::string> runs;
  for (const Json& job : jobs) runs.push_back(text_in(job, "run"));
  for (size_t j = 0; j < jobs.size(); ++j) {
    const std::string name = fit(text_in(jobs[j], "name"), 60);
    const fs::path folder = dir / runs[j];
    curves.add(folder, name, text_in(jobs[j], "agent"), std::count(runs.begin(), runs.end(), runs[j]) == 1);
    if (seen.insert(runs[j]).second) curves.add_events(folder, folder.filename().string());
  }
  std::stable_sort(curves.events.begin(), curves.events.end(),
                   [](const RunEvent& a, const RunEvent& b) { return a.time < b.time; });
  data["series"] = report_series(curves.set);
  data["grid"] = {{"first", curves.set.step_of(0)}, {"width", curves.set.steps_per_bucket()}};
  data["events"] = report_events(std::move(curves.events), kMostEvents);
  for (const Json& job : jobs)
    data["facts"]["steps"] = std::max(data["facts"]["steps"].get<int64_t>(), whole_in(job, "step"));
  data["settings"] = report_settings(dir, kMostSettings);
  std::error_code none;
  if (fs::exists(dir / "evaluation.html", none)) data["links"].push_back({"evaluation", "evaluation.html"});
  return report_page(data, plain_table(data["agents"]));
}

fs::path write_set_report(const fs::path& dir) {
  const auto path = dir / "report.html";
  write_file_atomically(path, make_set_report(dir), Durability::kProcessDeath);
  return path;
}

std::string make_evaluation_page(const fs::path& dir) {
  const Json run = read_run_json(dir);
  Json data = head_of(dir, run);
  data["run"]["title"] = data["run"]["title"].get<std::string>() + ": evaluation";
  put_in_users_order(data["evaluation"], jobs_of(read_agents_file(dir).value_or(Json::object())));
  data["tiles"] = evaluation_tiles(data["evaluation"], report_evaluation_facts(dir));
  if (data["evaluation"].empty())
    data["notes"].push_back("evaluation.json holds no score yet: `tandem eval` makes it.");
  std::error_code none;
  if (fs::exists(dir / "report.html", none)) data["links"].push_back({"training", "report.html"});
  return report_page(data);
}

}  // namespace tandem
