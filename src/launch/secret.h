// launch/secret.h -- what the processes of one user's jobs know and strangers do not, and proofs of it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "launch/rank_info.h"

namespace tandem {

// TANDEM_SECRET, else the file that TANDEM_SECRET_FILE names, else ~/.config/tandem/secret (XDG_CONFIG_HOME), which is
// made once: 32 random bytes that only its owner can read. Throws ConfigError for one that others can read, or that is
// too short to be one.
std::string shared_secret(const Variables& variable);

std::string random_bytes(size_t count);
// HMAC-SHA256 over the fields, each with its length: no two lists of fields make the same text. 32 bytes.
std::string keyed_digest(const std::string& key, std::initializer_list<std::string_view> fields);
// In a time that does not depend on where they differ.
bool same_digest(std::string_view a, std::string_view b);
std::string to_hex(std::string_view bytes);
std::string from_hex(std::string_view text);  // throws std::runtime_error

}  // namespace tandem
