// tools/doctor/doctor.cc -- `tandem doctor`: looks, tries, judges, and says what to do next.
#include "tools/doctor/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "command/disk_need.h"
#include "command/out_file.h"
#include "command/scratch.h"
#include "command/sources.h"
#include "config/visible_gpus.h"
#include "telemetry/gpu_json.h"
#include "telemetry/human.h"

namespace tandem {
namespace fs = std::filesystem;
namespace {

constexpr double kGiB = 1ull << 30;

// CUDA counts GPUs as nvidia-smi does, and as workers have it: a number means one GPU everywhere.
class NvidiaOrder {
 public:
  NvidiaOrder() {
    if (const char* given = std::getenv(kName)) before_ = given;
    setenv(kName, "PCI_BUS_ID", 1);
  }
  ~NvidiaOrder() { before_ ? setenv(kName, before_->c_str(), 1) : unsetenv(kName); }
  NvidiaOrder(const NvidiaOrder&) = delete;
  NvidiaOrder& operator=(const NvidiaOrder&) = delete;

 private:
  static constexpr const char* kName = "CUDA_DEVICE_ORDER";
  std::optional<std::string> before_;
};

std::string mark(Verdict verdict, bool color) {
  const char* words[] = {"ok     ", "warning", "PROBLEM"};
  const char* colors[] = {"\033[32m", "\033[33m", "\033[31m"};
  const int i = static_cast<int>(verdict);
  return color ? fmt::format("{}{}\033[0m", colors[i], words[i]) : words[i];
}

// A remedy for what is fine is a hint, shown with -v.
std::string findings_text(const Findings& findings, bool color, bool verbose) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{}  {:<13}  {}\n", mark(finding.verdict, color), finding.check, finding.found);
    if (!finding.todo.empty() && (verbose || finding.verdict != Verdict::kOk))
      text += fmt::format("{:24}do  {}\n", "", finding.todo);
  }
  return text;
}

struct Advice {
  std::string command, forecast;
  std::optional<double> seconds;
};

nlohmann::json rows_json(const std::vector<BandwidthRow>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const BandwidthRow& row : rows)
    out.push_back({{"size_bytes", row.bytes},
                   {"count", row.count},
                   {"type", "float"},
                   {"time_us", row.time_us},
                   {"algbw_gb_per_s", row.algbw_gb_per_s},
                   {"busbw_gb_per_s", row.busbw_gb_per_s},
                   {"wrong", row.wrong}});
  return out;
}

nlohmann::json links_json(const LinksSeen& seen) {
  nlohmann::json out{{"host", nlohmann::json::array()}, {"peers", nlohmann::json::array()}};
  for (const HostLink& link : seen.links.host)
    out["host"].push_back(
        {{"gpu", seen.gpu(link.device)}, {"up_gb_per_s", link.up_gb_per_s}, {"down_gb_per_s", link.down_gb_per_s}});
  for (const PeerLink& link : seen.links.peers) {
    out["peers"].push_back({{"from", seen.gpu(link.from)},
                            {"to", seen.gpu(link.to)},
                            {"direct", link.direct},
                            {"gb_per_s", link.gb_per_s},
                            {"maps", link.unmapped.empty()}});
    if (!link.unmapped.empty()) out["peers"].back()["why_not"] = link.unmapped;
  }
  if (seen.sum) out["nccl"] = rows_json(seen.sum->rows);
  return out;
}

// What is free on a GPU; of one that MIG has split, its largest part, as a worker gets a part and not the GPU. Where
// CUDA_VISIBLE_DEVICES names parts, only those count.
std::optional<uint64_t> memory_for_a_worker(const GpuFacts& facts, const GpuReading& now, const std::string& named) {
  if (!facts.mig_on.value_or(false)) return now.memory_free_bytes;
  const bool chosen = named.find("MIG-") != std::string::npos;
  std::optional<uint64_t> most;
  for (const MigInstance& part : facts.mig) {
    if (!part.memory_bytes || (chosen && named.find(part.uuid) == std::string::npos)) continue;
    most = std::max(most.value_or(0), *part.memory_bytes);
  }
  return most;
}

