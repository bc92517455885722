// Rot: every truncation and every single flipped bit of every file of a small checkpoint.
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/sample.h"
#include "checkpoint/verify.h"
#include "checkpoint/zstd_file.h"

namespace tandem {
namespace {

std::string get(const std::filesystem::path& path) {
  return std::string(read_whole_file(FileSystem::real(), path).text());
}

void put(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(text.data(), static_cast<std::streamsize>(text.size()));
}

// Loads with the newest checkpoint damaged: the one before must come, untouched, and the reason must name the file.
void expect_fall_back(const TwoGenerations& two, const std::string& file, const std::string& damage,
                      const std::string& named = "") {
  const auto loaded = two.reader().load_newest();
  ASSERT_TRUE(loaded) << file << " " << damage;
  ASSERT_EQ(two.first.difference(*loaded), "") << file << " " << damage;
  ASSERT_EQ(loaded->refused.size(), 1u);
  const std::string& reason = loaded->refused[0];
  ASSERT_TRUE(reason.starts_with("step-00000200: " + file + ": ")) << reason;
  ASSERT_NE(reason.find(named), std::string::npos) << reason << " (" << damage << ")";
}

class Damage : public testing::TestWithParam<const char*> {};

}  // namespace

TEST_P(Damage, EveryTruncationIsNamedAndTheOneBeforeIsUsed) {
  const TwoGenerations two;
  const auto path = two.dir / "step-00000200" / GetParam();
  const std::string whole = get(path);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(path, whole.substr(0, length));
    expect_fall_back(two, GetParam(), "cut to " + std::to_string(length));
    if (HasFatalFailure()) return;
  }
  put(path, whole + "x");
  expect_fall_back(two, GetParam(), "longer by one");
  put(path, whole);
  EXPECT_EQ(two.second.difference(*two.reader().load_newest()), "");
}

TEST_P(Damage, EverySingleBitFlipIsNamedAndTheOneBeforeIsUsed) {
  const TwoGenerations two;
  const auto path = two.dir / "step-00000200" / GetParam();
  const std::string whole = get(path);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto write_byte = [&](std::size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      write_byte(at, static_cast<char>(whole[at] ^ (1 << bit)));
      expect_fall_back(two, GetParam(), "bit " + std::to_string(bit) + " of byte " + std::to_string(at));
      if (HasFatalFailure()) return;
    }
    write_byte(at, whole[at]);
  }
  EXPECT_EQ(two.second.difference(*two.reader().load_newest()), "");
}

INSTANTIATE_TEST_SUITE_P(Files, Damage, testing::Values(kModelFile, kStateFile, kManifestFile),
                         [](const auto& info) { return std::string(info.param, 5); });

TEST(Damage, FlippedBitInATensorNamesTheTensor) {
  const TwoGenerations two;
  const auto path = two.dir / "step-00000200" / kModelFile;
  const std::string whole = get(path);
  for (const TensorView& tensor : two.second.contents().model) {
    const std::string bytes(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    std::string damaged = whole;
    damaged[whole.rfind(bytes) + bytes.size() - 1] ^= 1;
    put(path, damaged);
    expect_fall_back(two, kModelFile, "last byte", "tensor '" + tensor.name + "' differs from its checksum");
  }
}

TEST(Damage, OfTheStateThatWasCompressedAgainNamesTheTensor) {
  const TwoGenerations two;
  const auto path = two.dir / "step-00000200" / kStateFile;
  const std::string whole = get(path);
  const Manifest manifest = two.reader().load_newest()->manifest;
  const std::uint64_t size = manifest.files.at(kStateFile).size;
  const FileBytes content = unpack_zstd(std::as_bytes(std::span(whole)), size, "state");
  for (const TensorView& tensor : two.second.contents().state) {
    if (tensor.bytes.empty()) continue;
    const std::string bytes(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    std::string damaged(content.text());
    damaged[damaged.rfind(bytes) + bytes.size() - 1] ^= 1;
    std::filesystem::remove(path);
    OpenFile file(FileSystem::real(), FileSystem::real().open_new(path));
    ZstdWriter writer(file, size);
    writer.write(std::as_bytes(std::span(damaged)));
    writer.finish();
    file.close();
    if (get(path).size() == whole.size())
      expect_fall_back(two, kStateFile, "last byte", "tensor '" + tensor.name + "' differs from its checksum");
  }
}

TEST(Damage, OfLatestNeverChangesWhatIsLoaded) {
  const TwoGenerations two;
  const auto path = two.dir / "latest";
  const std::string whole = get(path);
  ASSERT_EQ(whole, "step-00000200\n");
  const auto expect_newest = [&](const std::string& text) {
    put(path, text);
    const auto loaded = two.reader().load_newest();
    ASSERT_EQ(two.second.difference(*loaded), "");
    // A smaller number is what a crash between the two renames leaves, and no fault; all else is reported.
    const bool plausible = text.size() == 14 && text.starts_with("step-0000") && text.ends_with('\n') && text < whole &&
                           text.find_first_not_of("0123456789", 5) == 13;
    ASSERT_EQ(loaded->refused.empty(), plausible) << text;
  };
  for (std::size_t length = 0; length < whole.size(); ++length) expect_newest(whole.substr(0, length));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] ^= static_cast<char>(1 << bit);
      expect_newest(damaged);
      if (HasFatalFailure()) return;
    }
  }
  std::filesystem::remove(path);
  EXPECT_EQ(two.second.difference(*two.reader().load_newest()), "");
}

TEST(Damage, OfAllGenerationsIsAnErrorThatListsThem) {
  const TwoGenerations two;
  put(two.dir / "step-00000100" / kStateFile, "x");
  put(two.dir / "step-00000200" / kManifestFile, "x");
  try {
    two.reader().load_newest();
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_NE(error.why().find("step-00000100: state.safetensors.zst"), std::string::npos) << error.why();
    EXPECT_NE(error.why().find("step-00000200: manifest.json"), std::string::npos) << error.why();
    EXPECT_EQ(error.code(), ExitCode::kCheckpointUnusable);
  }
}

}  // namespace tandem
