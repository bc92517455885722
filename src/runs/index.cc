#include "runs/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/errors.h"
#include "base/sqlite.h"
#include "runs/run_folder.h"
#include "runs/run_reader.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr SqliteOptions kIndex = {
    .version = 1,  // another number in the file means: rebuild
    .tables =
        "CREATE TABLE IF NOT EXISTS runs (name TEXT PRIMARY KEY, stamp INTEGER NOT NULL, row TEXT NOT NULL)"
        " WITHOUT ROWID",
    .check_pages = true};

// A row as the index stores it. The filter columns are copies; the object is the truth.
std::string stored(const RunRow& row) {
  nlohmann::json object = to_json(row);
  object["dir"] = row.dir.filename().string();  // the root may move
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<RunRow> loaded(const std::string& text, const fs::path& root) {
  const auto object = nlohmann::json::parse(text, nullptr, false);
  try {
    RunRow row;
    row.id = object.at("id");
    row.recipe = object.at("recipe");
    row.status = object.at("status");
    row.started = object.at("started");
    row.dir = root / object.at("dir").get<std::string>();
    std::error_code error;
    if (fs::is_symlink(row.dir, error)) {  // made by RunFolder::link_into()
      const fs::path real = fs::canonical(row.dir, error);
      if (!error) row.dir = real;
    }
    row.step = object.at("step");
    row.total_steps = object.at("total_steps");
    row.seconds = object.at("seconds");
    row.loss = object.at("loss").is_number() ? object.at("loss").get<double>() : kAbsent;
    row.digest = object.at("digest");
    row.kind = object.at("kind");
    row.exit_code = object.at("exit_code");
    row.metrics = object.at("metrics").get<std::map<std::string, double>>();
    row.settings = object.at("settings").get<std::map<std::string, std::string>>();
    return row;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

bool lower_is_better(const std::string& metric) {
  for (const char* word : {"loss", "error", "perplexity", "seconds", "time", "drawdown"})
    if (metric.find(word) != std::string::npos) return true;
  return false;
}

RunIndex::RunIndex(fs::path root) : root_(std::move(root)) {
  const fs::path file = root_ / "index.sqlite";
  std::error_code ignored;
  if (fs::is_directory(root_, ignored)) {
    for (int attempt = 0; attempt < 2 && !database_; ++attempt) {
      try {
        database_ = std::make_unique<SqliteDatabase>(file, kIndex);
        sync();
      } catch (const SqliteError& error) {
        database_.reset();
        // Damaged, no database at all, or of another version: it is a cache, so it goes. Not writable: memory will do.
        if (!error.damaged()) break;
        remove_sqlite_file(file);
      }
    }
  }
  if (!database_) {
    database_ = std::make_unique<SqliteDatabase>(fs::path(), kIndex);
    sync();
  }
}

RunIndex::~RunIndex() = default;

bool RunIndex::in_memory() const { return database_->in_memory(); }

int64_t RunIndex::sync() { return bring_up_to_date(false); }

int64_t RunIndex::rebuild() {
  bring_up_to_date(true);
  return static_cast<int64_t>(list().size());
}

int64_t RunIndex::bring_up_to_date(bool from_nothing) {
  std::map<std::string, int64_t> known;
  {
    SqliteStatement all(*database_, "SELECT name, stamp FROM runs");
    while (all.step()) known[all.text(0)] = all.number(1);
  }
  std::vector<std::pair<fs::path, int64_t>> changed;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root_, fs::directory_options::skip_permission_denied, ignored)) {
    const auto dir = entry.path();
    if (!entry.is_directory(ignored) ||
        !(fs::exists(dir / "run.json", ignored) || fs::exists(dir / "recipe.toml", ignored)))
      continue;
    const int64_t stamp = run_stamp(dir);
    const auto at = known.find(dir.filename().string());
    if (from_nothing || at == known.end() || at->second != stamp) changed.emplace_back(dir, stamp);
    if (at != known.end()) known.erase(at);
  }
  const auto count = static_cast<int64_t>(changed.size() + known.size());
  if (count == 0) return 0;
  // One transaction: other processes see the old list or the new one, and there is one wait for the disk.
  SqliteTransaction change(*database_);
  if (from_nothing) database_->run("DELETE FROM runs");
  for (const auto& [dir, stamp] : changed)
    SqliteStatement(*database_, "INSERT OR REPLACE INTO runs VALUES (?, ?, ?)")
        .bind(1, dir.filename().string())
        .bind(2, stamp)
        .bind(3, stored(read_run(dir)))
        .step();
  for (const auto& [name, stamp] : known)
    SqliteStatement(*database_, "DELETE FROM runs WHERE name = ?").bind(1, name).step();
  change.commit();
  return count;
}

std::vector<RunRow> RunIndex::list(const RunFilter& filter) {
  std::vector<RunRow> rows;
  SqliteStatement all(*database_, "SELECT row FROM runs");
  while (all.step()) {
    auto row = loaded(all.text(0), root_);
    if (!row) continue;
    // A process may have ended since the folder last changed; nothing in the folder shows it.
    if (row->status == "running" || row->status == "died") row->status = read_run(row->dir).status;
    if (!filter.recipe.empty() && row->recipe != filter.recipe) continue;
    if (!filter.status.empty() && row->status != filter.status) continue;
    rows.push_back(std::move(*row));
  }
  std::sort(rows.begin(), rows.end(), [](const RunRow& a, const RunRow& b) {
    return a.started != b.started ? a.started > b.started : a.id > b.id;
  });
  if (filter.limit > 0 && rows.size() > static_cast<size_t>(filter.limit))
    rows.resize(static_cast<size_t>(filter.limit));
  return rows;
}

RunRow RunIndex::show(const std::string& name) { return read_run(RunFolder::find(root_, name).dir()); }

RunComparison RunIndex::compare(const std::string& a, const std::string& b) {
  RunComparison out{show(a), show(b), {}, {}, std::nullopt, false};
  std::set<std::string> keys, names;
  for (const RunRow* row : {&out.a, &out.b}) {
    for (const auto& [key, value] : row->settings) keys.insert(key);
    for (const auto& [name, value] : row->metrics) names.insert(name);
  }
  const auto get = [](const auto& map, const std::string& key) {
    const auto at = map.find(key);
    using Value = typename std::decay_t<decltype(map)>::mapped_type;
    return at == map.end() ? std::optional<Value>() : std::optional<Value>(at->second);
  };
  for (const auto& key : keys)
    if (auto one = get(out.a.settings, key), two = get(out.b.settings, key); one != two)
      out.settings.push_back({key, one, two});
  for (const auto& name : names) out.metrics.push_back({name, get(out.a.metrics, name), get(out.b.metrics, name)});
  if (!out.a.digest.empty() && !out.b.digest.empty()) out.same_digest = out.a.digest == out.b.digest;
  out.same_kind = !out.a.kind.empty() && out.a.kind == out.b.kind;
  return out;
}

RunRow RunIndex::best(const std::string& metric, const std::string& recipe, const std::string& order) {
  if (!order.empty() && order != "min" && order != "max")
    throw ConfigError(fmt::format("'{}' is no order", order), "the best run has the least or the greatest value",
                      "say min or max");
  const bool least = order.empty() ? lower_is_better(metric) : order == "min";
  std::optional<RunRow> best;
  std::set<std::string> known;
  for (RunRow& row : list({.recipe = recipe, .status = "", .limit = 0})) {
    for (const auto& [name, value] : row.metrics) known.insert(name);
    const auto at = row.metrics.find(metric);
    if (at == row.metrics.end() || !std::isfinite(at->second)) continue;
    const bool better = !best || (least ? at->second < best->metrics[metric] : at->second > best->metrics[metric]);
    if (better) best = std::move(row);
  }
  if (best) return *best;
  std::string names;
  for (const auto& name : known) names += (names.empty() ? "" : ", ") + name;
  throw ConfigError(fmt::format("no run{} has the metric '{}'", recipe.empty() ? "" : " of " + recipe, metric),
                    names.empty() ? fmt::format("there are no metrics in {}", root_.string()) : "there are " + names,
                    "name one of them");
}

}  // namespace tandem
