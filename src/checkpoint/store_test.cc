#include "checkpoint/store.h"

#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/best.h"
#include "checkpoint/sample.h"
#include "checkpoint/verify.h"

namespace tandem {
namespace {

namespace stdfs = std::filesystem;
using Steps = std::vector<std::int64_t>;

std::string only_reason(const TwoGenerations& two) {
  const auto loaded = two.reader().load_newest();
  if (!loaded || two.first.difference(*loaded) != "" || loaded->refused.size() != 1) return "not the one before";
  return loaded->refused[0];
}

}  // namespace

TEST(Checkpoint, RoundTripKeepsEverything) {
  TempDir dir;
  const Sample sample(200);
  CheckpointStore store(FileSystem::real(), dir / "checkpoints", 3);
  EXPECT_FALSE(store.load_newest());
  EXPECT_EQ(store.save(sample.contents()), dir / "checkpoints" / "step-00000200");
  const auto loaded = store.load_newest();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(sample.difference(*loaded), "");
  EXPECT_TRUE(loaded->refused.empty());
  EXPECT_EQ(loaded->dir, dir / "checkpoints" / "step-00000200");
  EXPECT_EQ(read_whole_file(FileSystem::real(), dir / "checkpoints" / "latest").text(), "step-00000200\n");
  EXPECT_EQ(sample.difference(store.load(dir / "checkpoints" / "step-00000200/")), "");
}

TEST(Checkpoint, FolderThatIsNotThereHoldsNone) {
  TempDir dir;
  EXPECT_FALSE(CheckpointStore::reader(FileSystem::real(), dir / "none").load_newest());
  EXPECT_FALSE(stdfs::exists(dir / "none"));
}

TEST(Checkpoint, OldGenerationsGoOnlyBeyondKeep) {
  TempDir dir(quick_dir());
  CheckpointStore store(FileSystem::real(), dir.path(), 3);
  for (int step = 1; step <= 5; ++step) store.save(Sample(step).contents());
  EXPECT_EQ(store.steps(), (Steps{3, 4, 5}));
  EXPECT_EQ(FileSystem::real().list(dir.path()).size(), 4u);
  EXPECT_THROW(CheckpointStore(FileSystem::real(), dir / "other", 1), ConfigError);
}

// What was trained after the last equal comparison may have to be set aside: something to go on from stays.
TEST(Checkpoint, TheNewestThatIsSureStaysBeyondKeep) {
  TempDir dir(quick_dir());
  CheckpointStore store(FileSystem::real(), dir.path(), 2);
  const auto save = [&](int step, int sure) {
    Sample sample(step);
    sample.contents().sure = sure;
    store.save(sample.contents());
  };
  for (int step = 1; step <= 6; ++step) save(step, 2);
  EXPECT_EQ(store.steps(), (Steps{2, 5, 6}));
  EXPECT_EQ(store.set_aside_after(2).size(), 2u);
  EXPECT_EQ(store.load_newest()->manifest.step, 2);
  for (int step = 3; step <= 6; ++step) save(step, 2);
  save(7, 5);
  EXPECT_EQ(store.steps(), (Steps{5, 6, 7}));
  save(8, 7);
  EXPECT_EQ(store.steps(), (Steps{7, 8}));
}

TEST(Checkpoint, DamagedOnesDoNotCountAsGenerations) {
  TwoGenerations two;
  stdfs::remove(two.dir / "step-00000200" / kModelFile);
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  EXPECT_EQ(store.load_newest()->manifest.step, 100);
  store.save(Sample(300).contents());
  EXPECT_EQ(store.steps(), (Steps{100, 300}));
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  TwoGenerations two;
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  Sample again(200, "tiny-2");
  store.save(again.contents());
  EXPECT_EQ(again.difference(*store.load_newest()), "");
  EXPECT_EQ(FileSystem::real().list(two.dir.path()).size(), 3u);
}

TEST(Checkpoint, SavedStepIsTheNewestAndAnAbandonedFutureGoes) {
  TwoGenerations two;
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  EXPECT_EQ(store.load(two.dir / "step-00000100").manifest.step, 100);
  store.save(Sample(150).contents());
  EXPECT_EQ(store.steps(), (Steps{100, 150}));
}

TEST(Checkpoint, SuspectOnesAreSetAsideAndTheNewestBeforeThemIsLoaded) {
  TwoGenerations two;
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  EXPECT_TRUE(store.set_aside_after(200).empty());
  keep_best(FileSystem::real(), two.dir.path(), two.dir / "step-00000200");
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(store.set_aside_after(150).front(), two.dir / "suspect-step-00000200");
    const auto loaded = store.load_newest();
    EXPECT_EQ(two.first.difference(*loaded), "");
    EXPECT_TRUE(loaded->refused.empty());
    EXPECT_EQ(two.second.difference(store.load(two.dir / "suspect-step-00000200")), "");
    EXPECT_EQ(best_step(FileSystem::real(), two.dir.path()), std::nullopt);
    store.save(two.second.contents());  // made anew, and suspect again
  }
  EXPECT_EQ(store.set_aside_after(50).size(), 2u);
  EXPECT_FALSE(store.load_newest());
  EXPECT_FALSE(stdfs::exists(two.dir / "latest"));
}

