#include "telemetry/confusion_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/temp_dir.h"
#include "telemetry/atomic_file.h"
#include "telemetry/metrics_file.h"
#include "telemetry/report_data.h"
#include "telemetry/tfevents.h"

namespace tandem {
namespace {

NamedValues cells(const std::vector<std::string>& classes, double first = 1) {
  NamedValues values{{"validation/accuracy", 0.5}};
  for (const auto& truth : classes)
    for (const auto& predicted : classes)
      values.emplace_back("validation/" + confusion_cell(truth, predicted), first++);
  return values;
}

// What Python prints; empty where it fails.
std::string python(const std::string& script, const std::string& argument) {
  FILE* pipe = ::popen((std::string("'") + TANDEM_PYTHON + "' -c '" + script + "' '" + argument + "'").c_str(), "r");
  std::string text;
  for (int c = 0; pipe && (c = std::fgetc(pipe)) != EOF;) text.push_back(static_cast<char>(c));
  return pipe && ::pclose(pipe) == 0 ? text : "";
}

}  // namespace

TEST(ConfusionTable, IsReadBackFromAStepsMetrics) {
  const auto tables = confusion_tables(cells({"rest", "paw_lick"}));
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0], (ConfusionTable{"validation", {"rest", "paw_lick"}, {1, 2, 3, 4}}));
  EXPECT_EQ(tables[0].at(1, 0), 3);
}

TEST(ConfusionTable, OneThatLacksACellIsNone) {
  NamedValues values = cells({"a", "b", "c"});
  values.pop_back();
  EXPECT_TRUE(confusion_tables(values).empty());
}

TEST(ConfusionTable, OtherMetricsAreNoCells) {
  for (const char* name :
       {"accuracy", "validation/f1[rest]", "confusion", "confusion[a]", "validation/confusion[a|b", "noconfusion[a|b]"})
    EXPECT_FALSE(is_confusion_cell(name)) << name;
  EXPECT_TRUE(is_confusion_cell("validation/confusion[rest|walk]"));
}

TEST(ConfusionTable, ItsPictureIsAWholePng) {
  const Picture picture = confusion_picture(confusion_tables(cells({"a", "b", "c"}))[0]);
  const TempDir dir;
  write_file_atomically(dir / "x.png", picture.png);
  // zlib checks the stream and its sum, and each chunk has a checksum of its own.
  const std::string script = R"(
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n"
at, body = 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    part = data[at + 8:at + 8 + size]
    assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(kind + part)
    if kind == b"IHDR": width, height = struct.unpack(">II", part[:8])
    if kind == b"IDAT": body += part
    at += 12 + size
raw = zlib.decompress(body)
rows = []
for y in range(height):
    line = raw[y * (width + 1):(y + 1) * (width + 1)]
    assert line[0] == 2
    rows.append([(v + (rows[-1][x] if rows else 0)) % 256 for x, v in enumerate(line[1:])])
print(width, height, max(map(max, rows)), rows[0][0], len(data)))";
  const std::string seen = python(script, (dir / "x.png").string());
  ASSERT_FALSE(seen.empty());
  int width = 0, height = 0, most = 0, corner = 0, bytes = 0;
  ASSERT_EQ(std::sscanf(seen.c_str(), "%d %d %d %d %d", &width, &height, &most, &corner, &bytes), 5);
  EXPECT_EQ(width, picture.width);
  EXPECT_EQ(height, picture.height);
  EXPECT_LT(most, 66);  // colours of the palette
  EXPECT_EQ(corner, 0);
  EXPECT_LT(bytes, 6000);
}

TEST(ConfusionTable, TheReportHasTheNewestOneAndNoCurveOfItsCells) {
  const TempDir dir;
  {
    MetricsWriter writer(dir / "metrics.jsonl");
    StepRecord record;
    for (record.step = 1; record.step <= 3; ++record.step) {
      record.metrics = record.step == 3 ? NamedValues{} : cells({"a", "b"}, static_cast<double>(record.step));
      writer.add(record, 1);
    }
    writer.flush();
  }
  const nlohmann::json data = collect_report(dir.path());
  ASSERT_EQ(data["confusion"].size(), 1u);
  EXPECT_EQ(data["confusion"][0]["step"], 2);
  EXPECT_EQ(data["confusion"][0]["classes"], (nlohmann::json{"a", "b"}));
  EXPECT_EQ(data["confusion"][0]["cells"], (nlohmann::json{2, 3, 4, 5}));
  for (const auto& series : data["series"])
    EXPECT_EQ(series["name"].get<std::string>().find("confusion"), std::string::npos);
}

TEST(ConfusionTable, TensorBoardReadsThePicture) {
  const TempDir dir;
  const Picture picture = confusion_picture(confusion_tables(cells({"a", "b"}))[0]);
  {
    TfEventsWriter writer(dir.path(), 1794707226.0, 0);
    writer.add_image(1794707227.0, 7, "validation/confusion", picture.width, picture.height, picture.png);
  }
  const std::string script = R"(
import sys
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("none"); sys.exit(0)
seen = EventAccumulator(sys.argv[1], size_guidance={"images": 0}); seen.Reload()
one = seen.Images("validation/confusion")[0]
print(one.step, one.width, one.height, one.encoded_image_string[1:4].decode(), len(one.encoded_image_string)))";
  const std::string seen = python(script, dir.path().string());
  if (seen.starts_with("none")) GTEST_SKIP() << "no package tensorboard";
  EXPECT_EQ(seen, fmt::format("7 {} {} PNG {}\n", picture.width, picture.height, picture.png.size()));
}

}  // namespace tandem
