// cli/doctor_report.cc -- the report for a bug: everything doctor saw, without what is nobody's business.
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli/doctor.h"
#include "runs/environment.h"
#include "telemetry/gpu_json.h"

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

// Names that runs/environment.h does not call secret, but a report should.
bool hides(const std::string& name) {
  if (looks_secret(name)) return true;
  for (const char* word : {"KEY", "PASS", "PWD", "CRED", "SESSION", "DSN", "CONNECTION_STRING"}) {
    if (name.find(word) != std::string::npos && name != "PWD" && name != "OLDPWD") return true;
  }
  return false;
}

std::string topology(const CardsSeen& cards) {
  std::string text = "      ";
  for (const GpuFacts& facts : cards.facts) text += fmt::format("{:>6}", fmt::format("GPU{}", facts.index));
  text += "\n";
  for (size_t a = 0; a < cards.links.size(); ++a) {
    text += fmt::format("{:<6}", fmt::format("GPU{}", cards.facts[a].index));
    for (size_t b = 0; b < cards.links.size(); ++b)
      text += fmt::format("{:>6}", a == b ? "X" : cards.links[a][b].topology.value_or("?"));
    text += "\n";
  }
  return text;
}

}  // namespace

Private private_things() {
  Private hidden;
  if (const passwd* user = getpwuid(getuid())) hidden.user = user->pw_name, hidden.home = user->pw_dir;
  if (const char* home = std::getenv("HOME"); home && std::string(home).size() > 1) hidden.home = home;
  if (const char* user = std::getenv("USER"); user && *user) hidden.user = user;
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) == 0) hidden.host = host;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos || !hides(text.substr(0, equals))) continue;
    if (text.size() - equals - 1 >= 4) hidden.secrets.push_back(text.substr(equals + 1));
  }
  std::sort(hidden.secrets.begin(), hidden.secrets.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return hidden;
}

std::string without_private_things(std::string text, const Private& hidden) {
  for (const std::string& secret : hidden.secrets) replace_all(text, secret, "***");
  if (hidden.home.size() > 1 && hidden.home != "/") replace_all(text, hidden.home, "~");
  if (hidden.user != "root") replace_word(text, hidden.user, "USER");
  replace_word(text, hidden.host, "HOST");
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

std::string doctor_report(const CliContext& context, const Findings& findings, const CardsSeen& cards,
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
  text +=
      fmt::format("CPU: {}, {} logical, {} usable, {} cores, {} sockets, {} NUMA nodes\n",
                  machine.cpu.model.value_or("-"), machine.cpu.logical, machine.cpu.usable,
                  machine.cpu.cores.value_or(0), machine.cpu.sockets.value_or(0), machine.cpu.numa_nodes.value_or(0));
  text += fmt::format("libtorch: {} (CUDA {}) in {}\nworker: {}\n", libraries.torch_version,
                      libraries.torch_cuda.empty() ? "none" : libraries.torch_cuda, libraries.torch_dir,
                      context.worker.string());
  if (!cards.facts.empty()) {
    text += "\n## Cards\n" + topology(cards) + "\n";
    for (size_t i = 0; i < cards.facts.size(); ++i) {
      nlohmann::json one = to_json(cards.facts[i]);
      one.update(to_json(cards.now[i]));
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
