// tools/doctor/doctor_place.cc -- limits, disk, ports, clock and libraries, as doctor sees and judges them.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "command/child_output.h"
#include "hardware/driver_check.h"
#include "telemetry/human.h"
#include "tools/doctor/doctor.h"

namespace tandem {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMebibyte = 1ull << 20, kGibibyte = 1ull << 30;

// Until 32 MiB are on the disk, or half a second is over.
void try_writing(const fs::path& folder, PlaceSeen& place) {
  std::string name = (folder / ".tandem-doctor-XXXXXX").string();
  const int fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) {
    place.write_trouble = std::strerror(errno);
    return;
  }
  unlink(name.c_str());
  const std::vector<char> block(kMebibyte, 'x');
  const double start = monotonic_seconds();
  uint64_t written = 0;
  while (written < 32 * kMebibyte && monotonic_seconds() - start < 0.5) {
    const ssize_t n = write(fd, block.data(), block.size());
    if (n <= 0) {
      place.write_trouble = std::strerror(errno);
      break;
    }
    written += static_cast<uint64_t>(n);
  }
  if (fdatasync(fd) != 0 && place.write_trouble.empty()) place.write_trouble = std::strerror(errno);
  if (place.write_trouble.empty())
    place.write_bytes_per_s = static_cast<double>(written) / std::max(1e-6, monotonic_seconds() - start);
  close(fd);
}

std::string try_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::string("no socket: ") + std::strerror(errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string trouble;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd, 1) != 0)
    trouble = std::string("127.0.0.1 can't listen: ") + std::strerror(errno);
  close(fd);
  return trouble;
}

std::string try_clock() {
  const double unix_seconds = unix_now(), first = monotonic_seconds(), second = monotonic_seconds();
  if (second < first) return "the monotonic clock went back";
  if (unix_seconds < 1735689600)
    return fmt::format("the wall clock says {}: before this program was written", utc_iso(unix_seconds));
  if (unix_seconds > 4102444800) return fmt::format("the wall clock says {}", utc_iso(unix_seconds));
  return "";
}

std::string in_path(const std::string& name) {
  std::istringstream folders(std::string(std::getenv("PATH") ? std::getenv("PATH") : "") + ":/usr/games");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = folder + "/" + name;
    if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// The loader lists what it would load, and loads nothing: LD_TRACE_LOADED_OBJECTS, as ldd does it.
std::string loader_says(const fs::path& program) {
  return run_child({.words = {program.string()}, .environment = {{"LD_TRACE_LOADED_OBJECTS", "1"}}}).text;
}

std::string python_constant(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const size_t from = line.find('\''), to = line.rfind('\'');
    if (from != std::string::npos && to > from) return line.substr(from + 1, to - from - 1);
  }
  return "";
}

std::string limit_text(const std::optional<uint64_t>& limit, bool bytes) {
  if (!limit) return "unlimited";
  return bytes ? bytes_text(*limit) : std::to_string(*limit);
}

}  // namespace

PlaceSeen look_at_place(const fs::path& runs_root) {
  PlaceSeen place;
  place.machine = machine_facts();
  place.runs_root = runs_root;
  place.disk = disk_facts(runs_root);
  std::error_code error;
  fs::path folder = fs::absolute(runs_root, error);
  while (!fs::exists(folder, error) && folder != folder.parent_path()) folder = folder.parent_path();
  try_writing(folder, place);
  place.port_trouble = try_port();
  place.clock_trouble = try_clock();
  return place;
}

