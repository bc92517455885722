#include "command/run_program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tandem {

namespace fs = std::filesystem;

Sandbox::Sandbox() {
  std::string name = (fs::temp_directory_path() / "tandem-cli-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
  dir_ = name;
  fs::create_directories(dir_ / "bin");
  std::error_code error;
  // A hard link, not a symbolic one: the program finds its worker beside its own real path.
  fs::create_hard_link(TANDEM_PROGRAM, dir_ / "bin" / "tandem", error);
  if (error) fs::copy_file(TANDEM_PROGRAM, dir_ / "bin" / "tandem");
  fs::create_symlink(STAND_IN_WORKER, dir_ / "bin" / "tandem-worker");
}

Sandbox::~Sandbox() {
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

void Sandbox::write(const std::string& name, const std::string& text) const {
  fs::create_directories((dir_ / name).parent_path());
  std::ofstream(dir_ / name) << text;
}

std::string Sandbox::read(const std::string& name) const {
  std::ifstream file(dir_ / name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

pid_t Sandbox::spawn(const std::vector<std::string>& arguments, int out, int err) const {
  const std::string program = (dir_ / "bin" / "tandem").string();
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::map<std::string, std::string> all = {
      {"PATH", "/usr/bin:/bin"}, {"HOME", dir_.string()}, {"LC_ALL", "C.UTF-8"}, {"TERM", "xterm"}};
  for (const auto& [name, value] : env) all[name] = value;
  std::vector<std::string> variables;
  for (const auto& [name, value] : all) variables.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (chdir(dir_.c_str()) != 0) _exit(126);
    execve(program.c_str(), argv.data(), envp.data());
    _exit(127);
  }
  return pid;
}

ProgramResult Sandbox::run(const std::vector<std::string>& arguments) const {
  const int out = open((dir_ / ".out").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  const int err = open((dir_ / ".err").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  ProgramResult result = wait(spawn(arguments, out, err));
  close(out);
  close(err);
  result.out = read(".out");
  result.err = read(".err");
  return result;
}

pid_t Sandbox::start(const std::vector<std::string>& arguments, int& out) const {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const int err = open((dir_ / ".err").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  const pid_t pid = spawn(arguments, ends[1], err);
  close(ends[1]);
  close(err);
  out = ends[0];
  return pid;
}

ProgramResult Sandbox::wait(pid_t pid) {
  ProgramResult result;
  int status = 0;
  rusage usage{};
  wait4(pid, &status, 0, &usage);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  result.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  return result;
}

}  // namespace tandem