std::string recipe_to_show(const CliContext& context) {
  const RecipeInfo* const tried = recipe_to_try(context);
  return tried ? tried->name : context.example();
}

// Steps of the recipe's own length, at a rate that was just measured.
void add_forecast(Advice& advice, const RecipeInfo* recipe, std::optional<double> steps_per_second,
                  const std::string& where) {
  if (!recipe || !steps_per_second) return;
  const int64_t steps = recipe->settings()->steps;
  advice.seconds = static_cast<double>(steps) / *steps_per_second + 2;
  advice.forecast = fmt::format("about {} ({} steps at {:.0f} a second, as just measured on {})",
                                duration_text(*advice.seconds), steps, *steps_per_second, where);
}

// Every core that may be used; a worker without a shard would be refused.
int workers_for(const CliContext& context, const std::string& name) {
  int64_t workers = std::max(1, context.machine.cpu_cores);
  for (const RecipeInfo& recipe : context.recipes)
    if (recipe.name == name) workers = std::min(workers, std::max<int64_t>(1, recipe.settings()->shards));
  return static_cast<int>(workers);
}

Advice advise(const Command& command, const Findings& findings, const GpusSeen& gpus, const WorkerTrial& trial) {
  // libtorch is not asked: one that is broken breaks the workers, one too new for the driver only keeps GPUs away.
  constexpr std::string_view kOfWorkers[] = {"workers", "sum", "disk"};
  const bool workers_fine = std::ranges::none_of(findings, [&](const Finding& finding) {
    return finding.verdict == Verdict::kProblem && std::ranges::find(kOfWorkers, finding.check) != std::end(kOfWorkers);
  });
  const std::string program = command.context.program == "tandem-worker" ? "tandem" : command.context.program;
  if (!workers_fine) return {"", "mend the problems above first", {}};
  const RecipeInfo* const tried = recipe_to_try(command.context);
  const std::string name = recipe_to_show(command.context);
  if (const std::vector<UsableGpu> usable = usable_gpus(findings, gpus); !usable.empty()) {
    const std::string flag = devices_flag(usable, gpus), more = flag.empty() ? "" : " " + flag;
    std::vector<int> numbers;
    for (const UsableGpu& gpu : usable) numbers.push_back(gpu.gpu);
    std::string where = usable.size() == 1 ? "the GPU" : fmt::format("{} GPUs", usable.size());
    if (!flag.empty())  // nvidia-smi counts a lost GPU, --devices does not
      where = fmt::format("{} GPU{} without a fault (GPU {})", usable.size(), usable.size() == 1 ? "" : "s",
                          fmt::join(numbers, ", "));
    Advice advice{fmt::format("{} train {}{}", program, name, more),
                  fmt::format("on {}; `{} plan {}{}` forecasts its time there", where, program, name, more),
                  {}};
    add_forecast(advice, tried, trial.gpu_steps_per_second(), where);
    return advice;
  }
  const int workers = workers_for(command.context, name);
  Advice advice{fmt::format("{} train {} --devices cpu:{}", program, name, workers), "", {}};
  if (!tried) advice.forecast = fmt::format("`{} plan {}` forecasts its time", program, name);
  if (workers == 1)
    add_forecast(advice, tried, trial.one_worker_steps_per_second(), "one CPU worker");
  else
    add_forecast(advice, tried, trial.steps_per_second(),
                 workers == 2 ? "two CPU workers" : fmt::format("two CPU workers; {} were not tried", workers));
  return advice;
}

// What doctor found, to be shown.
struct Examination {
  const Findings& findings;
  const GpusSeen& gpus;
  const Bandwidth& bandwidth;
  const LinksSeen& links;
  int processes;  // of the bandwidth
  const Advice& advice;
  double seconds;
  Verdict worst = Verdict::kOk;
  int problems = 0, warnings = 0;
};

void count_verdicts(Examination& all) {
  for (const Finding& finding : all.findings) {
    all.worst = std::max(all.worst, finding.verdict);
    all.problems += finding.verdict == Verdict::kProblem;
    all.warnings += finding.verdict == Verdict::kWarning;
  }
}

