// What the one way to SQLite promises to those who keep something in it.
#include "base/sqlite.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "base/temp_dir.h"

namespace tandem {
namespace {

constexpr SqliteOptions kOptions = {
    .version = 3, .tables = "CREATE TABLE IF NOT EXISTS t (k INTEGER, v BLOB)", .busy_ms = 20};

SqliteError sqlite_error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const SqliteError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {"", 0, ""};
}

TEST(Sqlite, KeepsWhatWasCommittedAndUndoesTheRest) {
  const TempDir dir;
  {
    SqliteDatabase database(dir / "d", kOptions);
    SqliteTransaction kept(database);
    SqliteStatement insert(database, "INSERT INTO t VALUES (?, ?)");
    for (int64_t i = 0; i < 3; ++i) {
      insert.bind(1, i).bind(2, std::vector<float>{1.5F, 2.5F}).step();
      insert.again();
    }
    kept.commit();
    SqliteTransaction undone(database);
    database.run("DELETE FROM t");
  }
  SqliteDatabase again(dir / "d", kOptions);
  EXPECT_EQ(again.number("SELECT count(*) FROM t"), 3);
  SqliteStatement row(again, "SELECT v, 'text', NULL FROM t LIMIT 1");
  ASSERT_TRUE(row.step());
  EXPECT_EQ(row.floats(0), (std::vector<float>{1.5F, 2.5F}));
  EXPECT_EQ(row.text(1), "text");
  EXPECT_EQ(row.text(2), "");
  EXPECT_TRUE(row.floats(2).empty());
}

TEST(Sqlite, SaysWhichFileWhyAndWhatToDo) {
  const TempDir dir;
  std::ofstream(dir / "text") << std::string(5000, 'x');
  const SqliteError damaged = sqlite_error_of([&] { SqliteDatabase(dir / "text", kOptions); });
  EXPECT_EQ(damaged.kind(), SqliteError::Kind::kDamaged);
  EXPECT_NE(std::string(damaged.what()).find((dir / "text").string()), std::string::npos);
  EXPECT_EQ(damaged.why(), "file is not a database");
  EXPECT_NE(damaged.todo(), "");
  EXPECT_EQ(sqlite_error_of([&] { SqliteDatabase(dir / "none" / "d", kOptions); }).kind(),
            SqliteError::Kind::kUnwritable);
  { SqliteDatabase database(dir / "d", kOptions); }
  SqliteOptions newer = kOptions;
  newer.version = 4;
  const SqliteError other = sqlite_error_of([&] { SqliteDatabase(dir / "d", newer); });
  EXPECT_TRUE(other.damaged());
  EXPECT_EQ(other.why(), "its tables are of version 3, this program's of 4");
  SqliteDatabase database(dir / "d", kOptions);
  EXPECT_TRUE(sqlite_error_of([&] { database.run("SELECT * FROM nothing"); }).damaged());
}

TEST(Sqlite, WaitsForALockAndThenSaysSo) {
  const TempDir dir;
  SqliteDatabase one(dir / "d", kOptions), two(dir / "d", kOptions);
  SqliteTransaction held(one);
  EXPECT_EQ(sqlite_error_of([&] { SqliteTransaction refused(two); }).kind(), SqliteError::Kind::kBusy);
  EXPECT_EQ(two.number("SELECT count(*) FROM t"), 0);  // who only reads is not held up
}

TEST(Sqlite, NeverGrowsPastItsBoundNorDoesItsJournal) {
  const TempDir dir;
  SqliteOptions bounded = kOptions;
  bounded.most_bytes = 1 << 20;
  SqliteDatabase database(dir / "d", bounded);
  const std::vector<float> row(1000);
  const auto fill = [&] {
    for (;;) {
      SqliteTransaction one(database);
      SqliteStatement(database, "INSERT INTO t VALUES (1, ?)").bind(1, row).step();
      one.commit();
      ASSERT_LE(std::filesystem::file_size(dir / "d-wal"), 1u << 19);
    }
  };
  EXPECT_EQ(sqlite_error_of(fill).kind(), SqliteError::Kind::kFull);
  EXPECT_LE(std::filesystem::file_size(dir / "d"), 1u << 20);
  EXPECT_GT(database.used_bytes(), 1 << 19);
  database.run("DELETE FROM t");  // there is room again
  SqliteStatement(database, "INSERT INTO t VALUES (1, ?)").bind(1, row).step();
}

// A full disk, emulated by a limit on the file size.
TEST(Sqlite, OnAFullDiskSaysSoAndGoesOnReading) {
  const TempDir dir;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    SqliteDatabase database(dir / "d", kOptions);
    const rlimit little{64 << 10, 64 << 10};
    setrlimit(RLIMIT_FSIZE, &little);
    const std::vector<float> row(1000);
    try {
      for (int i = 0; i < 1000; ++i) SqliteStatement(database, "INSERT INTO t VALUES (1, ?)").bind(1, row).step();
    } catch (const SqliteError& error) {
      const bool reported = error.kind() == SqliteError::Kind::kFull || error.kind() == SqliteError::Kind::kOther;
      _exit(reported && database.number("SELECT count(*) FROM t") > 0 ? 0 : 1);
    }
    _exit(2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tandem
