// SPDX-License-Identifier: Apache-2.0
//
// Groups of arrays in an HDF5 file, in memory: the profile that Keras writes and h5py opens (old
// groups, contiguous little-endian arrays).
//
//   Hdf5Writer out;
//   out.add_group("layers/dense/vars", "dense");
//   out.add("layers/dense/vars/0", kernel);
//   FileBytes bytes = std::move(out).finish();
//   Hdf5Reader in("load_weights", "x.weights.h5", std::move(bytes));
//   Tensor same = in.read("layers/dense/vars/0");
//
// Threads, of both: one at a time has an object; different objects at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cohort/archive/checked_bytes.h"
#include "cohort/archive/file_bytes.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::archive {

/// The most members of one group that are read.
inline constexpr uint64_t kMostMembers = 10'000;

class Hdf5Writer {
 public:
  /// `bytes`: what the arrays are going to take; a guess that is too small costs copies.
  explicit Hdf5Writer(std::size_t bytes = 0);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// Makes a group, and those above it, with the text as its attribute "name".
  void add_group(const std::string& path, const std::string& name);
  /// Copies an array into a group that is there, with its checksum as an attribute, which readers
  /// other than ours ignore. bfloat16 is kept as Keras does: opaque, and an attribute says what.
  /// Errors: InvalidArgument for an undefined tensor, and a dtype that such files have not.
  void add(const std::string& path, const Tensor& values);
  FileBytes finish() &&;

 private:
  struct File;
  const std::unique_ptr<File> file_;
};

class Hdf5Reader {
 public:
  struct Array {
    DType dtype = kFloat32;
    Shape shape = {};
  };

  /// Looks at everything in the file; reads no array. `shown`: the path that errors name.
  /// Errors: DataLoss for what is no HDF5 file, is damaged, has links to elsewhere or in a circle,
  ///         arrays whose bytes are in other files, filters that are not HDF5's own, arrays that
  ///         are a hundred times as large as what is stored of them, more than kMostMembers in a
  ///         group, 100,000 objects or 100 levels.
  Hdf5Reader(const char* operation, std::string shown, FileBytes bytes);
  /// The same of bytes that are read when they are wanted.
  Hdf5Reader(const char* operation, std::string shown, std::unique_ptr<CheckedBytes> bytes);
  ~Hdf5Reader();
  Hdf5Reader(const Hdf5Reader&) = delete;
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  /// By path: "layers/dense/vars/0". Arrays of types that tensors have not (texts) are left out.
  const std::map<std::string, Array>& arrays() const { return arrays_; }
  /// Errors: DataLoss, also where the array's checksum, if it has one, says that it has changed.
  Tensor read(const std::string& path) const;
  /// Into memory that is there. `out`: of the array's shape and dtype, contiguous, on the host; not
  /// of bools. Errors: as read(); what is in `out` is then any of both.
  void read_into(const std::string& path, const Tensor& out) const;

 private:
  struct File;
  void open();
  const std::unique_ptr<File> file_;
  std::map<std::string, Array> arrays_;
};

}  // namespace cohort::internal::archive
