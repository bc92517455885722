#include "monitor/history.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <stdexcept>

#include "base/clock.h"
#include "monitor/trails.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;
constexpr double kFlushSeconds = 5;
constexpr int64_t kPruneSeconds = 60;
constexpr size_t kMostRuns = 32;         // in one answer: a page with more lines is not read by anybody
constexpr size_t kMostWaiting = 20'000;  // points, while the file is locked by somebody

struct SqliteError : std::runtime_error {
  SqliteError(sqlite3* db, int code)
      : std::runtime_error(db ? sqlite3_errmsg(db) : sqlite3_errstr(code)), code(code & 0xFF) {}
  int code;
};

class Query {
 public:
  Query(sqlite3* db, const char* sql) : db_(db) { check(sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr)); }
  ~Query() { sqlite3_finalize(statement_); }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  Query& bind(int at, int64_t number) { return check(sqlite3_bind_int64(statement_, at, number)), *this; }
  Query& bind(int at, const std::string& text) {
    return check(sqlite3_bind_text(statement_, at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT)),
           *this;
  }
  Query& bind(int at, const std::vector<float>& values) {
    return check(sqlite3_bind_blob(statement_, at, values.data(), static_cast<int>(values.size() * sizeof(float)),
                                   SQLITE_TRANSIENT)),
           *this;
  }
  bool step() {
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) throw SqliteError(db_, code);
    return code == SQLITE_ROW;
  }
  void again() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  int64_t number(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return bytes ? std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column))) : "";
  }
  std::vector<float> floats(int column) const {
    const size_t count = static_cast<size_t>(sqlite3_column_bytes(statement_, column)) / sizeof(float);
    std::vector<float> values(count);
    if (count) std::memcpy(values.data(), sqlite3_column_blob(statement_, column), count * sizeof(float));
    return values;
  }

 private:
  void check(int code) {
    if (code != SQLITE_OK) throw SqliteError(db_, code);
  }
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
};

void remove_database(const fs::path& file) {
  for (const char* ending : {"", "-wal", "-shm", "-journal"}) {
    std::error_code ignored;
    fs::remove(file.string() + ending, ignored);
  }
}

}  // namespace

struct History::Database {
  sqlite3* db = nullptr;

  Database(const fs::path& file, uint64_t most_bytes) {
    const int code = sqlite3_open_v2(file.empty() ? ":memory:" : file.c_str(), &db,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
    try {
      if (code != SQLITE_OK) throw SqliteError(db, code);
      sqlite3_busy_timeout(db, 1000);
      sqlite3_exec(db, "PRAGMA journal_mode=WAL", nullptr, nullptr, nullptr);  // where it can't switch, another has
      run("PRAGMA synchronous=NORMAL");
      run("PRAGMA cache_size=-1024");  // 1 MB
      run(fmt::format("PRAGMA max_page_count={}", most_bytes / 4096).c_str());
      if (number("PRAGMA user_version") == 0) create();
      if (number("PRAGMA user_version") != kVersion) throw SqliteError(nullptr, SQLITE_CORRUPT);
    } catch (...) {
      sqlite3_close(db);
      throw;
    }
  }
  ~Database() { sqlite3_close(db); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void run(const char* sql) {
    const int code = sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) throw SqliteError(db, code);
  }
  int64_t number(const char* sql) {
    Query query(db, sql);
    return query.step() ? query.number(0) : 0;
  }
  void create() {
    run("BEGIN IMMEDIATE");  // of two monitors the second finds it made
    run("CREATE TABLE IF NOT EXISTS sources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)");
    run("CREATE TABLE IF NOT EXISTS points (tier INTEGER, source INTEGER, t INTEGER, v BLOB NOT NULL,"
        " PRIMARY KEY (tier, source, t)) WITHOUT ROWID");
    run(fmt::format("PRAGMA user_version={}", kVersion).c_str());
    run("COMMIT");
  }
  int64_t source(const std::string& name) {
    const auto known = ids.find(name);
    if (known != ids.end()) return known->second;
    Query(db, "INSERT OR IGNORE INTO sources (name) VALUES (?)").bind(1, name).step();
    Query query(db, "SELECT id FROM sources WHERE name = ?");
    query.bind(1, name).step();
    return ids[name] = query.number(0);
  }
  std::map<std::string, int64_t> ids;
};

fs::path History::default_file() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  for (char& c : host)
    if (c == '/') c = '_';
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (state && *state == '/')
    folder = state;
  else if (home && *home == '/')
    folder = fs::path(home) / ".local" / "state";
  else
    return "";
  return folder / "tandem" / fmt::format("monitor-{}.sqlite", host);
}

