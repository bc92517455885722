// base/printable.h -- text of strangers made safe to print.
//
// Names of folders, ids in files, messages of other programs may hold any bytes. What they hold must not steer the
// terminal: move its cursor, change its title, hide a line.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

bool is_utf8(std::string_view text);
// Control characters and broken UTF-8 replaced by '?': one line, for a name.
std::string printable(std::string_view text);
// The same, but for '\n' and '\t': a text of several lines.
std::string printable_lines(std::string_view text);

}  // namespace tandem