namespace {

void judge_host_memory(const MachineFacts& machine, const GpusSeen& gpus, Findings& all) {
  all.push_back(
      {"CPU", Verdict::kOk,
       fmt::format(
           "{}: {} of {} usable{}", machine.cpu.model.value_or(machine.architecture), machine.cpu.usable,
           machine.cpu.logical,
           machine.cpu.quota ? fmt::format(", {:.1f} CPUs' worth of time by its cgroup", *machine.cpu.quota) : "")});
  if (machine.cpu.quota && *machine.cpu.quota < 1)
    all.back().verdict = Verdict::kWarning, all.back().todo = "give the container more: docker run --cpus 4";
  if (const auto usable = usable_memory_bytes(machine.memory)) {
    const bool little = *usable < kGibibyte;
    all.push_back(
        {"memory", little ? Verdict::kWarning : Verdict::kOk,
         fmt::format("{} free for this process{}", bytes_text(*usable),
                     machine.memory.cgroup_limit_bytes
                         ? fmt::format(", its cgroup allows {}", bytes_text(*machine.memory.cgroup_limit_bytes))
                         : ""),
         little ? "ps aux --sort=-rss | head" : ""});
  }
  if (machine.shared_memory) {
    const bool small = gpus.facts.size() > 1 && machine.shared_memory->free_bytes < kGibibyte;
    all.push_back(
        {"shared memory", small ? Verdict::kWarning : Verdict::kOk,
         fmt::format("/dev/shm has {} free of {}{}", bytes_text(machine.shared_memory->free_bytes),
                     bytes_text(machine.shared_memory->total_bytes),
                     small ? "; NCCL between GPUs wants 1 GB" : "; workers on the CPU need none of it"),
         small ? (machine.container ? "docker run --shm-size=2g ..." : "sudo mount -o remount,size=2G /dev/shm") : ""});
  } else {
    all.push_back(
        {"shared memory", gpus.facts.size() > 1 ? Verdict::kWarning : Verdict::kOk,
         "there is no /dev/shm; NCCL between GPUs wants it, workers on the CPU do not",
         gpus.facts.size() > 1 ? "sudo mkdir -p /dev/shm && sudo mount -t tmpfs -o size=2G tmpfs /dev/shm" : ""});
  }
}

void judge_limits(const ProcessLimits& limits, const GpusSeen& gpus, Findings& all) {
  const bool few_files = limits.open_files && *limits.open_files < 1024;
  const bool little_locked = gpus.facts.size() > 1 && limits.locked_memory_bytes &&
                             *limits.locked_memory_bytes < 64 * kMebibyte && !gpus.links.empty();
  const bool small_files = limits.file_size_bytes.has_value();
  all.push_back(
      {"limits", few_files || small_files ? Verdict::kWarning : Verdict::kOk,
       fmt::format("open files {}, locked memory {}{}, processes {}{}", limit_text(limits.open_files, false),
                   limit_text(limits.locked_memory_bytes, true),
                   little_locked ? " (RDMA between machines wants more)" : "", limit_text(limits.processes, false),
                   small_files ? ", a file at most " + limit_text(limits.file_size_bytes, true) : ""),
       few_files       ? "ulimit -n 4096"
       : small_files   ? "ulimit -f unlimited"
       : little_locked ? "ulimit -l unlimited"
                       : ""});
}

void judge_disk(const PlaceSeen& place, Findings& all) {
  const std::string root = place.runs_root.string();
  if (!place.write_trouble.empty()) {
    all.push_back({"disk", Verdict::kProblem,
                   fmt::format("nothing can be written for {}: {}", root, place.write_trouble),
                   fmt::format("tandem train {} --runs-root /a/folder/of/yours", place.example)});
  } else if (place.disk) {
    const bool full = place.disk->free_bytes < 256 * kMebibyte, low = place.disk->free_bytes < 5 * kGibibyte;
    // A disk below 1 MB/s must not show as 0.
    const std::string speed = place.write_bytes_per_s
                                  ? fmt::format(", {:.{}f} MB/s to the disk", *place.write_bytes_per_s / 1e6,
                                                *place.write_bytes_per_s < 10e6 ? 2 : 0)
                                  : ", speed not measured";
    const bool slow = place.write_bytes_per_s && *place.write_bytes_per_s < 20e6;
    all.push_back({"disk",
                   full          ? Verdict::kProblem
                   : low || slow ? Verdict::kWarning
                                 : Verdict::kOk,
                   fmt::format("{} ({}): {} free{}", root, place.disk->type.empty() ? "?" : place.disk->type,
                               bytes_text(place.disk->free_bytes), speed),
                   full || low
                       ? "tandem runs prune --keep-best --older-than 7d   (or name another folder with --runs-root)"
                   : slow ? fmt::format("tandem train {} --runs-root /a/faster/disk", place.example)
                          : ""});
  }
}

}  // namespace

Findings judge_place(const PlaceSeen& place, const GpusSeen& gpus) {
  Findings all;
  judge_host_memory(place.machine, gpus, all);
  judge_limits(place.machine.limits, gpus, all);
  all.push_back({"ports", place.port_trouble.empty() ? Verdict::kOk : Verdict::kWarning,
                 place.port_trouble.empty()
                     ? "the loopback interface can listen; a run on one machine opens no port, so none can clash"
                     : place.port_trouble,
                 place.port_trouble.empty() ? "" : "sudo ip link set lo up"});
  all.push_back({"clock", place.clock_trouble.empty() ? Verdict::kOk : Verdict::kWarning,
                 place.clock_trouble.empty() ? "sane" : place.clock_trouble,
                 place.clock_trouble.empty() ? "" : "sudo timedatectl set-ntp true"});
  judge_disk(place, all);
  return all;
}

