#include "hardware/gpu_models.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "base/errors.h"

namespace tandem {

// Sources, all the makers' own: NVIDIA Turing, Ampere GA102, Ada and Blackwell architecture papers (GeForce: tensor
// peaks with fp32 accumulation); data sheets of V100, T4, A100, L4, L40S, RTX A6000, RTX 6000 Ada, H100, H200 and
// HGX B200 (an eighth of its eight GPUs); AMD data sheets of Instinct MI300X and MI325X. Prices: at launch.
std::string GpuModel::why_no_training() const {
  if (maker != "NVIDIA") return std::string(maker) + " GPUs do not train with tandem yet: its kernels are CUDA";
  if (cc && *cc < 7.5)
    return std::string(name) + " does not train with tandem: CUDA 13 begins with compute capability 7.5";
  return "";
}

const std::vector<GpuModel>& gpu_models() {
  constexpr double kGen3 = 15.75, kGen4 = 31.5, kGen5 = 63.0;
  const auto none = std::nullopt;
  static const std::vector<GpuModel> book = {
      // name, maker, aliases, GB, cores, SMs, GB/s, W, fp32, tf32, bf16, fp16, NVLink, PCIe, year, price, cc
      {"GTX 1080 Ti", "NVIDIA", "1080ti", 11, 3584, 28, 484, 250, 11.3, none, none, none, none, kGen3, 2017, 699, 6.1},
      {"RTX 2080 Ti", "NVIDIA", "2080ti", 11, 4352, 68, 616, 250, 13.4, none, none, 53.8, 100, kGen3, 2018, 999, 7.5},
      {"RTX 3060", "NVIDIA", "3060", 12, 3584, 28, 360, 170, 12.7, 12.7, 25.5, 25.5, none, kGen4, 2021, 329, 8.6},
      {"RTX 3060 Ti", "NVIDIA", "3060ti", 8, 4864, 38, 448, 200, 16.2, 16.2, 32.4, 32.4, none, kGen4, 2020, 399, 8.6},
      {"RTX 3070", "NVIDIA", "3070", 8, 5888, 46, 448, 220, 20.3, 20.3, 40.6, 40.6, none, kGen4, 2020, 499, 8.6},
      {"RTX 3070 Ti", "NVIDIA", "3070ti", 8, 6144, 48, 608, 290, 21.7, 21.7, 43.5, 43.5, none, kGen4, 2021, 599, 8.6},
      {"RTX 3080", "NVIDIA", "3080", 10, 8704, 68, 760, 320, 29.8, 29.8, 59.5, 59.5, none, kGen4, 2020, 699, 8.6},
      {"RTX 3090", "NVIDIA", "3090", 24, 10496, 82, 936, 350, 35.6, 35.6, 71.0, 71.0, 112.5, kGen4, 2020, 1499, 8.6},
      {"RTX 4070", "NVIDIA", "4070", 12, 5888, 46, 504, 200, 29.1, 29.1, 58.3, 58.3, none, kGen4, 2023, 599, 8.9},
      {"RTX 4080", "NVIDIA", "4080", 16, 9728, 76, 717, 320, 48.7, 48.7, 97.5, 97.5, none, kGen4, 2022, 1199, 8.9},
      {"RTX 4090", "NVIDIA", "4090", 24, 16384, 128, 1008, 450, 82.6, 82.6, 165.2, 165.2, none, kGen4, 2022, 1599, 8.9},
      {"RTX 5090", "NVIDIA", "5090", 32, 21760, 170, 1792, 575, 104.8, 104.8, 209.5, 209.5, none, kGen5, 2025, 1999,
       12.0},
      {"RTX A6000", "NVIDIA", "a6000", 48, 10752, 84, 768, 300, 38.7, 77.4, 154.8, 154.8, 112.5, kGen4, 2020, none,
       8.6},
      {"RTX 6000 Ada", "NVIDIA", "6000ada rtx6000 rtx6000ada", 48, 18176, 142, 960, 300, 91.1, 182.1, 364.2, 364.2,
       none, kGen4, 2022, 6800, 8.9},
      {"T4", "NVIDIA", "t4", 16, 2560, 40, 320, 70, 8.1, none, none, 65, none, kGen3, 2018, none, 7.5},
      {"L4", "NVIDIA", "l4", 24, 7424, 58, 300, 72, 30.3, 60, 121, 121, none, kGen4, 2023, none, 8.9},
      {"L40S", "NVIDIA", "l40s", 48, 18176, 142, 864, 350, 91.6, 183, 362, 362, none, kGen4, 2023, none, 8.9},
      {"V100 SXM2 32GB", "NVIDIA", "v100 v100sxm2 v100sxm232gb", 32, 5120, 80, 900, 300, 15.7, none, none, 125, 300,
       kGen3, 2018, none, 7.0},
      {"A100 SXM 40GB", "NVIDIA", "a10040gb a100sxm440gb a100sxm40gb", 40, 6912, 108, 1555, 400, 19.5, 156, 312, 312,
       600, kGen4, 2020, none, 8.0},
      {"A100 PCIe 80GB", "NVIDIA", "a100pcie a10080gbpcie a100pcie80gb", 80, 6912, 108, 1935, 300, 19.5, 156, 312, 312,
       600, kGen4, 2021, none, 8.0},
      {"A100 SXM 80GB", "NVIDIA", "a100 a100sxm a10080gb a100sxm480gb a100sxm80gb", 80, 6912, 108, 2039, 400, 19.5, 156,
       312, 312, 600, kGen4, 2020, none, 8.0},
      {"H100 PCIe", "NVIDIA", "h100pcie", 80, 14592, 114, 2000, 350, 51.2, 378, 756, 756, 600, kGen5, 2022, none, 9.0},
      {"H100 SXM", "NVIDIA", "h100 h100sxm h100sxm5 h10080gbhbm3 h10080gb", 80, 16896, 132, 3350, 700, 66.9, 494.7,
       989.4, 989.4, 900, kGen5, 2022, none, 9.0},
      {"H200", "NVIDIA", "h200 h200sxm", 141, 16896, 132, 4800, 700, 66.9, 494.7, 989.4, 989.4, 900, kGen5, 2024, none,
       9.0},
      {"GH200", "NVIDIA", "gh200 gh200480gb", 96, 16896, 132, 4000, 700, 66.9, 494.7, 989.4, 989.4, 900, kGen5, 2023,
       none, 9.0},
      {"B200", "NVIDIA", "b200 b200sxm", 180, 18944, 148, 8000, 1000, 75, 1125, 2250, 2250, 1800, kGen5, 2024, none,
       10.0},
      {"MI300X", "AMD", "mi300x", 192, 19456, 304, 5300, 750, 163.4, 653.7, 1307.4, 1307.4, 896, kGen5, 2023, none,
       none},
      {"MI325X", "AMD", "mi325x", 256, 19456, 304, 6000, 1000, 163.4, 653.7, 1307.4, 1307.4, 896, kGen5, 2024, none,
       none},
  };
  return book;
}

namespace {

// Lower case, letters and digits alone, without the words that name no GPU.
std::string bare(std::string_view text) {
  std::string word, all;
  std::string lower;
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::istringstream words(lower);
  static constexpr std::string_view kFillers[] = {"nvidia", "geforce",    "amd", "instinct",
                                                  "tesla",  "generation", "gtx", "radeon"};
  while (words >> word) {
    if (std::find(std::begin(kFillers), std::end(kFillers), word) != std::end(kFillers)) continue;
    for (const char c : word) {
      if (std::isalnum(static_cast<unsigned char>(c))) all += c;
    }
  }
  for (const char* front : {"nvidia", "geforce"}) {
    if (all.starts_with(front)) all.erase(0, std::string_view(front).size());
  }
  return all;
}

// Edits between two short words.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t cost = std::min({row[j] + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1])});
      corner = row[j];
      row[j] = cost;
    }
  }
  return row.back();
}

