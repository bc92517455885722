// tests/fake_script.h -- a script for the fake machine in a folder of its own, shown to this process while it lives.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/temp_dir.h"

namespace tandem {

// FAKE_NVML, FAKE_CUDA: paths of the libraries, by compile definition.
class FakeScript {
 public:
  explicit FakeScript(const std::string& json, const char* library = FAKE_NVML) {
    std::ofstream(path()) << json;
    setenv("FAKE_NVML_SCRIPT", path().c_str(), 1);
    setenv("TANDEM_NVML", library, 1);
    setenv("TANDEM_LIBCUDA", FAKE_CUDA, 1);
  }
  ~FakeScript() {
    for (const char* name : {"FAKE_NVML_SCRIPT", "TANDEM_NVML", "TANDEM_LIBCUDA"}) unsetenv(name);
  }
  std::string path() const { return (dir_.path() / "machine.json").string(); }
  void set_clock(double t) const { put(".clock", std::to_string(t)); }  // of a stepped machine
  void set_load(int gpu, double load) const { put(".load", std::to_string(gpu) + " " + std::to_string(load)); }
  std::string log() const {
    std::ifstream file(path() + ".log");
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  void put(const std::string& suffix, const std::string& text) const {
    std::ofstream(path() + suffix + ".new") << text << "\n";
    std::filesystem::rename(path() + suffix + ".new", path() + suffix);
  }
  TempDir dir_;
};

}  // namespace tandem
