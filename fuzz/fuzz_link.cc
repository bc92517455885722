// What another machine may send: the frames of a link, cut anywhere, and the handshake of whoever connects.
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "launch/link.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const tandem::Credentials ours{"a secret", "a job", 3};
  tandem::Greeting greeting(ours, std::string(32, 'n'));
  for (size_t at = 0; const size_t wanted = greeting.wanted();) {
    if (at + wanted > size) break;
    greeting.heard(bytes.substr(at, wanted));
    at += wanted;
  }
  if (greeting.state() == tandem::Greeting::State::kProved) __builtin_trap();  // nobody knows the secret

  tandem::FrameReader reader("");
  const size_t piece = size ? 1 + data[0] : 1;
  try {
    for (size_t at = 0; at < size; at += piece) {
      reader.feed(bytes.substr(at, piece));
      while (reader.next()) {
      }
    }
  } catch (const std::runtime_error&) {
  } catch (const nlohmann::json::exception&) {
  }
  return 0;
}
