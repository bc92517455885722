#include "shard_data.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr uint64_t kDataSeed = 5;

class SentenceData : public Dataset {
 public:
  explicit SentenceData(const TextOptions& options) : options_(options) {}
  int64_t size() const override { return options_.samples; }
  std::string name() const override { return "sentences"; }
  bool resident() const override { return options_.resident; }
  std::vector<DataField> fields() const override {
    const std::vector<int64_t> line{options_.tokens};
    if (options_.causal) return {{"tokens", at::kLong, line}, {"next", at::kLong, line}};
    return {{"tokens", at::kLong, line}, {"mask", at::kBool, line}, {"words", at::kLong, line}};
  }
  void load_into(SampleWriter& out, const RandomKey&) const override {
    const RandomKey key{.seed = kDataSeed, .step = static_cast<uint64_t>(out.sample())};
    const auto tokens = out.write<int64_t>(0);
    const auto second = options_.causal ? out.write<int64_t>(1) : out.write<int64_t>(2);
    if (options_.causal)
      continue_lines(key, tokens, second);
    else
      mask_words(key, tokens, out.write<bool>(1), second);
  }

 private:
  int64_t word(const RandomKey& key, int64_t at) const {
    const int64_t known = options_.vocabulary - 1;  // the last one stands for what is masked
    if (random_below(key, static_cast<uint64_t>(4 * at + 2), 10) == 0)
      return random_below(key, static_cast<uint64_t>(4 * at + 3), static_cast<uint32_t>(known));
    return (random_below(key, 0, static_cast<uint32_t>(known)) + at * (1 + random_below(key, 1, 4))) % known;
  }
  void continue_lines(const RandomKey& key, std::span<int64_t> tokens, std::span<int64_t> next) const {
    for (int64_t t = 0; t < options_.tokens; ++t) {
      tokens[t] = t == 0 ? word(key, 0) : next[t - 1];
      next[t] = word(key, t + 1);
    }
  }
  void mask_words(const RandomKey& key, std::span<int64_t> tokens, std::span<bool> mask,
                  std::span<int64_t> words) const {
    const RandomKey choice{.seed = kDataSeed, .step = key.step, .site = 1};
    const int64_t half = (options_.tokens + 1) / 2;
    const int64_t length = half + random_below(choice, 0, static_cast<uint32_t>(options_.tokens - half + 1));
    const int64_t always = random_below(choice, 1, static_cast<uint32_t>(length));
    for (int64_t t = 0; t < options_.tokens; ++t) {
      const bool hidden = t < length && (t == always || random_below(choice, static_cast<uint64_t>(t + 2), 100) < 15);
      mask[t] = t < length;
      words[t] = hidden ? word(key, t) : kIgnoredLabel;
      tokens[t] = hidden ? options_.vocabulary - 1 : t < length ? word(key, t) : 0;
    }
  }
  TextOptions options_;
};

class StripeData : public Dataset {
 public:
  explicit StripeData(const PictureOptions& options) : options_(options) {}
  int64_t size() const override { return options_.samples; }
  std::string name() const override { return "stripes"; }
  bool resident() const override { return options_.resident; }
  std::vector<DataField> fields() const override {
    return {{"picture", at::kByte, {options_.side, options_.side, 3}}, {"class", at::kLong, {}}};
  }
  void load_into(SampleWriter& out, const RandomKey&) const override {
    const int64_t kind = out.sample() % options_.classes;
    const int64_t across = 1 + kind % 3, down = 1 + kind / 3 % 3, period = 4 + kind / 9 % 4;
    const RandomKey key{.seed = kDataSeed, .step = static_cast<uint64_t>(out.sample()), .site = 2};
    const int64_t shift = random_below(key, 0, 8);
    const auto pixels = out.write<uint8_t>(0);
    uint32_t noise = random_below(key, 1, 1u << 30) | 1;
    for (int64_t i = 0; i < options_.side * options_.side; ++i) {
      const int64_t place = across * (i % options_.side) + down * (i / options_.side) + shift;
      for (int64_t c = 0; c < 3; ++c) {
        noise ^= noise << 13, noise ^= noise >> 17, noise ^= noise << 5;  // xorshift32: cheap
        const bool bright = place / period % 2 == (kind / 36 >> c) % 2;
        pixels[3 * i + c] = static_cast<uint8_t>((bright ? 96 : 32) + noise % 128);
      }
    }
    out.put<int64_t>(1, kind);
  }

 private:
  PictureOptions options_;
};

}  // namespace

std::unique_ptr<Dataset> make_text(const TextOptions& options) { return std::make_unique<SentenceData>(options); }
std::unique_ptr<Dataset> make_pictures(const PictureOptions& options) { return std::make_unique<StripeData>(options); }

}  // namespace tandem
