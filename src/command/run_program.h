// command/run_program.h -- for tests: runs the real `tandem` in a folder of its own and returns what it printed.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tandem {

struct ProgramResult {
  int code = -1;  // exit code; minus the signal if it died of one
  std::string out, err;
  double cpu_seconds = 0;
};

// A temporary folder with bin/tandem (the real one) and bin/tandem-worker (the stand-in of launch/), which is also the
// working directory and the user's home. Removed at the end.
class Sandbox {
 public:
  Sandbox();
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  const std::filesystem::path& dir() const { return dir_; }
  void write(const std::string& name, const std::string& text) const;  // below dir()
  std::string read(const std::string& name) const;
  std::map<std::string, std::string> env;  // for the program, beside PATH, HOME and the like

  ProgramResult run(const std::vector<std::string>& arguments) const;
  // Starts it with stdout on a pipe whose reading end is `out`.
  pid_t start(const std::vector<std::string>& arguments, int& out) const;
  static ProgramResult wait(pid_t pid);

 private:
  pid_t spawn(const std::vector<std::string>& arguments, int out, int err) const;
  std::filesystem::path dir_;
};

}  // namespace tandem
