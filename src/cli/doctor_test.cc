// What doctor says of what it could not see.
#include "cli/doctor.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

std::string disk_line(std::optional<double> bytes_per_s) {
  PlaceSeen place;
  place.runs_root = "runs";
  place.disk = DiskFacts{};
  place.disk->free_bytes = place.disk->total_bytes = uint64_t{100} << 30;
  place.write_bytes_per_s = bytes_per_s;
  for (const Finding& finding : judge_place(place, {}))
    if (finding.check == "disk") return finding.found;
  return "";
}

TEST(Doctor, ASlowDiskIsNotOneOfNoSpeedAtAll) {
  EXPECT_NE(disk_line(0.4e6).find("0.40 MB/s"), std::string::npos) << disk_line(0.4e6);
  EXPECT_NE(disk_line(512e6).find(", 512 MB/s"), std::string::npos) << disk_line(512e6);
  EXPECT_NE(disk_line({}).find("speed not measured"), std::string::npos) << disk_line({});
}

TEST(Doctor, TheReportSaysUnknownForCoresThatNobodyCounts) {
  PlaceSeen place;
  place.machine.cpu.logical = place.machine.cpu.usable = 8;
  place.machine.cpu.sockets = 2;
  const std::string text = doctor_report({}, {}, {}, place, {}, "");
  EXPECT_NE(text.find("8 usable, unknown cores, 2 sockets, unknown NUMA nodes"), std::string::npos) << text;
}

TEST(Doctor, OfAProcessOnlyItsProgramIsNamed) {
  EXPECT_EQ(program_of("/opt/x/python3 train.py --key=a/b"), "python3");
  EXPECT_EQ(program_of("python3"), "python3");
  EXPECT_EQ(program_of("/usr/bin/"), "/usr/bin/");
}

}  // namespace
}  // namespace tandem
