#include "runs/environment.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "base/clock.h"

extern char** environ;

namespace tandem {
namespace {

std::string first_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t mark = line.find_first_of(":=", key.size());
    if (mark == std::string::npos) continue;
    size_t begin = line.find_first_not_of(" \t\"", mark + 1);
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(" \t\"") - begin + 1);
  }
  return "";
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void put(nlohmann::json& object, const char* key, const std::string& value) {
  if (!value.empty()) object[key] = value;
}

nlohmann::json describe_cpu() {
  nlohmann::json cpu = nlohmann::json::object();
  std::string model = first_value("/proc/cpuinfo", "model name");
  if (model.empty()) {  // ARM names a maker and a part number only
    const std::string part = first_value("/proc/cpuinfo", "CPU part");
    if (!part.empty())
      model = fmt::format("implementer {} part {}", first_value("/proc/cpuinfo", "CPU implementer"), part);
  }
  put(cpu, "model", model);
  std::string flags = first_value("/proc/cpuinfo", "flags");
  if (flags.empty()) flags = first_value("/proc/cpuinfo", "Features");
  put(cpu, "flags", flags);
  cpu["logical"] = ::sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) cpu["usable"] = CPU_COUNT(&usable);
  return cpu;
}

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0') && words.size() < 256;) {
    // A password given as an argument is still one: "--token x" and "--token=x".
    const bool hide = !words.empty() && words.back().starts_with("--") && words.back().find('=') == std::string::npos &&
                      looks_secret(words.back());
    const size_t equals = word.find('=');
    if (hide)
      word = "***";
    else if (equals != std::string::npos && looks_secret(word.substr(0, equals)))
      word = word.substr(0, equals) + "=***";
    words.push_back(without_credentials(word));
  }
  return words;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

bool is_relevant_variable(std::string_view name) {
  static constexpr std::array kPrefixes = {"TANDEM_", "CUDA_",     "NCCL_",   "NVIDIA_", "GLOO_",   "OMP_",  "MKL_",
                                           "KMP_",    "OPENBLAS_", "CUBLAS_", "TORCH",   "SLURM_",  "OMPI_", "PMI_",
                                           "RAY_",    "MLFLOW_",   "XDG_",    "LC_",     "MALLOC_", "GOMP_"};
  static constexpr std::array kNames = {"RANK",           "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                        "GROUP_RANK",     "MASTER_ADDR", "MASTER_PORT", "LD_LIBRARY_PATH",
                                        "LD_PRELOAD",     "PATH",        "LANG",        "TZ",
                                        "TMPDIR",         "TERM",        "COLUMNS",     "NO_COLOR",
                                        "CLICOLOR_FORCE", "VIRTUAL_ENV", "CONDA_PREFIX"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view p) { return name.starts_with(p); }) ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool looks_secret(std::string_view name) {
  static constexpr std::array kWords = {"SECRET", "TOKEN",   "PASSW",   "PASSPHRASE", "CREDENTIAL",
                                        "APIKEY", "API_KEY", "API-KEY", "ACCESS_KEY", "PRIVATE",
                                        "_PWD",   "AUTH",    "COOKIE",  "SIGNATURE",  "JWT"};
  const std::string text = upper(name);
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view w) { return text.find(w) != text.npos; }) ||
         text.ends_with("_KEY");
}

std::string without_credentials(std::string_view value) {
  std::string out(value);
  for (size_t at = out.find("://"); at != std::string::npos; at = out.find("://", at + 3)) {
    const size_t begin = at + 3;
    const size_t end = std::min(out.find_first_of("/ ?#\"'", begin), out.size());
    const size_t mark = out.substr(begin, end - begin).rfind('@');
    if (mark != std::string::npos) out.replace(begin, mark, "***");
  }
  return out;
}

nlohmann::json describe_environment(const nlohmann::json& versions) {
  nlohmann::json env = {
      {"time", utc_stamp()}, {"versions", versions}, {"cpu", describe_cpu()}, {"command", command_line()}};
  utsname system{};
  if (::uname(&system) == 0) {
    env["host"] = system.nodename;
    env["kernel"] = fmt::format("{} {}", system.sysname, system.release);
    env["machine"] = system.machine;
  }
  put(env, "os", first_value("/etc/os-release", "PRETTY_NAME"));
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page > 0) env["memory_bytes"] = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
  const std::string limit = first_line("/sys/fs/cgroup/memory.max");
  if (!limit.empty() && std::isdigit(static_cast<unsigned char>(limit[0])))
    env["cgroup_memory_bytes"] = std::strtoull(limit.c_str(), nullptr, 10);
  std::error_code ignored;
  put(env, "cwd", std::filesystem::current_path(ignored).string());

  env["environment"] = nlohmann::json::object();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_relevant_variable(text.substr(0, equals))) continue;
    const std::string name(text.substr(0, equals));
    env["environment"][name] = looks_secret(name) ? "***" : without_credentials(text.substr(equals + 1));
  }
  return env;
}

}  // namespace tandem