LibrariesSeen look_at_libraries(const CliContext& context) {
  LibrariesSeen seen;
  seen.ffmpeg = in_path("ffmpeg");
  seen.stockfish = in_path("stockfish");
#ifdef TANDEM_HAVE_GLOO
  seen.gloo_build = true;
#endif
  seen.worker_found = access(context.worker.c_str(), X_OK) == 0;
  if (!seen.worker_found) return seen;
  std::istringstream lines(loader_says(context.worker));
  for (std::string line; std::getline(lines, line);) {
    const size_t arrow = line.find(" => ");
    if (arrow == std::string::npos) continue;
    const std::string name = line.substr(line.find_first_not_of(" \t"), arrow - line.find_first_not_of(" \t"));
    const std::string path =
        line.substr(arrow + 4, line.find(" (") == std::string::npos ? std::string::npos : line.find(" (") - arrow - 4);
    if (path.starts_with("not found")) seen.missing.push_back(name);
    if (name.starts_with("libtorch_cpu.so")) seen.torch_dir = fs::path(path).parent_path().parent_path().string();
  }
  if (seen.torch_dir.empty()) return seen;
  const fs::path torch = seen.torch_dir;
  seen.torch_version = python_constant(torch / "version.py", "__version__");
  if (seen.torch_version.empty()) std::ifstream(torch / "build-version") >> seen.torch_version;
  seen.torch_cuda = python_constant(torch / "version.py", "cuda");
  for (const fs::path& place : {torch.parent_path() / "nvidia/nccl/lib/libnccl.so.2", torch / "lib/libnccl.so.2"}) {
    if (fs::exists(place)) seen.nccl = place.string();
  }
  return seen;
}

Findings judge_libraries(const LibrariesSeen& seen, const GpusSeen& gpus) {
  Findings all;
  const bool has_gpus = !gpus.facts.empty();
  if (!seen.worker_found) {
    all.push_back(
        {"libtorch", Verdict::kProblem, "tandem-worker is not beside this program: nothing can train", "make build"});
  } else if (!seen.missing.empty()) {
    all.push_back({"libtorch", Verdict::kProblem,
                   fmt::format("the worker's libraries are missing: {}", fmt::join(seen.missing, ", ")),
                   "make setup && make build"});
  } else {
    const std::string text =
        fmt::format("{}{}", seen.torch_version.empty() ? "found" : seen.torch_version,
                    seen.torch_cuda.empty() ? ", for the CPU alone" : ", built for CUDA " + seen.torch_cuda);
    const int cuda =
        seen.torch_cuda.empty() ? 0 : static_cast<int>(std::strtod(seen.torch_cuda.c_str(), nullptr) * 10 + 0.5) * 100;
    if (has_gpus && cuda > 0 && gpus.driver_cuda && *gpus.driver_cuda / 1000 < cuda / 1000)
      all.push_back({"libtorch", Verdict::kProblem,
                     fmt::format("{}, but the driver goes up to CUDA {}.{}", text, *gpus.driver_cuda / 1000,
                                 *gpus.driver_cuda % 1000 / 10),
                     newer_driver_advice()});
    else
      all.push_back({"libtorch", Verdict::kOk, text});
  }
  if (has_gpus || !seen.nccl.empty())
    all.push_back({"NCCL", seen.nccl.empty() && gpus.facts.size() > 1 ? Verdict::kWarning : Verdict::kOk,
                   seen.nccl.empty() ? "not found beside libtorch; GPUs combine through host memory: slower, same bits"
                                     : "comes with libtorch",
                   seen.nccl.empty() && gpus.facts.size() > 1 ? "make setup CUDA=pypi" : ""});
  all.push_back({"Gloo", Verdict::kOk,
                 seen.gloo_build ? "built in: several machines can train together"
                                 : "not built in: one machine trains, several can't",
                 seen.gloo_build ? "" : "sudo apt install libgloo-dev && make build"});
  all.push_back({"FFmpeg", Verdict::kOk,
                 seen.ffmpeg.empty() ? "not installed; only recipes with video need it" : "installed",
                 seen.ffmpeg.empty() ? "sudo apt install ffmpeg" : ""});
  all.push_back({"Stockfish", Verdict::kOk,
                 seen.stockfish.empty() ? "not installed; only recipes with chess need it" : "installed",
                 seen.stockfish.empty() ? "sudo apt install stockfish" : ""});
  return all;
}

}  // namespace tandem
