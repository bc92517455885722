// A power cut at every call: what was never fsynced may be there, torn, zeroed or gone, in any combination.
//
// The disk is a model in memory that keeps, beside what a program sees, what is safe: a file's bytes once it is
// fsynced, a folder's names once the folder is. A cut throws; then each unsafe change to a folder is kept or lost by a
// coin, and each unsafe file is cut, zeroed or whole. What a store finds on the disk after that is the test.
#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <map>
#include <random>

#include "checkpoint/sample.h"

namespace tandem {
namespace {

namespace stdfs = std::filesystem;
using Bytes = std::vector<std::byte>;

struct PowerCut {};  // no std::exception: nothing in the code under test may catch it and carry on

class ModelDisk : public FileSystem {
 public:
  int calls = 0, cut_at = -1;

  FileHandle open_new(const stdfs::path& p) override {
    tick();
    Node& dir = parent(p);
    if (dir.names.count(name(p))) throw IoError("exists", EEXIST, "");
    change(dir, {{name(p), make(Node{})}});
    return {open(dir.names.at(name(p))), p};
  }
  FileHandle open_read(const stdfs::path& p) override {
    const int node = find(p);
    if (node < 0) throw IoError("cannot open " + p.string(), ENOENT, "");
    if (nodes_[node].is_dir) throw IoError("cannot open " + p.string(), EISDIR, "");
    return {open(node), p};
  }
  std::size_t write(const FileHandle& f, std::span<const std::byte> bytes) override {
    Bytes& to = node(f).bytes;
    if (calls == cut_at)
      to.insert(to.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2));
    tick();
    to.insert(to.end(), bytes.begin(), bytes.end());
    return bytes.size();
  }
  std::size_t read(const FileHandle& f, std::span<std::byte> to) override {
    const Bytes& from = node(f).bytes;
    std::size_t& at = open_.at(f.fd).second;
    const std::size_t count = std::min(to.size(), from.size() - at);
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), count, to.begin());
    at += count;
    return count;
  }
  std::uint64_t size(const FileHandle& f) override { return node(f).bytes.size(); }
  void allocate(const FileHandle&, std::uint64_t) override { tick(); }
  void fsync(const FileHandle& f) override {
    tick();
    node(f).safe_bytes = node(f).bytes;
  }
  void close(const FileHandle& f) override { open_.erase(f.fd); }
  void rename(const stdfs::path& from, const stdfs::path& to) override {
    tick();
    Node& dir = parent(from);
    if (&dir != &parent(to)) throw IoError("across folders", EXDEV, "");
    const auto target = dir.names.find(name(to));
    if (target != dir.names.end() && nodes_[target->second].is_dir && !nodes_[target->second].names.empty())
      throw IoError("not empty", ENOTEMPTY, "");
    change(dir, {{name(from), -1}, {name(to), dir.names.at(name(from))}});
  }
  void mkdir(const stdfs::path& p) override {
    tick();
    if (find(p) >= 0) return;
    change(parent(p), {{name(p), make(folder())}});
  }
  void remove_all(const stdfs::path& p) override {
    const int node = find(p);
    if (node < 0) return;
    while (nodes_[node].is_dir && !nodes_[node].names.empty()) remove_all(p / nodes_[node].names.begin()->first);
    tick();
    change(parent(p), {{name(p), -1}});
  }
  void fsync_dir(const stdfs::path& p) override {
    tick();
    Node& dir = nodes_[find(p)];
    dir.safe_names = dir.names;
    dir.unsafe.clear();
  }
  bool exists(const stdfs::path& p) override { return find(p) >= 0; }
  std::vector<std::string> list(const stdfs::path& p) override {
    std::vector<std::string> names;
    for (const auto& [name, node] : nodes_[find(p)].names) names.push_back(name);
    return names;
  }
  FileHandle lock_dir(const stdfs::path&) override { return {}; }

  // Only the process died: the next one still sees all of it, safe or not.
  void start_again() {
    open_.clear();
    cut_at = -1;
    dark_ = false;
  }

  // What the disk may hold when the power comes back.
  void lose_unsafe(std::mt19937& coin) {
    start_again();
    for (Node& node : nodes_) {
      for (const Change& change : node.unsafe)
        if (coin() % 2) apply(node.safe_names, change);
      node.unsafe.clear();
      node.names = node.safe_names;
      if (node.bytes != node.safe_bytes) {
        if (coin() % 3 == 0) node.bytes.resize(coin() % (node.bytes.size() + 1));
        if (coin() % 3 == 0) std::fill(node.bytes.begin(), node.bytes.end(), std::byte{0});
        if (coin() % 3 == 0) node.bytes = node.safe_bytes;
        node.safe_bytes = node.bytes;
      }
    }
  }

 private:
  using Names = std::map<std::string, int>;
  using Change = std::vector<std::pair<std::string, int>>;  // together or not at all; -1 removes
  struct Node {
    bool is_dir = false;
    Bytes bytes, safe_bytes;
    Names names, safe_names;
    std::vector<Change> unsafe;
  };
  static Node folder() {
    Node node;
    node.is_dir = true;
    return node;
  }
  void tick() {
    if (dark_) throw IoError("no power", EIO, "");  // destructors still run; the disk no longer hears them
    if (calls++ != cut_at) return;
    dark_ = true;
    throw PowerCut();
  }
  static std::string name(const stdfs::path& p) { return p.filename().string(); }
  static void apply(Names& names, const Change& change) {
    for (const auto& [name, node] : change) {
      if (node < 0)
        names.erase(name);
      else
        names[name] = node;
    }
  }
  void change(Node& dir, const Change& change) {
    apply(dir.names, change);
    dir.unsafe.push_back(change);
  }
  int make(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }
  int open(int node) {
    open_[next_fd_] = {node, 0};
    return next_fd_++;
  }
  int find(const stdfs::path& p) const {
    int node = 0;
    for (const auto& part : p.relative_path()) {
      const auto next = nodes_[node].names.find(part.string());
      if (next == nodes_[node].names.end()) return -1;
      node = next->second;
    }
    return node;
  }
  Node& parent(const stdfs::path& p) { return nodes_[find(p.parent_path())]; }
  Node& node(const FileHandle& f) { return nodes_[open_.at(f.fd).first]; }

  std::deque<Node> nodes_ = {folder()};
  std::map<int, std::pair<int, std::size_t>> open_;  // fd -> node, place
  int next_fd_ = 1000;
  bool dark_ = false;
};

