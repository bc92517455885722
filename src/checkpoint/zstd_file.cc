#include "checkpoint/zstd_file.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <new>
#include <stdexcept>

#include "base/errors.h"

namespace tandem {
namespace {

constexpr int kLevel = 1;  // of replay buffers: 3 times smaller at 300 MB/s of one core
constexpr std::size_t kOutBlock = 1 << 20;
// A block of a frame takes 4 bytes at least (its header and one byte to repeat) and holds 128 KiB at most.
constexpr std::uint64_t kLeastBlock = 4, kMostInBlock = 128 << 10;

[[noreturn]] void refuse_frame(const std::string& source, const std::string& what) {
  throw CheckpointError(source + ": " + what,
                        "the file is not the one that was saved: damaged, cut, mixed up or edited",
                        "use an older checkpoint, or another copy of this one");
}

std::size_t checked(std::size_t result) {
  if (ZSTD_isError(result)) throw std::runtime_error(fmt::format("zstd: {}", ZSTD_getErrorName(result)));
  return result;
}

// Not a sign of damage: the next older checkpoint would not fit either.
[[noreturn]] void refuse_memory(const std::string& source, std::uint64_t bytes) {
  throw IoError(fmt::format("{}: its content of {:.1f} GB does not fit into the memory of this machine", source,
                            static_cast<double>(bytes) / 1e9),
                ENOMEM, "resume on a machine with more memory");
}

void check_frame(std::span<const std::byte> frame, std::uint64_t content_size, const std::string& source) {
  std::uint32_t magic = 0;  // libzstd would also take frames of its first versions, and ones that it skips
  for (std::size_t i = 0; i < 4 && i < frame.size(); ++i) magic |= std::to_integer<std::uint32_t>(frame[i]) << (8 * i);
  if (magic != ZSTD_MAGICNUMBER) refuse_frame(source, "is no zstd frame");
  const unsigned long long stated = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (stated == ZSTD_CONTENTSIZE_ERROR) refuse_frame(source, "ends inside the header of its zstd frame");
  if (stated == ZSTD_CONTENTSIZE_UNKNOWN) refuse_frame(source, "does not state the size of its content");
  if (stated != content_size)
    refuse_frame(source, fmt::format("states a content of {} bytes where {} were saved", stated, content_size));
  const std::size_t length = ZSTD_findFrameCompressedSize(frame.data(), frame.size());
  if (ZSTD_isError(length)) refuse_frame(source, fmt::format("is no whole zstd frame ({})", ZSTD_getErrorName(length)));
  if (length != frame.size())
    refuse_frame(source, fmt::format("has {} bytes after its zstd frame", frame.size() - length));
  if (content_size / kMostInBlock > frame.size() / kLeastBlock)
    refuse_frame(source,
                 fmt::format("states a content of {} bytes, more than its {} bytes can hold", stated, frame.size()));
}

}  // namespace

struct ZstdWriter::Context {
  ZSTD_CCtx* zstd = ZSTD_createCCtx();
  ~Context() { ZSTD_freeCCtx(zstd); }
};

ZstdWriter::ZstdWriter(OpenFile& file, std::uint64_t content_size)
    : file_(file), context_(std::make_unique<Context>()), out_(kOutBlock), sum_(ChecksumKind::kXxh128) {
  if (!context_->zstd) throw std::bad_alloc();
  checked(ZSTD_CCtx_setParameter(context_->zstd, ZSTD_c_compressionLevel, kLevel));
  checked(ZSTD_CCtx_setParameter(context_->zstd, ZSTD_c_contentSizeFlag, 1));
  checked(ZSTD_CCtx_setParameter(context_->zstd, ZSTD_c_checksumFlag, 1));
  checked(ZSTD_CCtx_setPledgedSrcSize(context_->zstd, content_size));
}

ZstdWriter::~ZstdWriter() = default;

void ZstdWriter::write(std::span<const std::byte> bytes) { compress(bytes, false); }

void ZstdWriter::finish() { compress({}, true); }

void ZstdWriter::compress(std::span<const std::byte> bytes, bool end) {
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (bool more = true; more;) {
    ZSTD_outBuffer out{out_.data(), out_.size(), 0};
    const std::size_t left =
        checked(ZSTD_compressStream2(context_->zstd, &out, &in, end ? ZSTD_e_end : ZSTD_e_continue));
    const auto made = std::span<const std::byte>(out_).first(out.pos);
    sum_.update(made);
    size_ += made.size();
    file_.write_all(made);
    more = end ? left > 0 : in.pos < in.size;
  }
}

FileBytes unpack_zstd(std::span<const std::byte> frame, std::uint64_t content_size, const std::string& source) {
  check_frame(frame, content_size, source);
  const auto memory =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (content_size > memory) refuse_memory(source, content_size);
  FileBytes content;
  try {
    content.data = std::make_unique_for_overwrite<std::byte[]>(content_size);
  } catch (const std::bad_alloc&) {
    refuse_memory(source, content_size);
  }
  // In one call: it writes where the content will stay, so no frame can make it reserve a window.
  const std::size_t got = ZSTD_decompress(content.data.get(), content_size, frame.data(), frame.size());
  if (ZSTD_isError(got)) refuse_frame(source, fmt::format("does not unpack ({})", ZSTD_getErrorName(got)));
  if (got != content_size)
    refuse_frame(source, fmt::format("unpacks to {} bytes where {} were saved", got, content_size));
  content.size = got;
  return content;
}

std::uint64_t zstd_bound(std::uint64_t content_size) { return ZSTD_compressBound(content_size); }

}  // namespace tandem
