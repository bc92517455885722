#include "worker.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::simulation {

bool Worker::act() {
  switch (stage) {
    case Stage::kBooting:
      to_launcher.push_back({.what = WorkerReport::What::kArrived});
      stage = Stage::kIdle;
      return true;
    case Stage::kIdle:
    case Stage::kHolding:
    case Stage::kAbandoned:
      return wait_for_generation();
    case Stage::kRestoring:
      return restore(), true;
    case Stage::kAdopting:
      return adopt(), true;
    case Stage::kComputing:
      return compute(), true;
    case Stage::kPublishing:
      return publish(), true;
    case Stage::kWaitingForParts:
      return wait_for(combine().published, Stage::kReducing);
    case Stage::kReducing:
      return reduce(), true;
    case Stage::kMarking:
      return mark_done(), true;
    case Stage::kWaitingForMarks:
      return wait_for(combine().done, Stage::kApplying);
    case Stage::kApplying:
      return apply(), true;
    case Stage::kWritingPart:
      return write_part();
    case Stage::kReportingPart:
      return report_part(), true;
    case Stage::kLaunchingAgain:
      return launch_again(), true;
    case Stage::kMarkingApplied:
      segment().done[index_] = sequence_ - 1;
      return go_on_after(sequence_ - 1), true;
  }
  return false;
}

bool Worker::act_dead() {
  if (gpu_goes_on <= 0 || !world_.segments.contains(generation) || !world_.job.on_gpus(sequence_)) return false;
  bool undecided = false;
  switch (stage) {
    case Stage::kWaitingForParts:
      if (combine().published != segment().members.size()) return false;
      --gpu_goes_on;
      return stage = Stage::kReducing, true;
    case Stage::kWaitingForMarks:
      if (combine().done != segment().members.size() || !may_end(&undecided)) return false;
      --gpu_goes_on;
      return stage = Stage::kApplying, true;
    case Stage::kComputing:
      if (world_.job.begins_launch(sequence_)) return false;
      break;
    case Stage::kPublishing:
      if (!world_.job.fused_steps) return false;
      break;
    case Stage::kApplying:
      if (world_.job.ends_step(sequence_) || !world_.job.fused_steps) return false;  // nobody reads its weights
      break;
    case Stage::kReducing:
    case Stage::kMarking:
      break;
    default:
      return false;
  }
  --gpu_goes_on;
  return act();
}

bool Worker::receive() {
  if (from_launcher.empty()) return false;
  if (const GenerationStart* start = std::get_if<GenerationStart>(&from_launcher.front()))
    newest_ = *start;
  else
    leaving_ = true;
  from_launcher.pop_front();
  return true;
}

bool Worker::wait_for_generation() {
  if (newest_ && newest_->generation > generation) {
    current_ = *newest_;
    stage = current_.from == GenerationStart::From::kSamePhase ? Stage::kAdopting : Stage::kRestoring;
    return true;
  }
  if (!leaving_) return false;
  alive = false;
  world_.tell("left in peace", rank);
  return true;
}

// No member is closed to this sum; `undecided`: it is not known yet.
bool Worker::may_end(bool* undecided) {
  if (!world_.job.on_gpus(sequence_) || world_.mutant == Mutant::kOpenMarks) return true;
  for (const int64_t closed : segment().closed) {
    if (closed == Segment::kUndecided) return *undecided = true, false;
    if (sequence_ > closed) return false;
  }
  return true;
}

