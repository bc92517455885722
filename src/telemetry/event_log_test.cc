#include "telemetry/event_log.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_dir.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

TEST(EventLog, ReadsBackWhatWasWrittenAndSkipsWhatWasNot) {
  const TempDir dir;
  {
    LineFile file(dir / "e.jsonl");
    file.add(event_line({100.5, "warning", 7, "loss is \"odd\"\nreally \xFF"}));
    file.add("not JSON");
    file.add("{\"kind\":1}");
    file.add(event_line({101, "resume", 8, "on"}));
  }
  std::ofstream(dir / "e.jsonl", std::ios::app) << "{\"t\":1,\"kind\":\"torn";
  const auto events = read_events(dir / "e.jsonl");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, "warning");
  EXPECT_EQ(events[0].step, 7);
  EXPECT_TRUE(events[0].text.starts_with("loss is \"odd\"\nreally "));
  EXPECT_EQ(events[1].text, "on");
}

TEST(EventLog, KeepsBothEndsOfAVeryLongOne) {
  const TempDir dir;
  {
    std::ofstream file(dir / "e.jsonl");
    for (int i = 0; i < 12000; ++i) file << event_line({1, "checkpoint", i, ""}) << "\n";
  }
  const auto events = read_events(dir / "e.jsonl");
  ASSERT_EQ(events.size(), 10000u);
  EXPECT_EQ(events.front().step, 0);
  EXPECT_EQ(events.back().step, 11999);
}

TEST(EventLog, LogLinesAreStampedAndFreeOfEscapeCodes) {
  EXPECT_EQ(log_line(1794707226.123, "warn", "a\nb\x1b[31m"), "2026-11-15T01:47:06.123Z warn  a\n    b[31m");
}

TEST(EventLog, AppendsAcrossOpens) {
  const TempDir dir;
  LineFile(dir / "x.log").add("one");
  LineFile(dir / "x.log").add("two");
  EXPECT_EQ(*read_small_file(dir / "x.log"), "one\ntwo\n");
}

}  // namespace
}  // namespace tandem