History::History(fs::path file, uint64_t most_bytes) : most_bytes_(most_bytes), file_(std::move(file)) { open(file_); }

void History::open(const fs::path& file) {
  database_.reset();
  if (!file.empty()) {
    std::error_code ignored;
    if (file.has_parent_path()) fs::create_directories(file.parent_path(), ignored);
    for (int attempt = 0; attempt < 2 && !database_; ++attempt) {
      try {
        database_ = std::make_unique<Database>(file, most_bytes_);
      } catch (const SqliteError& error) {
        trouble_ = fmt::format("{}: {}", file.string(), error.what());
        if (error.code != SQLITE_CORRUPT && error.code != SQLITE_NOTADB && error.code != SQLITE_SCHEMA) break;
        remove_database(file);
      }
    }
  }
  if (!database_) {
    file_.clear();
    database_ = std::make_unique<Database>(fs::path(), most_bytes_);
  }
}

History::~History() {
  try {
    write();
  } catch (const SqliteError&) {
  }
}

bool History::in_memory() const { return file_.empty(); }

void History::add(const MonitorSample& sample) {
  const auto time = static_cast<int64_t>(std::floor(sample.time));
  for (const auto& [source, values] : kept_values(sample)) put(source, time, values);
  newest_ = time;
  if (monotonic_seconds() - flushed_at_ >= kFlushSeconds) flush();
}

void History::finish(size_t tier, const std::string& source, const Mean& mean) {
  std::vector<float> values;
  for (size_t i = 0; i < mean.sums.size(); ++i)
    values.push_back(mean.counts[i] ? static_cast<float>(mean.sums[i] / mean.counts[i]) : std::nanf(""));
  waiting_.push_back({static_cast<int>(tier), source, mean.time, std::move(values)});
}

// A run that ended, or a card that is gone.
void History::finish_silent(int64_t now) {
  for (size_t tier = 0; tier < kHistoryTiers.size(); ++tier) {
    std::erase_if(means_[tier], [&](const auto& item) {
      const bool silent = now - item.second.time >= 2 * kHistoryTiers[tier].seconds + 60;
      if (silent) finish(tier, item.first, item.second);
      return silent;
    });
  }
}

void History::put(const std::string& source, int64_t time, const std::vector<double>& values) {
  for (size_t tier = 0; tier < kHistoryTiers.size(); ++tier) {
    Mean& mean = means_[tier][source];
    const int64_t bucket = time - time % kHistoryTiers[tier].seconds;
    if (mean.time != bucket) {
      if (mean.time >= 0) finish(tier, source, mean);
      mean = {bucket, std::vector<double>(values.size()), std::vector<int>(values.size())};
    }
    for (size_t i = 0; i < values.size() && i < mean.sums.size(); ++i)
      if (std::isfinite(values[i])) mean.sums[i] += values[i], ++mean.counts[i];
  }
  if (waiting_.size() > kMostWaiting) waiting_.erase(waiting_.begin(), waiting_.begin() + kMostWaiting / 2);
}

void History::flush() {
  flushed_at_ = monotonic_seconds();
  finish_silent(newest_);
  try {
    write();
  } catch (const SqliteError& error) {
    if (error.code == SQLITE_BUSY || error.code == SQLITE_LOCKED) return;  // kept for the next time
    if (error.code == SQLITE_FULL && make_room()) return;
    // A full disk, or a file that broke under us: what is shown matters more than what is kept.
    trouble_ = fmt::format("{}: {}", file_.string(), error.what());
    const bool broken = error.code == SQLITE_CORRUPT || error.code == SQLITE_NOTADB;
    if (broken && !file_.empty()) remove_database(file_);
    open(broken ? file_ : fs::path());
  }
}

void History::write() {
  if (waiting_.empty()) return;
  Database& d = *database_;
  d.run("BEGIN IMMEDIATE");
  try {
    Query insert(d.db, "INSERT OR IGNORE INTO points (tier, source, t, v) VALUES (?, ?, ?, ?)");
    for (const Point& point : waiting_) {
      insert.bind(1, point.tier).bind(2, d.source(point.source)).bind(3, point.time).bind(4, point.values).step();
      insert.again();
    }
    const int64_t newest = waiting_.back().time;
    if (std::abs(newest - pruned_at_) >= kPruneSeconds) {
      prune(newest, 1);
      pruned_at_ = newest;
    }
    d.run("COMMIT");
  } catch (...) {
    sqlite3_exec(d.db, "ROLLBACK", nullptr, nullptr, nullptr);
    d.ids.clear();
    throw;
  }
  waiting_.clear();
}