// A combine may be complete and abandoned at the same moment; a real worker may see either first.
bool Worker::wait_for(size_t arrived, Stage then) {
  bool undecided = false;
  const bool over = abandoned();
  const bool complete = arrived == segment().members.size() && (then != Stage::kApplying || may_end(&undecided));
  if (undecided && !over) return false;
  if (!complete && world_.job.on_gpus(sequence_) && launches_ < 3 && world_.dice.chance(20)) {  // the kernel leaves
    ++launches_;
    stage = world_.mutant == Mutant::kNotHeld && then == Stage::kApplying ? then : Stage::kLaunchingAgain;
    if (world_.mutant == Mutant::kHeldGoesOn && world_.job.end_of_launch(sequence_) > sequence_)
      ++sequence_, stage = Stage::kComputing;
    return true;
  }
  if (!complete && !over) return false;
  stage = complete && !(over && world_.dice.chance(50)) ? then : Stage::kAbandoned;
  if (stage == Stage::kAbandoned)
    world_.tell("abandons sequence number", rank, sequence_, static_cast<int64_t>(generation));
  return true;
}

// Goes on where its flags say that it stood.
void Worker::launch_again() {
  if (abandoned()) {
    stage = Stage::kAbandoned;
    world_.tell("abandons sequence number on its GPU", rank, sequence_, static_cast<int64_t>(generation));
    return;
  }
  stage = segment().flags[index_] == sequence_ ? Stage::kWaitingForMarks : Stage::kWaitingForParts;
}

void Worker::restore() {
  const Job& job = world_.job;
  weights_ = job.first_weights();
  shard_states_ = world_.reference.shards[0];
  sequence_ = 0;
  handled_ = 0;
  if (current_.from == GenerationStart::From::kSnapshot) {
    if (!world_.whole || world_.whole->step != current_.snapshot_step)
      throw Violation(fmt::format("rank {} is to restore step {}, which is not kept", rank, current_.snapshot_step));
    weights_ = world_.whole->weights;
    shard_states_ = world_.whole->shards;
    sequence_ = current_.snapshot_step * job.phases;
    handled_ = world_.whole->handled;
  }
  taint_ = 0;
  flipped = false;
  has_state_ = true;
  stage = Stage::kAdopting;
  world_.tell("restored to sequence number", rank, sequence_, static_cast<int64_t>(current_.generation));
}

void Worker::adopt() {
  if (current_.members != world_.segments.at(current_.generation).members)
    throw Violation(fmt::format("generation {} has two member lists", current_.generation));
  if (current_.from == GenerationStart::From::kSamePhase) go_on();
  generation = current_.generation;
  entered_at_ = sequence_;
  snapshots_ = 0;
  index_ = segment().index_of(rank);
  if (index_ < 0) throw Violation(fmt::format("rank {} adopts generation {} without being in it", rank, generation));
  range_ = segment().members[index_].range;
  to_launcher.push_back({.what = WorkerReport::What::kAdopted, .generation = generation});
  world_.tell("adopted", rank, static_cast<int64_t>(generation), sequence_);
  held_ = at_end();
  stage = at_end() ? Stage::kWritingPart : Stage::kComputing;
}

void Worker::go_on() {
  if (!has_state_) throw Violation(fmt::format("rank {} is told to go on, but has no state", rank));
  // (In a generation that is superseded already it may: everything it does then is put back.)
  if ((taint_ & kFenced) != 0 && current_.generation == world_.newest_generation)
    throw Violation(fmt::format("rank {} goes on with what a fenced worker wrote", rank));
  if (sequence_ > std::max(current_.cut + 1, entered_at_))
    throw Violation(
        fmt::format("rank {} applied sequence number {}, past the cut {}", rank, sequence_ - 1, current_.cut));
}

void Worker::compute() {
  const bool host_looks = world_.job.begins_launch(sequence_);
  if (host_looks && abandoned() && world_.dice.chance(70)) {
    stage = Stage::kAbandoned;
    return;
  }
  contributions_.clear();
  if (host_looks) launches_ = 1;
  for (int shard = range_.first; shard < range_.last; ++shard) {
    contributions_.push_back(world_.job.contribution(weights_, shard_states_[shard], sequence_, shard));
    shard_states_[shard] = world_.job.next_shard_state(shard_states_[shard], weights_, sequence_);
  }
  stage = Stage::kPublishing;
}

