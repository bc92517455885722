#include "base/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstring>

namespace tandem {
namespace {

namespace fs = std::filesystem;

SqliteError::Kind kind_of(int code) {
  switch (code & 0xFF) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_SCHEMA:
    case SQLITE_ERROR:  // "no such table": not ours
      return SqliteError::Kind::kDamaged;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return SqliteError::Kind::kBusy;
    case SQLITE_FULL:
      return SqliteError::Kind::kFull;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return SqliteError::Kind::kUnwritable;
    default:
      return SqliteError::Kind::kOther;
  }
}

const char* remedy(SqliteError::Kind kind) {
  switch (kind) {
    case SqliteError::Kind::kDamaged:
      return "remove it: it is made anew";
    case SqliteError::Kind::kBusy:
      return "end the program that holds it (`fuser` names it), or try again";
    case SqliteError::Kind::kFull:
      return "make room on the disk";
    case SqliteError::Kind::kUnwritable:
      return "make its folder writable, or name a file elsewhere";
    case SqliteError::Kind::kOther:
      return "look at the disk (`dmesg`), or name a file elsewhere";
  }
  return "";
}

}  // namespace

SqliteError::SqliteError(const fs::path& file, int code, const std::string& words)
    : SqliteError(file, kind_of(code), words) {}

SqliteError::SqliteError(const fs::path& file, Kind kind, const std::string& words)
    : Error(ExitCode::kFailed, fmt::format("cannot use the database {}", file.empty() ? "in memory" : file.string()),
            words, remedy(kind)),
      kind_(kind) {}

SqliteDatabase::SqliteDatabase(fs::path file, const SqliteOptions& options) : file_(std::move(file)) {
  try {
    open(options);
  } catch (...) {
    sqlite3_close(db_);
    throw;
  }
}

void SqliteDatabase::open(const SqliteOptions& options) {
  const int code = sqlite3_open_v2(in_memory() ? ":memory:" : file_.c_str(), &db_,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  if (code != SQLITE_OK) throw SqliteError(file_, code, db_ ? sqlite3_errmsg(db_) : sqlite3_errstr(code));
  wait_at_most(options.busy_ms);
  // The switch to WAL needs the file alone and does not wait; where another process is at it, it has made the switch.
  sqlite3_exec(db_, "PRAGMA journal_mode=WAL", nullptr, nullptr, nullptr);
  run("PRAGMA synchronous=NORMAL");
  if (options.cache_bytes > 0) run(fmt::format("PRAGMA cache_size=-{}", options.cache_bytes / 1024).c_str());
  if (options.most_bytes > 0) {
    const int64_t pages = std::max<int64_t>(64, options.most_bytes / number("PRAGMA page_size"));
    run(fmt::format("PRAGMA max_page_count={}", pages).c_str());
    // The journal counts too: an eighth of the bound, then it is worked in and cut.
    run(fmt::format("PRAGMA wal_autocheckpoint={}", std::clamp<int64_t>(pages / 8, 16, 1000)).c_str());
    run(fmt::format("PRAGMA journal_size_limit={}", options.most_bytes / 8).c_str());
  }
  if (number("PRAGMA user_version") == 0) {
    SqliteTransaction making(*this);  // of two processes the second finds it made
    run(options.tables);
    run(fmt::format("PRAGMA user_version={}", options.version).c_str());
    making.commit();
  }
  if (const int64_t found = number("PRAGMA user_version"); found != options.version)
    throw SqliteError(file_, SQLITE_NOTADB,
                      fmt::format("its tables are of version {}, this program's of {}", found, options.version));
  if (options.check_pages) {
    SqliteStatement check(*this, "PRAGMA integrity_check(1)");
    if (!check.step() || check.text(0) != "ok") throw SqliteError(file_, SQLITE_CORRUPT, "its pages are damaged");
  }
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close(db_); }

void SqliteDatabase::run(const char* sql) {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) throw SqliteError(file_, code, sqlite3_errmsg(db_));
}

int64_t SqliteDatabase::number(const char* sql) {
  SqliteStatement statement(*this, sql);
  return statement.step() ? statement.number(0) : 0;
}

int64_t SqliteDatabase::used_bytes() {
  return (number("PRAGMA page_count") - number("PRAGMA freelist_count")) * number("PRAGMA page_size");
}

void SqliteDatabase::wait_at_most(int milliseconds) { sqlite3_busy_timeout(db_, milliseconds); }

void SqliteDatabase::leave_files_alone() { sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr); }

SqliteStatement::SqliteStatement(SqliteDatabase& database, const char* sql) : database_(database) {
  check(sqlite3_prepare_v2(database.db_, sql, -1, &statement_, nullptr));
}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

void SqliteStatement::check(int code) const {
  if (code != SQLITE_OK) throw SqliteError(database_.file_, code, sqlite3_errmsg(database_.db_));
}

SqliteStatement& SqliteStatement::bind(int at, int64_t number) {
  check(sqlite3_bind_int64(statement_, at, number));
  return *this;
}

SqliteStatement& SqliteStatement::bind(int at, const std::string& text) {
  check(sqlite3_bind_text(statement_, at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT));
  return *this;
}

SqliteStatement& SqliteStatement::bind(int at, const std::vector<float>& values) {
  check(sqlite3_bind_blob(statement_, at, values.data(), static_cast<int>(values.size() * sizeof(float)),
                          SQLITE_TRANSIENT));
  return *this;
}

bool SqliteStatement::step() {
  const int code = sqlite3_step(statement_);
  if (code != SQLITE_ROW && code != SQLITE_DONE) check(code);
  return code == SQLITE_ROW;
}

void SqliteStatement::again() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

int64_t SqliteStatement::number(int column) const { return sqlite3_column_int64(statement_, column); }

std::string SqliteStatement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return bytes ? std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column))) : "";
}

std::vector<float> SqliteStatement::floats(int column) const {
  const auto* bytes = sqlite3_column_blob(statement_, column);
  std::vector<float> values(static_cast<size_t>(sqlite3_column_bytes(statement_, column)) / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes, values.size() * sizeof(float));
  return values;
}

SqliteTransaction::~SqliteTransaction() {
  if (!database_) return;
  try {
    database_->run("ROLLBACK");
  } catch (const SqliteError&) {
    // SQLite has undone it itself, as it does on a full disk.
  }
}

void SqliteTransaction::commit() {
  database_->run("COMMIT");
  database_ = nullptr;
}

void remove_sqlite_file(const fs::path& file) {
  for (const char* ending : {"", "-wal", "-shm", "-journal"}) {
    std::error_code ignored;
    fs::remove(file.string() + ending, ignored);
  }
}

}  // namespace tandem
