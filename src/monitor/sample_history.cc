#include "monitor/sample_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/clock.h"
#include "base/errors.h"
#include "base/sqlite.h"
#include "monitor/trails.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;
constexpr double kFlushSeconds = 5;
constexpr int64_t kPruneSeconds = 60;
constexpr size_t kMostRunsInAnswer = 32;  // in one answer: a page with more lines is not read by anybody
constexpr size_t kMostWaiting = 20'000;   // points, while the file is locked by somebody

constexpr int64_t kMostInMemory = 16 << 20;  // bytes: a monitor must stay small
constexpr int kBusyMs = 100;                 // a view must not freeze while somebody holds the file: it is tried again
constexpr int64_t kFuture = 120;             // seconds that a clock may have been ahead

constexpr const char* kTables =
    "CREATE TABLE IF NOT EXISTS sources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);"
    "CREATE TABLE IF NOT EXISTS points (tier INTEGER, source INTEGER, t INTEGER, v BLOB NOT NULL,"
    " PRIMARY KEY (tier, source, t)) WITHOUT ROWID";

ino_t inode_of(const fs::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace

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

void History::check_is_ours(const fs::path& file) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("--history {} is not used", file.string()), why,
                      "name another file; one that does not exist is made");
  };
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || (S_ISREG(info.st_mode) && info.st_size == 0)) return;
  if (!S_ISREG(info.st_mode)) refuse("it is no file");
  constexpr size_t kHead = 100, kMostPage = 65536;
  std::string page(kMostPage, '\0');
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) refuse(std::strerror(errno));
  const ssize_t got = ::read(fd, page.data(), page.size());
  ::close(fd);
  constexpr char kMagic[16] = "SQLite format 3";
  if (got < static_cast<ssize_t>(kHead) || std::memcmp(page.data(), kMagic, sizeof kMagic) != 0)
    refuse("it holds something else than a history of the monitor");
  const auto head = [&](size_t at) { return uint32_t{static_cast<unsigned char>(page[at])}; };
  const uint32_t version = head(60) << 24 | head(61) << 16 | head(62) << 8 | head(63);
  if (version != 0 && version != kVersion)
    refuse(fmt::format("it is a database of another kind, or of another version ({})", version));
  // Its first page lists its tables, with the words that made them; ours are two.
  const bool any = (head(kHead + 3) << 8 | head(kHead + 4)) > 0;
  const auto has = [&](const char* words) { return page.find(words) != std::string::npos; };
  if (any && !(has("CREATE TABLE sources") && has("CREATE TABLE points")))
    refuse("it is a database of another program");
}

History::History(fs::path file, uint64_t most_bytes) : most_bytes_(most_bytes), file_(std::move(file)) { open(file_); }

void History::open(const fs::path& file) {
  database_.reset();
  SqliteOptions options{.version = kVersion, .tables = kTables, .busy_ms = 1000, .cache_bytes = 1 << 20};
  options.most_bytes = static_cast<int64_t>(most_bytes_);
  if (!file.empty()) {
    std::error_code ignored;
    if (file.has_parent_path()) fs::create_directories(file.parent_path(), ignored);
    for (int attempt = 0; attempt < 2 && !database_; ++attempt) {
      inode_ = inode_of(file);
      try {
        database_ = std::make_unique<SqliteDatabase>(file, options);
        database_->wait_at_most(kBusyMs);
        inode_ = inode_of(file);
      } catch (const SqliteError& error) {
        trouble_ = fmt::format("{}: {}", file.string(), error.why());
        if (!error.damaged() || !set_aside()) break;
      }
    }
  }
  if (!database_) {
    trouble_ += trouble_.empty() ? "" : "; it is kept in memory";
    file_.clear();
    options.most_bytes = std::min(options.most_bytes, kMostInMemory);
    database_ = std::make_unique<SqliteDatabase>(fs::path(), options);
  }
  bound_ = options.most_bytes;
}

