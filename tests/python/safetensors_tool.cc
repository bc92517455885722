// tests/python/safetensors_tool.cc -- our side of safetensors_test.py.
//
//   safetensors_tool save <folder>     saves a checkpoint there and prints the path of its folder
//   safetensors_tool rewrite <a> <b>   reads file a with our reader, writes it with our writer
//   safetensors_tool format1 <folder>  makes every checkpoint there one as versions before wrote it
#include <cstdio>
#include <string>

#include "checkpoint/sample.h"

namespace {

void make_format1(tandem::FileSystem& fs, const std::filesystem::path& folder) {
  using namespace tandem;
  auto store = CheckpointStore::reader(fs, folder);
  for (const std::filesystem::path& dir : std::filesystem::directory_iterator(folder)) {
    if (!dir.filename().string().starts_with("step-")) continue;
    LoadedCheckpoint loaded = store.load(dir);
    Manifest& manifest = loaded.manifest;
    manifest.format = 1;
    manifest.files.erase(kStateFile);
    std::filesystem::remove(dir / kStateFile);
    manifest.files[kPlainStateFile] =
        write_safetensors(fs, dir / kPlainStateFile, loaded.state.tensors(), loaded.state.metadata());
    std::filesystem::remove(dir / kManifestFile);
    OpenFile file(fs, fs.open_new(dir / kManifestFile));
    const std::string text = manifest.to_text();
    file.write_all(std::as_bytes(std::span(text)));
    file.close();
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tandem;
  const std::string command = argc > 1 ? argv[1] : "";
  FileSystem& fs = FileSystem::real();
  try {
    if (command == "save" && argc == 3) {
      std::printf("%s\n", CheckpointStore(fs, argv[2], 2).save(Sample(200).contents()).c_str());
    } else if (command == "rewrite" && argc == 4) {
      const SafetensorsFile file = SafetensorsFile::read(fs, argv[2]);
      write_safetensors(fs, argv[3], file.tensors(), file.metadata());
    } else if (command == "format1" && argc == 3) {
      make_format1(fs, argv[2]);
    } else {
      return 2;
    }
  } catch (const Error& error) {
    std::fputs(error.render().c_str(), stderr);
    return static_cast<int>(error.code());
  }
}
