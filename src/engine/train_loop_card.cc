// engine/train_loop_card.cc -- the part of TrainLoop that drives a card: phases recorded once and played at every step.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "engine/train_loop.h"
#include "kernels/device.h"

namespace tandem {
namespace {

constexpr int kPlainSteps = 2;  // libraries choose and allocate in the first ones
constexpr size_t kMostBranches = 24;
constexpr int kTimesToAgree = 2;  // at two steps, so that nothing of the first one's numbers is in the recording

std::string reason_for_plain_launches(const Phase& phase) {
  if (const std::string asked = plain_launches_asked_for(); !asked.empty()) return asked;
  if (!phase.recordable || phase.mail) return "the recipe does not say that it can be recorded";
  return "";
}

// A recording is looked at again at steps 16, 32, 64, ...
bool is_time_to_compare(int64_t step) { return step >= 16 && (step & (step - 1)) == 0; }

class Recorded {  // while it lives, what is queued is recorded
 public:
  explicit Recorded(bool& flag) : flag_(flag) { flag_ = true; }
  ~Recorded() { flag_ = false; }

 private:
  bool& flag_;
};

struct LeaveBranch {
  ~LeaveBranch() { tandem::card()->branch(-1); }
};

// The bits of what a phase gave: its sums on the card and its integers.
std::vector<uint64_t> fingerprint(const Partials& partials, Board& board, int shards) {
  std::vector<uint64_t> bits;
  for (const auto& partial : partials)
    bits.push_back(device().state_hash(partial.values.data(), static_cast<int64_t>(partial.values.size_bytes())));
  for (int slot = 0; slot < shards; ++slot) {
    bits.push_back(static_cast<uint64_t>(board.bad(slot)));
    for (int64_t count : board.counts(slot)) bits.push_back(static_cast<uint64_t>(count));
  }
  return bits;
}

}  // namespace

CardPhase& TrainLoop::card_phase(const Phase& phase) {
  const size_t index = static_cast<size_t>(&phase - phases_.data());
  card_phases_.resize(phases_.size());
  if (!card_phases_[index]) {
    card_phases_[index] =
        std::make_unique<CardPhase>(static_cast<int>(visit_order_.size()), phase.counts, phase.floats);
    card_phases_[index]->why_plain = reason_for_plain_launches(phase);
  }
  return *card_phases_[index];
}

void TrainLoop::run_on_card(const Phase& phase) {
  CardPhase& card = card_phase(phase);
  const bool may_play = card.why_plain.empty() && all_rows_count(phase, steps_done_);
  if (may_play && card.agreed >= kTimesToAgree && !is_time_to_compare(steps_done_) &&
      stage_inputs(phase, card, steps_done_)) {
    if (observer_) observer_->shard_begins(visit_order_.front());
    card.tray->queue_up(static_cast<int>(steps_done_ % 2));
    card.shards->play();
    wait_for_card();
    clear_desks(phase, card);
    combine_->set_floats(card.partials);
    tell_played_shards();
  } else {
    tandem::card()->begin_peak();
    queue_shards(phase);
    if (may_play && steps_here_ >= kPlainSteps) try_recording(phase, card);
    card.board.queue_fetch(nullptr);
    wait_for_card();
    if (observer_) observer_->shard_ends(visit_order_.back());
  }
  hand_over(phase);
}

// The first one has begun, and all are done.
void TrainLoop::tell_played_shards() {
  if (!observer_) return;
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    if (i > 0) observer_->shard_begins(visit_order_[i]);
    observer_->shard_ends(visit_order_[i]);
  }
}

// Small shards leave most of a card idle: several run side by side, each with a vector of its own. The sums are made in
// the same order, so the bits are the same.
void TrainLoop::queue_shards(const Phase& phase, int branches) {
  combine_->begin_floats();
  card_phase(phase).board.queue_clear();
  Card& card = *tandem::card();
  const LeaveBranch in_any_case;
  const int count = static_cast<int>(visit_order_.size());
  std::vector<std::span<const float>> floats(visit_order_.size());
  for (int first = 0; first < count; first += branches) {
    const int last = std::min(count, first + branches);
    if (branches > 1) card.fork(last - first);
    for (int i = first; i < last; ++i) {
      if (branches > 1) card.branch(i - first);
      if (phase.gradients) state_.use_contribution(i - first);
      floats[i] = run_shard(phase, visit_order_[i], i, i - first).floats;
      if (observer_ && !recording_ && i + 1 < count) observer_->shard_ends(visit_order_[i]);
    }
    if (branches > 1) card.join(last - first);
    for (int i = first; i < last; ++i) combine_->add_floats(visit_order_[i], floats[i], /*stays=*/last == count);
  }
  if (phase.gradients) state_.use_contribution(0);
}

