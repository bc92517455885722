#include "cli/runs_removal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/printable.h"
#include "base/shell_word.h"
#include "command/sources.h"
#include "config/units.h"
#include "jobs/agents_file.h"
#include "launch/run_lock.h"
#include "runs/index.h"
#include "runs/run_folder.h"
#include "runs/run_reader.h"
#include "runs/run_removal.h"
#include "telemetry/human.h"
#include "telemetry/run_name.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Locks = std::vector<std::shared_ptr<const void>>;

struct Goes {
  RunRow row;
  uint64_t bytes = 0;
  Locks locks;  // held until it is gone
};

struct Stays {
  std::string id, why;
};

// Seconds since the run was last written to; nothing where that can't be read.
std::optional<double> age_of(const RunRow& row) {
  for (const char* name : {"run.json", "recipe.toml"}) {
    struct stat info {};
    if (stat((row.dir / name).c_str(), &info) == 0) return static_cast<double>(time(nullptr) - info.st_mtim.tv_sec);
  }
  return std::nullopt;
}

// Not where a link in the root leads to (RunFolder::link_into).
bool lies_in_root(const fs::path& dir, const fs::path& root) {
  std::error_code none;
  return !fs::is_symlink(dir, none) && fs::equivalent(fs::absolute(dir).parent_path(), root, none);
}

// Of the run, and of the runs of a set that lie in it, each once: agents may share one. Throws ConfigError if one is in
// use. Taking a lock writes to the folder, so a dry run takes none.
Locks lock_all(const RunRow& row, bool dry_run) {
  if (row.status == "running")
    throw ConfigError(fmt::format("{} is running", row.id),
                      fmt::format("{} works in the folder", process_words(read_run_json(row.dir))),
                      "wait for it to end, or stop it with Ctrl-C or `kill <process>`");
  if (dry_run) return {};
  std::error_code none;
  const fs::path own = fs::canonical(row.dir, none);
  std::set<fs::path> dirs{own};
  for (const SetRun& job : runs_of_set(row.dir)) {
    const fs::path dir = fs::canonical(job.dir, none);
    if (!none && fs::is_directory(dir, none) && std::ranges::mismatch(own, dir).in1 == own.end()) dirs.insert(dir);
  }
  Locks locks;
  // A job of a set that goes on is the set's, also before and after it is trained.
  if (const fs::path set = own.parent_path().parent_path(); fs::exists(set / "agents.json", none))
    locks.push_back(std::make_shared<RunReadLock>(set));
  for (const fs::path& dir : dirs) locks.push_back(std::make_shared<RunLock>(dir));
  return locks;
}

std::string line_of(const Goes& run) {
  const auto age = age_of(run.row);
  return fmt::format("  {:<40} {:<8} {:>10}  {:<12} {}", run.row.id, run.row.status, bytes_text(run.bytes),
                     age ? duration_text(*age) + " old" : "", run.row.dir.string());
}

uint64_t bytes_of(const std::vector<Goes>& going) {
  uint64_t bytes = 0;
  for (const Goes& run : going) bytes += run.bytes;
  return bytes;
}

std::string count_text(const std::vector<Goes>& going) {
  return fmt::format("{} run{}, {}", going.size(), going.size() == 1 ? "" : "s", bytes_text(bytes_of(going)));
}

