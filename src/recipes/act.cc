// recipes/act.cc -- `tandem act`: states in, actions out, one JSON line for each.
//
// What has arrived is answered before more is waited for: a program that asks line by line gets its answer at once, a
// file goes through in large pieces. A state's answer is the same either way (rl/dqn/q_net.h).
#include "recipes/act.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/errors.h"
#include "command/command.h"
#include "command/sources.h"
#include "command/start.h"
#include "config/devices.h"
#include "config/spelling.h"
#include "rl/dqn/state_line.h"
#include "rl/dqn/trained_agent.h"
#include "runs/agent_runs.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

constexpr size_t kNamed = 5;
constexpr int64_t kAtOnce = 256;

class Answerer {
 public:
  Answerer(const QFunction& q, const std::string& agent, const ActionName& name, bool strict) : q_(q), strict_(strict) {
    for (int64_t a = 0; a < q.actions(); ++a) names_.push_back(name ? name(agent, a) : "");
  }

  // Lines, the last one without its newline only at the end of all input.
  void take(std::string_view line) {
    ++number_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    ++lines_;
    std::string reason = read_state_line(line, q_.observation_size(), states_);
    if (!reason.empty()) {
      ++bad_;
      if (first_bad_.size() < kNamed) first_bad_.push_back(fmt::format("line {} {}", number_, reason));
      if (strict_) {
        answer();
        finish();
      }
    }
    asked_.push_back({number_, std::move(reason)});
    if (static_cast<int64_t>(asked_.size()) >= kAtOnce) answer();
  }

  void answer() {
    const int64_t n = static_cast<int64_t>(states_.size()) / q_.observation_size(), count = q_.actions();
    values_.resize(static_cast<size_t>(n * count));
    if (n > 0) q_.q_values(states_.data(), n, values_.data());
    const float* q = values_.data();
    for (const Asked& asked : asked_) {
      if (!asked.reason.empty()) {
        out_ += fmt::format("{{\"line\":{},\"error\":\"", asked.number);
        for (const char c : printable(asked.reason)) {
          if (c == '"' || c == '\\') out_ += '\\';
          out_ += c;
        }
        out_ += "\"}\n";
        continue;
      }
      write_answer(q);
      q += count;
    }
    asked_.clear();
    states_.clear();
    flush();
  }

  // Throws ConfigError if lines were bad.
  void finish() const {
    if (bad_ == 0) return;
    std::string why = fmt::format("{} of {} lines are bad: {}", bad_, lines_, fmt::join(first_bad_, "; "));
    if (bad_ > static_cast<int64_t>(first_bad_.size())) why += "; ...";
    throw ConfigError(
        strict_ ? "a line is no state" : "some lines are no states", why,
        fmt::format("write each line as {{\"state\": [{} numbers]}} or as the bare array", q_.observation_size()));
  }
  int64_t lines() const { return lines_; }

 private:
  struct Asked {
    int64_t number;
    std::string reason;
  };

  void write_answer(const float* q) {
    const int64_t count = q_.actions();
    const int32_t action = best_action(q, count);
    out_ += fmt::format("{{\"action\":{},", action);
    if (!names_[static_cast<size_t>(action)].empty())
      out_ += fmt::format("\"name\":\"{}\",", names_[static_cast<size_t>(action)]);
    out_ += "\"q\":[";
    char digits[32];
    for (int64_t a = 0; a < count; ++a) {
      if (a > 0) out_ += ',';
      out_.append(digits, std::to_chars(digits, digits + sizeof digits, q[a]).ptr);
    }
    out_ += "]}\n";
  }

  void flush() {
    const char* at = out_.data();
    for (size_t left = out_.size(); left > 0;) {
      const ssize_t done = write(STDOUT_FILENO, at, left);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) throw IoError("cannot write to stdout", errno, "check the disk or the program that reads it");
      at += done;
      left -= static_cast<size_t>(done);
    }
    out_.clear();
  }

  const QFunction& q_;
  bool strict_;
  std::vector<std::string> names_, first_bad_;
  int64_t number_ = 0, lines_ = 0, bad_ = 0;
  std::vector<Asked> asked_;
  std::vector<float> states_, values_;
  std::string out_;
};

void answer_all(int fd, Answerer& answerer) {
  std::string rest;
  std::vector<char> buffer(size_t{1} << 18);
  bool skipping = false;  // the rest of a line that is too long
  for (;;) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("cannot read the states", errno, "give a file or a pipe of JSON lines");
    if (got == 0) break;
    std::string_view bytes(buffer.data(), static_cast<size_t>(got));
    for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
      if (!skipping) {
        rest += bytes.substr(0, end);
        answerer.take(rest);
      }
      skipping = false;
      rest.clear();
    }
    if (!skipping) rest += bytes;
    if (rest.size() > kLongestStateLine) {
      answerer.take(rest);  // says that it is too long
      rest.clear();
      skipping = true;
    }
    answerer.answer();
  }
  if (!rest.empty()) answerer.take(rest);
  answerer.answer();
}

