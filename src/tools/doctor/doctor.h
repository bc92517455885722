// tools/doctor/doctor.h -- what `tandem doctor` finds: one verdict a line, with the remedy as a command to copy.
//
// Looking and judging are apart: what was seen is in plain structs, and the judges are functions of them alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command/command.h"
#include "hardware/cuda_driver.h"
#include "hardware/cuda_links.h"
#include "hardware/machine.h"
#include "hardware/nvml.h"

namespace tandem {

enum class Verdict { kOk, kWarning, kProblem };
std::string_view verdict_name(Verdict verdict);  // "ok", "warning", "problem"

struct Finding {
  std::string check;
  Verdict verdict = Verdict::kOk;
  std::string found;
  std::string todo = {};  // a command to copy, where there is one
  int gpu = -1;           // nvidia-smi's number of the GPU that it is of alone
};
using Findings = std::vector<Finding>;

// What NVML, CUDA's driver and the PCI bus say of the GPUs.
struct GpusSeen {
  std::string example = "RECIPE";  // a recipe for advice
  NvmlStatus status;
  std::optional<std::string> driver;
  std::optional<int> driver_cuda;
  std::vector<GpuFacts> facts;
  std::vector<GpuReading> now;
  std::vector<std::vector<GpuLink>> links;
  std::optional<CudaDriver> cuda;  // asked only where NVML has seen a GPU
  std::optional<std::string> visible_devices;
  int nvidia_on_bus = 0, amd_on_bus = 0;  // GPUs that the PCI bus shows, with a driver or without
  bool cuda_build = false;
};
GpusSeen look_at_gpus(bool cuda_build);
Findings judge_gpus(const GpusSeen& gpus);
// Of a process's command line: "/opt/x/python3 train.py --key=1" is "python3".
std::string program_of(const std::string& command_line);

// The GPUs that a worker would work on, by all that is known.
struct UsableGpu {
  int device;  // N of `--devices cuda:N`
  int gpu;     // nvidia-smi's number
};
std::vector<UsableGpu> usable_gpus(const Findings& findings, const GpusSeen& gpus);
// "--devices cuda:0,cuda:2"; empty where they are all that CUDA_VISIBLE_DEVICES leaves: `train` takes them by itself.
std::string devices_flag(const std::vector<UsableGpu>& usable, const GpusSeen& gpus);

// What the worker's libraries are, by the loader's own answer: nothing of libtorch is started.
struct LibrariesSeen {
  bool worker_found = false;
  std::vector<std::string> missing;
  std::string torch_dir, torch_version, torch_cuda, nccl;  // "" where there is none
  bool gloo_build = false;
  std::string ffmpeg, stockfish;  // paths
};
LibrariesSeen look_at_libraries(const CliContext& context);
Findings judge_libraries(const LibrariesSeen& libraries, const GpusSeen& gpus);

struct PlaceSeen {
  MachineFacts machine;
  std::filesystem::path runs_root;
  std::optional<DiskFacts> disk;
  std::optional<double> write_bytes_per_s;
  std::string write_trouble, port_trouble, clock_trouble;
  std::string example = "RECIPE";  // a recipe for advice
};
PlaceSeen look_at_place(const std::filesystem::path& runs_root);
Findings judge_place(const PlaceSeen& place, const GpusSeen& gpus);

// The recipe that a machine is tried with: one that says so of itself. Null: none does, another may be huge.
const RecipeInfo* recipe_to_try(const CliContext& context);

// Does each recipe fit into each GPU? By what its entry says that it needs, so an estimate.
Findings judge_recipes(const CliContext& context, const GpusSeen& gpus, const PlaceSeen& place);

// A sum over processes through the plane that CPU workers use, held against one process, bit for bit.
Finding try_sum(int processes);

// nccl-tests' columns, for a sum over `processes` through that plane.
struct Bandwidth {
  std::vector<BandwidthRow> rows;
  std::string trouble;  // why there are no more of them
};
Bandwidth measure_bandwidth(int processes);
std::string bandwidth_text(const std::vector<BandwidthRow>& rows, const std::string& over);

// The GPUs' own links, and NCCL's sum over them where there are several.
struct LinksSeen {
  MeasuredLinks links;
  std::optional<NcclSum> sum;
  std::vector<int> numbers;  // nvidia-smi's, of CUDA's devices in their order
  int gpu(int device) const {
    return device < static_cast<int>(numbers.size()) ? numbers[static_cast<size_t>(device)] : device;
  }
};
LinksSeen look_at_links(const GpusSeen& gpus, const LibrariesSeen& libraries);
Findings judge_links(const LinksSeen& links, const GpusSeen& gpus);
std::string links_text(const LinksSeen& links);

// The real workers: recipe_to_try() for a few steps on one CPU worker, started at once, and then on two; on the GPUs as
// well. Without such a recipe nothing is tried.
class WorkerTrial {
 public:
  WorkerTrial(const CliContext& context, const std::filesystem::path& folder);
  ~WorkerTrial();  // ends what still runs
  Finding finish();
  // On the first of these GPUs, and on all where there are several.
  Finding try_gpus(const std::vector<UsableGpu>& gpus);
  // Steps a second on one CPU worker, on two, on all those GPUs, once tried.
  std::optional<double> one_worker_steps_per_second() const { return one_rate_; }
  std::optional<double> steps_per_second() const { return rate_; }
  std::optional<double> gpu_steps_per_second() const { return gpu_rate_; }

 private:
  struct Child {
    pid_t pid = -1;
    std::filesystem::path out, err;
    int code = -1;
  };
  Child start(const std::string& devices, const std::string& name);
  bool wait(Child& child, double deadline);
  // Runs it to its end; the digest, or a finding that tells what went wrong.
  std::string digest_of(Child& child, const std::string& check, const std::string& devices, Finding& wrong);
  std::optional<double> rate_of(const std::string& name) const;
  std::filesystem::path program_, folder_;
  std::string recipe_;  // empty: none to try
  std::vector<Child> children_;
  std::optional<double> one_rate_, rate_, gpu_rate_;
  std::string trouble_;
};

// For bug reports: user, host, addresses and secrets are taken out of the text.
struct Private {
  std::vector<std::string> users, homes, hosts;
  std::vector<std::string> secrets;  // values of variables whose names look secret
};
Private private_things();
std::string without_private_things(std::string text, const Private& hidden);
std::string doctor_report(const CliContext& context, const Findings& findings, const GpusSeen& gpus,
                          const PlaceSeen& place, const LibrariesSeen& libraries, const std::string& more);

int run_doctor(const Command& command);

}  // namespace tandem
