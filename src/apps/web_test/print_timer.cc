#include "apps/web_test/print_timer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/web_test/timer.h"
#include "command/command.h"
#include "command/sources.h"
#include "rl/replay/experience.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::string commands_text(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + for_shell(word);
  return out;
}

// "/data/new.jsonl": '/data/new'-, and .jsonl
std::pair<std::string, std::string> around_stamp(const fs::path& file) {
  return {for_shell((file.parent_path() / file.stem()).string() + "-"), for_shell(file.extension().string())};
}

// What was collected gets a name of its own, and a mark beside it. The mark goes once it was learned from or judged:
// what was refused before training (code 2: too few episodes, a run in use) comes along the next day.
std::string daily_script(const std::vector<fs::path>& files, const std::vector<std::string>& train) {
  std::string script = "now=$(date -u +%Y%m%d-%H%M%S); list=; ", marks;
  for (const fs::path& file : files) {
    const auto [before, after] = around_stamp(file);
    script += fmt::format("[ -e {0} ] && mv {0} {1}\"$now\"{2} && : > {1}\"$now\"{2}.waits; ", for_shell(file.string()),
                          before, after);
    marks += fmt::format(" {}[0-9]*{}.waits", before, after);
  }
  script += fmt::format("for mark in{}; do [ -e \"$mark\" ] && list=$list,${{mark%.waits}}; done; ", marks);
  return script + fmt::format(
                      "[ -n \"$list\" ] || {{ echo nothing new; exit 0; }}; {} --experience \"${{list#,}}\"; code=$?; "
                      "[ $code -eq 2 ] || rm -f{}; exit $code",
                      commands_text(train), marks);
}

std::string weekly_script(const std::vector<fs::path>& files, const std::vector<std::string>& train) {
  std::string script = "list=; for file in";
  for (const fs::path& file : files) {
    const auto [before, after] = around_stamp(file);
    script += fmt::format(" {}[0-9]*{}", before, after);
  }
  return script + fmt::format(
                      "; do [ -e \"$file\" ] && list=$list,$file; done; "
                      "exec {} --full ${{list:+--experience \"${{list#,}}\"}}",
                      commands_text(train));
}

}  // namespace

std::string given(const Arguments& arguments, const std::string& key) {
  std::string value;
  for (const Override& flag : arguments.overrides)
    if (flag.key == key) value = flag.value;
  return value;
}

int print_timer(const Command& command, const RunFolder& run) {
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  std::vector<std::string> train = {self.empty() ? command.context.program : self.string(),
                                    "train",
                                    command.subject("web-test"),
                                    "--from",
                                    fs::absolute(run.dir()).lexically_normal().string(),
                                    "--runs-root",
                                    fs::absolute(runs_root(command.arguments)).lexically_normal().string()};
  if (const std::string gate = given(command.arguments, "gate"); !gate.empty())
    train.insert(train.end(), {"--gate", gate});
  const std::string named = given(command.arguments, "experience.files");
  std::vector<fs::path> files;
  for (const fs::path& file : experience_files(named.empty() ? "new.jsonl" : named))
    files.push_back(fs::absolute(file).lexically_normal());
  const std::string folder = fs::current_path().string();
  const std::vector<std::string> daily = {"/bin/sh", "-c", daily_script(files, train)},
                                 weekly = {"/bin/sh", "-c", weekly_script(files, train)};
  const std::vector<TimedCommand> commands = {{"tandem-daily", "*-*-* 03:00:00", "0 3 * * *", folder, daily},
                                              {"tandem-weekly", "Sun *-*-* 04:00:00", "0 4 * * 0", folder, weekly}};
  if (!command.output.json()) {
    command.output.data(timer_text(commands));
    command.output.say(
        fmt::format("collect new lines in {}: each day's are moved to a name of their own, and stay there "
                    "to judge later models",
                    files.front().string()));
    return 0;
  }
  nlohmann::json out = nlohmann::json::object();
  for (const TimedCommand& one : commands)
    out[one.name] = {{"service", systemd_service(one)}, {"timer", systemd_timer(one)}, {"cron", cron_line(one)}};
  command.output.object(out);
  return 0;
}

}  // namespace tandem