nlohmann::json examination_json(const Examination& all) {
  nlohmann::json checks = nlohmann::json::array(), gpu_list = nlohmann::json::array();
  for (const Finding& finding : all.findings) {
    checks.push_back({{"check", finding.check}, {"verdict", verdict_name(finding.verdict)}, {"found", finding.found}});
    if (!finding.todo.empty()) checks.back()["do"] = finding.todo;
  }
  for (size_t i = 0; i < all.gpus.facts.size(); ++i) {
    gpu_list.push_back(to_json(all.gpus.facts[i]));
    gpu_list.back().update(to_json(all.gpus.now[i]));
  }
  nlohmann::json out{{"verdict", verdict_name(all.worst)},
                     {"problems", all.problems},
                     {"warnings", all.warnings},
                     {"checks", checks},
                     {"gpus", gpu_list},
                     {"seconds", all.seconds}};
  if (!all.bandwidth.rows.empty())
    out["bandwidth"] = {
        {"plane", "host memory"}, {"processes", all.processes}, {"rows", rows_json(all.bandwidth.rows)}};
  if (!all.links.links.host.empty()) out["links"] = links_json(all.links);
  const Advice& advice = all.advice;
  if (!advice.command.empty()) out["recommended"] = {{"command", advice.command}, {"forecast", advice.forecast}};
  if (advice.seconds) out["recommended"]["seconds"] = *advice.seconds;
  return out;
}

std::string examination_text(const Examination& all, const std::string& measured, bool color, bool verbose) {
  std::string text = findings_text(all.findings, color, verbose);
  if (!measured.empty()) text += "\n" + measured;
  text += fmt::format("\n{} problem{}, {} warning{}, in {:.1f} s\n", all.problems, all.problems == 1 ? "" : "s",
                      all.warnings, all.warnings == 1 ? "" : "s", all.seconds);
  return text + (all.advice.command.empty()
                     ? all.advice.forecast + "\n"
                     : fmt::format("next:  {}\n       {}\n", all.advice.command, all.advice.forecast));
}

}  // namespace

const RecipeInfo* recipe_to_try(const CliContext& context) {
  for (const RecipeInfo& recipe : context.recipes)
    if (recipe.tries_machine) return &recipe;
  return nullptr;
}

namespace {

// Its checkpoints at its own settings, beside what the disk has.
void judge_recipe_disk(const RecipeInfo& recipe, const PlaceSeen& place, Finding& finding) {
  const auto need = disk_need(recipe, *recipe.settings());
  if (!need) return;
  finding.found += fmt::format("; up to {} of checkpoints", bytes_text(need->most()));
  if (!place.disk || place.disk->free_bytes >= need->most()) return;
  finding.verdict = Verdict::kWarning;
  finding.found += fmt::format(", and the disk has {}", bytes_text(place.disk->free_bytes));
  if (finding.todo.empty()) finding.todo = "tandem runs prune --keep-best --older-than 7d";
}

}  // namespace

