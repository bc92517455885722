// Hostile headers and manifests: the readers need at most twice the input and 64 MB. Counts every allocation, so it is
// a program of its own.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/errors.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace {

std::atomic<std::size_t> g_now{0}, g_peak{0};

void* counted(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  const std::size_t now = g_now += malloc_usable_size(memory) + 16;
  if (now > g_peak) g_peak = now;
  return memory;
}

void uncounted(void* memory) {
  if (memory) g_now -= malloc_usable_size(memory) + 16;
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { uncounted(memory); }
void operator delete[](void* memory) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncounted(memory); }
void operator delete[](void* memory, std::size_t) noexcept { uncounted(memory); }

namespace tandem {
namespace {

constexpr std::size_t kSpare = 64'000'000;

std::string repeat(const std::string& piece, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + piece.size());
  while (text.size() < bytes) text += piece;
  return text;
}

// Peak of what parsing takes beyond the input, which the caller holds.
template <class Parse>
std::size_t peak_of(Parse parse) {
  const std::size_t before = g_now;
  g_peak = before;
  try {
    parse();
  } catch (const Error&) {
  }
  return g_peak - before;
}

void expect_bounded_header(const char* what, std::string header) {
  std::vector<std::byte> bytes(8 + header.size());
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(header.size() >> (8 * i));
  std::copy(header.begin(), header.end(), reinterpret_cast<char*>(bytes.data()) + 8);
  const std::size_t input = bytes.size();
  header = std::string();
  const std::size_t peak = peak_of([&] { SafetensorsFile::parse(std::move(bytes)); });
  EXPECT_LE(peak, input + kSpare) << what << ": " << input << " bytes of input, " << peak << " more";
}

void expect_bounded_manifest(const char* what, const std::string& middle) {
  Manifest manifest;
  std::string text = manifest.to_text();
  text.replace(text.find("\"scalars\": {}"), 13, "\"scalars\": " + middle);
  text = seal_manifest(std::move(text));
  const std::size_t peak = peak_of([&] { Manifest::parse(text); });
  EXPECT_LE(peak, text.size() + kSpare) << what << ": " << text.size() << " bytes of input, " << peak << " more";
}

}  // namespace

TEST(ParseMemory, OfHostileSafetensorsHeadersIsBounded) {
  const std::size_t size = 60'000'000;
  const std::string tensor = R"(:{"dtype":"U8","shape":[],"data_offsets":[0,0]},)";
  expect_bounded_header("nesting", "{\"a\":" + repeat("[", size));
  expect_bounded_header("one string", "{\"" + repeat("a", size) + "\":1}");
  expect_bounded_header("one escaped string", "{\"" + repeat("\\\\", size) + "\":1}");
  expect_bounded_header("one number", "{\"a\":" + repeat("1", size));
  expect_bounded_header("a long shape", R"({"a":{"dtype":"U8","shape":[)" + repeat("1,", size));
  expect_bounded_header("white space", "{" + repeat(" ", size));
  std::string many = "{";
  for (int i = 0; many.size() < size; ++i) many += "\"" + std::to_string(i) + "\"" + tensor;
  expect_bounded_header("many tensors", many + "\"a\":1}");
  many = "{\"__metadata__\":{";
  for (int i = 0; many.size() < size; ++i) many += "\"" + std::to_string(i) + "\":\"\",";
  expect_bounded_header("much metadata", many);
  many = "{";
  const std::string long_name = repeat("n", 1'000'000);
  for (int i = 0; many.size() < size; ++i)
    many += "\"" + std::to_string(i) + long_name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  many.back() = '}';
  expect_bounded_header("long names", std::move(many));
}

TEST(ParseMemory, OfHostileManifestsIsBounded) {
  const std::size_t size = 7'900'000;
  expect_bounded_manifest("nesting", repeat("[", size));
  expect_bounded_manifest("empty objects", "{\"a\":[" + repeat("{},", size) + "0]}");
  expect_bounded_manifest("empty objects, just allowed", "{\"a\":[" + repeat("{},", 360'000) + "0]}");
  expect_bounded_manifest("zeros", "{\"a\":[" + repeat("0,", size) + "0]}");
  expect_bounded_manifest("one string", "{\"a\":\"" + repeat("x", size) + "\"}");
  std::string keys = "{";
  for (int i = 0; i < 124'000; ++i) keys += "\"" + std::to_string(i) + "\":{},";
  keys.back() = '}';
  expect_bounded_manifest("keys, just allowed", keys);
}

}  // namespace tandem
