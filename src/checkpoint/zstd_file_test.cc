// Frames that are cut, followed by something, larger than they say, or no frames at all.
#include "checkpoint/zstd_file.h"

#include <gtest/gtest.h>

#include <random>

#include "base/errors.h"
#include "checkpoint/sample.h"

namespace tandem {
namespace {

using Frame = std::vector<std::byte>;

std::string packed_text(std::size_t bytes) {
  std::string text;
  std::mt19937 random(7);
  while (text.size() < bytes) text += std::to_string(random() % 1000);
  text.resize(bytes);
  return text;
}

Frame pack(std::string_view text, std::size_t piece) {
  TempDir dir(quick_dir());
  OpenFile file(FileSystem::real(), FileSystem::real().open_new(dir / "frame"));
  ZstdWriter writer(file, text.size());
  for (std::size_t at = 0; at < text.size(); at += piece)
    writer.write(std::as_bytes(std::span(text.substr(at, piece))));
  writer.finish();
  file.close();
  const FileBytes bytes = read_whole_file(FileSystem::real(), dir / "frame");
  EXPECT_EQ(writer.size(), bytes.size);
  EXPECT_EQ(writer.checksum(), checksum_of(ChecksumKind::kXxh128, bytes.span()));
  EXPECT_LE(bytes.size, zstd_bound(text.size()));
  return {bytes.span().begin(), bytes.span().end()};
}

std::string why_refused(const Frame& frame, std::uint64_t size) {
  try {
    unpack_zstd(frame, size, "state");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "taken";
}

}  // namespace

TEST(ZstdFile, RoundTripKeepsEveryByteWhateverThePieces) {
  for (const std::size_t size : {0, 1, 200'000, 3'000'000}) {
    const std::string text = packed_text(size);
    for (const std::size_t piece : {std::size_t{7'777}, std::size_t{8'000'000}}) {
      const Frame frame = pack(text, piece);
      EXPECT_EQ(unpack_zstd(frame, size, "state").text(), text);
    }
  }
}

TEST(ZstdFile, EveryTruncationAndWhatFollowsAreRefused) {
  const std::string text = packed_text(3000);
  Frame frame = pack(text, 100);
  for (std::size_t length = 0; length < frame.size(); ++length)
    EXPECT_NE(why_refused({frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length)}, 3000), "taken");
  frame.push_back(std::byte{0});
  EXPECT_EQ(why_refused(frame, 3000), "state: has 1 bytes after its zstd frame");
  frame.pop_back();
  const Frame twice = pack(text, 3000);
  frame.insert(frame.end(), twice.begin(), twice.end());
  EXPECT_NE(why_refused(frame, 3000).find("bytes after its zstd frame"), std::string::npos);
}

TEST(ZstdFile, ContentOfAnotherSizeIsRefusedBeforeItIsUnpacked) {
  const Frame frame = pack(packed_text(3000), 3000);
  EXPECT_EQ(why_refused(frame, 2999), "state: states a content of 3000 bytes where 2999 were saved");
  EXPECT_EQ(why_refused(frame, std::uint64_t{1} << 60).find("state: states a content of 3000 bytes"), 0u);
}

// A frame of one block that claims 2^60 bytes, and one that claims less than it holds.
TEST(ZstdFile, BombsAreRefused) {
  const std::uint64_t claimed = std::uint64_t{1} << 60;
  Frame bomb;
  for (const int byte : {0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x58}) bomb.push_back(static_cast<std::byte>(byte));
  for (int i = 0; i < 8; ++i) bomb.push_back(static_cast<std::byte>(claimed >> (8 * i)));
  const std::uint32_t last_repeated = (100'000u << 3) | (1u << 1) | 1u;
  for (int i = 0; i < 3; ++i) bomb.push_back(static_cast<std::byte>(last_repeated >> (8 * i)));
  bomb.push_back(std::byte{'x'});
  EXPECT_NE(why_refused(bomb, claimed).find("more than its 18 bytes can hold"), std::string::npos)
      << why_refused(bomb, claimed);
  for (int i = 0; i < 8; ++i) bomb[6 + static_cast<std::size_t>(i)] = static_cast<std::byte>(i == 1 ? 0x10 : 0);
  EXPECT_NE(why_refused(bomb, 4096).find("state: "), std::string::npos);  // holds 100,000, says 4,096
  EXPECT_NE(why_refused(bomb, 4096), "taken");
}

TEST(ZstdFile, WhatIsNoFrameIsRefused) {
  const std::string skipped("\x50\x2a\x4d\x18\x01\0\0\0y", 9);
  for (const std::string& text :
       {std::string(), std::string("x"), std::string(100, '\0'), skipped, std::string("\x28\xb5\x2f\xfd", 4)})
    EXPECT_NE(why_refused({std::as_bytes(std::span(text)).begin(), std::as_bytes(std::span(text)).end()}, 8), "taken");
}

}  // namespace tandem
