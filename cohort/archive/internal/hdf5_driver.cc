// SPDX-License-Identifier: Apache-2.0
#include "cohort/archive/internal/hdf5_driver.h"

#include <new>

namespace cohort::internal::archive {
namespace {

/// What the driver's properties hold, and get copied.
struct Hdf5Access {
  Hdf5Source* source;
};

/// As the library wants files: its own part comes first.
struct Hdf5SourceFile {
  H5FD_t own = {};
  Hdf5Source* source = nullptr;
  haddr_t end = 0;  // of what is allocated, which the library says
};

Hdf5SourceFile& file_of(H5FD_t* file) { return *reinterpret_cast<Hdf5SourceFile*>(file); }
const Hdf5SourceFile& file_of(const H5FD_t* file) {
  return *reinterpret_cast<const Hdf5SourceFile*>(file);
}

H5FD_t* open_source(const char*, unsigned, hid_t access, haddr_t) {
  const auto* given = static_cast<const Hdf5Access*>(H5Pget_driver_info(access));
  if (given == nullptr) return nullptr;
  auto* file = new (std::nothrow) Hdf5SourceFile;
  if (file == nullptr) return nullptr;
  file->source = given->source;
  return &file->own;
}

herr_t close_source(H5FD_t* file) {
  delete &file_of(file);
  return 0;
}

haddr_t allocated_end(const H5FD_t* file, H5FD_mem_t) { return file_of(file).end; }
herr_t set_allocated_end(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  file_of(file).end = end;
  return 0;
}
haddr_t end_of_source(const H5FD_t* file, H5FD_mem_t) { return file_of(file).source->content; }

herr_t read_source(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t place, size_t bytes, void* out) {
  Hdf5Source& source = *file_of(file).source;
  try {
    source.bytes->read(place, out, bytes);
    return 0;
  } catch (...) {
    source.thrown = std::current_exception();
    return -1;
  }
}

herr_t write_source(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) { return -1; }

// By names: versions of the library have other fields between them.
H5FD_class_t driver_class() {
  H5FD_class_t made = {};
#ifdef H5FD_CLASS_VERSION
  made.version = H5FD_CLASS_VERSION;
  constexpr int kOfNobody = 511;  // up to 511 drivers have numbers that their makers choose
  made.value = kOfNobody;
#endif
  made.name = "cohort_checked_bytes";
  made.maxaddr = (haddr_t{1} << 62) - 1;
  made.fc_degree = H5F_CLOSE_WEAK;
  made.fapl_size = sizeof(Hdf5Access);
  made.open = open_source;
  made.close = close_source;
  made.get_eoa = allocated_end;
  made.set_eoa = set_allocated_end;
  made.get_eof = end_of_source;
  made.read = read_source;
  made.write = write_source;
  for (auto& list : made.fl_map) list = H5FD_MEM_SUPER;
  return made;
}

// Whoever closes the library takes its drivers away, too.
hid_t driver() {
  static const H5FD_class_t own_class = driver_class();
  static hid_t id = -1;  // within a turn
  if (id < 0 || H5Iget_type(id) != H5I_VFL) id = H5FDregister(&own_class);
  return id;
}

}  // namespace

Hdf5Id open_hdf5(Hdf5Source& source) {
  const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  const Hdf5Access given{&source};
  if (H5Pset_driver(access, driver(), &given) < 0) return {};
  return {H5Fopen("checked bytes", H5F_ACC_RDONLY, access), H5Fclose};
}

}  // namespace cohort::internal::archive
