// video/video_process.h -- one running tandem-video: what it says, what it is sent, and how it ended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// Killed by the destructor where nobody waited for its end. One that says nothing for two minutes counts as ended.
class VideoProcess {
 public:
  enum class Talk { kListen, kSend };  // its stdout comes to us, or we send to its stdin

  VideoProcess(const std::filesystem::path& program, std::vector<std::string> words, Talk talk);  // throws IoError
  ~VideoProcess();
  VideoProcess(const VideoProcess&) = delete;
  VideoProcess& operator=(const VideoProcess&) = delete;

  bool read_exactly(uint8_t* to, size_t size);   // false: it ended before
  nlohmann::json read_line();                    // a JSON object; null: it ended before, or said something else
  bool send_all(const void* from, size_t size);  // false: it is gone

  int wait_for_end();         // exit code; -1: a signal ended it
  std::string ending();       // why it ended before its time
  std::string words() const;  // what it said to people, in one line

 private:
  struct Descriptor {
    int fd = -1;
    Descriptor() = default;
    explicit Descriptor(int open_fd) : fd(open_fd) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(Descriptor&& other) noexcept {
      std::swap(fd, other.fd);
      return *this;
    }
    ~Descriptor() { shut(); }
    void shut();
  };
  [[noreturn]] void fail_to_start(int why) const;

  std::filesystem::path program_;
  Descriptor ours_, words_said_;
  pid_t pid_ = -1;
  int signal_ = 0;
  bool stalled_ = false;
};

}  // namespace tandem
