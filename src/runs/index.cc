#include "runs/index.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/errors.h"
#include "runs/run_folder.h"
#include "runs/run_reader.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;  // another number in the file means: rebuild
constexpr int kBusyMilliseconds = 5000;

// SQLite's own complaint; caught in this file, where it means "rebuild" or "go on in memory".
struct SqliteError : std::runtime_error {
  SqliteError(sqlite3* db, int code)
      : std::runtime_error(db ? sqlite3_errmsg(db) : sqlite3_errstr(code)), code(code & 0xFF) {}
  int code;
};

class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db) { check(sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr)); }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement& bind(int at, const std::string& text) {
    return check(sqlite3_bind_text(statement_, at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT)),
           *this;
  }
  Statement& bind(int at, int64_t number) { return check(sqlite3_bind_int64(statement_, at, number)), *this; }
  bool step() {
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) throw SqliteError(db_, code);
    return code == SQLITE_ROW;
  }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return bytes ? std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column))) : "";
  }
  int64_t number(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  void check(int code) {
    if (code != SQLITE_OK) throw SqliteError(db_, code);
  }
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
};

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

bool lower_is_better(const std::string& metric) {
  for (const char* word : {"loss", "error", "perplexity", "seconds", "time", "drawdown"})
    if (metric.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

struct RunIndex::Database {
  sqlite3* db = nullptr;
  bool memory = false;

  explicit Database(const fs::path& file) : memory(file.empty()) {
    const int code =
        sqlite3_open_v2(memory ? ":memory:" : file.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
    try {
      if (code != SQLITE_OK) throw SqliteError(db, code);
      sqlite3_busy_timeout(db, kBusyMilliseconds);
      // The switch to WAL needs the file alone and does not wait; where another process is at it, it has made the
      // switch.
      sqlite3_exec(db, "PRAGMA journal_mode=WAL", nullptr, nullptr, nullptr);
      run("PRAGMA synchronous=NORMAL");
      // No statement may be open across a write: a reader that turns into a writer is refused at once, without the
      // wait.
      if (version() == 0) create();
      if (version() != kVersion) throw SqliteError(nullptr, SQLITE_CORRUPT);
      // Reads every page of a small file: a damaged one is found here and not in the middle of a list.
      Statement check(db, "PRAGMA integrity_check(1)");
      if (!check.step() || check.text(0) != "ok") throw SqliteError(nullptr, SQLITE_CORRUPT);
    } catch (...) {
      sqlite3_close(db);
      throw;
    }
  }
  ~Database() { sqlite3_close(db); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  int64_t version() {
    Statement statement(db, "PRAGMA user_version");
    return statement.step() ? statement.number(0) : -1;
  }
  void create() {
    run("BEGIN IMMEDIATE");  // of two processes the second finds the table made
    run("CREATE TABLE IF NOT EXISTS runs (name TEXT PRIMARY KEY, stamp INTEGER NOT NULL, row TEXT NOT NULL) WITHOUT "
        "ROWID");
    run(fmt::format("PRAGMA user_version={}", kVersion).c_str());
    run("COMMIT");
  }
  void run(const char* sql) {
    const int code = sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) throw SqliteError(db, code);
  }
};

namespace {

void remove_index(const fs::path& file) {
  for (const char* ending : {"", "-wal", "-shm", "-journal"}) {
    std::error_code ignored;
    fs::remove(file.string() + ending, ignored);
  }
}

}  // namespace

RunIndex::RunIndex(fs::path root) : root_(std::move(root)) {
  const fs::path file = root_ / "index.sqlite";
  std::error_code ignored;
  if (fs::is_directory(root_, ignored)) {
    for (int attempt = 0; attempt < 2 && !database_; ++attempt) {
      try {
        database_ = std::make_unique<Database>(file);
        sync();
      } catch (const SqliteError& error) {
        database_.reset();
        // Damaged, no database at all, or of another version: it is a cache, so it goes. Not writable: memory will do.
        if (error.code == SQLITE_CORRUPT || error.code == SQLITE_NOTADB || error.code == SQLITE_ERROR ||
            error.code == SQLITE_SCHEMA)
          remove_index(file);
        else
          break;
      }
    }
  }
  if (!database_) {
    database_ = std::make_unique<Database>(fs::path());
    sync();
  }
}

RunIndex::~RunIndex() = default;

bool RunIndex::in_memory() const { return database_->memory; }

int64_t RunIndex::sync() { return bring_up_to_date(false); }

int64_t RunIndex::rebuild() {
  bring_up_to_date(true);
  return static_cast<int64_t>(list().size());
}

int64_t RunIndex::bring_up_to_date(bool from_nothing) {
  sqlite3* db = database_->db;
  std::map<std::string, int64_t> known;
  {
    Statement all(db, "SELECT name, stamp FROM runs");
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
  database_->run("BEGIN IMMEDIATE");
  try {
    if (from_nothing) database_->run("DELETE FROM runs");
    for (const auto& [dir, stamp] : changed)
      Statement(db, "INSERT OR REPLACE INTO runs VALUES (?, ?, ?)")
          .bind(1, dir.filename().string())
          .bind(2, stamp)
          .bind(3, stored(read_run(dir)))
          .step();
    for (const auto& [name, stamp] : known) Statement(db, "DELETE FROM runs WHERE name = ?").bind(1, name).step();
    database_->run("COMMIT");
  } catch (...) {
    sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
  return count;
}

std::vector<RunRow> RunIndex::list(const RunFilter& filter) {
  std::vector<RunRow> rows;
  Statement all(database_->db, "SELECT row FROM runs");
  while (all.step()) {
    auto row = loaded(all.text(0), root_);
    if (!row) continue;
    // A process may have ended since the folder last changed; nothing in the folder tells.
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