TEST(Checkpoint, ABestThatDoesNotTellItsStepIsAsSuspectAsAnyOther) {
  TwoGenerations two;
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  keep_best(FileSystem::real(), two.dir.path(), two.dir / "step-00000200");
  stdfs::remove(two.dir / kBestFolder / "manifest.json");
  EXPECT_TRUE(store.set_aside_after(200).empty());
  EXPECT_EQ(store.set_aside_after(150).back(), two.dir / "suspect-best");
  EXPECT_FALSE(stdfs::exists(two.dir / kBestFolder));
}

TEST(Checkpoint, InterruptedReplacementIsPutBackAtOpen) {
  TwoGenerations two;
  stdfs::rename(two.dir / "step-00000200", two.dir / ".old-step-00000200-for-step-00000150");
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  EXPECT_EQ(two.second.difference(*store.load_newest()), "");
}

TEST(Checkpoint, FinishedReplacementIsClearedAtOpen) {
  TwoGenerations two;
  stdfs::rename(two.dir / "step-00000200", two.dir / ".old-step-00000200-for-step-00000100");
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  EXPECT_EQ(store.steps(), (Steps{100}));
  EXPECT_EQ(FileSystem::real().list(two.dir.path()), (std::vector<std::string>{"latest", "step-00000100"}));
}

TEST(Checkpoint, OpenClearsOurLeftoversAndNothingElse) {
  TwoGenerations two;
  for (const char* name : {".tmp-step-00000300", ".drop-step-00000050", ".hidden", "notes"}) {
    stdfs::create_directory(two.dir / name);
    std::ofstream(two.dir / name / "file") << "text";
  }
  std::ofstream(two.dir / ".tmp-latest") << "step-";
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  EXPECT_EQ(FileSystem::real().list(two.dir.path()),
            (std::vector<std::string>{".hidden", "latest", "notes", "step-00000100", "step-00000200"}));
}

TEST(Checkpoint, SecondWriterIsRefusedAndAReaderIsNot) {
  TwoGenerations two;
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  EXPECT_THROW(CheckpointStore(FileSystem::real(), two.dir.path(), 2), ConfigError);
  stdfs::create_directory(two.dir / ".tmp-step-00000300");  // the writer's, half done
  EXPECT_EQ(two.second.difference(*two.reader().load_newest()), "");
  EXPECT_TRUE(stdfs::exists(two.dir / ".tmp-step-00000300"));
}

TEST(Checkpoint, FilesSwappedBetweenStepsAreTold) {
  for (const char* file : {kModelFile, kStateFile, kManifestFile}) {
    TwoGenerations two;
    stdfs::copy_file(two.dir / "step-00000100" / file, two.dir / "step-00000200" / file,
                     stdfs::copy_options::overwrite_existing);
    const std::string reason = only_reason(two);
    // With another step's manifest it is the data that does not fit.
    const std::string expected = file == kManifestFile ? "model.safetensors: belongs to step 200 of run tiny-1"
                                                       : std::string(file) + ": belongs to step 100 of run tiny-1";
    EXPECT_TRUE(reason.starts_with("step-00000200: " + expected)) << reason;
  }
}

