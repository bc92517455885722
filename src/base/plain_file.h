// base/plain_file.h -- files of a run folder are used where they stand.
//
// A link in the place of a log would lead what a run writes into somebody else's file; a pipe would hold whoever opens
// it. So what a run appends to is opened without following a link and without waiting, and anything but a regular file
// is refused by its name.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace tandem {

// "a symbolic link", "a pipe", "a folder", "a device", "a socket"; empty: a regular file, or nothing is there. The last
// part of the path is not followed.
std::string not_a_file(const std::filesystem::path& path);

// Throws ConfigError that names what stands in the place of a file or, with `folder`, of a folder.
void refuse_misplaced(const std::filesystem::path& path, bool folder = false);

// open(2) of a regular file, made if it is not there: `flags` are O_WRONLY or O_RDWR, and O_APPEND or not. Throws
// ConfigError if something else stands there, IoError (with errno) if it can't be opened. The caller closes it.
int open_plain_file(const std::filesystem::path& path, int flags, unsigned mode = 0666);

// To read text line by line: a stream in a failed state if there is no regular file, where std::ifstream would wait for
// the writer of a pipe.
std::ifstream read_plain_file(const std::filesystem::path& path, std::ios::openmode mode = {});

}  // namespace tandem