int TrainLoop::branches_for(const Phase& phase, size_t bytes_at_work) {
  constexpr size_t kMostVectorBytes = size_t{64} << 20;  // larger ones keep a card busy by themselves
  const size_t vector = static_cast<size_t>(layout_of(phase).floats) * sizeof(float);
  const size_t room = tandem::card()->free_bytes() / 4;
  size_t branches = std::min<size_t>(visit_order_.size(), kMostVectorBytes / std::max<size_t>(vector, 1));
  branches = std::min(branches, room / std::max<size_t>(bytes_at_work + vector, 1));
  return static_cast<int>(std::clamp<size_t>(branches, 1, kMostBranches));
}

// Records the phase and plays it on the inputs that plain launches have just had. If the bits are the same, twice, it
// will be played from then on; else the plain launches stay, and the user is told why. A recording that was played and
// differs now ends the run: what it gave before may have been wrong.
void TrainLoop::try_recording(const Phase& phase, CardPhase& card) {
  const int shards = static_cast<int>(visit_order_.size());
  card.board.queue_fetch(nullptr);
  device().wait();
  const std::vector<uint64_t> plain = fingerprint(combine_->floats_added(), card.board, shards);
  std::vector<std::vector<int64_t>> counts;
  bool by_hand = false;
  for (const Desk& desk : desks_) {
    counts.push_back(desk.counts);
    const auto not_zero = [](auto x) { return x != 0; };
    by_hand = by_hand || std::ranges::any_of(desk.floats, not_zero) ||
              std::any_of(desk.maxima.begin(), desk.maxima.begin() + phase.maxima, not_zero);
  }
  if (by_hand && card.agreed >= kTimesToAgree) recording_went_stale(phase);
  std::string refused = by_hand ? "its run() adds up context.floats or context.maxima on the host" : "";
  if (refused.empty() && !card.shards) {
    card.branches = branches_for(phase, tandem::card()->peak_bytes());
    if (card.branches > 1) {  // libraries make their workspaces of each branch now, not while recording
      queue_shards(phase, card.branches);
      device().wait();
    }
    if (stage_inputs(phase, card, steps_done_)) {
      const Recorded here(recording_);
      card.shards = tandem::card()->record(
          [&] {
            queue_shards(phase, card.branches);
            card.board.queue_fetch(nullptr);
          },
          &refused);
    }
    card.host_counts.clear();
    for (const Desk& desk : desks_) card.host_counts.push_back(desk.counts);
    if (card.shards) card.partials = combine_->floats_added();
  }
  if (refused.empty() && stage_inputs(phase, card, steps_done_)) {
    card.tray->queue_up(static_cast<int>(steps_done_ % 2));
    card.shards->play();
    device().wait();
    if (card.host_counts == counts && fingerprint(card.partials, card.board, shards) == plain) {
      ++card.agreed;
      clear_desks(phase, card);
      combine_->set_floats(card.partials);
      return;
    }
    if (card.agreed >= kTimesToAgree) recording_went_stale(phase);
    refused = "its recording gave other bits than plain launches";
  }
  stay_plain(phase, card, refused.empty() ? card.why_plain : refused);
  queue_shards(phase);
}

void TrainLoop::stay_plain(const Phase& phase, CardPhase& card, const std::string& why) {
  card.shards.reset();
  card.step.reset();
  card.why_plain = why;
  note_ = fmt::format("phase '{}' is launched call by call, not as one CUDA graph: {}", phase.name, why);
}

void TrainLoop::recording_went_stale(const Phase& phase) {
  throw Error(ExitCode::kFailed,
              fmt::format("the recording of phase '{}' gives other bits than its calls at step {}", phase.name,
                          steps_done_ + 1),
              "what run() does has changed since it was recorded: a condition on the step, a coefficient from the host",
              "let the recipe say that the phase is not recordable (SupervisedRecipe::recordable), or set "
              "TANDEM_GRAPHS=off, and begin anew: updates since the change may be wrong");
}

// As run_shard() leaves them, for shards that are played.
void TrainLoop::clear_desks(const Phase& phase, const CardPhase& card) {
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    Desk& desk = desks_[i];
    desk.counts = card.host_counts[i];
    desk.maxima.assign(static_cast<size_t>(layout_of(phase).maxima), 0);
    desk.letters.clear();
    if (&phase == &phases_.back()) desk.maxima.back() = wished_;
  }
}