TEST(Checkpoint, FilesSwappedBetweenRunsAreTold) {
  TempDir other(quick_dir());
  CheckpointStore(FileSystem::real(), other.path(), 2).save(Sample(200, "tiny-2").contents());
  for (const char* file : {kModelFile, kStateFile}) {
    TwoGenerations two;
    stdfs::copy_file(other / "step-00000200" / file, two.dir / "step-00000200" / file,
                     stdfs::copy_options::overwrite_existing);
    const std::string reason = only_reason(two);
    EXPECT_NE(reason.find(std::string(file) + ": belongs to step 200 of run tiny-2"), std::string::npos) << reason;
  }
}

TEST(Checkpoint, ModelAndStateSwappedAreTold) {
  TwoGenerations two;
  const auto dir = two.dir / "step-00000200";
  stdfs::rename(dir / kModelFile, dir / "x");
  stdfs::rename(dir / kStateFile, dir / kModelFile);
  stdfs::rename(dir / "x", dir / kStateFile);
  EXPECT_NE(only_reason(two).find("model.safetensors: "), std::string::npos) << only_reason(two);
}

TEST(Checkpoint, FolderUnderAnotherStepsNameIsRefused) {
  TwoGenerations two;
  stdfs::remove_all(two.dir / "step-00000200");
  stdfs::copy(two.dir / "step-00000100", two.dir / "step-00000300");
  const auto loaded = two.reader().load_newest();
  EXPECT_EQ(two.first.difference(*loaded), "");
  EXPECT_EQ(loaded->refused.at(0), "step-00000300: manifest.json: is of step 100");
}

TEST(Checkpoint, MissingFileIsNamed) {
  for (const char* file : {kModelFile, kStateFile, kManifestFile}) {
    TwoGenerations two;
    stdfs::remove(two.dir / "step-00000200" / file);
    EXPECT_EQ(only_reason(two), "step-00000200: " + std::string(file) + ": is missing");
  }
}

TEST(Checkpoint, MissingNewestIsToldByLatest) {
  TwoGenerations two;
  stdfs::remove_all(two.dir / "step-00000200");
  EXPECT_EQ(only_reason(two), "latest: names step-00000200, which is missing");
}

TEST(Checkpoint, ForeignFoldersAndFilesAreRefusedOrPassedOver) {
  TwoGenerations two;
  stdfs::remove(two.dir / "latest");
  stdfs::create_directory(two.dir / "step-00000900");
  std::ofstream(two.dir / "step-00000900" / kManifestFile) << R"({"model": "of somebody else"})";
  stdfs::create_directory(two.dir / "step-00000800");
  std::ofstream(two.dir / "step-00000700") << "a file";
  stdfs::create_directory(two.dir / "step-00000600");
  stdfs::create_directory(two.dir / "step-00000600" / kManifestFile);
  for (const char* name : {"step-1000", "step-000001000", "step-+0001000", "best", "step-"})
    stdfs::create_directory(two.dir / name);
  const auto loaded = two.reader().load_newest();
  EXPECT_EQ(two.second.difference(*loaded), "");
  EXPECT_EQ(loaded->refused,
            (std::vector<std::string>{"step-00000900: manifest.json: has no checksum of its own where one must be",
                                      "step-00000800: manifest.json: is missing",
                                      "step-00000700: manifest.json: is missing (no folder)",
                                      "step-00000600: manifest.json: is not a regular file, but a folder"}));
}