// The file has its size: half of what is old goes. False if that does not help, as on a full disk.
bool History::make_room() {
  try {
    database_->run("BEGIN IMMEDIATE");
    prune(waiting_.back().time, 2);
    database_->run("COMMIT");
    write();
    return true;
  } catch (const SqliteError&) {
    sqlite3_exec(database_->db, "ROLLBACK", nullptr, nullptr, nullptr);
    return false;
  }
}

void History::prune(int64_t now, int64_t least_share) {
  Database& d = *database_;
  std::vector<int64_t> sources;
  {
    Query query(d.db, "SELECT id FROM sources");
    while (query.step()) sources.push_back(query.number(0));
  }
  const auto cut = [&](int64_t share) {
    for (size_t tier = 0; tier < kHistoryTiers.size(); ++tier) {
      for (const int64_t source : sources)
        Query(d.db, "DELETE FROM points WHERE tier = ? AND source = ? AND (t < ? OR t > ?)")
            .bind(1, static_cast<int64_t>(tier))
            .bind(2, source)
            .bind(3, now - kHistoryTiers[tier].kept / share)
            .bind(4, now + 86400)  // of a clock that was wrong
            .step();
    }
  };
  cut(least_share);
  // Many runs in one week: the oldest goes first, so that there is always room for what happens now.
  const auto used = [&] {
    return static_cast<uint64_t>(d.number("PRAGMA page_count") - d.number("PRAGMA freelist_count")) * 4096;
  };
  for (int64_t share = 2 * least_share; share <= 64 && used() > most_bytes_ * 3 / 4; share *= 2) cut(share);
  d.run(
      "DELETE FROM sources WHERE NOT EXISTS (SELECT 1 FROM points WHERE points.source = sources.id AND tier = 2)"
      " AND NOT EXISTS (SELECT 1 FROM points WHERE points.source = sources.id AND tier = 1)"
      " AND NOT EXISTS (SELECT 1 FROM points WHERE points.source = sources.id AND tier = 0)");
  d.ids.clear();
}

// By name; of many runs the newest.
std::vector<std::pair<int64_t, std::string>> History::sources_since(size_t tier, int64_t since) {
  std::vector<std::pair<int64_t, std::string>> sources;
  std::vector<std::pair<int64_t, int64_t>> runs;  // newest point, source
  Query all(database_->db, "SELECT id, name FROM sources ORDER BY name");
  while (all.step()) {
    Query query(database_->db, "SELECT max(t) FROM points WHERE tier = ? AND source = ?");
    query.bind(1, static_cast<int64_t>(tier)).bind(2, all.number(0)).step();
    if (query.number(0) < since) continue;
    sources.emplace_back(all.number(0), all.text(1));
    if (all.text(1).starts_with("run:")) runs.emplace_back(query.number(0), all.number(0));
  }
  std::sort(runs.rbegin(), runs.rend());
  std::set<int64_t> old;
  for (size_t i = kMostRuns; i < runs.size(); ++i) old.insert(runs[i].second);
  std::erase_if(sources, [&](const auto& source) { return old.contains(source.first); });
  return sources;
}

std::vector<HistorySeries> History::read(double unix_now, int64_t seconds) {
  flush();
  size_t tier = 0;
  while (tier + 1 < kHistoryTiers.size() && kHistoryTiers[tier].kept < seconds) ++tier;
  const auto since = static_cast<int64_t>(unix_now) - seconds;
  std::vector<HistorySeries> all;
  try {
    for (const auto& [id, name] : sources_since(tier, since)) {
      HistorySeries series{name, {}, {}};
      Query query(database_->db, "SELECT t, v FROM points WHERE tier = ? AND source = ? AND t >= ? ORDER BY t");
      query.bind(1, static_cast<int64_t>(tier)).bind(2, id).bind(3, since);
      while (query.step()) {
        const std::vector<float> values = query.floats(1);
        if (series.values.empty()) series.values.resize(values.size());
        if (values.size() != series.values.size()) continue;
        series.times.push_back(query.number(0));
        for (size_t i = 0; i < values.size(); ++i) series.values[i].push_back(values[i]);
      }
      if (!series.times.empty()) all.push_back(std::move(series));
    }
  } catch (const SqliteError& error) {
    trouble_ = error.what();
  }
  return all;
}

}  // namespace tandem
