#include "kernels/gpu/linear_choice.h"

#include <algorithm>
#include <cstdio>

#include "base/errors.h"

namespace tandem {
namespace {

std::string hex_of(const std::array<uint64_t, 8>& bytes) {
  std::string text;
  char word[17];
  for (const uint64_t part : bytes) {
    std::snprintf(word, sizeof word, "%016llx", static_cast<unsigned long long>(part));
    text += word;
  }
  return text;
}

bool read_hex(const std::string& text, std::array<uint64_t, 8>& bytes) {
  if (text.size() != 128 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  for (size_t i = 0; i < 8; ++i) bytes[i] = std::stoull(text.substr(16 * i, 16), nullptr, 16);
  return true;
}

struct ChoiceLine {
  std::string version, shape;
  std::array<uint64_t, 8> bytes{};
};

ChoiceLine read_choice(const std::string& line) {
  const size_t space = line.find(' '), equals = line.find(" = "), last = line.rfind("; ");
  ChoiceLine read;
  if (space == std::string::npos || equals == std::string::npos || last == std::string::npos || space >= equals ||
      last < equals || !read_hex(line.substr(last + 2), read.bytes))
    throw ConfigError(
        "'" + line + "' is no record of a GEMM algorithm",
        "it has a version, a shape and 128 hexadecimal digits: \"<version> <shape> = <details>; <digits>\"",
        "take the lines as a run wrote them");
  read.version = line.substr(0, space);
  read.shape = line.substr(space + 1, equals - space - 1);
  return read;
}

}  // namespace

std::string LinearGemmShape::text() const {
  const char* const kinds[] = {"forward", "input-gradient", "weight-leaves"};
  const char* const types[] = {"fp32", "bf16", "fp16"};
  std::string text = std::string(kinds[static_cast<int>(kind)]) + " " + std::to_string(job_shards) + "x" +
                     std::to_string(shard_rows) + " " + std::to_string(in) + "->" + std::to_string(out) + " " +
                     (tf32 ? "tf32" : types[static_cast<int>(type)]);
  return bias ? text + " bias" : text;
}

std::string GemmChoices::refusal(const LinearGemmShape& shape, GemmAlgorithm& algorithm) {
  int64_t workspace = 0;
  // All parts up to 64 shards; of larger jobs those, some between and the whole.
  for (int64_t shards = 1; shards <= shape.job_shards;
       shards = shards < 64 || shards == shape.job_shards ? shards + 1 : std::min(2 * shards, shape.job_shards)) {
    const std::string why = source_.refusal(shape, shards, algorithm);
    if (!why.empty()) return std::to_string(shards) + " of " + std::to_string(shape.job_shards) + " shards: " + why;
    workspace = std::max(workspace, algorithm.workspace_bytes);
  }
  algorithm.workspace_bytes = workspace;
  return "";
}

GemmAlgorithm GemmChoices::choose(const LinearGemmShape& shape) {
  if (const auto forced = forced_.find(shape.text()); forced != forced_.end()) {
    GemmAlgorithm algorithm{forced->second, "", 0};
    const std::string why = refusal(shape, algorithm);
    if (why.empty()) return algorithm;
    throw ConfigError("the GEMM '" + shape.text() + "' can't be run as it was recorded", why,
                      "go on with the GPU and the CUDA libraries that the run began with, or begin a new run");
  }
  const std::vector<GemmAlgorithm> candidates = source_.candidates(shape);
  std::string first_refusal;
  for (GemmAlgorithm algorithm : candidates) {
    const std::string why = refusal(shape, algorithm);
    if (why.empty()) return algorithm;
    if (first_refusal.empty()) first_refusal = why;
  }
  throw ConfigError("no GEMM algorithm for '" + shape.text() + "'",
                    candidates.empty() ? "the library offers none without split-K"
                                       : "none of " + std::to_string(candidates.size()) +
                                             " runs every part of the batch; the first: " + first_refusal,
                    "give the layer sizes that are multiples of 8, or use torch::nn::Linear in its place");
}

const GemmAlgorithm& GemmChoices::of(const LinearGemmShape& shape) {
  const std::lock_guard lock(mutex_);
  if (const auto found = chosen_.find(shape); found != chosen_.end()) return found->second;
  return chosen_.emplace(shape, choose(shape)).first->second;
}

std::vector<std::string> GemmChoices::lines() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [shape, algorithm] : chosen_)
    lines.push_back(source_.version() + " " + shape.text() + " = " + algorithm.details + "; " +
                    hex_of(algorithm.bytes));
  return lines;
}

void GemmChoices::force(const std::vector<std::string>& lines) {
  const std::lock_guard lock(mutex_);
  for (const std::string& line : lines) {
    const ChoiceLine read = read_choice(line);
    if (read.version != source_.version())
      throw ConfigError("the GEMM algorithms were chosen by " + read.version + ", this is " + source_.version(),
                        "another version of the library has other algorithms, and other bits",
                        "go on with the CUDA libraries that the run began with, or begin a new run");
    for (const auto& [shape, algorithm] : chosen_)
      if (shape.text() == read.shape && algorithm.bytes != read.bytes)
        throw ConfigError("the GEMM '" + read.shape + "' has run with another algorithm than was recorded",
                          "its choice came too late", "force the recorded ones before the first step");
    forced_[read.shape] = read.bytes;
  }
}

}  // namespace tandem