Findings judge_recipes(const CliContext& context, const GpusSeen& gpus, const PlaceSeen& place) {
  Findings all;
  const auto host = usable_memory_bytes(place.machine.memory);
  const std::vector<bool> visible =
      visible_gpus(gpus.facts, gpus.visible_devices ? gpus.visible_devices->c_str() : nullptr);
  for (const RecipeInfo& recipe : context.recipes) {
    const MemoryNeed& need = recipe.need;
    if (need.gpu_gib == 0) continue;
    std::string no;
    int fits = 0;
    for (size_t i = 0; i < gpus.facts.size(); ++i) {
      if (!visible[i]) continue;
      const auto room = memory_for_a_worker(gpus.facts[i], gpus.now[i], gpus.visible_devices.value_or(""));
      if (!room) continue;
      if (static_cast<double>(*room) / kGiB >= need.gpu_gib)
        ++fits;
      else
        no += fmt::format("{}{}", no.empty() ? "" : ", ", gpus.facts[i].index);
    }
    const bool cpu = !host || static_cast<double>(*host) / kGiB >= need.host_gib;
    std::string where = cpu ? "CPU workers" : "";
    if (fits > 0) where += fmt::format("{}{} GPU{}", where.empty() ? "" : " and ", fits, fits == 1 ? "" : "s");
    Finding finding{"recipe", Verdict::kOk,
                    fmt::format("{}: about {} GiB a GPU (estimate); fits {}", recipe.name, need.gpu_gib,
                                where.empty() ? "nowhere" : where)};
    if (!no.empty()) {
      finding.verdict = Verdict::kWarning;
      finding.found += fmt::format("; not GPU {}: too little is free there", no);
      finding.todo = "nvidia-smi   (free the GPU, or leave it out: --gpus)";
    }
    judge_recipe_disk(recipe, place, finding);
    if (where.empty()) finding.verdict = Verdict::kProblem;
    all.push_back(std::move(finding));
  }
  return all;
}

int run_doctor(const Command& command) {
  const double start = monotonic_seconds();
  if (!command.arguments.report.empty() && fs::is_directory(command.arguments.report))
    throw ConfigError(fmt::format("--report {}: that is a folder", command.arguments.report),
                      "it names the file to write", "write --report report.md");
  const Scratch folder("doctor");
  std::optional<NvidiaOrder> order(std::in_place);
  WorkerTrial trial(command.context, folder.path());  // works while we look around
  GpusSeen gpus = look_at_gpus(command.context.machine.cuda_build);
  const LibrariesSeen libraries = look_at_libraries(command.context);
  PlaceSeen place = look_at_place(runs_root(command.arguments));
  gpus.example = place.example = recipe_to_show(command.context);
  Findings findings = judge_gpus(gpus);
  const auto add = [&](const Findings& more) { findings.insert(findings.end(), more.begin(), more.end()); };
  add(judge_libraries(libraries, gpus));
  add(judge_place(place, gpus));
  add(judge_recipes(command.context, gpus, place));
  findings.push_back(try_sum(3));
  findings.push_back(trial.finish());
  const bool emulated = std::getenv("TANDEM_LIBCUDA") != nullptr;  // a test's machine: no worker can use its GPUs
  if (const std::vector<UsableGpu> usable = usable_gpus(findings, gpus); !usable.empty() && !emulated)
    findings.push_back(trial.try_gpus(usable));
  const double seconds = monotonic_seconds() - start;

  Bandwidth bandwidth;
  const int processes = std::clamp(command.context.machine.cpu_cores, 2, 8);
  LinksSeen links;
  if (command.arguments.bandwidth) {
    bandwidth = measure_bandwidth(processes);
    if (!bandwidth.trouble.empty())
      findings.push_back({"bandwidth", Verdict::kProblem, bandwidth.trouble,
                          "free -m && ulimit -a   (memory or processes are short; dmesg tells who was killed)"});
    if (gpus.cuda && gpus.cuda->ok()) links = look_at_links(gpus, libraries);
    add(judge_links(links, gpus));
  }
  order.reset();  // the report shows the user's
  std::string measured = links_text(links);
  if (!bandwidth.rows.empty())
    measured += bandwidth_text(bandwidth.rows, fmt::format("host memory, {} processes", processes));

  const Advice advice = advise(command, findings, gpus, trial);
  if (!command.arguments.report.empty()) {
    write_out_file(command.arguments.report, doctor_report(command.context, findings, gpus, place, libraries, measured),
                   "--report");
    command.output.say("report written to " + command.arguments.report);
  }
  Examination all{findings, gpus, bandwidth, links, processes, advice, seconds};
  count_verdicts(all);
  if (command.output.json())
    command.output.object(examination_json(all));
  else
    command.output.data(
        examination_text(all, measured, wants_color(1, command.arguments.no_color), command.output.verbose()));
  return static_cast<int>(all.worst == Verdict::kProblem ? ExitCode::kCheckFailed : ExitCode::kOk);
}

}  // namespace tandem
