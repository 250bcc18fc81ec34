// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "cohort/archive/hdf5_file.h"
#include "cohort/archive/internal/hdf5_trailer.h"
#include "cohort/archive/internal/hdf5_types.h"
#include "cohort/base/check.h"

namespace cohort::internal::archive {

namespace {

// Into memory: nothing but memory can fail.
void check_written(bool written, const std::string& path) {
  if (written) return;
  throw Error(ErrorCode::kResourceExhausted,
              str_cat("[hdf5] failed to put \"", path, "\" into a file", hdf5_reason()));
}

Hdf5Id text_type() {
  Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  return type;
}

void set_attribute(hid_t object, const char* name, const std::string& text) {
  const Hdf5Id type = text_type(), space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Id attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  const char* bytes = text.c_str();
  check_written(attribute.valid() && H5Awrite(attribute, type, &bytes) >= 0, name);
}

void set_sum(hid_t array, uint32_t sum) {
  const Hdf5Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Id attribute(
      H5Acreate2(array, kSumAttribute, H5T_STD_U32LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  check_written(attribute.valid() && H5Awrite(attribute, H5T_NATIVE_UINT32, &sum) >= 0,
                kSumAttribute);
}

Hdf5Id space_of(const Tensor& values) {
  if (values.dim() == 0) return {H5Screate(H5S_SCALAR), H5Sclose};
  std::vector<hsize_t> sizes;
  for (const int64_t size : values.sizes()) sizes.push_back(static_cast<hsize_t>(size));
  return {H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), H5Sclose};
}

}  // namespace

struct Hdf5Writer::File {
  Hdf5Id id, with_parents;
};

Hdf5Writer::Hdf5Writer(std::size_t bytes) : file_(std::make_unique<File>()) {
  constexpr std::size_t kLeast = std::size_t{64} << 10, kAround = std::size_t{1} << 20;
  const Hdf5Turn turn;
  const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // It grows by so much at a time.
  H5Pset_fapl_core(access, bytes == 0 ? kLeast : bytes + bytes / 64 + kAround, 0);
  // The library opens no name twice, although this is none of a disk.
  static std::atomic<uint64_t> files{0};
  const std::string name = str_cat("memory-", files.fetch_add(1));
  file_->id = Hdf5Id(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose);
  check_written(file_->id.valid(), "/");
  file_->with_parents = Hdf5Id(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(file_->with_parents, 1);
}

Hdf5Writer::~Hdf5Writer() {
  const Hdf5Turn turn;
  file_->with_parents.close();
  file_->id.close();
}

void Hdf5Writer::add_group(const std::string& path, const std::string& name) {
  const Hdf5Turn turn;
  const Hdf5Id group(
      H5Gcreate2(file_->id, path.c_str(), file_->with_parents, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  check_written(group.valid(), path);
  set_attribute(group, "name", name);
}

void Hdf5Writer::add(const std::string& path, const Tensor& values) {
  COHORT_CHECK_ARG(values.defined(), "[hdf5] expected a tensor as \"", path,
                   "\", got an undefined one");
  const Tensor data = values.detach().cpu().contiguous();
  const Hdf5Turn turn;
  const Hdf5Id type = hdf5_type_of(data.scalar_type());
  COHORT_CHECK_ARG(type.valid(), "[hdf5] \"", path, "\": the format has no type for ",
                   dtype_name(data.scalar_type()));
  const Hdf5Id space = space_of(data);
  const Hdf5Id array(
      H5Dcreate2(file_->id, path.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Dclose);
  check_written(array.valid(), path);
  if (data.numel() > 0) {
    const herr_t status =
        H5Dwrite(array, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.const_data_ptr());
    check_written(status >= 0, path);
    set_sum(array, array_sum(path, data.scalar_type(), data));
  }
  if (data.scalar_type() == kBFloat16) set_attribute(array, "dtype", "bfloat16");
}

FileBytes Hdf5Writer::finish() && {
  const Hdf5Turn turn;
  check_written(H5Fflush(file_->id, H5F_SCOPE_LOCAL) >= 0, "/");
  const ssize_t bytes = H5Fget_file_image(file_->id, nullptr, 0);
  check_written(bytes >= 0, "/");
  FileBytes out(static_cast<std::size_t>(bytes) + kTrailerBytes);
  const auto size = static_cast<std::size_t>(bytes);
  check_written(H5Fget_file_image(file_->id, out.data.get(), size) == bytes, "/");
  write_trailer(out);
  return out;
}

}  // namespace cohort::internal::archive