// What the shards told, to the combine.
void TrainLoop::take_answers(const Phase& phase, CardPhase& card) {
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    Desk& desk = desks_[i];
    const std::span<const int64_t> counted = card.board.counts(static_cast<int>(i));
    for (size_t k = 0; k < counted.size(); ++k) desk.counts[k] += counted[k];
    const int64_t bad = card.board.bad(static_cast<int>(i));
    if (phase.gradients && state_.shards() > 1 && bad >= 0)
      desk.maxima[phase.maxima] = nan_flag(visit_order_[i], state_.slot_at(bad));
  }
}

void TrainLoop::hand_over(const Phase& phase) {
  CardPhase& card = card_phase(phase);
  if (phase.gradients && lockstep()) {
    card.board.queue_fetch(nullptr);
    device().wait();
  }
  take_answers(phase, card);
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    Desk& desk = desks_[i];
    combine_->add(visit_order_[i], {{}, desk.counts, desk.maxima, std::exchange(desk.letters, {})});
  }
  std::erase_if(at_hand_, [&](const auto& item) { return item.first.step < steps_done_; });
}

// ---- the whole step as one recording, where this worker has all shards ----

bool TrainLoop::plays_whole_step(const Phase& phase) {
  if (!phase.gradients || lockstep() || mine_.size() != state_.shards()) return false;
  CardPhase& card = card_phase(phase);
  if (!card.why_plain.empty() || card.agreed < kTimesToAgree || !all_rows_count(phase, steps_done_)) return false;
  if (!stage_inputs(phase, card, steps_done_)) return false;
  if (card.step) return true;
  std::string refused;
  {
    const Recorded here(recording_);
    card.step = tandem::card()->record(
        [&] {
          queue_shards(phase, card.branches);
          card.partials = combine_->floats_added();
          const std::span<const float> total = card.partials.at(0).values;
          const bool flags = state_.shards() > 1;
          update_.queue(total, card.tray->order(), card.board.plan_on_card(),
                        flags ? card.board.bad_on_card() : std::span<int64_t>());
          card.board.queue_fetch(total.data() + total.size() - static_cast<size_t>(phase.floats));
        },
        &refused);
  }
  combine_->begin_floats();
  if (!card.step) stay_plain(phase, card, refused);
  card.shards.reset();
  return card.step != nullptr;
}

Total TrainLoop::play_step(const Phase& phase) {
  CardPhase& card = card_phase(phase);
  const int shards = static_cast<int>(visit_order_.size());
  const bool compare = !card.step_agreed || is_time_to_compare(steps_done_);
  std::vector<uint64_t> plain;
  if (compare) {
    queue_shards(phase);
    card.board.queue_fetch(nullptr);
    device().wait();
    plain = fingerprint(combine_->floats_added(), card.board, shards);
    for (int i = 0; i < shards; ++i)
      if (desks_[i].counts != card.host_counts[i]) recording_went_stale(phase);
    if (observer_) observer_->shard_ends(visit_order_.back());
  }
  clear_desks(phase, card);
  for (int i = 0; i < shards; ++i) combine_->add(visit_order_[i], {{}, desks_[i].counts, desks_[i].maxima, {}});
  combine_->set_floats(card.partials);
  Total total = combine_->finish();  // nobody can join in this phase any more: now it may change the weights
  if (observer_) observer_->shard_begins(visit_order_.front());
  const int copy = static_cast<int>(steps_done_ % 2);
  card.tray->put(copy, update_.order(0));
  card.tray->queue_up(copy);
  card.step->play();
  const double loaded = load_seconds_;
  stage_ahead(phase, card);
  // A card that is still at work was not kept waiting by the next step's batches.
  const double staging = load_seconds_ - loaded;
  if (wait_for_card() > 0.05 * staging) {
    load_seconds_ = loaded;
    card_seconds_ += staging;
  }
  if (compare && fingerprint(card.partials, card.board, shards) != plain) recording_went_stale(phase);
  card.step_agreed = true;
  take_answers(phase, card);
  played_counts_.assign(static_cast<size_t>(phase.counts), 0);
  played_maxima_.assign(desks_[0].maxima.begin(), desks_[0].maxima.end());
  for (const Desk& desk : desks_) {
    for (size_t k = 0; k < played_counts_.size(); ++k) played_counts_[k] += desk.counts[k];
    for (size_t k = 0; k < played_maxima_.size(); ++k) played_maxima_[k] = std::max(played_maxima_[k], desk.maxima[k]);
  }
  total.counts = played_counts_;
  total.maxima = played_maxima_;
  tell_played_shards();
  if (observer_) {
    observer_->combine_begins();
    observer_->combine_ends();
  }
  std::erase_if(at_hand_, [&](const auto& item) { return item.first.step <= steps_done_; });
  played_ = &card;
  return total;
}

