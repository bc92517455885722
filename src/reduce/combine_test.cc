#include "reduce/combine.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem {
namespace {

TEST(LocalCombine, SumsCountsAndMaximaDoNotDependOnThePlan) {
  std::mt19937 random(3);
  std::vector<std::vector<float>> floats(24, std::vector<float>(5));
  for (auto& row : floats)
    for (float& x : row) x = std::ldexp(static_cast<float>(random()) - 2e9f, static_cast<int>(random() % 40) - 20);
  std::vector<float> first;
  for (const auto& ranges : std::vector<std::vector<ShardRange>>{
           {{0, 24}}, {{0, 12}, {12, 24}}, {{0, 5}, {5, 6}, {6, 23}, {23, 24}}, {{0, 8}, {8, 16}, {16, 24}}}) {
    LocalCombine combine(24, ranges);
    combine.begin({.floats = 5, .counts = 2, .maxima = 1});
    for (int s = 23; s >= 0; --s) {
      const std::vector<int64_t> counts{1, s}, maxima{s == 11 ? 99 : s};
      combine.add(s, {floats[s], counts, maxima, {}});
    }
    const Total total = combine.finish();
    EXPECT_EQ(total.counts[0], 24);
    EXPECT_EQ(total.counts[1], 276);
    EXPECT_EQ(total.maxima[0], 99);
    if (first.empty()) first.assign(total.floats.begin(), total.floats.end());
    for (int i = 0; i < 5; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(total.floats[i]), std::bit_cast<uint32_t>(first[i]));
  }
}

TEST(LocalCombine, MessagesArriveSortedBySenderWhateverTheOrderOfVisits) {
  auto row = [](int value) { return std::vector<std::byte>{std::byte(value)}; };
  for (const std::vector<int>& order : std::vector<std::vector<int>>{{0, 1, 2, 3}, {3, 1, 0, 2}}) {
    LocalCombine combine(4, {{0, 1}, {1, 4}});
    combine.begin({.exchange = true});
    for (int s : order) {
      std::vector<ExchangeMessage> messages{{s, 2, row(10 * s)}, {s, 2, row(10 * s + 1)}, {s, (s + 1) % 4, row(99)}};
      combine.add(s, {{}, {}, {}, messages});
    }
    combine.finish();
    std::vector<int> seen;
    for (const ExchangeMessage& message : combine.inbox(2).messages()) seen.push_back(static_cast<int>(message.row[0]));
    EXPECT_EQ(seen, (std::vector<int>{0, 1, 10, 11, 99, 20, 21, 30, 31}));
    combine.begin({});
    for (int s : order) combine.add(s, {});
    combine.finish();
    EXPECT_TRUE(combine.inbox(2).messages().empty()) << "messages are there for one phase";
  }
}

TEST(LocalCombine, SequenceNumbersCountCombinesAndAllReduces) {
  LocalCombine combine(1, {{0, 1}}, 7);
  EXPECT_EQ(combine.next_sequence(), 7);
  combine.begin({});
  std::vector<double> value{1};
  const std::vector<std::span<double>> values{value};
  const std::vector<int> shards{0};
  combine.all_reduce(shards, values);
  combine.add(0, {});
  EXPECT_EQ(combine.begun_at(), 7);
  EXPECT_EQ(combine.next_sequence(), 8);
  combine.finish();
  EXPECT_EQ(combine.next_sequence(), 9);
  combine.begin({});
  EXPECT_EQ(combine.begun_at(), 9);
}

TEST(LocalCombine, APhaseWithoutExchangeMayNotSend) {
  LocalCombine combine(1, {{0, 1}});
  combine.begin({});
  EXPECT_THROW(combine.add(0, {{}, {}, {}, {ExchangeMessage{0, 0, {}}}}), std::logic_error);
}

}  // namespace
}  // namespace tandem
