// runs/run_removal.h -- how much of the disk a run takes, who needs it, and how its folder goes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tandem {

// Bytes that the files below a folder take on the disk. Links are not followed; a file with several names counts once.
uint64_t folder_bytes(const std::filesystem::path& dir);

// Runs that stand in for an agent of another one (current.json, runs/agent_runs.h): real path -> ids of those others.
std::map<std::filesystem::path, std::vector<std::string>> runs_in_service(
    const std::vector<std::filesystem::path>& runs);

// Throws ConfigError if the folder is a link, if `root` or the current folder is in it, or if its checkpoints, or those
// of a run in it, are links: what they lead to would stay, and take room that nobody knows of.
void check_removable(const std::filesystem::path& dir, const std::filesystem::path& root);

// The folder and all in it; links inside go, what they lead to stays. It is renamed to ".removed-<name>/run" first, so
// that a kill leaves no half a run: clear_removed() takes up what is left. Links to it in `root` go too. Throws
// IoError; ConfigError if something else has that name.
void remove_run_folder(const std::filesystem::path& dir, const std::filesystem::path& root);
// In `root` alone, and only folders that hold nothing but such a run: links and what others put there stay.
void clear_removed(const std::filesystem::path& root);

}  // namespace tandem
