// tools/doctor/doctor_report.cc -- the report for a bug: everything doctor saw, without what is nobody's business.
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "runs/environment.h"
#include "telemetry/gpu_json.h"
#include "tools/doctor/doctor.h"

extern char** environ;

namespace tandem {
namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) return;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// As a word of its own: "ann" is not in "channel".
void replace_word(std::string& text, const std::string& from, const std::string& to) {
  if (from.size() < 2) return;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    const bool apart =
        (at == 0 || !is_word(text[at - 1])) && (at + from.size() >= text.size() || !is_word(text[at + from.size()]));
    if (apart) text.replace(at, from.size(), to);
    at += apart ? to.size() : from.size();
  }
}

// "PAT" is in "HF_PAT", and not in "PATH".
bool has_word(const std::string& name, std::string_view word) {
  const std::string framed = "_" + name + "_";
  return framed.find(fmt::format("_{}_", word)) != std::string::npos;
}

// Names that runs/environment.h does not call secret, but a report should.
bool hides(std::string name) {
  if (looks_secret(name)) return true;
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const char* word : {"KEY", "PASS", "PWD", "CRED", "SESSION", "DSN", "CONNECTION_STRING"}) {
    if (name.find(word) != std::string::npos && name != "PWD" && name != "OLDPWD") return true;
  }
  return has_word(name, "PAT") || has_word(name, "PIN") || has_word(name, "ACCOUNT");
}

bool names_a_user(const std::string& name) {
  return name == "USER" || name == "LOGNAME" || name == "USERNAME" || name == "SUDO_USER" || name == "DOAS_USER" ||
         (name.starts_with("SLURM") && name.ends_with("USER"));
}

bool names_hosts(const std::string& name) {
  if (name == "MASTER_ADDR" || name == "HOSTNAME" || name == "HOST") return true;
  return (name.starts_with("SLURM") || name.starts_with("OMPI_") || name.starts_with("PMI")) &&
         (name.ends_with("HOST") || name.ends_with("NODENAME") || name.ends_with("NODELIST") ||
          name.ends_with("ADDR") || name.ends_with("HOSTNAME") || has_word(name, "CLUSTER"));
}

void add_once(std::vector<std::string>& to, const std::string& value) {
  if (value.size() > 1 && std::ranges::find(to, value) == to.end()) to.push_back(value);
}

std::string topology(const GpusSeen& gpus) {
  std::string text = "      ";
  for (const GpuFacts& facts : gpus.facts) text += fmt::format("{:>6}", fmt::format("GPU{}", facts.index));
  text += "\n";
  for (size_t a = 0; a < gpus.links.size(); ++a) {
    text += fmt::format("{:<6}", fmt::format("GPU{}", gpus.facts[a].index));
    for (size_t b = 0; b < gpus.links.size(); ++b)
      text += fmt::format("{:>6}", a == b ? "X" : gpus.links[a][b].topology.value_or("?"));
    text += "\n";
  }
  return text;
}

}  // namespace

Private private_things() {
  Private hidden;
  if (const passwd* user = getpwuid(getuid()))
    add_once(hidden.users, user->pw_name), add_once(hidden.homes, user->pw_dir);
  if (const char* home = std::getenv("HOME")) add_once(hidden.homes, home);
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) == 0) add_once(hidden.hosts, host);
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
    if (names_a_user(name)) add_once(hidden.users, value);
    if (names_hosts(name)) add_once(hidden.hosts, value);
    if (hides(name) && value.size() >= 4) hidden.secrets.push_back(value);
  }
  std::erase(hidden.users, "root");
  std::erase(hidden.hosts, "localhost");
  std::sort(hidden.secrets.begin(), hidden.secrets.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return hidden;
}

