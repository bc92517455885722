#include "reduce/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

namespace tandem {

std::shared_ptr<const NcclLibrary> NcclLibrary::open(const std::string& path, std::string* refused) {
  const char* name = path.empty() ? "libnccl.so.2" : path.c_str();
  void* handle = path.empty() ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (!handle) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* words = dlerror();
    *refused = fmt::format("there is no NCCL: {}", words ? words : name);
    return nullptr;
  }
  auto library = std::make_shared<NcclLibrary>();
  std::string missing;
  const auto find = [&](auto& function, const char* symbol, bool needed = true) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, symbol));
    if (!function && needed && missing.empty()) missing = symbol;
  };
  find(library->get_version, "ncclGetVersion");
  find(library->get_unique_id, "ncclGetUniqueId");
  find(library->comm_init_rank_config, "ncclCommInitRankConfig");
  find(library->comm_get_async_error, "ncclCommGetAsyncError");
  find(library->comm_abort, "ncclCommAbort");
  find(library->comm_shrink, "ncclCommShrink", false);
  find(library->group_start, "ncclGroupStart");
  find(library->group_end, "ncclGroupEnd");
  find(library->send, "ncclSend");
  find(library->recv, "ncclRecv");
  find(library->get_error_string, "ncclGetErrorString");
  find(library->get_last_error, "ncclGetLastError");
  if (!missing.empty()) {
    *refused = fmt::format("this NCCL has no {}: it is older than 2.18", missing);
    return nullptr;
  }
  return library;
}

std::string NcclLibrary::version() const {
  int code = 0;
  if (get_version(&code) != kNcclSuccess) return "of unknown version";
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string NcclLibrary::words_for(int result) const {
  const char* kind = get_error_string(result);
  const char* last = get_last_error(nullptr);
  std::string text = kind ? kind : fmt::format("error {}", result);
  if (last && *last) text += fmt::format(": {}", last);
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace tandem
