#include "runs/run_folder.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/shell_word.h"
#include "runs/environment.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Six letters without look-alikes (no 0/o, 1/l/i): people type them.
std::string random_id() {
  static constexpr char kLetters[] = "abcdefghjkmnpqrstuvwxyz23456789";
  std::random_device random;  // lint: allow(rand) a name, never the seed of a run
  std::string id;
  for (int i = 0; i < 6; ++i) id += kLetters[random() % (sizeof kLetters - 1)];
  return id;
}

// A recipe may be named by a path; its folder is named by what is safe in one.
std::string folder_word(const std::string& recipe) {
  std::string word = fs::path(recipe).stem().string();
  for (char& c : word)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '-';
  while (!word.empty() && (word.front() == '.' || word.front() == '-')) word.erase(word.begin());
  return word.empty() ? "run" : word.substr(0, 64);
}

[[noreturn]] void cannot_write(const fs::path& dir, int error) {
  throw ConfigError(fmt::format("cannot write the run folder {}", dir.string()), std::strerror(error),
                    "choose another folder with --run-dir, or give this one write permission");
}

void make_parents(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) cannot_write(dir, error.value());
}

bool is_run(const fs::path& dir) {
  std::error_code ignored;
  return fs::exists(dir / "run.json", ignored) || fs::exists(dir / "recipe.toml", ignored);
}

std::string text_of(const nlohmann::json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

struct Candidate {
  fs::path dir;
  std::string id, started;
};

// When a run began: what run.json says; else the time of the folder's name; a folder of unknown age is the oldest.
Candidate candidate(const fs::path& dir) {
  const auto run = read_run_json(dir);
  std::string id = text_of(run, "id");
  if (id.empty()) id = dir.filename().string();
  return {dir, id, text_of(run, "started")};
}

std::string tail_of(const std::string& id) { return id.substr(id.rfind('-') + 1); }

// A link of link_into() is only a way to the run.
RunFolder open_at(const fs::path& dir) {
  std::error_code error;
  const fs::path real = fs::is_symlink(dir, error) ? fs::canonical(dir, error) : fs::path();
  return RunFolder::open(real.empty() ? dir : real);
}

std::string some_names(const std::vector<Candidate>& runs) {
  std::string text;
  for (size_t i = 0; i < runs.size() && i < 5; ++i) text += (i ? ", " : "") + runs[i].id;
  return runs.size() > 5 ? fmt::format("{} and {} more", text, runs.size() - 5) : text;
}

}  // namespace

RunFolder RunFolder::create(const fs::path& root, const std::string& recipe, const std::optional<fs::path>& exact_dir) {
  const std::string word = folder_word(recipe);
  fs::path dir;
  std::string id;
  if (exact_dir) {
    dir = *exact_dir;
    make_parents(dir);
    std::error_code error;
    const bool empty = fs::is_empty(dir, error);
    if (error) cannot_write(dir, error.value());
    if (!empty)
      throw ConfigError(
          fmt::format("the run folder {} is not empty", dir.string()), "a new run never writes over files of another",
          is_run(dir)
              ? fmt::format("go on with it by `tandem resume {}`, or name another folder", shell_word(dir.string()))
              : "name another folder, or empty this one");
    id = fmt::format("{}-{}-{}", word, utc_file_stamp(), random_id());
    if (::access(dir.c_str(), W_OK | X_OK) != 0) cannot_write(dir, errno);
  } else {
    make_parents(root);
    do {  // mkdir is the judge: it succeeds for one of two callers
      id = fmt::format("{}-{}-{}", word, utc_file_stamp(), random_id());
      dir = root / id;
      if (::mkdir(dir.c_str(), 0777) == 0) break;
      if (errno != EEXIST) cannot_write(root, errno);
    } while (true);
  }
  make_parents(dir / "logs");
  make_parents(dir / "checkpoints");
  try {
    update_run_json(dir, {{"id", id}, {"recipe", recipe}, {"status", "created"}, {"started", utc_stamp()}});
  } catch (const IoError& error) {
    cannot_write(dir, error.error_number());
  }
  return {dir, id, recipe};
}

