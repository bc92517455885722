#include "guard/energy.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_dir.h"

namespace tandem {
namespace {

GpuFacts gpu() {
  GpuFacts facts;
  facts.uuid = "GPU-a";
  facts.name = "Toy";
  return facts;
}

GpuReading at(double time, std::optional<double> power, std::optional<double> energy) {
  GpuReading reading;
  reading.time_s = time;
  reading.power_w = power;
  reading.energy_j = energy;
  return reading;
}

TEST(EnergyMeter, PrefersTheGpusOwnCounter) {
  EnergyMeter meter(0, "");
  meter.add({gpu()}, {at(0, 100, 5000)});
  meter.add({gpu()}, {at(10, 100, 6500)});
  EXPECT_DOUBLE_EQ(meter.joules(), 1500);
  EXPECT_EQ(meter.json()["devices"][0]["source"], "counter");
  EXPECT_FALSE(meter.json().contains("cost")) << "no price, no money";
}

TEST(EnergyMeter, IntegratesPowerWhereThereIsNoCounter) {
  EnergyMeter meter(0.5, "EUR");
  for (int t = 0; t <= 3600; ++t) meter.add({gpu()}, {at(t, 1000, {})});
  EXPECT_NEAR(meter.json()["kwh"].get<double>(), 1, 1e-9);
  EXPECT_NEAR(meter.json()["cost"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(meter.text(), "1 kWh, 1000 W on average, 0.5 EUR");
}

TEST(EnergyMeter, ACounterThatStartsAgainLosesNothing) {
  EnergyMeter meter(0, "");
  meter.add({gpu()}, {at(0, 100, 5000)});
  meter.add({gpu()}, {at(1, 100, 10)});  // the driver was loaded anew
  meter.add({gpu()}, {at(2, 100, 110)});
  EXPECT_DOUBLE_EQ(meter.joules(), 200);
}

TEST(EnergyMeter, AddsWhatEarlierStartsUsed) {
  EnergyMeter first(0, "");
  first.add({gpu()}, {at(0, 100, 0)});
  first.add({gpu()}, {at(10, 100, 1000)});
  EnergyMeter second(0, "");
  second.add_earlier(first.json());
  second.add({gpu()}, {at(0, 100, 7000)});
  second.add({gpu()}, {at(10, 100, 8000)});
  EXPECT_DOUBLE_EQ(second.joules(), 2000);
  EXPECT_DOUBLE_EQ(second.json()["mean_w"].get<double>(), 100);
  second.add_earlier(nlohmann::json::parse(R"({"devices": [{"id": 3}, {"id": "x", "joules": -5, "seconds": 1}]})"));
  second.add_earlier(nlohmann::json());
  EXPECT_DOUBLE_EQ(second.joules(), 2000);
}

TEST(EnergyMeter, WithoutAnyFigureSaysNothing) {
  EnergyMeter meter(1, "EUR");
  meter.add({gpu()}, {at(0, {}, {})});
  EXPECT_FALSE(meter.any());
  EXPECT_EQ(meter.text(), "");
}

TEST(Rapl, ReadsPackagesAndSurvivesTheirWrap) {
  const TempDir dir;
  const auto zone = dir.path() / "intel-rapl:0";
  std::filesystem::create_directories(zone);
  std::ofstream(zone / "name") << "package-0\n";
  std::ofstream(zone / "max_energy_range_uj") << "1000000000\n";
  std::ofstream(zone / "energy_uj") << "999000000\n";
  const auto zones = rapl_zones(dir.path());
  ASSERT_EQ(zones.size(), 1u);
  EXPECT_DOUBLE_EQ(*read_rapl(zones[0]), 999);
  EnergyMeter meter(0, "");
  meter.add_counter("package-0", 0, 999, zones[0].wraps_at_j);
  meter.add_counter("package-0", 1, 4, zones[0].wraps_at_j);
  EXPECT_DOUBLE_EQ(meter.joules(), 5);
  EXPECT_TRUE(rapl_zones(dir.path() / "none").empty());
}

TEST(Rapl, TheWholeBoardIsNotAddedToItsPackages) {
  const TempDir dir;
  for (const auto& [zone, name] : {std::pair("intel-rapl:0", "package-0"), std::pair("intel-rapl:1", "psys")}) {
    std::filesystem::create_directories(dir.path() / zone);
    std::ofstream(dir.path() / zone / "name") << name << "\n";
    std::ofstream(dir.path() / zone / "energy_uj") << "1000000\n";
  }
  const auto zones = rapl_zones(dir.path());
  ASSERT_EQ(zones.size(), 1u);
  EXPECT_EQ(zones[0].name, "package-0");
}

}  // namespace
}  // namespace tandem
