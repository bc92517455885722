// cli/export.cc -- `tandem export`: the verified weights of a run as one safetensors file, there whole or not at all.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_system.h"
#include "checkpoint/digest.h"
#include "cli/commands.h"
#include "cli/weights.h"
#include "command/out_file.h"
#include "command/scratch.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Removes the half-written file unless it was renamed into place.
class TemporaryFile {
 public:
  explicit TemporaryFile(fs::path path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  fs::path path_;
};

void write_verified(const Weights& weights, const fs::path& target, const std::string& digest,
                    const std::string& version) {
  FileSystem& files = FileSystem::real();
  // Verified in a file first, where the weights go to a pipe.
  std::optional<Scratch> scratch;
  if (is_stream(target)) scratch.emplace("export");
  const fs::path folder = scratch ? scratch->path() : target.has_parent_path() ? target.parent_path() : fs::path(".");
  TemporaryFile temporary(folder / fmt::format(".{}.tmp-{}", target.filename().string(), getpid()));
  std::map<std::string, std::string> metadata = {{"format", "pt"}, {"tandem", version}, {"digest", digest}};
  for (const auto& [alias, name] : weights.model.metadata())  // of tied weights, which the file holds once
    if (weights.model.find(name) && !weights.model.find(alias)) metadata.emplace(alias, name);
  if (!weights.kind.empty()) metadata["kind"] = weights.kind;
  if (!weights.recipe.empty()) metadata["recipe"] = weights.recipe;
  if (weights.step) metadata["step"] = std::to_string(*weights.step);
  write_safetensors(files, temporary.path(), weights.model.tensors(), metadata);
  // Read back before it gets its name: a disk that lies is found here and not by whoever loads the file.
  if (weights_digest(SafetensorsFile::read(files, temporary.path()).tensors()) != digest) {
    throw IoError(fmt::format("{} differs from what was written", temporary.path().string()), EIO,
                  "check the disk; the file was not put in place");
  }
  if (is_stream(target)) {
    copy_to_stream(temporary.path(), target, "--output");
    return;
  }
  files.rename(temporary.path(), target);
  temporary.keep();
  files.fsync_dir(folder);
}

}  // namespace

int run_export(const Command& command) {
  const Arguments& arguments = command.arguments;
  const Weights weights = find_weights(command, command.subject("last"), arguments.step);
  std::string name = weights.run_id.empty() ? weights.path.stem().string() : weights.run_id;
  if (!arguments.agent.empty() && name.find(arguments.agent) == std::string::npos) name += "-" + arguments.agent;
  const fs::path target =
      !arguments.output.empty()
          ? fs::path(arguments.output)
          : fs::path(weights.step ? fmt::format("{}-step-{}.safetensors", name, *weights.step) : name + ".safetensors");
  if (fs::is_directory(target)) {
    throw ConfigError(fmt::format("{} is a folder", target.string()), "the weights go to one file",
                      "give a file's name, ending in .safetensors");
  }
  const bool stream = is_stream(target);
  if (fs::exists(target) && !arguments.force && !stream) {
    throw ConfigError(fmt::format("{} exists", target.string()), "a file is not replaced unasked",
                      "choose another --output, or add --force");
  }
  const std::string digest = weights_digest(weights.model.tensors());
  try {
    write_verified(weights, target, digest, command.context.version);
  } catch (const IoError& error) {
    if (error.error_number() != ENOENT && error.error_number() != EACCES && error.error_number() != EROFS) throw;
    throw ConfigError(fmt::format("cannot write {}", target.string()), error.why(),
                      "choose a folder that exists and is writable with --output");
  }
  if (command.output.json()) {
    command.output.object({{"file", target.string()},
                           {"digest", digest},
                           {"kind", weights.kind},
                           {"step", weights.step ? nlohmann::json(*weights.step) : nlohmann::json()},
                           {"tensors", weights.model.tensors().size()},
                           {"bytes", stream ? nlohmann::json() : nlohmann::json(fs::file_size(target))}});
  } else {
    say_where(command.output, target);
    command.output.say(fmt::format("{} tensors, digest {}", weights.model.tensors().size(), digest));
  }
  return 0;
}

}  // namespace tandem