// Where libtorch and a GPU are needed, the worker is the same program with both.
[[noreturn]] void become_worker(const Command& command, const DeviceSpec& device) {
  check_worker_program(command.context);
  if (!device.gpu.uuid.empty()) setenv("CUDA_VISIBLE_DEVICES", device.gpu.uuid.c_str(), 1);
  setenv("TANDEM_ACT_DEVICE", device.name().c_str(), 1);
  const Arguments& arguments = command.arguments;
  std::vector<std::string> words = {command.context.worker.string(), "act", command.subject("last")};
  if (const std::string agent = arguments.text("agent"); !agent.empty()) words.push_back("--agent=" + agent);
  if (arguments.has("ensemble")) words.emplace_back("--ensemble");
  if (arguments.has("strict")) words.emplace_back("--strict");
  if (command.output.quiet()) words.emplace_back("--quiet");
  words.push_back("--runs-root=" + runs_root(command.arguments).string());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(command.context.worker.c_str(), pointers.data());
  throw IoError(fmt::format("the worker {} cannot be started", command.context.worker.string()), errno,
                "build it with `make build`; it stands beside the `tandem` program");
}

int run_act(const Command& command, const AgentOnGpu& agent_on_gpu, const ActionName& name) {
  const Arguments& arguments = command.arguments;
  const std::string asked = arguments.text("devices");
  const auto devices = parse_devices(asked.empty() ? "cpu:1" : asked, command.context.machine, 1);
  if (devices.size() != 1)
    throw ConfigError(fmt::format("--devices {} names {} devices", asked, devices.size()), "one device answers",
                      "name one: --devices cpu, or --devices cuda:0");
  if (devices.front().kind == DeviceSpec::Kind::kCuda && !std::getenv("TANDEM_ACT_DEVICE"))
    become_worker(command, devices.front());
  const bool on_gpu = std::getenv("TANDEM_ACT_DEVICE") && agent_on_gpu;

  const RunFolder run = RunFolder::find(runs_root(arguments), command.subject("last"));
  const AgentRuns runs = agent_runs_of(run.dir());
  const AgentRun& agent = find_agent(runs, arguments.text("agent"));
  const bool ensemble = arguments.has("ensemble");
  std::vector<std::shared_ptr<const QFunction>> members;
  for (const auto& folder : ensemble ? agent.runs : std::vector{agent.best}) {
    const TrainedAgent trained = load_agent(folder, agent.agent);
    for (const std::string& reason : trained.refused)
      command.output.warn(fmt::format("{}: passed over {}", folder.string(), reason));
    command.output.say(fmt::format("{} of {}, step {}", agent.agent.empty() ? "the agent" : agent.agent,
                                   folder.string(), trained.step));
    members.push_back(on_gpu ? agent_on_gpu(trained) : trained.net);
    if (members.back()->actions() != members.front()->actions() ||
        members.back()->observation_size() != members.front()->observation_size())
      throw ConfigError(fmt::format("{} does not fit the other members", folder.string()),
                        "they see other states or know other actions", "leave --ensemble out");
  }
  if (ensemble && members.size() == 1)
    command.output.say("one member only: --ensemble changes its values to mean 0 and deviation 1, not its choice");
  std::shared_ptr<const QFunction> q = members.front();
  if (ensemble) q = std::make_shared<QEnsemble>(members);

  Answerer answerer(*q, agent.agent, name, arguments.has("strict"));
  answer_all(STDIN_FILENO, answerer);
  answerer.finish();
  command.output.detail(fmt::format("{} states answered", answerer.lines()));
  return 0;
}

}  // namespace

RecipeVerb act_verb(AgentOnGpu on_gpu, ActionName name) {
  using Kind = VerbFlag::Kind;
  return {"act",
          "answers states with actions, a JSON line for each",
          [on_gpu = std::move(on_gpu), name = std::move(name)](const Command& command) {
            return run_act(command, on_gpu, name);
          },
          {{"--agent", "name", "which agent answers"},
           {"--ensemble", "", "the mean of all members, each brought to one scale", Kind::kSwitch},
           {"--strict", "", "stop at the first line that is no state", Kind::kSwitch},
           {"--devices,--device", "device", "cpu or one GPU [cpu]"}},
          {{"act last --agent analysis < states.jsonl", "a file; --agent where the run has several"},
           {"act last --agent analysis --ensemble", "all members of an ensemble together"},
           {"act last --devices cuda:0", "from a GPU, while others train"}}};
}

}  // namespace tandem