RunFolder RunFolder::open(const fs::path& dir) {
  if (!is_run(dir))
    throw ConfigError(fmt::format("{} is not a run folder", dir.string()),
                      "there is neither a run.json nor a recipe.toml in it",
                      "see `tandem runs list` for the runs there are");
  const auto run = read_run_json(dir);
  fs::path clean = dir.lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();  // "runs/x/"
  std::string id = text_of(run, "id");
  if (id.empty()) id = fs::absolute(clean).lexically_normal().filename().string();
  return {clean, id, text_of(run, "recipe")};
}

RunFolder RunFolder::find(const fs::path& root, const std::string& name) {
  std::error_code ignored;
  if (name != "last" && fs::is_directory(name, ignored) && is_run(name)) return open(name);
  std::vector<Candidate> runs;
  for (const auto& entry : fs::directory_iterator(root, fs::directory_options::skip_permission_denied, ignored))
    if (entry.is_directory(ignored) && is_run(entry.path())) runs.push_back(candidate(entry.path()));
  std::sort(runs.begin(), runs.end(), [](const Candidate& a, const Candidate& b) {
    return a.started != b.started ? a.started > b.started : a.id > b.id;
  });
  if (runs.empty())
    throw ConfigError(fmt::format("no run named '{}'", name), fmt::format("there are no runs in {}", root.string()),
                      "begin one with `tandem train`, or name the folder of runs");
  if (name == "last") return open_at(runs.front().dir);

  // An exact name wins over prefixes of others.
  std::vector<Candidate> fitting;
  for (const Candidate& run : runs)
    if (run.id == name || tail_of(run.id) == name || run.dir.filename() == name) return open_at(run.dir);
  for (const Candidate& run : runs)
    if (!name.empty() && (run.id.starts_with(name) || tail_of(run.id).starts_with(name) ||
                          run.dir.filename().string().starts_with(name)))
      fitting.push_back(run);
  if (fitting.size() == 1) return open_at(fitting.front().dir);
  if (fitting.empty())
    throw ConfigError(fmt::format("no run named '{}'", name),
                      fmt::format("in {} there are {}", root.string(), some_names(runs)),
                      "give an id, its beginning, its last six letters, a path, or `last`");
  throw ConfigError(fmt::format("'{}' names {} runs", name, fitting.size()), some_names(fitting),
                    "give more letters of the one you mean");
}

fs::path RunFolder::link_into(const fs::path& root) const {
  std::error_code error;
  fs::create_directories(root, error);
  const fs::path real = fs::canonical(dir_, error);
  if (error) return {};
  const fs::path base = fs::canonical(root, error);
  if (error || real == base || real.parent_path() == base) return {};
  for (const std::string& name : {real.filename().string(), id_}) {
    const fs::path link = base / name;
    if (fs::is_symlink(link, error) && !fs::exists(link, error)) fs::remove(link, error);  // its run is gone
    fs::create_directory_symlink(real, link, error);
    if (!error) return link;
  }
  return {};
}

void RunFolder::write_recipe(const std::string& resolved_toml) const {
  write_file_atomically(recipe_toml(), resolved_toml);
}

void RunFolder::write_env(const nlohmann::json& versions) const {
  nlohmann::json env = describe_environment(versions);
  auto before = nlohmann::json::parse(read_small_file(env_json(), 4 << 20).value_or(""), nullptr, false);
  if (before.is_object()) {
    nlohmann::json previous =
        before.contains("previous") && before["previous"].is_array() ? before["previous"] : nlohmann::json::array();
    before.erase("previous");
    previous.push_back(before);
    while (previous.size() > 20) previous.erase(previous.begin());
    env["previous"] = previous;
  }
  write_file_atomically(env_json(), env.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void RunFolder::write_status(const RunSummary& summary) const { write_run_status(dir_, summary); }

}  // namespace tandem