// True: remove them. Throws ConfigError where nobody can be asked.
bool confirmed(const Command& command, const std::vector<Goes>& going) {
  if (command.arguments.removal.yes) return true;
  if (command.arguments.no_input || command.output.json() || isatty(STDIN_FILENO) != 1)
    throw ConfigError(fmt::format("nothing was removed: {}", count_text(going)),
                      "a removal needs a yes, and nobody can be asked here",
                      "add --yes; --dry-run lists what would go");
  command.output.flush();
  std::cerr << fmt::format("remove {}? [y/N] ", count_text(going)) << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int remove_all(const Command& command, std::vector<Goes> going, const std::vector<Stays>& staying) {
  const Arguments& arguments = command.arguments;
  const fs::path root = runs_root(arguments);
  for (const Goes& run : going) command.output.say(line_of(run));
  for (const Stays& run : staying) command.output.say(fmt::format("  {:<40} stays: {}", run.id, run.why));
  const bool remove = !going.empty() && !arguments.dry_run && confirmed(command, going);
  nlohmann::json gone = nlohmann::json::array(), kept = nlohmann::json::array();
  for (const Stays& run : staying) kept.push_back({{"run", run.id}, {"why", run.why}});
  for (Goes& run : going) {
    if (remove) remove_run_folder(run.row.dir, root);
    gone.push_back({{"run", run.row.id}, {"dir", fs::absolute(run.row.dir).string()}, {"bytes", run.bytes}});
    run.locks.clear();
  }
  if (remove) {
    clear_removed(root);
    RunIndex(root).sync();
  }
  if (command.output.json())
    command.output.object({{"dry_run", arguments.dry_run},
                           {remove ? "removed" : "would_remove", gone},
                           {"kept", kept},
                           {"bytes", bytes_of(going)}});
  command.output.say(going.empty()       ? "nothing to remove"
                     : remove            ? "removed " + count_text(going)
                     : arguments.dry_run ? "dry run: would remove " + count_text(going)
                                         : "nothing was removed");
  return 0;
}

std::map<fs::path, std::vector<std::string>> in_service(RunIndex& index) {
  std::vector<fs::path> all;
  for (const RunRow& row : index.list()) all.push_back(row.dir);
  return runs_in_service(all);
}

// Who needs it, of those that stay; empty: nobody.
std::string needed_by(const RunRow& row, const std::map<fs::path, std::vector<std::string>>& service,
                      const std::set<std::string>& going) {
  std::error_code none;
  const auto found = service.find(fs::canonical(row.dir, none));
  if (found == service.end()) return "";
  for (const std::string& other : found->second)
    if (!going.contains(other)) return other;
  return "";
}

// ---- prune: the best of those that can be compared ----

// The mean of this figure over the agents of a run: "score", or "analysis/score" and so on.
std::optional<double> figure_of(const RunRow& row, const std::string& name) {
  double sum = 0;
  int count = 0;
  for (const auto& [metric, value] : row.metrics)
    if (std::isfinite(value) && (metric == name || metric.ends_with("/" + name))) sum += value, ++count;
  return count ? std::optional(sum / count) : std::nullopt;
}

// Runs with equal ones can be compared: the same recipe, the same agents, the same environment.
std::string comparable_with(const RunRow& row) {
  const auto environment = row.settings.find("env.id");
  std::string group = row.recipe + "\n" + run_name(row.dir) + "\n";
  if (environment != row.settings.end()) group += environment->second;
  std::set<std::string> agents;  // of a set: "analysis" of "analysis/score"
  for (const auto& [metric, value] : row.metrics)
    if (const size_t slash = metric.find('/'); slash != std::string::npos) agents.insert(metric.substr(0, slash));
  return group + fmt::format("{}", fmt::join(agents, "\n"));
}

struct Figure {
  std::string name;
  bool lower = false;
};

// By which a group is compared: --metric; else score, average return or loss, the first that one of its runs has.
std::optional<Figure> figure_for(const Command& command, const std::vector<const RunRow*>& group) {
  std::vector<Figure> figures = {{"score"}, {"average_return"}, {"loss", true}};
  const std::string &metric = command.arguments.removal.metric, &order = command.arguments.order;
  if (!metric.empty()) figures = {{metric, order.empty() ? lower_is_better(metric) : order == "min"}};
  for (const Figure& figure : figures)
    if (std::ranges::any_of(group, [&](const RunRow* row) { return figure_of(*row, figure.name).has_value(); }))
      return figure;
  return std::nullopt;
}

// Folder -> why it stays: the best finished run of each group, and all of a group that nothing compares.
std::map<fs::path, std::string> kept_as_best(const Command& command, RunIndex& index) {
  const std::vector<RunRow> rows = index.list();
  std::map<std::string, std::vector<const RunRow*>> groups;
  for (const RunRow& row : rows) groups[comparable_with(row)].push_back(&row);
  std::map<fs::path, std::string> kept;
  bool compared = false;
  for (const auto& [name, group] : groups) {
    const std::optional<Figure> figure = figure_for(command, group);
    compared = compared || figure.has_value();
    const RunRow* best = nullptr;
    for (const RunRow* row : group) {
      const auto value = figure ? figure_of(*row, figure->name) : std::nullopt;
      if (!value || row->status != "done") continue;
      const auto best_value = best ? figure_of(*best, figure->name) : std::nullopt;
      if (!best || (figure->lower ? *value < *best_value : *value > *best_value)) best = row;
    }
    if (best) kept[best->dir] = "the best of its recipe";
    if (!best)
      for (const RunRow* row : group) kept[row->dir] = "none of its recipe is finished and has a figure to compare by";
  }
  if (!command.arguments.removal.metric.empty() && !compared && !rows.empty())
    index.best(command.arguments.removal.metric);  // throws, and lists the metrics that there are
  return kept;
}

double least_age(const Command& command) {
  const RemovalArguments& removal = command.arguments.removal;
  if (removal.older_than.empty() && !removal.keep_best)
    throw ConfigError("runs prune needs to know what may go", "without a rule every run would",
                      "add --older-than 7d, --keep-best, or both; `runs rm` removes one by name");
  if (removal.older_than.empty()) return 0;
  const auto seconds = parse_duration(removal.older_than);
  if (!seconds || *seconds < 0)
    throw ConfigError(fmt::format("--older-than {} is no duration", printable(removal.older_than)),
                      "it is a number with s, m, h or d", "write --older-than 7d, or 12h");
  return *seconds;
}

// A run stays that one which stays took an agent from, and so on.
void keep_what_is_needed(const std::map<fs::path, std::vector<std::string>>& service, std::set<std::string> folders,
                         std::vector<Goes>& going, std::vector<Stays>& staying) {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto run = going.begin(); run != going.end();) {
      const std::string other = needed_by(run->row, service, folders);
      if (other.empty()) {
        ++run;
        continue;
      }
      staying.push_back({run->row.id, fmt::format("{} took an agent from it", other)});
      folders.erase(run->row.dir.filename().string());
      run = going.erase(run);
      changed = true;
    }
  }
}

