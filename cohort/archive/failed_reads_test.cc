// SPDX-License-Identifier: Apache-2.0
//
// What an HDF5 reader says when reads fail, one after the other and for different reasons.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/archive/hdf5_file.h"
#include "cohort/archive/internal/hdf5_library.h"
#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::archive {
namespace {

using testing::expect_error;

constexpr hsize_t kSize = 100'000;

void add_array(hid_t file, const char* name, float value, bool summed) {
  const hid_t space = H5Screate_simple(1, &kSize, nullptr);
  const hid_t made = H5Pcreate(H5P_DATASET_CREATE);
  if (summed) {
    H5Pset_chunk(made, 1, &kSize);
    H5Pset_fletcher32(made);
  }
  const hid_t array = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
  const std::vector<float> values(kSize, value);
  ASSERT_GE(H5Dwrite(array, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  H5Dclose(array);
  H5Pclose(made);
  H5Sclose(space);
}

// As another program writes one: without our sums. "summed" is damaged, which its own sum says.
std::string damaged_file() {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_core(access, 1 << 16, 0);
  const hid_t file = H5Fcreate("damaged", H5F_ACC_TRUNC, H5P_DEFAULT, access);
  add_array(file, "plain", 1.25F, false);
  add_array(file, "summed", 2.5F, true);
  H5Fflush(file, H5F_SCOPE_LOCAL);
  std::string bytes(static_cast<std::size_t>(H5Fget_file_image(file, nullptr, 0)), '\0');
  H5Fget_file_image(file, bytes.data(), bytes.size());
  H5Fclose(file);
  H5Pclose(access);
  const std::size_t begin = bytes.find(std::string("\0\0\x20\x40\0\0\x20\x40", 8));
  bytes[begin + 20'000] ^= 1;
  return bytes;
}

TEST(Hdf5Reader, SaysOfEachFailedReadWhyThatOneFailed) {
  const std::string bytes = damaged_file();
  bool is_gone = false;
  const auto read = [&](uint64_t place, void* out, std::size_t count) {
    if (is_gone) throw Error(ErrorCode::kInternal, "the disk is gone");
    bytes.copy(static_cast<char*>(out), count, static_cast<std::size_t>(place));
  };
  const Hdf5Reader in(
      "load_weights", "x.weights.h5",
      std::make_unique<CheckedBytes>("load_weights", "x.weights.h5", bytes.size(), read));
  is_gone = true;
  expect_error<Error>({"the disk is gone"}, [&] { in.read("plain"); });
  is_gone = false;
  expect_error<DataLoss>({"[load_weights] x.weights.h5", "\"summed\" cannot be read"},
                         [&] { in.read("summed"); });
  EXPECT_TRUE(in.read("plain").equal(full({static_cast<int64_t>(kSize)}, 1.25F)));
}

}  // namespace
}  // namespace cohort::internal::archive
