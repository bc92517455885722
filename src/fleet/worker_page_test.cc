#include "fleet/worker_page.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

namespace tandem {
namespace {

TEST(WorkerPage, RecordsComeOutWholeAndInOrderAroundTheRingsEnd) {
  const auto page = std::make_unique<WorkerPage>();
  std::mt19937 random(3);
  std::vector<std::string> sent;
  size_t taken = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string record(random() % 900, static_cast<char>('a' + i % 26));
    if (page->push(record)) sent.push_back(record);
    if (i % 3) continue;
    while (const auto got = page->pop()) ASSERT_EQ(*got, sent[taken++]);
  }
  while (const auto got = page->pop()) ASSERT_EQ(*got, sent[taken++]);
  EXPECT_EQ(taken, 5000u);
}

TEST(WorkerPage, AFullRingRefusesAndLosesNothing) {
  const auto page = std::make_unique<WorkerPage>();
  const std::string record(1000, 'x');
  size_t pushed = 0;
  while (page->push(record)) ++pushed;
  EXPECT_GT(pushed, 200u);
  EXPECT_TRUE(page->pop());
  EXPECT_TRUE(page->push(record));
}

TEST(WorkerPage, NonsenseInTheRingIsNoRecord) {
  const auto page = std::make_unique<WorkerPage>();
  page->written = 8;
  page->ring[0] = std::byte{0xff};
  page->ring[1] = std::byte{0xff};
  EXPECT_FALSE(page->pop());
  page->written = uint64_t{1} << 60;
  EXPECT_FALSE(page->pop());
}

TEST(WorkerPage, ARevokedGenerationFinishesCombinesUpToTheCut) {
  const auto page = std::make_unique<WorkerPage>();
  EXPECT_FALSE(page->abandoned(1, 0));
  page->revoke(1, 5);
  EXPECT_FALSE(page->abandoned(1, 5));
  EXPECT_TRUE(page->abandoned(1, 6));
  EXPECT_FALSE(page->abandoned(2, 6)) << "a later generation is not touched";
  page->revoke(2, -1);
  EXPECT_TRUE(page->abandoned(1, 0));
  EXPECT_TRUE(page->abandoned(2, 0));
}

}  // namespace
}  // namespace tandem
