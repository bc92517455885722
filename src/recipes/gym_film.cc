#include "recipes/gym_film.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/file_system.h"
#include "command/child_output.h"
#include "command/scratch.h"

namespace tandem {

extern const char* const kGymServerText;  // rl/gym/gym_server.py

namespace {

namespace fs = std::filesystem;

constexpr const char* kKinds[] = {".mp4", ".mkv", ".webm", ".gif"};

// In the same folder, with the same end of its name: ffmpeg goes by that.
fs::path half_made(const fs::path& file) {
  fs::path path = file;
  return path.replace_filename(fmt::format(".{}.{}{}", file.stem().string(), ::getpid(), file.extension().string()));
}

// What rl/gym/gym_server.py answers; without episodes: whether it could film some. Throws ConfigError.
nlohmann::json ask_renderer(const GymOptions& options, const std::string& python, const nlohmann::json& episodes,
                            const fs::path& file) {
  const Scratch scratch("film");
  const fs::path request = scratch.path() / "request.json";
  replace_file(FileSystem::real(), request,
               nlohmann::json{{"environment", options.environment},
                              {"arguments", nlohmann::json::parse(options.arguments)},
                              {"episodes", episodes}}
                   .dump());
  // Without a screen: pygame's own setting, unless the user has one.
  std::vector<std::pair<std::string, std::string>> environment;
  if (!::getenv("SDL_VIDEODRIVER")) environment.emplace_back("SDL_VIDEODRIVER", "dummy");
  if (!::getenv("PYGAME_HIDE_SUPPORT_PROMPT")) environment.emplace_back("PYGAME_HIDE_SUPPORT_PROMPT", "1");
  const ChildOutput output = run_child(
      {.words = {python, "-c", kGymServerText, "render", request.string(), file.string()}, .environment = environment});
  nlohmann::json reply = nlohmann::json::parse(output.text, nullptr, false);
  if (!output.ok() || !reply.is_object())
    throw ConfigError(fmt::format("{} could not be filmed", options.environment),
                      fmt::format("{}: {}", python, output.ending()),
                      "see what it wrote above; leave --render out for the figures alone");
  if (reply.contains("error"))
    throw ConfigError(reply.value("what", ""), reply.value("why", ""), reply.value("do", ""));
  return reply;
}

}  // namespace

void check_film_file(const fs::path& file) {
  const std::string end = file.extension().string();
  if (std::ranges::none_of(kKinds, [&](const char* kind) { return end == kind; }))
    throw ConfigError(fmt::format("--render {}: no kind of video", file.string()),
                      "the end of the name says which it is", "name it .mp4, .mkv, .webm or .gif");
  struct stat about {};
  if (::stat(file.c_str(), &about) == 0 && !S_ISREG(about.st_mode))
    throw ConfigError(fmt::format("--render {} is no plain file", file.string()),
                      "a video is written back and forth, and takes the place of the file", "name another file");
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw ConfigError(fmt::format("--render {} can't be written", file.string()),
                      fmt::format("its folder {} is not there, or not writable", folder.string()),
                      "choose a file in a folder that exists and is writable");
}

Film film_episodes(const GymOptions& options, const std::string& python, const std::vector<FilmedEpisode>& episodes,
                   const fs::path& file) {
  nlohmann::json list = nlohmann::json::array();
  for (const FilmedEpisode& episode : episodes) {
    nlohmann::json one = {{"seed", episode.seed}, {"actions", episode.actions}};
    if (!episode.continuous.empty()) one["actions"] = episode.continuous;
    list.push_back(std::move(one));
  }
  const fs::path part = half_made(fs::absolute(file));
  std::error_code none;
  const auto remove_part = [&] { fs::remove(part, none); };
  nlohmann::json reply;
  try {
    reply = ask_renderer(options, python, list, part);
  } catch (...) {
    remove_part();
    throw;
  }
  fs::rename(part, file, none);
  if (none) {
    const std::string why = none.message();
    remove_part();
    throw ConfigError(fmt::format("--render {} can't be written", file.string()), why, "choose another file");
  }
  return {reply.value("frames", int64_t{0}), reply.value("width", int64_t{0}), reply.value("height", int64_t{0}),
          reply.value("fps", 0.0)};
}

void check_film_ready(const GymOptions& options, const std::string& python) {
  ask_renderer(options, python, nlohmann::json::array(), "");
}

}  // namespace tandem
