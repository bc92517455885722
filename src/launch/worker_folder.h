// launch/worker_folder.h -- where a supervisor puts the recipe for the worker that it starts.
//
// It is there while the worker starts, and gone once it has read the recipe: a supervisor that is killed later leaves
// nothing behind. One that is killed in that moment leaves a folder that nobody has locked; the next one takes it away.
#pragma once

#include <filesystem>
#include <string>

namespace tandem {

class WorkerFolder {
 public:
  // Holds recipe.toml. In TMPDIR (/tmp), or in /dev/shm where that is full. Throws IoError.
  explicit WorkerFolder(const std::string& recipe_toml);
  ~WorkerFolder();
  WorkerFolder(const WorkerFolder&) = delete;
  WorkerFolder& operator=(const WorkerFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

  // Takes away what killed supervisors of this user left.
  static void sweep();

 private:
  bool make_in(const std::filesystem::path& parent, const std::string& recipe_toml);
  void remove();

  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace tandem
