// How a run ends: by itself, by a stop, by an error.
#include <fmt/format.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/shell_word.h"
#include "launch/launcher_impl.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

constexpr double kLastWordsSeconds = 0.5;

}  // namespace

// The last whole snapshot is seconds old; the newest checkpoint may be older.
void Launcher::save_what_there_is() {
  record_->report_checkpoints(*pool_);
  const int64_t step = pool_->base_step();
  const bool here = step >= 0 && transport_->gathered(pool_->base()) && !(suspect_ && step > suspect_->equal_at);
  if (!std::exchange(saved_last_, true) && step > record_->writer().last_saved_step() && here) {
    try {
      record_->save_last(*pool_);
      record_->telemetry().say(fmt::format("step {} is saved", step));
    } catch (const Error& error) {
      record_->telemetry().warn(error.what());
    }
  }
  for (const Save& save : std::exchange(saves_, {}))
    if (const int64_t due = pool_->step_of(save.buffer); due > 0 && due != record_->writer().last_saved_step())
      record_->telemetry().warn(fmt::format("checkpoint at step {} was NOT saved: {}", due,
                                            transport_->gathered(save.buffer) ? "the run failed before its turn came"
                                                                              : "parts of it are on other machines"));
}

void Launcher::give_up(const Error& error) {
  given_up_ = true;
  // What ends one worker often ends all of them, and another one may have said more: a moment for their last words.
  const auto still_there = [](const auto& item) { return item.second->running() && !item.second->has_ended(); };
  for (const double end = monotonic_seconds() + kLastWordsSeconds;
       monotonic_seconds() < end && std::any_of(workers_.begin(), workers_.end(), still_there);) {
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
  }
  for (const auto& [rank, worker] : workers_)
    if (worker->running()) read_channel(*worker);
  if (record_ && said_first_lines_) {
    save_what_there_is();
    const std::string go_on = suspect_ ? how_to_go_on() : "";
    end_guard();
    end_speed();
    record_->fail(error, figures());
    if (!go_on.empty()) throw Error(error.code(), error.what(), error.why(), go_on + "; " + error.todo());
  }
  throw error;
}

// Whatever fails here must not take the place of the reason.
std::string Launcher::how_to_go_on() {
  try {
    return set_suspects_aside();
  } catch (const std::exception& error) {
    record_->telemetry().warn(fmt::format("checkpoints could not be set aside: {}", error.what()));
    return fmt::format("remove the checkpoints of steps after {} before you resume", suspect_->equal_at);
  }
}

// So that a plain resume goes on from before. Returns how to.
std::string Launcher::set_suspects_aside() {
  const RunRecord::SetAside aside = record_->set_aside_after(*pool_, suspect_->equal_at);
  std::string id = request_.run_dir.string();
  try {
    id = read_run_json(request_.run_dir).value("id", id);
  } catch (const std::exception&) {  // its folder names it too
  }
  id = shell_word(id);
  const bool variable = suspect_->resume_with.starts_with("TANDEM_");
  const auto command = [&](const std::string& verb) {
    return variable ? fmt::format("`{} {} {}`", suspect_->resume_with, request_.program, verb)
                    : fmt::format("`{} {} {}`", request_.program, verb, suspect_->resume_with);
  };
  const std::string first =
      aside.failed ? fmt::format("remove the checkpoints of steps after {} first; then ", suspect_->equal_at) : "";
  const std::string resume = first + command("resume " + id);
  if (aside.sure)
    return fmt::format("{} goes on from checkpoints/step-{:08}, the newest from before step {}", resume, *aside.sure,
                       suspect_->equal_at + 1);
  std::string words =
      fmt::format("{} begins anew: there is no checkpoint from before step {}", resume, suspect_->equal_at + 1);
  if (!aside.suspect.empty())
    words += fmt::format("; {} goes on from the newest that was set aside, with weights that may be wrong",
                         command("train --resume " + shell_word(aside.suspect.string())));
  return words;
}

int Launcher::end() {
  drain_rings();
  end_speed();
  for (const auto& [rank, worker] : workers_)
    if (worker->running()) worker->send({{"end", true}});
  requests_.reset();
  try {
    if (!saves_.empty() && saves_.back().buffer == pool_->base()) saves_.pop_back();  // the last one is saved below
    while (!saves_.empty()) {                                                         // in their order
      gather(saves_.front().buffer);
      pollfd wait{record_->writer().event_fd(), POLLIN, 0};
      if (record_->writer().busy()) poll(&wait, 1, kLauncherTickMs);
      record_->report_checkpoints(*pool_);
      save_when_gathered();
    }
    gather(pool_->base());
    saved_last_ = true;
    record_->save_last(*pool_);
  } catch (const Error& error) {
    give_up(error);
  }
  end_guard();
  const nlohmann::json extra = figures();
  workers_.clear();  // they end by themselves; whoever does not is killed
  const bool done = record_->reached_its_end(*pool_);
  const int code = done ? 0 : stop_code_;
  return record_->finish(code, done ? "done" : "stopped", pool_.get(), extra);
}

// Is there anything that a stop would have to save first?
bool Launcher::begun() const {
  return coordinator_ && coordinator_->started() &&
         (!coordinator_->members().empty() || coordinator_->snapshot_step() >= 0);
}

std::string Launcher::stop_words() const {
  if (!coordinator_ || !coordinator_->started()) return "stopping: training has not begun";
  if (!coordinator_->members().empty()) return "stopping: the step is finished and saved first";
  const int64_t step = coordinator_->snapshot_step();
  return step >= 0 ? fmt::format("stopping: no worker is up; step {}, the last snapshot, is saved", step)
                   : "stopping: no worker is up, and there is no snapshot yet: nothing can be saved";
}

// A stop while workers are still in their start, where they may hang: there is nothing to finish and nothing to save.
int Launcher::end_unbegun() {
  workers_.clear();
  end_guard();
  if (record_) return record_->finish(stop_code_, "stopped", pool_.get(), figures());
  nlohmann::json run = read_run_json(request_.run_dir);
  try {
    if (!request_.resume) write_run_status(request_.run_dir, {.status = "stopped", .exit_code = stop_code_});
  } catch (const IoError&) {  // a full disk, or a folder that is gone: the exit code says it too
  }
  if (!request_.quiet)
    fmt::print(stderr, "go on with `{} resume {}`\n", request_.program, shell_word(request_.run_dir.string()));
  if (!request_.json) return stop_code_;
  if (!run.contains("step")) run["step"] = 0;
  const nlohmann::json out{{"schema", 1},
                           {"run", run["id"]},
                           {"dir", std::filesystem::absolute(request_.run_dir).string()},
                           {"recipe", run["recipe"]},
                           {"status", "stopped"},
                           {"step", run["step"]},
                           {"exit_code", stop_code_}};
  fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
  return stop_code_;
}

}  // namespace tandem