// A copy of a run has its id: which of them is meant must be said.
void refuse_copies(RunIndex& index, const RunFolder& run, const std::string& name) {
  if (name == "last" || name == run.dir().filename()) return;
  std::vector<std::string> folders;
  for (const RunRow& row : index.list())
    if (row.id == run.id()) folders.push_back(row.dir.string());
  if (folders.size() > 1)
    throw ConfigError(fmt::format("{} runs have the id {}", folders.size(), run.id()),
                      fmt::format("copies keep it: {}", fmt::join(folders, ", ")), "name the folder");
}

}  // namespace

int run_runs_rm(const Command& command) {
  const fs::path root = runs_root(command.arguments);
  RunIndex index(root);
  const auto service = in_service(index);
  std::vector<Goes> going;
  std::set<fs::path> named;
  for (const std::string& name : command.arguments.subjects) {
    const RunFolder run = RunFolder::find(root, name);
    std::error_code none;
    const bool by_path = name != "last" && fs::equivalent(name, run.dir(), none);
    if (!by_path) refuse_copies(index, run, name);
    if (!by_path && !lies_in_root(run.dir(), root))
      throw ConfigError(
          fmt::format("{} is a link in {}, and links are not followed", name, root.string()),
          fmt::format("the run is in {}", run.dir().string()),
          fmt::format("name that folder: `{} runs rm {}`", command.context.program, shell_word(run.dir().string())));
    check_removable(by_path ? fs::path(name) : run.dir(), root);
    if (!named.insert(fs::canonical(run.dir(), none)).second) continue;
    going.push_back({read_run(run.dir()), 0, {}});
  }
  std::set<std::string> folders;
  for (const Goes& run : going) folders.insert(run.row.dir.filename().string());
  for (Goes& run : going) {
    if (const std::string other = needed_by(run.row, service, folders); !other.empty())
      throw ConfigError(fmt::format("{} is in use by {}", run.row.id, other),
                        "that set took an agent from it (current.json), and would lose its weights",
                        fmt::format("remove both: `{} runs rm {} {}`", command.context.program, shell_word(other),
                                    shell_word(run.row.id)));
    run.locks = lock_all(run.row, command.arguments.dry_run);
    run.bytes = folder_bytes(run.row.dir);
  }
  return remove_all(command, std::move(going), {});
}

