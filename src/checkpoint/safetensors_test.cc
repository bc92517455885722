#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "checkpoint/checksum.h"
#include "checkpoint/sample.h"

namespace tandem {
namespace {

std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(header.size() >> (8 * i));
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string refusal(const std::string& header, std::size_t data_bytes) {
  try {
    SafetensorsFile::parse(file_of(header, data_bytes));
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Safetensors, RoundTripKeepsEveryTypeShapeAndByte) {
  TempDir dir;
  std::vector<std::vector<std::byte>> buffers;
  std::vector<TensorView> tensors;
  const DType types[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64,
                         DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};
  buffers.reserve(std::size(types));
  for (DType dtype : types) {
    buffers.emplace_back(6 * dtype_size(dtype), static_cast<std::byte>(buffers.size()));
    tensors.push_back({"tensor of " + std::string(dtype_name(dtype)) + " \"\\\n\u00e9", dtype, {2, 3}, buffers.back()});
  }
  tensors.push_back({"one", DType::kF32, {}, std::span(buffers[0]).first(4)});
  tensors.push_back({"none", DType::kF32, {0, 7}, {}});
  const std::map<std::string, std::string> metadata{{"key", "a \"text\""}, {"", ""}};
  const FileSums sums = write_safetensors(FileSystem::real(), dir / "a", tensors, metadata);
  const SafetensorsFile file = SafetensorsFile::read(FileSystem::real(), dir / "a");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.find("absent"), nullptr);
  for (const TensorView& tensor : tensors) {
    const TensorView* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_TRUE(std::equal(found->bytes.begin(), found->bytes.end(), tensor.bytes.begin(), tensor.bytes.end()));
    EXPECT_EQ(sums.tensors.at(tensor.name), checksum_of(ChecksumKind::kXxh64, tensor.bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found->bytes.data()) % dtype_size(tensor.dtype), 0u) << tensor.name;
  }
  const FileBytes bytes = read_whole_file(FileSystem::real(), dir / "a");
  EXPECT_EQ(sums.size, bytes.size);
  EXPECT_EQ(safetensors_size(tensors, metadata), bytes.size);
  EXPECT_EQ(sums.checksum, checksum_of(ChecksumKind::kXxh128, bytes.span()));
}

TEST(Safetensors, PiecesLargerAndSmallerThanABlockMakeOneFile) {
  TempDir dir(quick_dir());
  std::vector<std::byte> large((17 << 20) + 12), small(20);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  const std::vector<TensorView> tensors{{"a", DType::kU8, {static_cast<std::int64_t>(large.size())}, large},
                                        {"b", DType::kU8, {20}, small},
                                        {"c", DType::kU8, {static_cast<std::int64_t>(large.size())}, large}};
  const FileSums sums = write_safetensors(FileSystem::real(), dir / "a", tensors);
  const FileBytes bytes = read_whole_file(FileSystem::real(), dir / "a");
  EXPECT_EQ(sums.checksum, checksum_of(ChecksumKind::kXxh128, bytes.span()));
  const SafetensorsFile file = SafetensorsFile::read(FileSystem::real(), dir / "a");
  EXPECT_EQ(std::memcmp(file.find("c")->bytes.data(), large.data(), large.size()), 0);
}

TEST(Safetensors, CopyOutlivesTheOriginal) {
  auto file = std::make_unique<SafetensorsFile>(
      SafetensorsFile::parse(file_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3)));
  const SafetensorsFile copy = *file;
  file.reset();
  EXPECT_EQ(copy.find("a")->bytes.size(), 3u);
}

TEST(Safetensors, EveryBreachOfTheFormatIsNamed) {
  const std::string good = R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
  EXPECT_EQ(refusal(good, 3), "");
  EXPECT_EQ(refusal(good + "   ", 3), "");
  struct Case {
    std::string header;
    std::size_t data;
    std::string expected;
  };
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(refusal(two("[2,4]", "[0,2]"), 4), "");
  const std::vector<Case> cases{
      {"", 0, "does not begin with '{'"},
      {" " + good, 3, "does not begin with '{'"},
      {"{", 0, "not JSON"},
      {good + "x", 3, "not JSON"},
      {good, 2, "ends outside"},
      {good, 4, "belong to no tensor"},
      {two("[0,2]", "[1,3]"), 4, "overlaps"},
      {two("[0,2]", "[3,5]"), 5, "hole"},
      {two("[1,3]", "[3,5]"), 5, "hole"},
      {two("[2,0]", "[0,2]"), 4, "ends outside"},
      {two("[0,2,4]", "[2,4]"), 4, "not JSON|data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       4, "'a' twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2, "dtype twice"},
      {R"({"a":{"dtype":"U8","shape":[2]}})", 2, "lacks"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"more":1}})", 2, "unexpected"},
      {R"({"a":{"dtype":"Q8","shape":[2],"data_offsets":[0,2]}})", 2, "type we do not know"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,2]}})", 2, "size that its type"},
      {R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", 2, "unexpected"},
      {R"({"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})", 2, "unexpected"},
      {R"({"a":{"dtype":"U8","shape":[[2]],"data_offsets":[0,2]}})", 2, "deeper"},
      // 2^62 * 4 bytes is 0 in 64 bits
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, "size that its type"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "size that its type"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0, "too large"},
      {R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,0]}})", 0, "unexpected"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,18446744073709551615]}})", 2, "ends outside"},
      {R"({"__metadata__":{"a":1}})", 0, "unexpected"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "two __metadata__"},
      {R"({"a":3})", 0, "unexpected"},
      {"[]", 0, "does not begin with '{'"},
  };
  for (const Case& c : cases) {
    const std::string message = refusal(c.header, c.data);
    bool found = false;
    for (std::size_t from = 0, to; from <= c.expected.size(); from = to + 1) {
      to = std::min(c.expected.find('|', from), c.expected.size());
      found |= message.find(c.expected.substr(from, to - from)) != std::string::npos;
    }
    EXPECT_TRUE(found) << c.header << "\n  message: " << message << "\n  expected: " << c.expected;
  }
}

TEST(Safetensors, HeaderLengthIsNeverBelieved) {
  for (std::uint64_t length : {UINT64_MAX, UINT64_MAX - 7, std::uint64_t{1} << 63, std::uint64_t{100'000'001}}) {
    std::vector<std::byte> bytes(64);
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(length >> (8 * i));
    EXPECT_THROW(SafetensorsFile::parse(bytes), CheckpointError) << length;
  }
  EXPECT_THROW(SafetensorsFile::parse(std::vector<std::byte>(7)), CheckpointError);
}

TEST(Safetensors, WriterRefusesWhatTheReaderWould) {
  TempDir dir;
  const std::vector<std::byte> bytes(8);
  const auto write = [&](std::vector<TensorView> tensors) {
    write_safetensors(FileSystem::real(), dir / "a", tensors);
  };
  EXPECT_THROW(write({{"a", DType::kU8, {8}, bytes}, {"a", DType::kU8, {8}, bytes}}), CheckpointError);
  EXPECT_THROW(write({{"a", DType::kF32, {8}, bytes}}), CheckpointError);
  EXPECT_THROW(write({{"__metadata__", DType::kU8, {8}, bytes}}), CheckpointError);
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
}

}  // namespace tandem