std::string without_private_things(std::string text, const Private& hidden) {
  for (const std::string& secret : hidden.secrets) replace_all(text, secret, "***");
  for (const std::string& home : hidden.homes) replace_all(text, home, "~");
  for (const std::string& user : hidden.users) replace_word(text, user, "USER");
  for (const std::string& host : hidden.hosts) replace_word(text, host, "HOST");
  // "?token=..&k=..": an address's values; then what looks like a token by itself, whatever names it.
  static const std::regex query(R"(([?&][A-Za-z0-9_.~-]+=)[^&\s"'#\]]+)");
  text = std::regex_replace(text, query, "$1***");
  static const std::regex token(
      R"(\b((gh[oprsu]_|github_pat_|glpat-|hf_|sk-|pk-|rk_live_|sk_live_|xox[abeoprs]-|npm_|pypi-|nvapi-|dckr_pat_|wandb_v1_)[A-Za-z0-9_-]{10,}|A[KS]IA[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]+|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?))");
  text = std::regex_replace(text, token, "***");
  static const std::regex home_of_others(R"(/(home|Users)/[^/\s":,;]+)");
  text = std::regex_replace(text, home_of_others, "/$1/USER");
  static const std::regex v4(
      R"((^|[^0-9.])((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?![0-9.]))");
  text = std::regex_replace(text, v4, "$1ADDRESS");
  static const std::regex v6(
      R"((^|[^0-9A-Za-z:.])(([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|(([0-9A-Fa-f]{1,4}:)*[0-9A-Fa-f]{1,4})?::([0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4})*)?)(?![0-9A-Za-z:]))");
  text = std::regex_replace(text, v6, "$1ADDRESS");
  static const std::regex mac(R"(\b([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b)");
  text = std::regex_replace(text, mac, "ADDRESS");
  return without_credentials(text);
}

std::string doctor_report(const CliContext& context, const Findings& findings, const GpusSeen& gpus,
                          const PlaceSeen& place, const LibrariesSeen& libraries, const std::string& more) {
  const MachineFacts& machine = place.machine;
  std::string text = fmt::format(
      "# tandem doctor: report\n\nUser, host, addresses and secrets were taken out; read it before you send it.\n\n{} "
      "{}\n\n## Verdicts\n",
      context.program, context.version);
  for (const Finding& finding : findings)
    text += fmt::format("- {}: {}: {}{}\n", verdict_name(finding.verdict), finding.check, finding.found,
                        finding.todo.empty() ? "" : "   [" + finding.todo + "]");
  text += fmt::format("\n## Machine\n{}, kernel {}, {}{}\n", machine.system.value_or("-"), machine.kernel,
                      machine.architecture, machine.container ? ", in " + *machine.container : "");
  const auto number = [](const std::optional<int>& value) { return value ? std::to_string(*value) : "unknown"; };
  text += fmt::format("CPU: {}, {} logical, {} usable, {} cores, {} sockets, {} NUMA nodes\n",
                      machine.cpu.model.value_or("-"), machine.cpu.logical, machine.cpu.usable,
                      number(machine.cpu.cores), number(machine.cpu.sockets), number(machine.cpu.numa_nodes));
  text += fmt::format("libtorch: {} (CUDA {}) in {}\nworker: {}\n", libraries.torch_version,
                      libraries.torch_cuda.empty() ? "none" : libraries.torch_cuda, libraries.torch_dir,
                      context.worker.string());
  if (!gpus.facts.empty()) {
    text += "\n## GPUs\n" + topology(gpus) + "\n";
    for (size_t i = 0; i < gpus.facts.size(); ++i) {
      nlohmann::json one = to_json(gpus.facts[i]);
      GpuReading now = gpus.now[i];
      if (now.processes)
        for (GpuProcess& process : *now.processes)
          if (process.name) process.name = program_of(*process.name);  // arguments are nobody's business
      one.update(to_json(now));
      text += one.dump() + "\n";
    }
  }
  text += "\n## Environment\n";
  std::vector<std::string> lines;
  for (char** entry = environ; *entry; ++entry) {
    const std::string line = *entry;
    const std::string name = line.substr(0, line.find('='));
    if (is_relevant_variable(name)) lines.push_back(hides(name) ? name + "=***" : line);
  }
  std::sort(lines.begin(), lines.end());
  for (const std::string& line : lines) text += line + "\n";
  if (!more.empty()) text += "\n## Measured\n" + more;
  return without_private_things(std::move(text), private_things());
}

}  // namespace tandem