// A damaged file is not removed: it may be somebody else's. Not if another monitor has just begun a new one.
bool History::set_aside() {
  if (inode_of(file_) != inode_) return true;
  std::error_code failed;
  fs::rename(file_, file_.string() + ".damaged", failed);
  if (failed) return false;
  for (const char* ending : {"-wal", "-journal"})  // what was not yet in it
    fs::rename(file_.string() + ending, file_.string() + ".damaged" + ending, failed);
  remove_sqlite_file(file_);
  trouble_ += fmt::format("; begun anew, the old one is {}.damaged", file_.string());
  return true;
}

bool History::file_is_another() const { return !file_.empty() && inode_of(file_) != inode_; }

History::~History() {
  try {
    if (file_is_another()) database_->leave_files_alone();
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

// A run that ended, or a GPU that is gone.
void History::finish_silent(int64_t now) {
  for (size_t tier = 0; tier < kHistoryTiers.size(); ++tier) {
    std::erase_if(means_[tier], [&](const auto& item) {
      const bool silent = std::abs(now - item.second.time) >= 2 * kHistoryTiers[tier].seconds + 60;
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
    if (file_is_another()) {  // somebody threw it away, as he may
      database_->leave_files_alone();
      open(file_);
    }
    write();
  } catch (const SqliteError& error) {
    if (error.kind() == SqliteError::Kind::kBusy) return;  // kept for the next time
    if (error.kind() == SqliteError::Kind::kFull && make_room(newest_, 0)) return;
    // A full disk, or a file that broke under us: what is shown matters more than what is kept.
    trouble_ = fmt::format("{}: {}", file_.string(), error.why());
    if (error.damaged() && !file_.empty()) {
      database_->leave_files_alone();
      database_.reset();
      open(set_aside() ? file_ : fs::path());
    } else {
      open(fs::path());
    }
  }
}

// The ids of sources are looked up anew in every transaction: another monitor may have forgotten one, and given its id
// to somebody else.
void History::write() {
  if (waiting_.empty()) return;
  SqliteDatabase& d = *database_;
  const int64_t newest = waiting_.back().time;
  const bool prune = std::abs(newest - pruned_at_) >= kPruneSeconds;
  SqliteTransaction all(d);
  std::map<std::string, int64_t> ids;
  SqliteStatement make(d, "INSERT OR IGNORE INTO sources (name) VALUES (?)");
  SqliteStatement find(d, "SELECT id FROM sources WHERE name = ?");
  SqliteStatement insert(d, "INSERT OR IGNORE INTO points (tier, source, t, v) VALUES (?, ?, ?, ?)");
  for (const Point& point : waiting_) {
    const auto [id, is_new] = ids.try_emplace(point.source);
    if (is_new) {
      make.bind(1, point.source).step();
      make.again();
      find.bind(1, point.source).step();
      id->second = find.number(0);
      find.again();
    }
    insert.bind(1, point.tier).bind(2, id->second).bind(3, point.time).bind(4, point.values).step();
    insert.again();
  }
  if (prune) forget_old(newest);
  all.commit();
  waiting_.clear();
  if (!prune) return;
  pruned_at_ = newest;
  make_room(newest, bound_ * 3 / 4);
}

// What is older than its tier keeps, or than `1 / share` of that; and what a clock that was ahead has left.
void History::cut(int64_t now, int64_t share, int64_t source) {
  for (size_t tier = 0; tier < kHistoryTiers.size(); ++tier)
    SqliteStatement(*database_, "DELETE FROM points WHERE tier = ? AND source = ? AND (t < ? OR t > ?)")
        .bind(1, static_cast<int64_t>(tier))
        .bind(2, source)
        .bind(3, now - kHistoryTiers[tier].kept / share)
        .bind(4, now + kFuture)
        .step();
}

std::vector<int64_t> History::source_ids() {
  std::vector<int64_t> ids;
  SqliteStatement query(*database_, "SELECT id FROM sources");
  while (query.step()) ids.push_back(query.number(0));
  return ids;
}

void History::forget_old(int64_t now) {
  for (const int64_t id : source_ids()) cut(now, 1, id);
  database_->run(
      "DELETE FROM sources WHERE NOT EXISTS (SELECT 1 FROM points WHERE points.source = sources.id AND tier = 2)"
      " AND NOT EXISTS (SELECT 1 FROM points WHERE points.source = sources.id AND tier = 1)"
      " AND NOT EXISTS (SELECT 1 FROM points WHERE points.source = sources.id AND tier = 0)");
}

// Many runs in one week: the oldest goes first, so that there is always room for what happens now. Source by source,
// since a transaction over all of them would make a journal as large as the file. With `most_used` 0, when the file has
// its size: half of what is old goes, and what waits is written. False if that does not help, as on a full disk.
bool History::make_room(int64_t now, int64_t most_used) {
  try {
    for (int64_t share = 2; share <= 64 && database_->used_bytes() > most_used; share *= 2) {
      for (const int64_t id : source_ids()) {
        SqliteTransaction one(*database_);
        cut(now, share, id);
        one.commit();
      }
      if (most_used == 0) {
        pruned_at_ = now;
        write();
        return true;
      }
    }
    return true;
  } catch (const SqliteError& error) {
    return most_used > 0 && error.kind() == SqliteError::Kind::kBusy;
  }
}

// By name; of many runs the newest.
std::vector<std::pair<int64_t, std::string>> History::sources_since(size_t tier, int64_t since, int64_t until) {
  std::vector<std::pair<int64_t, std::string>> sources;
  std::vector<std::pair<int64_t, int64_t>> runs;  // newest point, source
  SqliteStatement all(*database_, "SELECT id, name FROM sources ORDER BY name");
  SqliteStatement newest(*database_, "SELECT max(t) FROM points WHERE tier = ? AND source = ? AND t <= ?");
  while (all.step()) {
    newest.again();
    newest.bind(1, static_cast<int64_t>(tier)).bind(2, all.number(0)).bind(3, until).step();
    if (newest.number(0) < since) continue;
    sources.emplace_back(all.number(0), all.text(1));
    if (all.text(1).starts_with("run:")) runs.emplace_back(newest.number(0), all.number(0));
  }
  std::sort(runs.rbegin(), runs.rend());
  std::set<int64_t> old;
  for (size_t i = kMostRunsInAnswer; i < runs.size(); ++i) old.insert(runs[i].second);
  std::erase_if(sources, [&](const auto& source) { return old.contains(source.first); });
  return sources;
}

std::vector<HistorySeries> History::read(double unix_now, int64_t seconds) {
  flush();
  size_t tier = 0;
  while (tier + 1 < kHistoryTiers.size() && kHistoryTiers[tier].kept < seconds) ++tier;
  const auto now = static_cast<int64_t>(unix_now), since = now - seconds;
  std::vector<HistorySeries> all;
  try {
    for (const auto& [id, name] : sources_since(tier, since, now + kFuture)) {
      HistorySeries series{name, {}, {}};
      SqliteStatement query(*database_,
                            "SELECT t, v FROM points WHERE tier = ? AND source = ? AND t BETWEEN ? AND ? ORDER BY t");
      query.bind(1, static_cast<int64_t>(tier)).bind(2, id).bind(3, since).bind(4, now + kFuture);
      while (query.step()) {
        const std::vector<float> values = query.floats(1);
        // Points of a monitor of another version may have fewer values, or more.
        while (series.values.size() < values.size()) series.values.emplace_back(series.times.size(), std::nanf(""));
        series.times.push_back(query.number(0));
        for (size_t i = 0; i < series.values.size(); ++i)
          series.values[i].push_back(i < values.size() ? values[i] : std::nanf(""));
      }
      if (!series.times.empty()) all.push_back(std::move(series));
    }
  } catch (const SqliteError& error) {
    if (error.kind() != SqliteError::Kind::kBusy) trouble_ = fmt::format("{}: {}", file_.string(), error.why());
  }
  return all;
}

}  // namespace tandem
