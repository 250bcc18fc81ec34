// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a file, or of a part of one.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace cohort::internal::archive {

/// Owns: the bytes, whose value is unknown until they are written.
struct FileBytes {
  FileBytes() = default;
  explicit FileBytes(std::size_t bytes)
      : data(std::make_unique_for_overwrite<char[]>(bytes)), size(bytes) {}
  std::string_view view() const { return {data.get(), size}; }

  std::unique_ptr<char[]> data = {};
  std::size_t size = 0;
};

}  // namespace cohort::internal::archive
