// A stranger's links in the place of checkpoints: refused by name, and nothing behind them changes.
#include "checkpoint/place.h"

#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/sample.h"

namespace tandem {
namespace {

namespace stdfs = std::filesystem;

// Every file below a folder, with its bytes.
std::map<std::string, std::string> bytes_below(const stdfs::path& dir) {
  std::map<std::string, std::string> found;
  for (const auto& entry : stdfs::recursive_directory_iterator(dir))
    found[entry.path().string()] =
        entry.is_regular_file() ? std::string(read_whole_file(FileSystem::real(), entry.path()).text()) : "";
  return found;
}

template <class Use>
void expect_refused(const stdfs::path& link, const char* what, Use use) {
  try {
    use();
    ADD_FAILURE() << what << " went through " << link;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(link.string() + " is a symbolic link"), std::string::npos) << error.what();
  }
}

}  // namespace

TEST(LinkedCheckpoints, FolderIsRefusedAndNothingBehindItChanges) {
  const TwoGenerations others;
  std::ofstream(others.dir / ".tmp-latest") << "theirs";
  stdfs::create_directory(others.dir / ".tmp-step-00000300");
  const auto before = bytes_below(others.dir.path());
  TempDir run(quick_dir());
  const auto link = run / "checkpoints";
  stdfs::create_directory_symlink(others.dir.path(), link);
  expect_refused(link, "opening", [&] { CheckpointStore(FileSystem::real(), link, 2); });
  auto reader = CheckpointStore::reader(FileSystem::real(), link);
  expect_refused(link, "loading the newest", [&] { reader.load_newest(); });
  expect_refused(link, "loading one", [&] { reader.load(link / "step-00000100"); });
  expect_refused(link, "listing", [&] { reader.steps(); });
  EXPECT_EQ(bytes_below(others.dir.path()), before);
}

TEST(LinkedCheckpoints, GenerationIsRefusedAndNothingBehindItChanges) {
  const TwoGenerations others, own;
  const auto before = bytes_below(others.dir.path());
  for (const char* name :
       {"step-00000150", ".tmp-step-00000300", ".old-step-00000050-for-step-00000100", ".drop-step-00000050"}) {
    const auto link = own.dir / name;
    stdfs::create_directory_symlink(others.dir / "step-00000100", link);
    expect_refused(link, "opening", [&] { CheckpointStore(FileSystem::real(), own.dir.path(), 2); });
    expect_refused(link, "loading", [&] { own.reader().load_newest(); });
    EXPECT_TRUE(stdfs::is_symlink(link));
    stdfs::remove(link);
  }
  EXPECT_EQ(bytes_below(others.dir.path()), before);
  EXPECT_EQ(own.second.difference(*own.reader().load_newest()), "");
}

TEST(LinkedCheckpoints, PutThereWhileARunSavesKeepsWhatWasSaved) {
  const TwoGenerations others, own;
  const auto before = bytes_below(others.dir.path());
  CheckpointStore store(FileSystem::real(), own.dir.path(), 2);
  const auto link = own.dir / "step-00000300";
  stdfs::create_directory_symlink(others.dir / "step-00000100", link);
  expect_refused(link, "saving", [&] { store.save(Sample(300).contents()); });
  stdfs::remove(link);
  EXPECT_EQ(own.second.difference(*store.load_newest()), "");
  store.save(Sample(300).contents());
  EXPECT_EQ(store.steps(), (std::vector<std::int64_t>{200, 300}));
  EXPECT_EQ(bytes_below(others.dir.path()), before);
}

TEST(LinkedCheckpoints, FileOfACheckpointIsDamageAndTheOneBeforeIsUsed) {
  const TwoGenerations two;
  const auto state = two.dir / "step-00000200" / kStateFile;
  stdfs::rename(state, two.dir / "elsewhere");
  stdfs::create_symlink(two.dir / "elsewhere", state);
  const auto loaded = two.reader().load_newest();
  EXPECT_EQ(two.first.difference(*loaded), "");
  EXPECT_EQ(loaded->refused.at(0), "step-00000200: state.safetensors.zst: is not a regular file, but a symbolic link");
}

}  // namespace tandem
