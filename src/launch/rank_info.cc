#include "launch/rank_info.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "base/errors.h"

namespace tandem {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

class EnvironmentReader {
 public:
  explicit EnvironmentReader(const Variables& variable) : variable_(variable) {}

  std::string text(const char* name) const {
    const char* value = variable_(name);
    return value ? value : "";
  }
  bool has(const char* name) const { return !text(name).empty(); }
  std::optional<int> number(const char* name, int least, int most) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < least || number > most)
      throw ConfigError(fmt::format("{}={} is not a number from {} to {}", name, value, least, most),
                        "it tells which process of a job this is", fmt::format("correct it, or unset {}", name));
    return number;
  }
  // The first of them that is set.
  std::string first(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (has(name)) return text(name);
    return "";
  }

 private:
  const Variables& variable_;
};

struct Names {
  const char *by, *rank, *size, *local_rank, *local_size;
};
constexpr Names kNames[] = {
    {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

// A batch script sees the numbers of the steps it could start, and is none itself.
bool batch_script(const EnvironmentReader& reader) {
  return reader.text("ENVIRONMENT") == "BATCH" && !reader.has("SLURM_STEP_ID");
}

uint64_t fnv(const std::string& text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

bool one_machine(const EnvironmentReader& reader, const Names& names, int size) {
  if (*names.local_size && reader.number(names.local_size, 1, 1 << 20) == size) return true;
  return std::strcmp(names.by, "Slurm") == 0 && reader.first({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) == "1";
}

std::string address_of(const EnvironmentReader& reader, const Names& names, int size) {
  if (one_machine(reader, names, size)) return kLoopback;
  if (reader.has("MASTER_ADDR")) return reader.text("MASTER_ADDR");
  if (std::strcmp(names.by, "Slurm") == 0) {
    const std::string host = first_host(reader.first({"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}));
    return host.empty() ? kLoopback : host;
  }
  if (std::strcmp(names.by, "Open MPI") == 0 && reader.has(names.local_size))
    throw ConfigError("MASTER_ADDR is not set",
                      "the ranks are on several machines, and mpirun does not say where rank 0 is",
                      "give its host name: mpirun -x MASTER_ADDR=node1 ...");
  return kLoopback;
}

int port_of(const EnvironmentReader& reader, const std::string& job) {
  if (const auto port = reader.number("TANDEM_PORT", 1, 65535)) return *port;
  if (const auto port = reader.number("MASTER_PORT", 1, 65535))  // torchrun's own store may sit there
    return *port + (reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True" ? 1 : 0);
  return 20000 + static_cast<int>(fnv(job) % 12000);  // below what the system gives to clients
}

}  // namespace

std::string first_host(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of("-,]", bracket + 1), close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return "";
  const std::string rest = list.substr(close + 1, list.find(',', close) - (close + 1));
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) + rest;
}

std::optional<RankInfo> rank_info_in(const Variables& variable, std::optional<int64_t> local_rank_flag) {
  const EnvironmentReader reader(variable);
  for (const Names& names : kNames) {
    const auto rank = reader.number(names.rank, 0, 1 << 20), size = reader.number(names.size, 1, 1 << 20);
    const bool torch = std::strcmp(names.rank, "RANK") == 0;
    if (torch && size && *size > 1 && !rank) {
      bool elsewhere = false;  // mpirun with WORLD_SIZE exported for others: its own numbers are whole
      for (const Names& other : kNames) elsewhere = elsewhere || (&other != &names && reader.has(other.rank));
      if (elsewhere) continue;
      throw ConfigError(fmt::format("WORLD_SIZE={} is set, RANK is not", *size),
                        "this process can't know which of them it is",
                        "set RANK (0 to WORLD_SIZE - 1) too, or unset WORLD_SIZE to train on this machine alone");
    }
    if (torch && rank && !size)
      throw ConfigError(fmt::format("RANK={} is set, WORLD_SIZE is not", *rank),
                        "this process can't know how many others to wait for",
                        "set WORLD_SIZE too, or unset RANK to train on this machine alone");
    if (!rank || !size) continue;
    if (std::strcmp(names.by, "Slurm") == 0 && batch_script(reader)) continue;
    if (*rank >= *size)
      throw ConfigError(fmt::format("{}={}, but {}={}", names.rank, *rank, names.size, *size),
                        "ranks count from 0, so the last one is the size less one",
                        fmt::format("correct {} or {}", names.rank, names.size));
    if (*size == 1) return std::nullopt;
    RankInfo info{.rank = *rank, .size = *size, .by = names.by};
    if (torch && reader.has("TORCHELASTIC_RUN_ID")) info.by = "torchrun";
    const auto local = reader.number(names.local_rank, 0, 1 << 20);
    info.local_rank = local ? *local : static_cast<int>(local_rank_flag.value_or(*rank));
    if (*names.local_size) info.local_size = reader.number(names.local_size, 1, 1 << 20).value_or(0);
    const std::string id = fmt::format(
        "{}.{}", reader.first({"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}),
        reader.text("SLURM_STEP_ID"));
    info.job = fmt::format("{}/{}/{}", id, reader.text("MASTER_PORT"), *size);
    info.address = address_of(reader, names, *size);
    info.first_port = port_of(reader, info.job);
    info.restarts = restarts_in(variable);
    return info;
  }
  return std::nullopt;
}

bool restarts_in(const Variables& variable) {
  const EnvironmentReader reader(variable);
  for (const char* count : {"TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"})
    if (reader.has(count) && reader.text(count) != "0") return true;
  return false;
}

}  // namespace tandem
