#include "launch/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>

#include "base/errors.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLeast = 16, kMost = 4096;

struct SecretFileCloser {
  int fd;
  ~SecretFileCloser() {
    if (fd >= 0) close(fd);
  }
};

std::string read_secret(const fs::path& path) {
  const SecretFileCloser file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat about {};
  if (file.fd < 0 || fstat(file.fd, &about) != 0)
    throw ConfigError(fmt::format("cannot read the secret {}", path.string()), std::generic_category().message(errno),
                      "copy it from the machine of rank 0, readable by you alone (chmod 600)");
  if (!S_ISREG(about.st_mode) || (about.st_mode & (S_IRWXG | S_IRWXO)) != 0 ||
      (about.st_uid != geteuid() && about.st_uid != 0))
    throw ConfigError(
        fmt::format("{} is no secret: others than you can read or change it", path.string()),
        fmt::format("its mode is {:o}, its owner {}; whoever knows it can take part in your runs",
                    about.st_mode & 07777, about.st_uid),
        fmt::format("make a new one: rm {} (it is made again), or chmod 600 if nobody has read it", path.string()));
  std::string text(kMost, '\0');
  const ssize_t got = read(file.fd, text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

// Whole or not there, also when several ranks of one machine start at once: the first link wins.
void make_secret(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const std::string fresh = fmt::format("{}.{}", path.string(), to_hex(random_bytes(6)));
  const std::string text = to_hex(random_bytes(32)) + "\n";
  const SecretFileCloser file{open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (file.fd < 0 || write(file.fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      fsync(file.fd) != 0)
    throw ConfigError(fmt::format("cannot make the secret {}", path.string()), std::generic_category().message(errno),
                      "name a file of yours with TANDEM_SECRET_FILE, or give TANDEM_SECRET");
  const bool there = link(fresh.c_str(), path.c_str()) == 0 || errno == EEXIST;
  const int number = errno;
  unlink(fresh.c_str());
  if (!there)
    throw ConfigError(fmt::format("cannot make the secret {}", path.string()), std::generic_category().message(number),
                      "name a file of yours with TANDEM_SECRET_FILE, or give TANDEM_SECRET");
}

std::string checked(std::string secret, const std::string& from) {
  if (secret.size() < kLeast)
    throw ConfigError(fmt::format("the secret of {} is too short", from),
                      fmt::format("it has {} characters; whoever guesses it can take part in your runs", secret.size()),
                      fmt::format("use at least {}, better 64 from `openssl rand -hex 32`", kLeast));
  return secret;
}

}  // namespace

std::string shared_secret(const Variables& variable) {
  const auto text = [&](const char* name) {
    const char* value = variable(name);
    return std::string(value ? value : "");
  };
  if (!text("TANDEM_SECRET").empty()) return checked(text("TANDEM_SECRET"), "TANDEM_SECRET");
  if (!text("TANDEM_SECRET_FILE").empty())
    return checked(read_secret(text("TANDEM_SECRET_FILE")), text("TANDEM_SECRET_FILE"));
  fs::path config = text("XDG_CONFIG_HOME");
  if (config.empty() && !text("HOME").empty()) config = fs::path(text("HOME")) / ".config";
  if (config.empty())
    throw ConfigError("there is no place for the secret of your runs", "neither HOME nor XDG_CONFIG_HOME is set",
                      "name a file with TANDEM_SECRET_FILE, or give TANDEM_SECRET");
  const fs::path path = config / "tandem" / "secret";
  std::error_code error;
  if (!fs::exists(path, error)) make_secret(path);
  return checked(read_secret(path), path.string());
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
    throw std::runtime_error("the system has no random numbers");
  return bytes;
}

std::string keyed_digest(const std::string& key, std::initializer_list<std::string_view> fields) {
  std::string text;
  for (const std::string_view field : fields) {
    const uint64_t length = field.size();
    text.append(reinterpret_cast<const char*>(&length), sizeof length);
    text.append(field);
  }
  std::string digest(32, '\0');
  unsigned length = 32;
  if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
            text.size(), reinterpret_cast<unsigned char*>(digest.data()), &length))
    throw std::runtime_error("HMAC failed");
  return digest;
}

bool same_digest(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string from_hex(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw std::runtime_error("not hexadecimal");
  };
  if (text.size() % 2) throw std::runtime_error("not hexadecimal");
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1]));
  return bytes;
}

}  // namespace tandem