template <class F>
void each_alias(const GpuModel& gpu, F f) {
  std::istringstream words{std::string(gpu.aliases)};
  std::string alias;
  while (words >> alias) f(alias);
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

const GpuModel* find_gpu_model(std::string_view name) {
  const std::string word = bare(name);
  if (word.empty()) return nullptr;
  const std::string short_word = word.starts_with("rtx") ? word.substr(3) : word;
  for (const GpuModel& gpu : gpu_models()) {
    bool found = false;
    each_alias(gpu, [&](const std::string& alias) { found = found || alias == word || alias == short_word; });
    if (found || bare(gpu.name) == word) return &gpu;
  }
  return nullptr;
}

const GpuModel& gpu_or_throw(std::string_view name) {
  if (const GpuModel* gpu = find_gpu_model(name)) return *gpu;
  std::string word = bare(name), nearest, all;
  if (word.starts_with("rtx")) word.erase(0, 3);
  size_t best = 3;  // further away is no slip of the finger
  for (const GpuModel& gpu : gpu_models()) {
    all += (all.empty() ? "" : ", ") + std::string(gpu.name);
    each_alias(gpu, [&](const std::string& alias) {
      if (const size_t d = distance(word, alias); d < best && d < word.size()) best = d, nearest = gpu.name;
    });
  }
  throw ConfigError(
      "there is no GPU '" + trimmed(name) + "' in the book", "it has: " + all,
      nearest.empty() ? "name one of these, as \"4090\" or \"RTX 4090\"" : "did you mean '" + nearest + "'?");
}

std::vector<const GpuModel*> parse_hardware(std::string_view text) {
  constexpr int kMost = 1024;
  const std::string how = "write it as 4090, 8xH100 or 3060ti+2x3070";
  std::vector<const GpuModel*> gpus;
  size_t start = 0;
  while (start <= text.size()) {
    const size_t end = std::min(text.find_first_of("+,", start), text.size());
    std::string part = trimmed(text.substr(start, end - start));
    start = end + 1;
    if (part.empty()) throw ConfigError("'" + std::string(text) + "' names no hardware", "a part of it is empty", how);
    // "8x", "8 x ", "8*": a count, unless what follows is no name ("4090" is a GPU, not 4090 of nothing).
    size_t digits = 0;
    while (digits < part.size() && std::isdigit(static_cast<unsigned char>(part[digits]))) ++digits;
    size_t cross = digits;
    while (cross < part.size() && part[cross] == ' ') ++cross;
    long count = 1;
    if (digits > 0 && digits < 6 && cross < part.size() &&
        (part[cross] == 'x' || part[cross] == 'X' || part[cross] == '*')) {
      count = std::stol(part.substr(0, digits));
      part = trimmed(std::string_view(part).substr(cross + 1));
    }
    const GpuModel& gpu = gpu_or_throw(part);
    if (count < 1 || count + static_cast<long>(gpus.size()) > kMost)
      throw ConfigError("'" + std::string(text) + "' is no machine",
                        "it has " + std::to_string(count) + " of one GPU; 1 to " + std::to_string(kMost) + " will do",
                        how);
    gpus.insert(gpus.end(), static_cast<size_t>(count), &gpu);
  }
  return gpus;
}

std::string hardware_name(const std::vector<const GpuModel*>& gpus) {
  std::string text;
  for (size_t i = 0; i < gpus.size();) {
    size_t same = i;
    while (same < gpus.size() && gpus[same] == gpus[i]) ++same;
    if (!text.empty()) text += " + ";
    if (same - i > 1) text += std::to_string(same - i) + " x ";
    text += gpus[i]->name;
    i = same;
  }
  return text;
}

}  // namespace tandem