// The update alone, where the total comes from several workers. Leaves played_ empty where it is not recorded.
void TrainLoop::play_update(const Phase& phase, const Total& total, int64_t flag) {
  CardPhase& card = card_phase(phase);
  if (!card.why_plain.empty() || card.agreed < kTimesToAgree || card.update_refused) return;
  if (!card.update || card.total != total.floats.data()) {
    std::string refused;
    card.total = total.floats.data();
    card.update = tandem::card()->record(
        [&] {
          update_.queue(total.floats, card.tray->order(), card.board.plan_on_card(), {});
          card.board.queue_fetch(total.floats.data() + total.floats.size() - static_cast<size_t>(phase.floats));
        },
        &refused);
    card.update_refused = !card.update;
    if (card.update_refused) {
      note_ = fmt::format("the update of phase '{}' is launched call by call: {}", phase.name, refused);
      return;
    }
  }
  const int copy = static_cast<int>(steps_done_ % 2);
  card.tray->put(copy, update_.order(flag));
  card.tray->queue_up_order(copy);
  card.update->play();
  device().wait();
  played_ = &card;
}

// ---- inputs ----

bool TrainLoop::all_rows_count(const Phase& phase, int64_t step) const {
  return !phase.batches || sampler_->is_full(step);
}

double TrainLoop::wait_for_card() {
  const double begin = monotonic_seconds();
  device().wait();
  const double seconds = monotonic_seconds() - begin;
  card_seconds_ += seconds;
  return seconds;
}

const Batch& TrainLoop::batch_at_hand(const LoadKey& key) {
  auto found = at_hand_.find(key);
  if (found == at_hand_.end()) found = at_hand_.emplace(key, load(key)).first;
  return found->second;
}

std::vector<at::Tensor> TrainLoop::host_inputs(const Phase& phase, ShardContext& context, const Batch* batch) {
  std::vector<at::Tensor> all;
  if (batch) {
    all = batch->tensors;
    all.push_back(batch->weight);
  }
  for (at::Tensor& tensor : recipe_->inputs(phase, context)) all.push_back(std::move(tensor));
  return all;
}

// False, with the reason in card.why_plain, where they can't be staged.
bool TrainLoop::stage_inputs(const Phase& phase, CardPhase& card, int64_t step) {
  if (card.staged_step == step) return true;
  const size_t pieces = static_cast<size_t>(phase.gradients ? settings_.accumulation : 1);
  const int copy = static_cast<int>(step % 2);
  for (size_t place = 0; place < visit_order_.size(); ++place) {
    ShardContext context = context_of(visit_order_[place]);
    context.step = step;
    for (size_t micro = 0; micro < pieces; ++micro) {
      context.micro = static_cast<int64_t>(micro);
      const Batch* batch = nullptr;
      if (phase.batches) batch = context.batch_ = &batch_at_hand({step, visit_order_[place], context.micro});
      const std::vector<at::Tensor> tensors = host_inputs(phase, context, batch);
      if (!card.tray) {
        card.tray = std::make_unique<InputTray>(static_cast<int>(visit_order_.size() * pieces), tensors);
        card.only_batches = batch && tensors.size() == batch->tensors.size() + 1;
      }
      if (!card.tray->fits(tensors)) {
        stay_plain(phase, card, "its inputs change their sizes between steps or shards, or lie on the card already");
        return false;
      }
      card.tray->put(copy, static_cast<int>(place * pieces + micro), context.random(0), tensors);
    }
  }
  card.tray->put(copy, update_.order(0));
  card.staged_step = step;
  return true;
}

// The next step's batches, while the card is busy with this one. What goes wrong there is told when that step comes,
// if it does.
void TrainLoop::stage_ahead(const Phase& phase, CardPhase& card) {
  const int64_t next = steps_done_ + 1;
  if (phases_.size() > 1 || !card.only_batches || !all_rows_count(phase, next)) return;
  try {
    stage_inputs(phase, card, next);
  } catch (const std::exception&) {
    card.staged_step = -1;
  }
}

}  // namespace tandem
