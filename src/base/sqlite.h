// base/sqlite.h -- SQLite with owners: a database that closes itself, statements and transactions that end themselves,
// errors that say which file, why, and what to do.
//
// For files that can be made again (the index of runs, the monitor's history): an error has a kind, and the owner
// decides whether to begin anew, to try again later, or to go on in memory. Not for several threads at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tandem {

class SqliteError : public Error {
 public:
  enum class Kind {
    kDamaged,     // no database, a broken one, one of another version or with other tables
    kBusy,        // held by somebody for longer than was waited
    kFull,        // the disk, or the bound that was set
    kUnwritable,  // the folder or the file may not be written, or there is none
    kOther
  };
  SqliteError(const std::filesystem::path& file, int code, const std::string& words);
  Kind kind() const { return kind_; }
  bool damaged() const { return kind_ == Kind::kDamaged; }

 private:
  SqliteError(const std::filesystem::path& file, Kind kind, const std::string& words);
  Kind kind_;
};

struct SqliteOptions {
  int64_t version = 1;       // of the tables; a file with another one is kDamaged
  const char* tables = "";   // SQL that makes them (IF NOT EXISTS) in a new file
  int busy_ms = 5000;        // how long a lock is waited for
  int64_t most_bytes = 0;    // of the file, beyond which a write is kFull; 0: no bound
  int64_t cache_bytes = 0;   // 0: SQLite's own choice
  bool check_pages = false;  // read all of it once: damage is found here and not in the middle of a list
};

class SqliteDatabase {
 public:
  // Opens or makes it; an empty path is a database in memory.
  SqliteDatabase(std::filesystem::path file, const SqliteOptions& options);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  const std::filesystem::path& file() const { return file_; }
  bool in_memory() const { return file_.empty(); }
  void run(const char* sql);        // without a result
  int64_t number(const char* sql);  // the first column of the first row; 0: no row
  int64_t used_bytes();             // of pages that hold something
  void wait_at_most(int milliseconds);
  // Its file is gone, or another has its name: closing must not touch what lies there now.
  void leave_files_alone();

 private:
  friend class SqliteStatement;
  void open(const SqliteOptions& options);
  std::filesystem::path file_;
  sqlite3* db_ = nullptr;
};

// Places are counted from 1 when bound, columns from 0 when read, as SQLite does.
class SqliteStatement {
 public:
  SqliteStatement(SqliteDatabase& database, const char* sql);
  ~SqliteStatement();
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  SqliteStatement& bind(int at, int64_t number);
  SqliteStatement& bind(int at, const std::string& text);
  SqliteStatement& bind(int at, const std::vector<float>& values);
  bool step();   // true: there is a row
  void again();  // from the beginning, with nothing bound
  int64_t number(int column) const;
  std::string text(int column) const;
  std::vector<float> floats(int column) const;

 private:
  void check(int code) const;
  SqliteDatabase& database_;
  sqlite3_stmt* statement_ = nullptr;
};

// Takes the writer's lock at once, since a reader that turns into a writer is refused without a wait. What was not
// committed is undone.
class SqliteTransaction {
 public:
  explicit SqliteTransaction(SqliteDatabase& database) : database_(&database) { database.run("BEGIN IMMEDIATE"); }
  ~SqliteTransaction();
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;
  void commit();

 private:
  SqliteDatabase* database_;
};

// The file and what SQLite keeps beside it.
void remove_sqlite_file(const std::filesystem::path& file);

}  // namespace tandem
