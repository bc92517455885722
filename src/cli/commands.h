// cli/commands.h -- one function per command, each in the file of its name. They return the exit code or throw Error.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/arguments.h"
#include "cli/output.h"

namespace tandem {

class Gathering;
class Nvml;
struct NvmlStatus;

struct Command {
  const Arguments& arguments;
  const CliContext& context;
  const Output& output;
  Gathering* ranks = nullptr;  // of another launcher; this is rank 0 then (cli/ranks.h)

  // The first word after the command, or `otherwise`.
  std::string subject(const std::string& otherwise = "") const {
    return arguments.subjects.empty() ? otherwise : arguments.subjects.front();
  }
};

int run_train(const Command& command);
// `train --from RUN`: goes on learning from a trained run, and lets the new model replace the old if it is not worse.
int run_continue(const Command& command);
int run_resume(const Command& command);
// Goes on with the run in `run_dir`; `checkpoint` is a folder of its checkpoints/, or nothing for the newest whole one.
int resume_run(const Command& command, const std::filesystem::path& run_dir,
               const std::optional<std::filesystem::path>& checkpoint);
int run_join(const Command& command);
int run_leave(const Command& command);
int run_runs(const Command& command);
int run_digest(const Command& command);
int run_export(const Command& command);
int run_report(const Command& command);
int run_explain(const Command& command);
int run_eval(const Command& command);
int run_act(const Command& command);
int run_bench(const Command& command);
int run_monitor(const Command& command);
int run_doctor(const Command& command);
int run_gpus(const Command& command);
int run_plan(const Command& command);
int run_guard(const Command& command);
int guard_machine(const Command& command);   // `guard` without a verb
std::unique_ptr<Nvml> open_nvml_or_throw();  // an Error in words where there is no driver or no GPU
// What is done about a driver that does not answer; it hangs nvidia-smi as well.
inline constexpr const char* kDriverHangsTodo =
    "sudo dmesg | grep -i -e NVRM -e Xid   (then restart the machine; a driver that is only slow: "
    "TANDEM_DRIVER_SECONDS=60)";
Error driver_hangs(const NvmlStatus& status);
int run_config_show(const Command& command);
int run_recipes(const Command& command);
int run_version(const Command& command);

}  // namespace tandem