// Saves the steps one after another; `acknowledged` is the last that save() returned for.
void save_all(ModelDisk& disk, const std::vector<std::int64_t>& steps, std::int64_t& acknowledged) {
  CheckpointStore store(disk, "/checkpoints", 2);
  for (std::int64_t step : steps) {
    store.save(Sample(step).contents());
    acknowledged = step;
  }
}

// With `killed_before`, the process is killed at that call and the next one opens the store before the power goes.
void cut_everywhere(const std::vector<std::int64_t>& steps, bool killed_before = false) {
  const std::int64_t last = steps.back();
  const auto least = [&](std::int64_t acknowledged) { return std::min(acknowledged, last); };
  std::mt19937 coin(7);
  int cuts = 0;
  for (int cut = 0;; ++cut) {
    for (int outcome = 0; outcome < 20; ++outcome) {
      ModelDisk disk;
      disk.cut_at = cut;
      std::int64_t acknowledged = 0;
      bool was_cut = false;
      try {
        save_all(disk, steps, acknowledged);
      } catch (const PowerCut&) {
        was_cut = true;
      }
      if (!was_cut) {
        EXPECT_GT(cuts, 50);
        return;
      }
      ++cuts;
      if (killed_before) {
        disk.start_again();
        CheckpointStore(disk, "/checkpoints", 2);
      }
      disk.lose_unsafe(coin);
      CheckpointStore store(disk, "/checkpoints", 2);
      const auto loaded = store.load_newest();
      const std::int64_t step = loaded ? loaded->manifest.step : 0;
      ASSERT_GE(step, least(acknowledged)) << "cut at call " << cut << ", outcome " << outcome;
      ASSERT_EQ(loaded ? Sample(step).difference(*loaded) : "", "") << "cut at call " << cut;
      for (const std::string& reason : loaded ? loaded->refused : std::vector<std::string>{})
        ASSERT_FALSE(reason.starts_with("latest")) << reason << ", cut at call " << cut;
      // A second cut, before anything was written again, finds no less.
      disk.lose_unsafe(coin);
      const auto again = CheckpointStore(disk, "/checkpoints", 2).load_newest();
      ASSERT_GE(again ? again->manifest.step : 0, least(acknowledged)) << "second cut, at call " << cut;
    }
  }
}

}  // namespace

TEST(PowerCut, AtAnyCallLosesNoAcknowledgedCheckpoint) { cut_everywhere({100, 200, 300}); }

TEST(PowerCut, WhileAStepIsSavedAgainLosesNoAcknowledgedCheckpoint) { cut_everywhere({100, 100, 200, 200}); }

TEST(PowerCut, WhileAFutureIsAbandonedLosesNoAcknowledgedCheckpoint) { cut_everywhere({100, 300, 200}); }

TEST(PowerCut, AfterAKillAndANewOpenLosesNoAcknowledgedCheckpoint) {
  cut_everywhere({100, 100, 200}, /*killed_before=*/true);
  cut_everywhere({100, 300, 200}, /*killed_before=*/true);
}

}  // namespace tandem
