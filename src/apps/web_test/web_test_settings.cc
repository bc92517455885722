#include "apps/web_test/web_test_settings.h"

#include <algorithm>
#include <charconv>

#include "config/spelling.h"

namespace tandem {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, comma - begin);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    parts.push_back(part);
    begin = comma + 1;
  }
  return parts;
}

void check_agent(const std::string& flag, const std::string& text, const std::string& agent) {
  const std::vector<std::string> all = WebTestSettings::all_agents();
  if (std::find(all.begin(), all.end(), agent) != all.end()) return;
  const std::string near = nearest_word(agent, all);
  throw ConfigError(agent.empty() ? fmt::format("{} \"{}\": a name is missing", flag, printable(text).substr(0, 80))
                                  : fmt::format("there is no agent \"{}\"", printable(agent).substr(0, 80)),
                    fmt::format("the agents are: {}", fmt::join(all, ", ")),
                    near.empty() ? "name some of them, with commas between" : fmt::format("did you mean `{}`?", near));
}

[[noreturn]] void twice(const std::string& flag, const std::string& agent) {
  throw ConfigError(fmt::format("{} names {} twice", flag, agent), "an agent is trained once",
                    "take one of the two out");
}

}  // namespace

void WebTestSettings::check() const {
  if (shards_from_devices)
    throw ConfigError("web-test needs a number of shards", "its agents move between devices while they are trained",
                      "leave shards as it is, or give a number");
  if (!experience.files.empty())
    throw ConfigError(
        "web-test does not begin with experience",
        "a line of history is one agent's, and a new set has no models yet that it could improve",
        "give a trained set too: tandem train web-test --from RUN --experience FILES; or train one agent by "
        "it: tandem train web-agent --set agent=NAME --experience FILES");
  DqnSettings::check();
  if (steps == 0)
    throw ConfigError("web-test needs --steps", "what is left of each agent must be known to spread them over devices",
                      "give --steps, beside --max-time if you like");
  agents_named(agents);
}

std::vector<std::string> agents_named(const std::string& text) {
  if (text.empty() || text == "all") return WebTestSettings::all_agents();
  std::vector<std::string> named;
  for (const std::string& agent : split(text)) {
    check_agent("--agents", text, agent);
    if (std::find(named.begin(), named.end(), agent) != named.end()) twice("--agents", agent);
    named.push_back(agent);
  }
  return named;
}

std::vector<std::pair<std::string, int>> pins_named(const std::string& text, int devices) {
  std::vector<std::pair<std::string, int>> pins;
  if (text.empty()) return pins;
  for (const std::string& part : split(text)) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos)
      throw ConfigError(fmt::format("--assign \"{}\": no device", printable(part).substr(0, 80)),
                        "it names a device, by its number, for an agent", "write --assign analysis=0,evolution=1");
    const std::string agent = part.substr(0, equals), number = part.substr(equals + 1);
    check_agent("--assign", text, agent);
    for (const auto& [other, device] : pins)
      if (other == agent) twice("--assign", agent);
    int device = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), device);
    if (error != std::errc() || end != number.data() + number.size() || device < 0 || device >= devices)
      throw ConfigError(fmt::format("--assign {}={}: there is no device {}", agent, printable(number).substr(0, 20),
                                    printable(number).substr(0, 20)),
                        devices == 1 ? "this run has one device, number 0"
                                     : fmt::format("this run has {} devices, numbered 0 to {}", devices, devices - 1),
                        "name one of them, or give more with --devices");
    pins.emplace_back(agent, device);
  }
  return pins;
}

}  // namespace tandem
