// tests/python/safetensors_tool.cc -- our side of safetensors_test.py.
//
//   safetensors_tool save <folder>     saves a checkpoint there and prints the path of its folder
//   safetensors_tool rewrite <a> <b>   reads file a with our reader, writes it with our writer
#include <cstdio>
#include <string>

#include "checkpoint/sample.h"

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
    } else {
      return 2;
    }
  } catch (const Error& error) {
    std::fputs(error.render().c_str(), stderr);
    return static_cast<int>(error.code());
  }
}
