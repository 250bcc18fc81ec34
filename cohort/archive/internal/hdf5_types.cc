// SPDX-License-Identifier: Apache-2.0
#include "cohort/archive/internal/hdf5_types.h"

#include <bit>
#include <string>

#include "cohort/base/crc32c.h"
#include "cohort/base/strings.h"

namespace cohort::internal::archive {

static_assert(std::endian::native == std::endian::little, "arrays are written as they are");

namespace {

Hdf5Id copied(hid_t type) { return {H5Tcopy(type), H5Tclose}; }

// HDF5 knows half precision as a description only.
Hdf5Id half() {
  Hdf5Id type = copied(H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
  return type;
}

// As h5py has them.
Hdf5Id truth_values() {
  Hdf5Id type(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
  const signed char no = 0, yes = 1;
  H5Tenum_insert(type, "FALSE", &no);
  H5Tenum_insert(type, "TRUE", &yes);
  return type;
}

bool is_half(hid_t type) {
  size_t sign = 0, exponent_at = 0, exponent = 0, mantissa_at = 0, mantissa = 0;
  if (H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0) {
    return false;
  }
  return exponent == 5 && mantissa == 10 && H5Tget_ebias(type) == 15;
}

}  // namespace

Hdf5Id hdf5_type_of(DType dtype) {
  switch (dtype) {
    case DType::Float:
      return copied(H5T_IEEE_F32LE);
    case DType::Double:
      return copied(H5T_IEEE_F64LE);
    case DType::Long:
      return copied(H5T_STD_I64LE);
    case DType::Int:
      return copied(H5T_STD_I32LE);
    case DType::Short:
      return copied(H5T_STD_I16LE);
    case DType::Char:
      return copied(H5T_STD_I8LE);
    case DType::Byte:
      return copied(H5T_STD_U8LE);
    case DType::Bool:
      return truth_values();
    case DType::Half:
      return half();
    case DType::BFloat16:
      return {H5Tcreate(H5T_OPAQUE, 2), H5Tclose};
    default:
      return {};
  }
}

std::optional<DType> dtype_of_hdf5(hid_t type) {
  const size_t bytes = H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      if (bytes == 2 && is_half(type)) return kFloat16;
      if (bytes == 4) return kFloat32;
      if (bytes == 8) return kFloat64;
      return {};
    case H5T_INTEGER: {
      const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
      if (bytes == 1) return is_signed ? DType::Char : DType::Byte;
      if (!is_signed) return {};
      if (bytes == 2) return DType::Short;
      if (bytes == 4) return DType::Int;
      if (bytes == 8) return DType::Long;
      return {};
    }
    case H5T_ENUM:
      if (bytes == 1) return kBool;
      return {};
    case H5T_OPAQUE:
      if (bytes == 2) return kBFloat16;
      return {};
    default:
      return {};
  }
}

Hdf5Id memory_type_of(DType dtype, hid_t type) {
  // Bytes as they are: there is nothing to convert.
  if (dtype == kBool || dtype == kBFloat16) return copied(type);
  return hdf5_type_of(dtype);
}

uint32_t array_sum(const std::string& path, DType dtype, const Tensor& values) {
  const std::string what = str_cat(path, " ", dtype_name(dtype), bracketed(values.sizes()));
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  return base::crc32c({bytes, values.nbytes()}, base::crc32c(what));
}

}  // namespace cohort::internal::archive