TEST(Checkpoint, NewerFormatIsAnErrorAndNoReasonToFallBack) {
  TwoGenerations two;
  const auto path = two.dir / "step-00000200" / kManifestFile;
  std::string text(read_whole_file(FileSystem::real(), path).text());
  text.replace(text.find("\"format\": 2"), 11, "\"format\": 7");
  std::ofstream(path, std::ios::trunc) << seal_manifest(text);
  try {
    two.reader().load_newest();
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_STREQ(error.what(), "step-00000200: manifest.json: has format 7, this tandem reads formats up to 2");
    EXPECT_FALSE(error.todo().empty());
  }
}

TEST(Checkpoint, StepsBeyondEightDigitsStillSort) {
  TempDir dir(quick_dir());
  CheckpointStore store(FileSystem::real(), dir.path(), 2);
  store.save(Sample(99'999'999).contents());
  store.save(Sample(100'000'000).contents());
  EXPECT_EQ(store.load_newest()->manifest.step, 100'000'000);
}

TEST(Checkpoint, SpaceIsWarnedOfWhileTwoMoreDoNotFit) {
  struct SmallDisk : FileSystem {
    std::uint64_t free = 0;
    std::uint64_t free_bytes(const stdfs::path&) override { return free; }
  } disk;
  TempDir dir(quick_dir());
  CheckpointStore store(disk, dir.path(), 2);
  const Sample sample(100, "tiny-1", 1000);
  const std::uint64_t bytes = store.bytes_needed(sample.contents());
  disk.free = 2 * bytes;
  EXPECT_FALSE(store.space_warning(bytes));
  disk.free = 2 * bytes - 1;
  EXPECT_NE(store.space_warning(bytes)->find("room for 1 more checkpoint of"), std::string::npos);
  disk.free = bytes - 1;
  EXPECT_NE(store.space_warning(bytes)->find("room for 0 more"), std::string::npos);

  store.save(sample.contents());
  std::uint64_t used = 0;
  for (const auto& entry : stdfs::directory_iterator(dir / "step-00000100")) used += entry.file_size();
  EXPECT_GE(bytes, used);
  EXPECT_LE(bytes, used + 6 * 4096);
  EXPECT_GE(store.last_bytes(), used);
  EXPECT_LE(store.last_bytes(), bytes);
}

// A checkpoint as versions before wrote it: the state is not compressed.
TEST(Checkpoint, OfFormatOneIsReadAndPruned) {
  TwoGenerations two;
  for (const Sample* sample : {&two.first, &two.second}) {
    const auto dir = two.dir / fmt::format("step-{:08}", sample->contents().step);
    Manifest manifest = two.reader().load(dir).manifest;
    stdfs::remove(dir / kStateFile);
    manifest.format = 1;
    manifest.files.erase(kStateFile);
    manifest.files[kPlainStateFile] =
        write_safetensors(FileSystem::real(), dir / kPlainStateFile, sample->contents().state, tie_metadata(manifest));
    std::ofstream(dir / kManifestFile, std::ios::trunc) << manifest.to_text();
  }
  EXPECT_EQ(two.second.difference(*two.reader().load_newest()), "");
  CheckpointStore store(FileSystem::real(), two.dir.path(), 2);
  store.save(Sample(300).contents());
  EXPECT_EQ(store.steps(), (Steps{200, 300}));
  std::ofstream(two.dir / "step-00000300" / kStateFile, std::ios::trunc) << "x";
  const auto before = store.load_newest();
  EXPECT_EQ(two.second.difference(*before), "");
  EXPECT_EQ(before->refused.size(), 1u);
}

TEST(Checkpoint, StateOfOneValueTakesAFractionOnTheDisk) {
  TempDir dir(quick_dir());
  const std::vector<std::byte> zeros(20'000'000);
  Sample sample(100);
  sample.contents().state.push_back({"replay", DType::kU8, {20'000'000}, zeros});
  CheckpointStore store(FileSystem::real(), dir.path(), 2);
  store.save(sample.contents());
  EXPECT_LT(stdfs::file_size(dir / "step-00000100" / kStateFile), 20'000u);
  EXPECT_LT(store.last_bytes(), 60'000u);
  EXPECT_EQ(sample.difference(*store.load_newest()), "");
}

}  // namespace tandem