int run_runs_prune(const Command& command) {
  const double least = least_age(command);
  const fs::path root = runs_root(command.arguments);
  RunIndex index(root);
  const auto kept =
      command.arguments.removal.keep_best ? kept_as_best(command, index) : std::map<fs::path, std::string>();
  const auto service = in_service(index);
  std::vector<RunRow> chosen;
  std::vector<Stays> staying;
  std::set<std::string> folders;
  for (RunRow& row : index.list({command.arguments.filter_recipe, command.arguments.filter_status, 0})) {
    const auto age = age_of(row);
    if (!age || *age < least) continue;
    if (!lies_in_root(row.dir, root)) {
      staying.push_back({row.id, fmt::format("it lies elsewhere, in {}", row.dir.string())});
      continue;
    }
    if (const auto why = kept.find(row.dir); why != kept.end()) {
      staying.push_back({row.id, why->second});
      continue;
    }
    folders.insert(row.dir.filename().string());
    chosen.push_back(std::move(row));
  }
  std::vector<Goes> going;
  for (RunRow& row : chosen) {
    try {
      check_removable(row.dir, root);
      Locks locks = lock_all(row, command.arguments.dry_run);
      const uint64_t bytes = folder_bytes(row.dir);
      going.push_back({std::move(row), bytes, std::move(locks)});
    } catch (const Error& error) {
      staying.push_back({row.id, error.what()});
      folders.erase(row.dir.filename().string());
    }
  }
  keep_what_is_needed(service, folders, going, staying);
  return remove_all(command, std::move(going), staying);
}

void add_removal_commands(Arguments& arguments, const MakeCommand& make) {
  CLI::App* rm = make("rm", "removes runs: lists them with their size, and asks",
                      {{"runs rm last", "the newest"}, {"runs rm a1b2c3 d4e5f6 --yes", "two, without asking"}});
  rm->add_option("run", arguments.subjects, "id, start of an id, folder, or last")
      ->expected(1, 1000)
      ->type_name("")
      ->required();
  CLI::App* prune = make("prune", "removes old runs: lists them with their size, and asks",
                         {{"runs prune --keep-best --older-than 7d", "all older ones but the best of each recipe"},
                          {"runs prune --older-than 1d --status failed --dry-run", "what would go"}});
  RemovalArguments& removal = arguments.removal;
  prune->add_option("--older-than", removal.older_than, "runs not written to for this long: 7d, 12h")
      ->type_name("time");
  prune->add_flag("--keep-best", removal.keep_best,
                  "keeps the best finished run of each recipe, agent and environment: by score, return or loss");
  prune->add_option("--metric", removal.metric, "what the best is the best of")->type_name("name");
  prune->add_option("--order", arguments.order, "min or max, where the metric's name does not tell")
      ->type_name("word")
      ->check(CLI::IsMember({"min", "max"}));
  prune->add_option("--recipe", arguments.filter_recipe, "of this recipe only")->type_name("name");
  prune->add_option("--status", arguments.filter_status, "done, stopped, failed or died")->type_name("word");
  for (CLI::App* app : {rm, prune}) {
    app->add_flag("-y,--yes", removal.yes, "does not ask");
    app->add_flag("--dry-run", arguments.dry_run, "only lists them");
  }
}

}  // namespace tandem