void Worker::publish() {
  Segment::Combine& now = combine();
  now.contributions.resize(world_.job.shards);
  now.times.resize(world_.job.shards);
  for (int shard = range_.first; shard < range_.last; ++shard) {
    now.contributions[shard] = contributions_[shard - range_.first] ^ (fenced ? 0xdead : 0);
    ++now.times[shard];
  }
  if (world_.job.ends_step(sequence_)) now.request = std::max(now.request, request);
  now.taint |= own_taint();
  ++now.published;
  stage = Stage::kWaitingForParts;
}

void Worker::reduce() {
  Segment::Combine& now = combine();
  for (int shard = 0; shard < world_.job.shards; ++shard)
    if (now.times[shard] != 1)
      throw Violation(fmt::format("shard {} is {} times in sequence number {}", shard, now.times[shard], sequence_));
  now.total = world_.job.total(now.contributions);
  stage = Stage::kMarking;
}

void Worker::mark_done() {
  const bool on_gpu = world_.job.on_gpus(sequence_);
  (on_gpu ? segment().flags : segment().done)[index_] = sequence_;
  ++combine().done;
  if (fenced) combine().taint |= kFenced;
  world_.tell("done", rank, sequence_, static_cast<int64_t>(generation));
  stage = on_gpu && world_.mutant == Mutant::kOneWait ? Stage::kApplying : Stage::kWaitingForMarks;
}

void Worker::apply() {
  taint_ |= combine().taint;
  weights_ = world_.job.apply(weights_, combine().total, sequence_);
  world_.tell("applied", rank, sequence_, static_cast<int64_t>(generation));
  ++sequence_;
  if (taint_ == 0 && !fenced && weights_ != world_.reference.weights.at(sequence_))
    throw Violation(
        fmt::format("rank {} has other weights than the reference after sequence number {}", rank, sequence_ - 1));
  if (!world_.job.on_gpus(sequence_ - 1))
    go_on_after(sequence_ - 1);
  else
    stage = sequence_ > world_.job.end_of_launch(sequence_ - 1) ? Stage::kMarkingApplied : Stage::kComputing;
}

void Worker::go_on_after(int64_t sequence) {
  if (world_.job.ends_step(sequence))
    boundary();
  else
    stage = Stage::kComputing;
}

void Worker::boundary() {
  const uint64_t requested = segment().combines[sequence_ - 1].request;
  segment().combines.erase(segment().combines.begin(), segment().combines.lower_bound(sequence_ - 1));
  const bool follow = (requested >> 1) > handled_;
  handled_ = std::max(handled_, requested >> 1);
  held_ = at_end() || (follow && (requested & 1) != 0);
  if (steps_done() % world_.job.check_every == 0)
    to_launcher.push_back(
        {.what = WorkerReport::What::kHash, .generation = generation, .step = steps_done(), .hash = weights_});
  const bool snapshot = at_end() || follow || steps_done() % world_.job.snapshot_every == 0;
  stage = snapshot ? Stage::kWritingPart : Stage::kComputing;
}

bool Worker::write_part() {
  if (target_generation != generation || target_number != snapshots_ + 1) {  // the one before is not whole yet
    if (!abandoned()) return false;
    stage = Stage::kAbandoned;
    return true;
  }
  ++snapshots_;
  Part& part = world_.parts[{generation, steps_done()}][rank];
  part.range = range_;
  part.weights = weights_;
  part.shards.assign(shard_states_.begin() + range_.first, shard_states_.begin() + range_.last);
  part.taint = own_taint();
  part.handled = handled_;
  part_hash_ = weights_;
  world_.tell("wrote part of step", rank, steps_done(), static_cast<int64_t>(generation));
  stage = Stage::kReportingPart;
  return true;
}

void Worker::report_part() {
  to_launcher.push_back({.what = WorkerReport::What::kPart,
                         .generation = generation,
                         .step = steps_done(),
                         .hash = part_hash_,
                         .held = held_,
                         .final = at_end()});
  stage = held_ ? Stage::kHolding : Stage::kComputing;
}

}  // namespace tandem::simulation
