#include "launch/local_worker_handle.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <new>

#include "base/clock.h"
#include "base/plain_file.h"
#include "base/printable.h"

namespace tandem {
namespace {

constexpr char kLargePages[] = "THP_MEM_ALLOC_ENABLE";

// State letter of /proc/<pid>/stat; the name before it may hold anything, so it is looked for from the end.
char process_state(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t at = text.rfind(')');
  return at != std::string::npos && at + 2 < text.size() ? text[at + 2] : '?';
}

}  // namespace

void LocalWorkerHandle::start(bool replacement) {
  WorkerCommand command = command_;
  Channel::Pair pair = Channel::pair();
  page_memory_ = SharedMemory::create("tandem-page", sizeof(WorkerPage));
  new (page_memory_.bytes().data()) WorkerPage;
  command.environment.emplace_back("TANDEM_RANK", std::to_string(rank()));
  if (device().kind == DeviceSpec::Kind::kCuda) {  // it sees its own GPU alone, as GPU 0
    command.environment.emplace_back("TANDEM_DEVICE", "cuda");
    command.environment.emplace_back("CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // nvidia-smi's order
    command.environment.emplace_back("CUDA_VISIBLE_DEVICES", device().gpu.uuid);
  } else {
    command.environment.emplace_back("TANDEM_DEVICE", "cpu");
  }
  // Large pages for its large tensors (libtorch reads this): a replay of half a gigabyte is read all over, and misses
  // the TLB less; what the user says of it goes before.
  if (!std::getenv(kLargePages)) command.environment.emplace_back(kLargePages, "1");
  if (replacement) command.environment.emplace_back("TANDEM_FAULT", "");  // a planted fault strikes once
  command.inherit.emplace_back("TANDEM_WORKER_FD", pair.theirs.fd());
  command.inherit.emplace_back("TANDEM_PAGE_FD", page_memory_.fd());
  command.log = log_;
  std::error_code none;
  log_begin_ = std::filesystem::exists(log_, none) ? std::filesystem::file_size(log_, none) : 0;
  process_ = std::make_unique<WorkerProcess>(WorkerProcess::start(command));
  if (device().core >= 0) {  // its threads will inherit it; where that is not allowed, it runs all the same
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(device().core, &set);
    sched_setaffinity(process_->pid(), sizeof set, &set);
  }
  channel_ = std::move(pair.ours);
  const int log_error = process_->log_error();
  log_trouble = log_error ? fmt::format("{}: {}", log_.string(), strerror(log_error)) : "";
  arrived = false;
  failed_kind.clear();
  failed_why.clear();
  started_at = monotonic_seconds();
}

Death LocalWorkerHandle::reap(bool fenced, bool oom_counted) {
  arrived = false;
  if (!process_->ended()) {  // it was killed and can't die: it waits in the kernel, for a disk or a driver
    process_->abandon();
    process_.reset();
    return {.cause = "can't be killed: it hangs in the kernel", .signal = SIGKILL};
  }
  const int status = process_->reap();
  process_.reset();
  Death death;
  if (WIFEXITED(status)) {
    death.exit_code = WEXITSTATUS(status);
    death.cause = fmt::format("exited with code {}", death.exit_code);
  } else {
    death.signal = WTERMSIG(status);
    const char* words = death.signal == SIGKILL   ? "was killed (SIGKILL)"
                        : death.signal == SIGSEGV ? "crashed (SIGSEGV: it touched memory that is not its own)"
                        : death.signal == SIGABRT ? "aborted (SIGABRT: a check inside the program or a library failed)"
                        : death.signal == SIGBUS  ? "crashed (SIGBUS: memory or a file under it went away)"
                        : death.signal == SIGILL  ? "crashed (SIGILL: an instruction that this CPU does not have)"
                                                  : "";
    death.cause = *words ? words : fmt::format("died of signal {} ({})", death.signal, strsignal(death.signal));
    if (death.signal == SIGKILL && !fenced) {
      death.out_of_memory = oom_counted;
      death.cause += oom_counted ? " by the kernel, which had run out of memory"
                                 : " by somebody, or by the kernel for lack of memory (see `dmesg`)";
    }
  }
  use_own_words(death);
  return death;
}

void LocalWorkerHandle::release() {
  channel_ = Channel();
  page_memory_ = SharedMemory();
}

void LocalWorkerHandle::pause(bool stop) {
  if (stop)
    process_->stop();
  else
    process_->send(SIGCONT);
}

std::vector<int> LocalWorkerHandle::poll_fds() const {
  std::vector<int> fds{process_->pidfd()};
  if (!channel_.ended()) fds.push_back(channel_.fd());
  return fds;
}

std::optional<Message> LocalWorkerHandle::receive() { return channel_.open() ? channel_.receive(0) : std::nullopt; }

Progress LocalWorkerHandle::progress() const {
  const WorkerPage& p = page();
  constexpr auto relaxed = std::memory_order_relaxed;
  return {p.generation.load(relaxed), p.shards_run.load(relaxed), p.compute_ns.load(relaxed), p.step.load(relaxed),
          p.phase.load(relaxed)};
}

WorkerFacts LocalWorkerHandle::facts(uint64_t newest_generation) const {
  const WorkerPage& p = page();
  return {.rank = rank(),
          .beats = p.beats.load(std::memory_order_relaxed),
          .stage = p.where(),
          .phase = p.phase.load(std::memory_order_relaxed),
          .stopped = process_ && process_state(process_->pid()) == 'T',
          .in_newest_generation = p.generation.load(std::memory_order_relaxed) == newest_generation};
}

WorkerState LocalWorkerHandle::state() const {
  const WorkerPage& p = page();
  constexpr auto relaxed = std::memory_order_relaxed;
  return {.generation = p.generation.load(relaxed),
          .shards_run = p.shards_run.load(relaxed),
          .compute_ns = p.compute_ns.load(relaxed),
          .beats = p.beats.load(relaxed),
          .step = p.step.load(relaxed),
          .stage = p.where(),
          .phase = p.phase.load(relaxed),
          .shard = p.shard.load(relaxed),
          .stopped = process_ && process_state(process_->pid()) == 'T',
          .times = times_in(p)};
}

std::string LocalWorkerHandle::position(const std::vector<std::string>& phases) const {
  return position_text(state(), phases);
}

std::string LocalWorkerHandle::last_words() const {
  std::ifstream file = read_plain_file(log_, std::ios::ate);
  const auto begin = static_cast<std::streamoff>(log_begin_);
  file.seekg(std::max<std::streamoff>(begin, file.tellg() - std::streamoff{kLastWordsBytes}));
  std::string line, last;
  while (std::getline(file, line)) {
    // Ours begin with a time stamp; what remains was written by a library or by the system.
    if (line.empty() || (line.size() > 20 && line[4] == '-' && line[10] == 'T')) continue;
    last = line;
  }
  if (last.size() > 300) last = last.substr(0, 300) + "...";
  return printable(last);
}

}  // namespace tandem
