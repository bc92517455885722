// runs/environment.h -- env.json: on what a run was made, to be sent along with a question without giving secrets away.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tandem {

// {"time","host","os","kernel","machine","cpu":{"model","flags","logical","usable"},"memory_bytes","cgroup_memory_bytes",
//  "versions":<given>,"environment":{..},"command":[..],"cwd"}; a value that could not be read is left out.
nlohmann::json describe_environment(const nlohmann::json& versions);

// Which variables matter to a training run (TANDEM_*, CUDA_*, OMP_*, SLURM_*, ...), and which of those look secret.
bool is_relevant_variable(std::string_view name);
bool looks_secret(std::string_view name);
// "https://user:word@host/x" -> "https://***@host/x"; other text unchanged.
std::string without_credentials(std::string_view value);

}  // namespace tandem
