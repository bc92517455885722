// kernels/gpu/kernel_tables.h -- kernels that a shared library offers (libtandem_cuda.so), found by type.
//
// A table is a struct of function pointers with a kId. It is looked up by name, and version and size are compared, so
// that a library built from another version of the struct is refused instead of called through wrong pointers. Raise
// the version when a signature changes.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct KernelTableId {
  std::string_view name;
  int version;
};

class KernelTables {
 public:
  // `table` is not copied: it must outlive this.
  template <class Kernels>
  KernelTables& add(const Kernels& table) {
    entries_.push_back({std::string(Kernels::kId.name), Kernels::kId.version, sizeof(Kernels), &table});
    return *this;
  }
  // Null: there is none of that name. Throws std::logic_error if it is of another version.
  template <class Kernels>
  const Kernels* find() const {
    for (const Entry& entry : entries_) {
      if (entry.name != Kernels::kId.name) continue;
      if (entry.version != Kernels::kId.version || entry.bytes != sizeof(Kernels))
        throw std::logic_error("the GPU library has version " + std::to_string(entry.version) + " of the kernels '" +
                               entry.name + "', this program needs version " + std::to_string(Kernels::kId.version));
      return static_cast<const Kernels*>(entry.table);
    }
    return nullptr;
  }

 private:
  struct Entry {
    std::string name;
    int version;
    size_t bytes;
    const void* table;
  };
  std::vector<Entry> entries_;
};

}  // namespace tandem
